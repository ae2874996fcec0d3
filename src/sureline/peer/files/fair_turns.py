"""Turns among peers who ask at the same time: a bounded number at once, each peer in turn."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator


class TooManyError(Exception):
    """This peer, or all together, have too many requests waiting."""


class Turns:
    """At most `at_once` hold a turn, and at most `waiting_max` of one peer (`total_max` of all)
    wait for one. When a turn is free, the peer that has waited longest since its last gets it."""

    def __init__(self, at_once: int, waiting_max: int, total_max: int) -> None:
        self._free = at_once
        self._waiting_max = waiting_max
        self._total_max = total_max
        self._total = 0
        self._queues: dict[str, deque[asyncio.Future[None]]] = {}

    @contextlib.asynccontextmanager
    async def turn(self, peer: str) -> AsyncIterator[None]:
        """Raises TooManyError at once if the queues are full."""
        await self._wait(peer)
        try:
            yield
        finally:
            self._free += 1
            self._next()

    async def _wait(self, peer: str) -> None:
        if self._free and not self._queues:
            self._free -= 1
            return
        queue = self._queues.setdefault(peer, deque())
        if len(queue) >= self._waiting_max or self._total >= self._total_max:
            if not queue:
                del self._queues[peer]
            raise TooManyError(peer)
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        queue.append(mine)
        self._total += 1
        try:
            await mine
        except asyncio.CancelledError:
            if mine.done() and not mine.cancelled():
                self._free += 1  # the turn came in the same moment; pass it on
                self._next()
            raise

    def _next(self) -> None:
        while self._free and self._queues:
            peer, queue = next(iter(self._queues.items()))
            del self._queues[peer]
            mine = queue.popleft()
            self._total -= 1
            if queue:
                self._queues[peer] = queue  # to the end of the line
            if not mine.done():
                self._free -= 1
                mine.set_result(None)
