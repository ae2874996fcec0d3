"""Answering other peers: what there is of a file, the digests of its chunks, and chunks.

Chunks of files that are still on their way in are served like those of stored ones. Who asked for
a file, and which chunks were given away, is remembered for a while, and told to whoever asks next:
so that those after the same file find each other, and ask for different chunks first.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

import msgspec
import numpy as np
from blake3 import blake3

from sureline.peer.content import hash_file
from sureline.peer.files.cache import FileCache
from sureline.peer.files.chunks import (
    CHUNK_BYTES_MAX,
    DIGEST_BYTES,
    DamagedChunkError,
    Flags,
    chunk_count,
    chunk_span,
    list_chunks,
    to_bits,
)
from sureline.peer.files.fair_turns import TooManyError, Turns
from sureline.peer.files.partial import Partial
from sureline.peer.files.wire import (
    HANDED_BYTES_MAX,
    OTHERS_MAX,
    AskChunk,
    AskList,
    Body,
    Describe,
    Description,
    FileRefused,
    Question,
    Sent,
    Suspect,
    decode_question,
    encode,
)
from sureline.world.address import NO_NODE, Node, PeerName, peer_of
from sureline.world.net.interfaces import FileRegion

T = TypeVar("T")
_log = logging.getLogger(__name__)

AT_ONCE = 8
WAITING_PER_PEER = 64
WAITING_MAX = 1024
SWARMS_MAX = 256
"""Of so many files, it is remembered who asked."""
REMEMBERED_S = 30.0
LISTS_MAX = 64
"""So many lists of chunks are kept in memory."""
SUSPECTED_S = 600.0
"""A copy that somebody complains of is looked at once in this time."""


class _Stored(msgspec.Struct, array_like=True, frozen=True):
    """A list of chunks on disk, for the file of that size and time."""

    size: int
    mtime_ns: int
    chunks: bytes


class _Swarm:
    """Those who are after one file."""

    def __init__(self, count: int) -> None:
        self.askers: dict[Node, float] = {}
        self.handed: Flags = np.zeros(count, dtype=np.bool_)

    def met(self, node: Node, now: float) -> tuple[Node, ...]:
        """Remember the one who asks; the others. What was given to those of another time is not
        to be found with anybody."""
        recent = [other for other, at in self.askers.items() if at > now - REMEMBERED_S]
        if not recent:
            self.handed[:] = False
        others = tuple(other for other in recent if other != node)
        if node:
            self.askers.pop(node, None)
            self.askers[node] = now
            while len(self.askers) > OTHERS_MAX:
                del self.askers[next(iter(self.askers))]
        return others[-OTHERS_MAX:]


class _Copy(NamedTuple):
    """What this node has of a file: a stored one, or one on its way in."""

    size: int
    chunks: bytes
    """The list, empty for a file of one chunk."""
    path: str
    partial: Partial | None


class Server:
    """`partials` are the files on their way in, by digest."""

    def __init__(self, cache: FileCache, threads: Executor, partials: dict[str, Partial]) -> None:
        self._cache = cache
        self._threads = threads
        self._partials = partials
        self.allow(AT_ONCE)
        self._swarms: dict[str, _Swarm] = {}
        self._lists: dict[str, _Stored] = {}
        self._listing: dict[str, asyncio.Future[_Stored | None]] = {}
        self._suspected: dict[str, float] = {}

    def allow(self, readers: int) -> None:
        """How many are served at a time; the others wait in turn. Before any is."""
        self._turns = Turns(readers, WAITING_PER_PEER, WAITING_MAX)

    async def answer(self, peer: PeerName, request: bytes) -> tuple[bytes, Body]:
        """Answer one request of an enrolled peer; never raises but for cancellation."""
        try:
            question: Question = decode_question(request)
        except msgspec.DecodeError:
            return encode(FileRefused("mistake")), b""
        try:
            async with self._turns.turn(peer_of(peer)):
                answer = await self._answer(peer, question)
        except TooManyError:
            return encode(FileRefused("busy")), b""
        return answer

    async def _answer(self, peer: PeerName, question: Question) -> tuple[bytes, Body]:
        if isinstance(question, Suspect):
            await self._look_at(question.digest)
            return encode(Sent()), b""
        copy = await self._copy(question.digest)
        if copy is None:
            return encode(FileRefused("unknown")), b""
        match question:
            case Describe():
                return await self._describe(peer, question, copy)
            case AskList(first=first):
                start = first * DIGEST_BYTES
                return encode(Sent()), memoryview(copy.chunks)[start : start + CHUNK_BYTES_MAX]
            case AskChunk(digest=digest, index=index):
                return await self._chunk(digest, index, copy)

    async def _describe(
        self, peer: PeerName, question: Describe, copy: _Copy
    ) -> tuple[bytes, Body]:
        if not copy.chunks:
            body = b""
            if question.inline:
                body = await self._in_thread(lambda: _read(copy.path))
                if len(body) != copy.size:
                    return encode(FileRefused("unknown")), b""
            return encode(Description(copy.size)), body
        swarm = self._swarm(question.digest, chunk_count(copy.size))
        node = question.me if peer_of(question.me) == peer_of(peer) else NO_NODE
        others = swarm.met(node, asyncio.get_running_loop().time())
        have = b"" if copy.partial is None else copy.partial.have_bits()
        described = Description(
            copy.size, blake3(copy.chunks).digest(), copy.partial is None, others
        )
        return encode(described), have + to_bits(swarm.handed)

    def _swarm(self, digest: str, count: int) -> _Swarm:
        swarm = self._swarms.pop(digest, None)
        if swarm is None or len(swarm.handed) != count:
            swarm = _Swarm(count)
        self._swarms[digest] = swarm
        while len(self._swarms) > SWARMS_MAX:
            del self._swarms[next(iter(self._swarms))]
        return swarm

    async def _chunk(self, digest: str, index: int, copy: _Copy) -> tuple[bytes, Body]:
        count = chunk_count(copy.size)
        if index >= count:
            return encode(FileRefused("mistake")), b""
        if copy.partial is not None and not copy.partial.kept[index]:
            return encode(FileRefused("unknown")), b""
        swarm = self._swarm(digest, count)
        swarm.handed[index] = True
        handed = to_bits(swarm.handed) if len(swarm.askers) > 1 else b""
        said = encode(Sent(handed if len(handed) <= HANDED_BYTES_MAX else b""))
        partial = copy.partial
        if partial is None:
            return said, FileRegion(copy.path, *chunk_span(copy.size, index))
        try:  # read at once: its file may have another name in a moment
            return said, await self._in_thread(lambda: partial.read(index))
        except OSError:
            return encode(FileRefused("unknown")), b""

    # -- copies and their lists ---------------------------------------------------------------

    async def _copy(self, digest: str) -> _Copy | None:
        path = self._cache.path(digest)
        if path is not None:
            try:
                status = os.stat(path)
            except FileNotFoundError:
                return None
            if chunk_count(status.st_size) == 1:
                return _Copy(status.st_size, b"", path, None)
            listed = await self._list(digest, path, status)
            return None if listed is None else _Copy(listed.size, listed.chunks, path, None)
        partial = self._partials.get(digest)
        if partial is not None and partial.chunks:
            return _Copy(partial.size, partial.chunks, partial.path, partial)
        return None

    async def _list(self, digest: str, path: str, status: os.stat_result) -> _Stored | None:
        """The list of a stored file's chunks: from memory, from disk, or made now, once."""
        found = self._lists.get(digest)
        if found is not None and found.mtime_ns == status.st_mtime_ns:
            return found
        making = self._listing.get(digest)
        if making is None:
            making = asyncio.ensure_future(
                self._in_thread(lambda: self._load(digest, path, status))
            )
            self._listing[digest] = making
            making.add_done_callback(lambda _: self._listing.pop(digest, None))
        listed = await asyncio.shield(making)
        if listed is not None:
            self._lists[digest] = listed
            while len(self._lists) > LISTS_MAX:
                del self._lists[next(iter(self._lists))]
        return listed

    async def prepare(self, digest: str) -> None:
        """Make the list of a stored file's chunks now, not when somebody first asks."""
        await self._copy(digest)

    def _load(self, digest: str, path: str, status: os.stat_result) -> _Stored | None:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            with open(self._cache.list_path(digest), "rb") as file:
                stored = msgspec.msgpack.decode(file.read(), type=_Stored)
            if (stored.size, stored.mtime_ns) == (status.st_size, status.st_mtime_ns):
                return stored
        try:
            chunks = list_chunks(path, digest)
        except FileNotFoundError:
            return None
        except DamagedChunkError:
            _log.warning("the stored copy of %s is damaged, and removed", digest)
            self._cache.discard(digest)
            return None
        stored = _Stored(status.st_size, status.st_mtime_ns, chunks)
        save_list(self._cache, digest, stored.size, stored.mtime_ns, chunks)
        return stored

    async def _look_at(self, digest: str) -> None:
        """Somebody says that our copy is wrong."""
        now = asyncio.get_running_loop().time()
        path = self._cache.path(digest)
        if path is None or self._suspected.get(digest, -SUSPECTED_S) > now - SUSPECTED_S:
            return
        if len(self._suspected) >= SWARMS_MAX:
            del self._suspected[next(iter(self._suspected))]
        self._suspected[digest] = now

        def look() -> None:
            with contextlib.suppress(FileNotFoundError):
                if hash_file(path)[0] != digest:
                    _log.warning("the stored copy of %s is damaged, and removed", digest)
                    self._cache.discard(digest)

        await self._in_thread(look)

    def _in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        return asyncio.get_running_loop().run_in_executor(self._threads, work)


def save_list(cache: FileCache, digest: str, size: int, mtime_ns: int, chunks: bytes) -> None:
    """Keep a list that has been verified by the whole file's digest."""
    temporary = cache.temporary()
    with open(temporary, "wb") as file:
        file.write(msgspec.msgpack.encode(_Stored(size, mtime_ns, chunks)))
    os.replace(temporary, cache.list_path(digest))


def _read(path: str) -> bytes:
    """Nothing if the file is gone."""
    try:
        with open(path, "rb") as file:
            return file.read()
    except FileNotFoundError:
        return b""
