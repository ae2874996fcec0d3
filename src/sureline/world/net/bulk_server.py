"""Answering bulk requests of other nodes."""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Protocol

from sureline.world.address import Node
from sureline.world.net.bulk_wire import OK, PREFIX, REFUSED, BulkRefusedError
from sureline.world.net.codec import HEADER_BYTES, BadFrameError, body_size
from sureline.world.net.interfaces import BulkBody, BulkHandler, FileRegion
from sureline.world.net.limits import WRITE_BYTES, Limits
from sureline.world.net.tls import RECORD_BYTES, TlsStream

if TYPE_CHECKING:
    from sureline.world.identity.certificates import Identity

PIECE_BYTES = 1 << 18
"""What is read from a file at a time: small enough for a processor's cache."""
_NOWAIT: int = getattr(os, "RWF_NOWAIT", 0)
REASON_BYTES_MAX = 500


class BulkServerOwner(Protocol):
    loop: asyncio.AbstractEventLoop
    limits: Limits

    def complain(self, kind: str, source: str, text: str) -> None: ...


class BulkServer:
    """All bulk connections that others have opened to this node."""

    def __init__(self, owner: BulkServerOwner, handler: BulkHandler | None) -> None:
        self.owner = owner
        self.handler = handler
        self._served: dict[_Served, None] = {}

    def __len__(self) -> int:
        return len(self._served)

    def admit(self, stream: TlsStream, node: Node, identity: Identity) -> None:
        """Take the stream over, or close it."""
        if self.handler is None:
            stream.close("there is no bulk data here")
            return
        if len(self._served) >= self.owner.limits.bulk_served_max:
            idle = [served for served in self._served if served.idle]
            if not idle:
                stream.close("too many bulk connections")
                return
            min(idle, key=lambda served: served.used_at).stream.close("others want to be served")
        served = _Served(self, self.handler, stream, node, identity)
        self._served[served] = None
        stream.user = served

    def gone(self, served: _Served) -> None:
        self._served.pop(served, None)

    def drop(self, peer_name: str) -> None:
        for served in list(self._served):
            if served.identity.name == peer_name:
                served.stream.abort("that peer is refused from now on")

    def streams(self) -> list[tuple[Identity, TlsStream]]:
        return [(served.identity, served.stream) for served in self._served]

    def sweep(self, now: float) -> None:
        """Cut those that do not take what they asked for, and those that ask no more."""
        limits = self.owner.limits
        for served in list(self._served):
            if served.idle:
                # The one who asks closes first; this is for those that do not.
                if now - served.used_at > 2 * limits.bulk_idle_s:
                    served.stream.close("it asks no more")
            elif served.stream.writing_paused and now - served.used_at > limits.bulk_answer_s:
                served.stream.abort("it does not take its answer")

    def close(self) -> None:
        for served in list(self._served):
            served.stream.abort("this node goes away")


