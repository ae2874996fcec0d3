"""Joining a grid whose peers are slow: as long as somebody says something, it goes on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from sureline.compose import node as node_module
from sureline.compose.node import LiveNode
from sureline.world.awake import AwakeTime

CONTACTS = ["p0@127.0.0.1:1"]


class SlowGrid:
    """As much of a node as waits: `speaks` says whether others do."""

    def __init__(self, *, speaks: bool) -> None:
        loop = asyncio.get_running_loop()
        self.world = SimpleNamespace(loop=loop)
        heard = loop.time if speaks else lambda: 0.0
        self.transport = SimpleNamespace(awake=AwakeTime(loop.time), heard_at=heard)
        self.home = SimpleNamespace(grid="lab")
        self._met = loop.create_future()
        self.told: list[str] = []

    async def meet(self) -> bool:
        return await LiveNode._has_met_in_time(self, CONTACTS, self.told.append)


@pytest.fixture(autouse=True)
def short(monkeypatch):
    monkeypatch.setattr(node_module, "JOIN_S", 0.3)
    monkeypatch.setattr(node_module, "JOIN_TOLD_S", 0.1)
    monkeypatch.setattr(node_module, "LOOK_S", 0.02)


def test_a_grid_that_is_slow_but_speaks_is_waited_for():
    async def main() -> None:
        grid = SlowGrid(speaks=True)
        asyncio.get_running_loop().call_later(0.9, grid._met.set_result, 3)
        assert await grid.meet()
        (said,) = grid.told
        assert "slow to answer" in said
        assert "p0" in said

    asyncio.run(main())


def test_a_grid_that_says_nothing_is_given_up():
    async def main() -> None:
        grid = SlowGrid(speaks=False)
        assert not await grid.meet()
        assert grid.told == ["waits for a peer of grid lab to answer: asks p0"]

    asyncio.run(main())


def test_even_one_that_speaks_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(node_module, "JOIN_S_MAX", 0.5)

    async def main() -> None:
        assert not await SlowGrid(speaks=True).meet()

    asyncio.run(main())
