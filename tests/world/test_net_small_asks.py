"""Short bulk answers over the link that is there; what does not fit goes the usual way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
from net_lab import LabNode, Note, close_all, lab_grid, run, until

from sureline.world.net.bulk_wire import BulkRefusedError
from sureline.world.net.control import SmallAnswer
from sureline.world.net.interfaces import FileRegion
from sureline.world.net.small_asks import (
    REASON_CHARS_MAX,
    SMALL_BYTES,
    UNDER_WAY_MAX,
    UNDER_WAY_OF_LINK_MAX,
)

GRID = lab_grid()


@asynccontextmanager
async def linked(handler: Callable | None) -> AsyncIterator[tuple[LabNode, LabNode]]:
    """Two nodes that have spoken with each other."""
    asking = await LabNode.start(GRID.credentials("asking"))
    source = await LabNode.start(GRID.credentials("source"), bulk=handler)
    asking.say(source, Note(1))
    await until(lambda: source.heard)
    yield asking, source
    await close_all(asking, source)


async def size(identity, request):
    return b"to " + identity.name.encode(), bytes(int(request))


async def ask(asking: LabNode, source: LabNode, request: bytes) -> tuple[bytes, bytes]:
    header, body = await asking.transport.ask_bulk(source.node, request, short=True)
    return header, bytes(body)


def bulk_connections(source: LabNode) -> int:
    return len(source.transport._bulk_server)


def test_a_short_answer_takes_no_connection_of_its_own():
    async def test():
        async with linked(size) as (asking, source):
            assert await ask(asking, source, b"1000") == (b"to asking", bytes(1000))
            answers = await asyncio.gather(*(ask(asking, source, b"10") for _ in range(10)))
            assert answers == 10 * [(b"to asking", bytes(10))]
            assert bulk_connections(source) == 0
            assert asking.heard == [], "it is no message of an agent"

    run(test())


def test_a_longer_one_comes_as_usual_and_so_does_one_without_a_link():
    async def test():
        async with linked(size) as (asking, source):
            request = str(SMALL_BYTES).encode()  # the header is in its way
            assert await ask(asking, source, request) == (b"to asking", bytes(SMALL_BYTES))
            assert bulk_connections(source) == 1
        asking = await LabNode.start(GRID.credentials("asking"))
        source = await LabNode.start(GRID.credentials("source"), bulk=size)
        assert await ask(asking, source, b"3") == (b"to asking", bytes(3))
        assert bulk_connections(source) == 1

    run(test())


def test_parts_of_files_are_read_and_one_that_is_shorter_than_said_is_refused(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(bytes(range(200)))

    async def read(identity, request):
        start, count = map(int, request.split())
        return b"", FileRegion(str(path), start, count)

    async def test():
        async with linked(read) as (asking, source):
            assert await ask(asking, source, b"20 30") == (b"", bytes(range(20, 50)))
            with pytest.raises(BulkRefusedError, match="it failed there"):
                await ask(asking, source, b"190 30")
            assert bulk_connections(source) == 0

    run(test())


def test_refusals_and_failures_reach_the_one_who_asks():
    async def handler(identity, request):
        if request == b"secret":
            raise BulkRefusedError("that is not for you")
        raise KeyError("a bug")

    async def test():
        async with linked(handler) as (asking, source):
            with pytest.raises(BulkRefusedError, match="that is not for you"):
                await ask(asking, source, b"secret")
            with pytest.raises(BulkRefusedError, match="it failed there"):
                await ask(asking, source, b"bug")

    run(test())


def test_what_was_asked_over_a_link_that_breaks_is_asked_again():
    asked: list[bytes] = []

    async def slowly(identity, request):
        asked.append(request)
        if len(asked) == 1:
            await asyncio.Event().wait()
        return b"", request

    async def test():
        async with linked(slowly) as (asking, source):
            waiting = asyncio.ensure_future(ask(asking, source, b"what"))
            await until(lambda: asked)
            for link in source.transport.links():
                link.stream.abort("broken")
            assert await waiting == (b"", b"what")
            assert len(asked) == 2
            await until(lambda: not source.transport._small_asks._answering)

    run(test())


def test_one_link_may_have_so_many_answered_at_a_time_and_the_rest_goes_elsewhere():
    gate = asyncio.Event()
    most = 0

    async def test():
        nonlocal most
        under_way = 0

        async def wait(identity, request):
            nonlocal most, under_way
            under_way += 1
            most = max(most, len(source.transport._small_asks._answering))
            await gate.wait()
            return b"", request

        async with linked(wait) as (asking, source):
            count = UNDER_WAY_OF_LINK_MAX + 5
            waiting = [asyncio.ensure_future(ask(asking, source, b"%d" % n)) for n in range(count)]
            await until(lambda: under_way > UNDER_WAY_OF_LINK_MAX)
            gate.set()
            answers = await asyncio.gather(*waiting)
            assert [int(body) for _, body in answers] == list(range(count))
        assert most == UNDER_WAY_OF_LINK_MAX

    run(test())


def test_answers_that_nobody_asked_for_are_dropped():
    async def test():
        async with linked(size) as (asking, source):
            [link] = source.transport.links()
            for number in range(UNDER_WAY_MAX):
                source.transport.say(link, SmallAnswer(number, b"", b"a lie"))
            source.say(asking, Note(1))
            await until(lambda: asking.heard)
            assert await ask(asking, source, b"4") == (b"to asking", bytes(4))
            assert not asking.transport._small_asks._asked

    run(test())


def test_a_refusal_is_cut_to_length():
    async def test():
        async with linked(None) as (asking, source):
            [link] = source.transport.links()
            lie = lambda of, asked: source.transport.say(  # noqa: E731 - stands in for a method
                link, SmallAnswer(asked.number, refused="no" * 100_000)
            )
            source.transport._small_asks.heard = lie
            with pytest.raises(BulkRefusedError) as told:
                await ask(asking, source, b"1")
            assert len(str(told.value)) == REASON_CHARS_MAX

    run(test())