class _Served:
    """One connection. Requests are answered one after the other; a few may wait."""

    __slots__ = (
        "_buffer",
        "_handler",
        "_node",
        "_requests",
        "_room",
        "_server",
        "_task",
        "identity",
        "stream",
        "used_at",
    )

    def __init__(
        self,
        server: BulkServer,
        handler: BulkHandler,
        stream: TlsStream,
        node: Node,
        identity: Identity,
    ) -> None:
        self.identity = identity
        self.stream = stream
        self.used_at = server.owner.loop.time()
        self._server = server
        self._handler = handler
        self._node = node
        self._buffer = bytearray()
        self._requests: deque[bytes] = deque()
        self._task: asyncio.Task[None] | None = None
        self._room: asyncio.Future[None] | None = None

    @property
    def idle(self) -> bool:
        return self._task is None

    # What the stream calls.

    def secured(self) -> None:
        raise AssertionError("a bulk stream is secure from the start")

    def readable(self) -> None:
        limits = self._server.owner.limits
        while True:
            if len(self._requests) >= limits.bulk_pipeline:
                self.stream.pause_reading()
                return
            data = self.stream.read(RECORD_BYTES)
            if not data:
                return
            self._buffer += data
            try:
                self._cut_requests(limits.bulk_request_bytes_max)
            except BadFrameError as error:
                text = f"{self._node} sent a bad bulk request: {error}"
                self._server.owner.complain("bad frame", self._node, text)
                self.stream.abort("it sent a bad request")
                return

    def writable(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    def lost(self, why: str) -> None:
        self._server.gone(self)
        if self._task is not None:
            self._task.cancel()

    # Within.

    def _cut_requests(self, size_max: int) -> None:
        while len(self._buffer) >= HEADER_BYTES:
            end = HEADER_BYTES + body_size(self._buffer, size_max)
            if len(self._buffer) < end:
                return
            self._requests.append(bytes(self._buffer[HEADER_BYTES:end]))
            del self._buffer[:end]
            if self._task is None:
                self._task = self._server.owner.loop.create_task(self._work())

    async def _work(self) -> None:
        try:
            while self._requests and not self.stream.closing:
                await self._answer(self._requests.popleft())
                self.used_at = self._server.owner.loop.time()
                self.stream.resume_reading()
        except OSError as error:
            text = f"the answer to {self._node} broke off: {error}"
            self._server.owner.complain("bulk", self._node, text)
            self.stream.abort("the answer broke off")
        finally:
            self._task = None

    async def _answer(self, request: bytes) -> None:
        limits = self._server.owner.limits
        try:
            header, body = await self._handler(self.identity, request)
            size = body.size_bytes if isinstance(body, FileRegion) else memoryview(body).nbytes
            if size > limits.bulk_body_bytes_max or len(header) > limits.bulk_header_bytes_max:
                raise ValueError(f"an answer of {len(header)} + {size} bytes is too long")
        except BulkRefusedError as error:
            self._refuse(str(error))
        except Exception as error:
            text = f"a bulk request of {self._node} failed here: {error!r}"
            self._server.owner.complain("bulk", self._node, text)
            self._refuse("it failed there")
        else:
            self.stream.write(PREFIX.pack(OK, len(header), size) + header)
            await self._send(body)

    def _refuse(self, reason: str) -> None:
        said = reason.encode()[:REASON_BYTES_MAX]
        self.stream.write(PREFIX.pack(REFUSED, len(said), 0) + said)

    async def _send(self, body: BulkBody) -> None:
        if isinstance(body, FileRegion):
            async for piece in _pieces(self._server.owner.loop, body):
                await self._send_piece(piece)
        else:
            await self._send_piece(memoryview(body).cast("B"))

    async def _send_piece(self, piece: memoryview) -> None:
        for start in range(0, len(piece), WRITE_BYTES):
            self.stream.write(piece[start : start + WRITE_BYTES])
            self.used_at = self._server.owner.loop.time()
            if self.stream.writing_paused:
                self._room = self._server.owner.loop.create_future()
                await self._room


async def _pieces(loop: asyncio.AbstractEventLoop, region: FileRegion) -> AsyncIterator[memoryview]:
    """A file's part, piece by piece, each valid until the next. What the system has in memory is
    copied at once; for the rest another thread waits. Raises OSError."""
    file = await loop.run_in_executor(None, os.open, region.path, os.O_RDONLY)
    buffer = memoryview(bytearray(min(PIECE_BYTES, region.size_bytes)))
    try:
        for start in range(0, region.size_bytes, PIECE_BYTES):
            piece = buffer[: min(PIECE_BYTES, region.size_bytes - start)]
            offset = region.offset + start
            done = _read_what_is_there(file, piece, offset)
            if done < len(piece):
                reading = loop.run_in_executor(None, _read, file, piece[done:], offset + done)
                await _to_the_end(reading)
            yield piece
    finally:
        os.close(file)


async def _to_the_end(reading: asyncio.Future[None]) -> None:
    """Wait for a thread, also when cancelled: it still uses the file and the buffer."""
    try:
        await asyncio.shield(reading)
    except asyncio.CancelledError:
        await asyncio.wait([reading])
        raise


def _read_what_is_there(file: int, piece: memoryview, offset: int) -> int:
    """Read without waiting for a disk; how much that was."""
    if not _NOWAIT:
        return 0
    try:
        return os.preadv(file, [piece], offset, _NOWAIT)
    except OSError:
        return 0  # nothing is in memory, or this file system cannot say


def _read(file: int, piece: memoryview, offset: int) -> None:
    done = 0
    while done < len(piece):
        count = os.preadv(file, [piece[done:]], offset + done)
        if count == 0:
            raise OSError(f"the file ends {len(piece) - done} bytes too early")
        done += count
