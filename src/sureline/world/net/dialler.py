"""Calling other nodes."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from random import random
from typing import Any

from sureline.world.address import NO_NODE, Node, endpoint_of
from sureline.world.awake import AwakeTime
from sureline.world.net.codec import Hello
from sureline.world.net.limits import Limits
from sureline.world.net.opening import Greeter, Opening, Wish

RETRY_PAUSES_S = (0.0, 0.1, 0.4)
"""Before each try. A refused connection is final; one that was accepted and then cut is not: the
other side may have had too many at its door."""


class DialError(Exception):
    """A call that failed. `may_help`: another try might succeed. `silent`: nobody is there, which
    is no news for a log. `refused`: the other machine says so itself. `unheard`: nothing was said,
    which proves nothing."""

    def __init__(
        self,
        why: str,
        *,
        may_help: bool = False,
        silent: bool = False,
        refused: bool = False,
        unheard: bool = False,
    ) -> None:
        super().__init__(why)
        self.may_help = may_help
        self.silent = silent
        self.refused = refused
        self.unheard = unheard


OnOpen = Callable[[Opening, Hello], None]


class Dialler:
    """Opens connections, a bounded number at a time, and few while this process is behind; the
    others wait for their turn. What it waits for has the time in which it is `awake`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        greeter: Greeter,
        limits: Limits,
        awake: AwakeTime,
    ) -> None:
        self._loop = loop
        self._awake = awake
        self._greeter = greeter
        self._limits = limits
        self._tasks: set[asyncio.Task[None]] = set()
        self._turn: deque[Callable[[], Coroutine[Any, Any, None]]] = deque()

    def soon(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do the work when it is its turn."""
        self._turn.append(work)
        self._next()

    def _next(self) -> None:
        limits = self._limits
        behind = self._awake.lag_s > limits.behind_s
        most = limits.dials_behind_max if behind else limits.dials_max
        while self._turn and len(self._tasks) < most:
            task = self._loop.create_task(self._turn.popleft()())
            self._tasks.add(task)
            task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            task.result()
        self._next()

    async def open(
        self, node: Node, on_open: OnOpen, wish: Wish, *, wanted: Callable[[], bool]
    ) -> None:
        """Call a node where it listens until it answers, a few times, while it is `wanted`.
        `on_open` takes the stream over, at once. Raises DialError."""
        failure = DialError("nobody is called there")
        for pause_s in RETRY_PAUSES_S:
            if pause_s:
                await asyncio.sleep(pause_s * (0.5 + random()))
            if not wanted():
                return
            try:
                await self.once(node, on_open, wish)
                return
            except DialError as error:
                failure = error
                if not error.may_help:
                    break
        raise failure

    async def once(self, node: Node, on_open: OnOpen, wish: Wish) -> None:
        """Like `open`, with one try."""
        opening, outcome = self.begin(node, on_open, wish)
        try:
            await self._awake.within(self._limits.connect_s, self._connect(node, opening))
            await self._awake.within(self._limits.handshake_s, outcome)
        except (OSError, TimeoutError, ValueError) as error:
            # ValueError: a host that cannot be one, which somebody may have made up
            opening.stream.abort("no answer in time")
            refused = isinstance(error, ConnectionRefusedError)
            number = error.errno if isinstance(error, OSError) else None
            why = os.strerror(number) if number else str(error) or "no answer in time"
            unheard = isinstance(error, TimeoutError)
            raise DialError(why, silent=True, refused=refused, unheard=unheard) from None
        except asyncio.CancelledError:
            opening.stream.abort("not wanted any more")
            raise

    def begin(
        self, node: Node, on_open: OnOpen, wish: Wish, through: Node = NO_NODE
    ) -> tuple[Opening, asyncio.Future[None]]:
        """A connection to be opened, and what becomes of it: nothing, or a DialError."""
        outcome: asyncio.Future[None] = self._loop.create_future()
        outcome.add_done_callback(_seen)  # who waits for it may have been cancelled

        def opened(opening: Opening, hello: Hello) -> None:
            on_open(opening, hello)
            if not outcome.done():
                outcome.set_result(None)

        def failed(opening: Opening, why: str, may_help: bool) -> None:
            if not outcome.done():
                outcome.set_exception(DialError(why, may_help=may_help))

        opening = Opening(
            self._greeter,
            self._loop.time(),
            target=node,
            wish=wish,
            on_open=opened,
            on_stranger=lambda opening: opening.stream.abort("it shows no certificate"),
            on_failed=failed,
            through=through,
        )
        return opening, outcome

    def _connect(self, node: Node, opening: Opening) -> Awaitable[object]:
        try:
            endpoint = endpoint_of(node)
        except ValueError as error:
            raise DialError(str(error), silent=True) from None  # somebody made it up
        return self._loop.create_connection(lambda: opening.stream, endpoint.host, endpoint.port)

    async def close(self) -> None:
        self._turn.clear()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _seen(outcome: asyncio.Future[None]) -> None:
    if not outcome.cancelled():
        outcome.exception()
