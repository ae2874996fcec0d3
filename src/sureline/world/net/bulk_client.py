"""Asking other nodes for bulk data."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Protocol

from sureline.world.address import Node
from sureline.world.net.bulk_wire import (
    OK,
    PREFIX,
    BulkError,
    BulkLostError,
    BulkRefusedError,
)
from sureline.world.net.codec import HEADER_BYTES, Hello
from sureline.world.net.dialler import DialError
from sureline.world.net.limits import Limits
from sureline.world.net.opening import Opening
from sureline.world.net.tls import TlsStream
from sureline.world.net.ways import Ways

if TYPE_CHECKING:
    from sureline.world.identity.certificates import Identity

TRIES = 2
"""A warm connection may be closed by the other side just when it is used."""


class BulkClientOwner(Protocol):
    loop: asyncio.AbstractEventLoop
    limits: Limits


class BulkClient:
    """All bulk connections that this node has opened, kept warm for a while."""

    def __init__(self, owner: BulkClientOwner, ways: Ways) -> None:
        self._owner = owner
        self._ways = ways
        self._callers: dict[Node, list[_Caller]] = {}
        self._dialling: dict[Node, int] = {}
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._closed = False

    def __len__(self) -> int:
        opened = sum(len(callers) for callers in self._callers.values())
        return opened + sum(self._dialling.values())

    async def ask(
        self, node: Node, request: bytes, into: bytearray | memoryview | None
    ) -> tuple[bytes, memoryview]:
        """See `NetTransport.ask_bulk`."""
        size_max = self._owner.limits.bulk_request_bytes_max
        if len(request) > size_max:
            raise ValueError(f"a bulk request has at most {size_max} bytes, not {len(request)}")
        for _ in range(TRIES - 1):
            try:
                return await (await self._caller(node)).ask(request, into)
            except BulkLostError:
                pass
        return await (await self._caller(node)).ask(request, into)

    async def _caller(self, node: Node) -> _Caller:
        """A connection that has room for one more request. Raises BulkError."""
        limits = self._owner.limits
        while not self._closed:
            callers = [c for c in self._callers.get(node, ()) if not c.stream.closing]
            best = min(callers, key=lambda caller: caller.under_way, default=None)
            if best is not None and best.under_way == 0:
                return best
            opened = len(callers) + self._dialling.get(node, 0)
            if opened < limits.bulk_connections_per_node and self._room():
                await self._dial(node)
            elif best is not None and best.under_way < limits.bulk_pipeline:
                return best
            else:
                await self._wait()
        raise BulkError("this node goes away")

    def _room(self) -> bool:
        """Whether one more may be opened; the least recently used idle one makes room."""
        if len(self) < self._owner.limits.bulk_connections_max:
            return True
        idle = [c for callers in self._callers.values() for c in callers if c.under_way == 0]
        if not idle:
            return False
        oldest = min(idle, key=lambda caller: caller.used_at)
        self._forget(oldest)
        oldest.stream.close("another one is needed more")
        return True

    async def _dial(self, node: Node) -> None:
        def opened(opening: Opening, hello: Hello) -> None:
            caller = _Caller(self, self._owner, node, opening)
            opening.stream.user = caller
            self._callers.setdefault(node, []).append(caller)

        self._dialling[node] = self._dialling.get(node, 0) + 1
        try:
            await self._ways.open(node, opened, bulk=True, wanted=lambda: not self._closed)
        except DialError as error:
            raise BulkError(f"{node} cannot be reached: {error}") from None
        finally:
            self._dialling[node] -= 1
            if not self._dialling[node]:
                del self._dialling[node]
            self.some_room()

    async def _wait(self) -> None:
        if len(self._waiting) >= self._owner.limits.bulk_waiting_max:
            raise BulkError("too many bulk requests wait")
        turn: asyncio.Future[None] = self._owner.loop.create_future()
        self._waiting.append(turn)
        await turn

    def some_room(self) -> None:
        """Let all look again who wait: there are few, and it is rarely theirs to guess."""
        waiting, self._waiting = self._waiting, deque()
        for turn in waiting:
            if not turn.done():
                turn.set_result(None)

    def gone(self, caller: _Caller) -> None:
        self._forget(caller)
        self.some_room()

    def _forget(self, caller: _Caller) -> None:
        callers = self._callers.get(caller.node, [])
        if caller in callers:
            callers.remove(caller)
            if not callers:
                del self._callers[caller.node]

    def drop(self, peer_name: str) -> None:
        for caller in self._all():
            if caller.identity.name == peer_name:
                caller.stream.abort("that peer is refused from now on")

    def streams(self) -> list[tuple[Identity, TlsStream]]:
        return [(caller.identity, caller.stream) for caller in self._all()]

    def _all(self) -> list[_Caller]:
        return [caller for callers in self._callers.values() for caller in callers]

    def sweep(self, now: float) -> None:
        """Close those that are not used, cut those that do not answer."""
        limits = self._owner.limits
        for caller in self._all():
            quiet_s = now - caller.used_at
            if caller.under_way == 0 and quiet_s > limits.bulk_idle_s:
                self._forget(caller)
                caller.stream.close("it is not used")
            elif caller.under_way and caller.through and quiet_s > limits.bulk_relayed_s:
                self._ways.failed(caller.through)  # another one may carry better
                caller.stream.abort(f"no answer for {limits.bulk_relayed_s:g} s")
            elif caller.under_way and quiet_s > limits.bulk_answer_s:
                caller.stream.abort(f"no answer for {limits.bulk_answer_s:g} s")

    def close(self) -> None:
        self._closed = True
        for caller in self._all():
            caller.stream.abort("this node goes away")
        self.some_room()


class _Ask:
    """One request under way."""

    __slots__ = ("answer", "body", "filled", "header", "into")

    def __init__(
        self, loop: asyncio.AbstractEventLoop, into: bytearray | memoryview | None
    ) -> None:
        self.answer: asyncio.Future[tuple[bytes, memoryview]] = loop.create_future()
        self.into = into
        self.header: bytes | None = None
        self.body: memoryview | None = None
        self.filled = 0

    def let_go(self) -> None:
        """Nobody waits any more: the caller's buffer is his own again."""
        self.into = None
        if self.body is not None:
            self.body = memoryview(bytearray(len(self.body)))


