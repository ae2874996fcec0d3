"""Asking one node about a file, in typed words; answers are checked as far as they can be alone."""

from __future__ import annotations

import asyncio
from collections import deque
from types import TracebackType
from typing import NamedTuple

import numpy as np
from blake3 import blake3

from sureline.peer.files.chunks import (
    CHUNK_BYTES_MAX,
    DIGEST_BYTES,
    Flags,
    chunk_count,
    chunk_span,
    from_bits,
)
from sureline.peer.files.wire import (
    AskChunk,
    AskList,
    BadAnswerError,
    Buffer,
    Bulk,
    Describe,
    Description,
    Question,
    Sent,
    Suspect,
    decode_answer,
    encode,
)
from sureline.world.address import Node
from sureline.world.usual import Usual

ASK_S = 10.0
ASK_USUAL = 3
"""Or so many times what it takes usually."""
"""A short answer takes no longer than this, or it is none."""
CHUNK_S = 180.0
"""The longest that a chunk may take, over the slowest link."""


class FileOffer(NamedTuple):
    """What a node says that it has. Two nodes whose `key` differs do not mean the same file."""

    size: int
    list_digest: bytes
    complete: bool
    has: Flags
    handed: Flags
    others: tuple[Node, ...]
    content: bytes | None
    """The file itself, if it is one chunk and that was asked for; not verified."""

    @property
    def key(self) -> tuple[int, bytes]:
        return self.size, self.list_digest


class Buffers:
    """A bounded number of buffers for one chunk each, handed out in the order asked."""

    def __init__(self, count: int) -> None:
        self._free: deque[bytearray] = deque()
        self._room = asyncio.Semaphore(count)

    async def take(self) -> _Held:
        await self._room.acquire()
        return _Held(self, self._free.pop() if self._free else bytearray(CHUNK_BYTES_MAX))

    def give_back(self, buffer: bytearray | None) -> None:
        if buffer is not None:
            self._free.append(buffer)
        self._room.release()


class _Held:
    """A buffer in use. Left by an exception, it is not used again: somebody may still write to
    it."""

    def __init__(self, pool: Buffers, buffer: bytearray) -> None:
        self._pool = pool
        self.buffer = buffer

    def __enter__(self) -> bytearray:
        return self.buffer

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._pool.give_back(self.buffer if kind is None else None)


class FileAsker:
    """All methods raise one of NO_ANSWER, BadAnswerError or RefusedError."""

    def __init__(self, bulk: Bulk, me: Node) -> None:
        self._bulk = bulk
        self._me = me
        self.usual = Usual()
        """Until it is known what somebody has."""

    async def _ask(
        self,
        node: Node,
        question: Question,
        limit_s: float,
        into: bytearray | None = None,
        *,
        short: bool = False,
    ) -> tuple[Description | Sent, Buffer]:
        asked = self._bulk.ask_bulk(node, encode(question), into, short=short)
        header, body = await asyncio.wait_for(asked, limit_s)
        return decode_answer(header), body

    async def describe(
        self, node: Node, digest: str, *, inline: bool = False, short: bool = False
    ) -> FileOffer:
        """`short` if the file is known to be, and comes `inline`."""
        time_s = asyncio.get_running_loop().time
        asked_s, limit_s = time_s(), max(ASK_S, ASK_USUAL * self.usual.within_s(0.0))
        asked = Describe(digest, inline, self._me)
        found, body = await self._ask(node, asked, limit_s, short=short)
        self.usual.took(time_s() - asked_s)
        if not isinstance(found, Description):
            raise BadAnswerError("no description")
        count = chunk_count(found.size)
        if count == 1:
            every: Flags = np.ones(1, dtype=np.bool_)
            content = bytes(body) if inline else None
            return FileOffer(found.size, b"", True, every, ~every, found.others, content)
        width = (count + 7) // 8
        if len(body) != (width if found.complete else 2 * width):
            raise BadAnswerError("maps of another number of chunks")
        handed = from_bits(bytes(body[-width:]), count)
        has = np.ones(count, dtype=np.bool_)
        if not found.complete:
            has = from_bits(bytes(body[:width]), count)
        return FileOffer(
            found.size, found.list_digest, found.complete, has, handed, found.others, None
        )

    async def chunk_list(self, node: Node, digest: str, size: int, list_digest: bytes) -> bytes:
        wanted = chunk_count(size) * DIGEST_BYTES
        pages: list[bytes] = []
        got = 0
        while got < wanted:
            answer, body = await self._ask(node, AskList(digest, got // DIGEST_BYTES), 3 * ASK_S)
            if not isinstance(answer, Sent) or not len(body) or len(body) % DIGEST_BYTES:
                raise BadAnswerError("no list of chunks")
            pages.append(bytes(body))
            got += len(body)
        found = b"".join(pages)
        if len(found) != wanted or blake3(found).digest() != list_digest:
            raise BadAnswerError("another list of chunks than announced")
        return found

    async def chunk(
        self, node: Node, digest: str, size: int, index: int, into: bytearray
    ) -> tuple[Buffer, Flags | None]:
        """The chunk, and what its source has given away lately, if it says so."""
        answer, body = await self._ask(node, AskChunk(digest, index), CHUNK_S, into)
        if not isinstance(answer, Sent) or len(body) != chunk_span(size, index)[1]:
            raise BadAnswerError("a chunk of another length")
        if not answer.handed:
            return body, None
        try:
            return body, from_bits(answer.handed, chunk_count(size))
        except ValueError as error:
            raise BadAnswerError(str(error)) from None

    async def complain(self, node: Node, digest: str) -> None:
        """Tell a node that its copy is wrong. It may be an honest one on a bad disk."""
        await self._ask(node, Suspect(digest), ASK_S)
