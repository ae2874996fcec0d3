"""Requests for files that wait: each peer in turn, and never too many."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from files_grid import MIB, Grid, content, on_grid, put, stored

from sureline.peer.files import finding
from sureline.peer.files.fair_turns import TooManyError, Turns
from sureline.peer.files.service import FetchError
from sureline.workflow.files import FileRecord


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


class Crowd:
    """Askers that hold their turn until a test lets them go."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.gate = asyncio.Event()
        self.begun: list[str] = []
        self.refused: list[str] = []

    async def ask(self, peer: str) -> None:
        try:
            async with self.turns.turn(peer):
                self.begun.append(peer)
                await self.gate.wait()
        except TooManyError:
            self.refused.append(peer)


@pytest.mark.parametrize(
    ("asks", "begun", "refused"),
    [
        ("aaaaaaaa", "aa", "aaa"),  # three of one peer wait
        ("aabbbbcccc", "aa", "bc"),  # three of each
        ("aabbbcccdddeee", "aa", "eee"),  # nine of all
    ],
)
def test_waiting_requests_are_bounded(asks: str, begun: str, refused: str) -> None:
    async def story() -> None:
        crowd = Crowd(Turns(at_once=2, waiting_max=3, total_max=9))
        tasks = [asyncio.ensure_future(crowd.ask(peer)) for peer in asks]
        await settle()
        assert ("".join(crowd.begun), "".join(crowd.refused)) == (begun, refused)
        crowd.gate.set()
        await asyncio.gather(*tasks)
        assert len(crowd.begun) == len(asks) - len(refused), "those who waited had their turn"

    asyncio.run(story())


def test_a_node_that_fetches_too_much_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(finding, "WAITING_MAX", 3)

    async def story(grid: Grid) -> None:
        a, b = grid.node("a"), grid.node("b")
        grid.hung.add(a.me)
        digests = [f"{number:064x}" for number in range(5)]
        fetches = [
            asyncio.ensure_future(b.fetch(FileRecord("f", digest, 5 * MIB), [a.me]))
            for digest in digests
        ]
        done, waiting = await asyncio.wait(fetches, return_when=asyncio.FIRST_EXCEPTION)
        while len(waiting) > 3:
            more, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_EXCEPTION)
            done |= more
        for one in done:
            with pytest.raises(FetchError, match="too many files"):
                one.result()
        assert len(done) == 2
        for one in waiting:
            one.cancel()
        await asyncio.wait(waiting)

    on_grid(tmp_path, story)


def test_a_short_file_on_its_way_is_had_from_sources_named_later(tmp_path: Path) -> None:
    async def story(grid: Grid) -> None:
        a, b, c = grid.node("a"), grid.node("b"), grid.node("c", serve=False)
        data = content(1000)
        record = await put(a, tmp_path, data)
        grid.dht.holders.clear()
        asked, gate = asyncio.Event(), asyncio.Event()

        describe = b._asker.describe

        async def slow(node: str, digest: str, **options: bool) -> object:
            if node == c.me:
                asked.set()
                await gate.wait()
            return await describe(node, digest, **options)

        b._asker.describe = slow  # type: ignore[method-assign, assignment]  # it only waits
        first = asyncio.ensure_future(b.fetch(record, [c.me]))
        await asyncio.wait_for(asked.wait(), 30)
        second = asyncio.ensure_future(b.fetch(record, [a.me]))
        while len(b._finder._hunts[record.digest].sources()) < 2:  # noqa: ASYNC110 - not an event
            await asyncio.sleep(0.001)
        gate.set()
        for got in await asyncio.gather(first, second):
            assert stored(b, got.file) == data

    on_grid(tmp_path, story)