class _Caller:
    """One connection; answers come in the order of the requests."""

    __slots__ = (
        "_asks",
        "_client",
        "_owner",
        "_start",
        "_status",
        "identity",
        "node",
        "stream",
        "through",
        "used_at",
    )

    def __init__(
        self,
        client: BulkClient,
        owner: BulkClientOwner,
        node: Node,
        opening: Opening,
    ) -> None:
        assert opening.identity is not None
        self.node = node
        self.stream = opening.stream
        self.identity: Identity = opening.identity
        self.through = opening.through
        self.used_at = owner.loop.time()
        self._client = client
        self._owner = owner
        self._asks: deque[_Ask] = deque()
        self._start = bytearray()
        """The prefix and header of the answer that comes."""
        self._status = OK

    @property
    def under_way(self) -> int:
        return len(self._asks)

    async def ask(
        self, request: bytes, into: bytearray | memoryview | None
    ) -> tuple[bytes, memoryview]:
        if not self._asks:
            self.used_at = self._owner.loop.time()
        asked = _Ask(self._owner.loop, into)
        self._asks.append(asked)
        self.stream.write(len(request).to_bytes(HEADER_BYTES, "big") + request)
        try:
            return await asked.answer
        except asyncio.CancelledError:
            asked.let_go()
            raise

    # What the stream calls.

    def secured(self) -> None:
        raise AssertionError("a bulk stream is secure from the start")

    def readable(self) -> None:
        while self._asks:
            asked = self._asks[0]
            if asked.body is None:
                if not self._read_start(asked):
                    return
            elif asked.filled < len(asked.body):
                count = self.stream.read_into(asked.body[asked.filled :])
                if not count:
                    return
                asked.filled += count
                self.used_at = self._owner.loop.time()
            if asked.body is not None and asked.filled == len(asked.body):
                self._complete(asked)
        if self.stream.pending and self.stream.read(1):
            self.stream.abort("it answers what nobody asked")

    def writable(self) -> None:
        pass  # requests are small and few

    def lost(self, why: str) -> None:
        self._client.gone(self)
        asks, self._asks = self._asks, deque()
        for asked in asks:
            if not asked.answer.done():
                asked.answer.set_exception(BulkLostError(f"{self.node}: {why}"))

    # Within.

    def _read_start(self, asked: _Ask) -> bool:
        """Read on in the prefix and header; False if there is no more for now."""
        needed = PREFIX.size
        if len(self._start) >= needed:
            self._status, header_bytes, body_bytes = PREFIX.unpack_from(self._start)
            limits = self._owner.limits
            if header_bytes > limits.bulk_header_bytes_max:
                return self._abort(f"a header of {header_bytes} bytes is too long")
            if body_bytes > limits.bulk_body_bytes_max:
                return self._abort(f"a body of {body_bytes} bytes is too long")
            needed += header_bytes
            if len(self._start) == needed:
                asked.header = bytes(self._start[PREFIX.size :])
                self._start.clear()
                return self._make_body(asked, body_bytes)
        data = self.stream.read(needed - len(self._start))
        self._start += data
        return bool(data)

    def _make_body(self, asked: _Ask, size_bytes: int) -> bool:
        if asked.into is None:
            asked.body = memoryview(bytearray(size_bytes))
        elif len(asked.into) < size_bytes:
            return self._abort(f"a body of {size_bytes} bytes does not fit the buffer")
        else:
            asked.body = memoryview(asked.into)[:size_bytes]
        return True

    def _abort(self, why: str) -> bool:
        self.stream.abort(why)
        return False

    def _complete(self, asked: _Ask) -> None:
        self._asks.popleft()
        assert asked.header is not None and asked.body is not None
        if not asked.answer.done():
            if self._status == OK:
                asked.answer.set_result((asked.header, asked.body))
            else:
                reason = asked.header.decode(errors="replace")
                asked.answer.set_exception(BulkRefusedError(reason))
        self._client.some_room()
