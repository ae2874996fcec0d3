"""Those without a certificate: machines that want to join.

A stranger sends one request (four bytes of length, then the request), gets one answer in the same
form, and is gone. Few at once, small, and soon over.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from sureline.world.net.codec import HEADER_BYTES, BadFrameError, body_size
from sureline.world.net.interfaces import StrangerHandler
from sureline.world.net.limits import Limits
from sureline.world.net.tls import TlsStream

Complain = Callable[[str, str, str], None]


class Strangers:
    """All strangers of a node."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: Limits,
        handler: StrangerHandler | None,
        complain: Complain,
    ) -> None:
        self.loop = loop
        self.limits = limits
        self.complain = complain
        self._handler = handler
        self._present: dict[_Stranger, None] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def admit(self, stream: TlsStream) -> bool:
        """Take the stream over; False if it is turned away."""
        address = stream.address
        if self._handler is None:
            self.complain("stranger", address, f"{address} was not let in: it has no certificate")
            stream.close("a certificate is needed here")
            return False
        if len(self._present) >= self.limits.strangers_max:
            self.complain("stranger", address, f"{address} was not let in: too many want to join")
            stream.close("too many want to join")
            return False
        stranger = _Stranger(self, stream, self._handler)
        stream.user = stranger
        self._present[stranger] = None
        self.loop.call_soon(stranger.readable)
        return True

    def answer(self, stranger: _Stranger, answering: asyncio.Task[None]) -> None:
        self._tasks.add(answering)
        answering.add_done_callback(self._tasks.discard)

    def gone(self, stranger: _Stranger) -> None:
        self._present.pop(stranger, None)

    def close(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        for stranger in list(self._present):
            stranger.stream.abort("this node goes away")


class _Stranger:
    __slots__ = ("_asked", "_buffer", "_handler", "_limit", "_strangers", "stream")

    def __init__(self, strangers: Strangers, stream: TlsStream, handler: StrangerHandler) -> None:
        self.stream = stream
        self._strangers = strangers
        self._handler = handler
        self._buffer = bytearray()
        self._asked = False
        self._limit = strangers.loop.call_later(strangers.limits.stranger_s, self._too_slow)

    def secured(self) -> None:
        raise AssertionError("a stranger's stream is secure from the start")

    def readable(self) -> None:
        size_max = self._strangers.limits.stranger_bytes_max
        while not self._asked:
            data = self.stream.read(HEADER_BYTES + size_max - len(self._buffer))
            if not data:
                return
            self._buffer += data
            if len(self._buffer) < HEADER_BYTES:
                continue
            try:
                size = body_size(self._buffer, size_max)
            except BadFrameError as error:
                self._cut(str(error))
                return
            if len(self._buffer) >= HEADER_BYTES + size:
                self._asked = True
                request = bytes(self._buffer[HEADER_BYTES : HEADER_BYTES + size])
                task = self._strangers.loop.create_task(self._answer(request))
                self._strangers.answer(self, task)

    async def _answer(self, request: bytes) -> None:
        try:
            answer = await self._handler(request, self.stream.address)
        except Exception as error:
            self._cut(f"its request failed: {error}")
            return
        self.stream.write(len(answer).to_bytes(HEADER_BYTES, "big") + answer)
        self.stream.close("it has its answer")

    def _too_slow(self) -> None:
        self._cut(f"not done within {self._strangers.limits.stranger_s:g} s")

    def _cut(self, why: str) -> None:
        address = self.stream.address
        self._strangers.complain("stranger", address, f"{address}, who wants to join: {why}")
        self.stream.abort(why)

    def writable(self) -> None:
        pass  # an answer fits any buffer

    def lost(self, why: str) -> None:
        self._limit.cancel()
        self._strangers.gone(self)
