"""The files of one live node: answers others, fetches for this one, and says what is here.

A fetch looks into the cache; where else, and in which order, `finding` decides. A node that serves
announces a long file when its transfer begins: its chunks are served from then on. Of a directory
only the manifest is announced: who has it, has the rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from sureline.peer.files import directories
from sureline.peer.files.asking import Buffers, FileAsker
from sureline.peer.files.cache import CacheFullError, FileCache
from sureline.peer.files.chunks import chunk_count
from sureline.peer.files.directories import UNKNOWN_SIZE
from sureline.peer.files.finding import (
    FRESH_S,
    Announcer,
    ContentPlaces,
    FetchError,
    Finder,
    Hunt,
    Landed,
    OnLanded,
    OnProgress,
)
from sureline.peer.files.partial import Partial
from sureline.peer.files.serving import AT_ONCE, Server
from sureline.peer.files.small import ask_for_small
from sureline.peer.files.transfer import Transfer, TransferKit
from sureline.peer.files.wire import NO_ANSWER, BadAnswerError, Body, Bulk, RefusedError
from sureline.workflow.files import FileRecord, is_digest
from sureline.world.address import NO_NODE, Node, PeerName

__all__ = ["UNKNOWN_SIZE", "FetchedFile", "FetchError", "FileService"]

T = TypeVar("T")

BUFFERS = 20
COMPLAINTS_MAX = 64
"""On their way at once."""


class FetchedFile(NamedTuple):
    """`file` is the local copy. `source` gave it, or most of it; '' if it was here."""

    file: FileRecord
    source: Node


class _Stock:
    """This home's cache, as far as it is served."""

    def __init__(self, cache: FileCache) -> None:
        self._cache = cache
        self.announced = cache.shared.announced
        self.take_fresh = cache.shared.take_fresh

    def has(self, digest: str) -> bool:
        return self._cache.path(digest) is not None


class FileService:
    """`bulk` asks other nodes; `answer` is what it must call for the requests of others. `places`
    is the hash table, `pause` how long it is spared in between (`Announcer`)."""

    def __init__(
        self,
        cache: FileCache,
        bulk: Bulk,
        *,
        me: Node,
        places: ContentPlaces,
        pause: Callable[[], int] = lambda: 0,
    ) -> None:
        self.cache = cache
        self.me = me
        self._loop = asyncio.get_running_loop()
        self._places = places
        self._pause = pause
        self._finder = Finder(me, places, self._loop.call_later)
        self._in = ThreadPoolExecutor(2, "files-in")
        self._out = ThreadPoolExecutor(2, "files-out")
        partials: dict[str, Partial] = {}
        self._asker = FileAsker(bulk, me)
        self._kit = TransferKit(
            cache,
            self._asker,
            self._in,
            Buffers(BUFFERS),
            partials,
            me,
            self.locate,
            self._complain,
        )
        self._server = Server(cache, self._out, partials)
        self._flights: set[asyncio.Task[Node]] = set()
        self._complaints: set[asyncio.Task[None]] = set()
        self._announcer: Announcer | None = None
        self._serving: asyncio.Task[None] | None = None
        self._directory_kit = directories.DirectoryKit(
            cache, self._content, self._in_thread, self.locate
        )
        cache.on_evicted = self._evicted

    def _evicted(self, digest: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nobody to tell
            self._loop.call_soon_threadsafe(self._places.withdraw, digest)

    def _complain(self, node: Node, digest: str) -> None:
        async def tell() -> None:
            with contextlib.suppress(*NO_ANSWER, BadAnswerError, RefusedError):
                await self._asker.complain(node, digest)  # only meant to help

        if len(self._complaints) < COMPLAINTS_MAX:
            task = asyncio.ensure_future(tell())
            self._complaints.add(task)
            task.add_done_callback(self._complaints.discard)

    async def answer(self, peer: PeerName, request: bytes) -> tuple[bytes, Body]:
        """Answer the bulk request of an enrolled peer."""
        return await self._server.answer(peer, request)

    def serve(self, readers: int = AT_ONCE) -> None:
        """Serve this home's cache from now on, to so many at a time: announce what is in it, and
        what other processes put there."""
        self._server.allow(readers)
        self.cache.shared.serve(self.cache.size_bytes_max)
        if self._announcer is None:
            stock = _Stock(self.cache)
            coming = self._finder.is_coming
            self._announcer = Announcer(self._places, stock, coming, self._pause)
            self._serving = asyncio.ensure_future(self._keep_announcing(self._announcer))

    async def _keep_announcing(self, announcer: Announcer) -> None:
        while True:
            announcer.turn()
            if self.cache.unsynced:
                await self._in_thread(self.cache.sync)
            await asyncio.sleep(FRESH_S)

    async def close(self) -> None:
        """End all transfers; what has come in so far stays for later."""
        tasks: list[asyncio.Task[Node] | asyncio.Task[None]] = [
            *self._flights,
            *self._complaints,
        ]
        if self._serving is not None:
            tasks.append(self._serving)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._in.shutdown()
        self._out.shutdown()

    # -- in -----------------------------------------------------------------------------------

    async def put(self, user_path: str, logical_path: str) -> FileRecord:
        """Copy a file or directory of the user's into the cache, and announce it.

        Raises CacheFullError, StoreError, OSError.
        """
        record = await self._in_thread(lambda: self.cache.put(user_path, logical_path))
        if not record.directory:
            await self._server.prepare(record.digest)
        self.cache.shared.remember(record.digest, fresh=self._announcer is None)
        if self._announcer is not None:
            self._announcer.tell(record.digest)
        return record

    def made(self, record: FileRecord) -> None:
        """A task's file is in the cache now: announce it some time, or have the peer do that which
        serves this home."""
        self.cache.shared.remember(record.digest, fresh=False)
        if self._announcer is not None:
            self._announcer.mention(record.digest)

    async def locate(self, digest: str) -> list[Node]:
        """The nodes that the DHT knows to hold this, without this one."""
        found: asyncio.Future[list[Node]] = self._loop.create_future()

        def heard(nodes: Sequence[Node]) -> None:
            if not found.done():
                found.set_result(list(nodes))

        self._finder.locate(digest, heard)
        return await found

    async def fetch(
        self,
        record: FileRecord,
        sources: Sequence[Node] = (),
        on_progress: OnProgress | None = None,
    ) -> FetchedFile:
        """Bring a file or directory into the cache. Its size may be UNKNOWN_SIZE.

        Raises FetchError with one sentence on why it cannot be had.
        """
        if not is_digest(record.digest):
            raise FetchError(f"{record.digest[:80]!r} is not the digest of stored content")
        ready = await self._in_thread(lambda: self.cache.ready(record))
        if ready is not None:
            return FetchedFile(ready, NO_NODE)
        pin = await self._in_thread(lambda: self.cache.pin(record, "being fetched"))
        if self._announcer is not None and chunk_count(max(record.size, 0)) > 1:
            self._announcer.tell(record.digest)  # others may have what comes as it comes
        with pin:
            if record.directory:
                source = await directories.fetch(self._directory_kit, record, sources)
            else:
                source = await self._content(
                    record.digest, record.size, record.executable, sources, on_progress
                )
            ready = await self._in_thread(lambda: self.cache.ready(record))
        if ready is None:
            raise FetchError(f"{record.digest[:16]} was removed as soon as it had come")
        self.made(ready)
        return FetchedFile(ready, source)

    async def _content(
        self,
        digest: str,
        size: int,
        executable: bool,
        sources: Sequence[Node],
        on_progress: OnProgress | None = None,
    ) -> Node:
        """Bring one content in, by the transfer that is under way if there is one; its source."""
        came: asyncio.Future[Node] = self._loop.create_future()

        def landed(how: Landed) -> None:
            if came.done():
                return  # whoever waited for it has gone
            if isinstance(how, asyncio.CancelledError):
                came.cancel()
            elif isinstance(how, BaseException):
                came.set_exception(how)
            else:
                came.set_result(how)

        def move(hunt: Hunt, on_landed: OnLanded) -> None:
            task = asyncio.ensure_future(self._fly(hunt, size, executable))
            self._flights.add(task)
            task.add_done_callback(lambda task: self._landed(task, on_landed))

        self._finder.bring(digest, sources, move, landed, on_progress)
        return await came

    def _landed(self, task: asyncio.Task[Node], on_landed: OnLanded) -> None:
        self._flights.discard(task)
        if task.cancelled():
            on_landed(asyncio.CancelledError())
        else:
            on_landed(task.exception() or task.result())

    async def _fly(self, hunt: Hunt, size: int, executable: bool) -> Node:
        known = None if size == UNKNOWN_SIZE else size
        if known is None or chunk_count(known) == 1:
            found = await ask_for_small(self._asker, hunt, known)
            content = found.offer.content
            if content is not None:
                await self._store(content, hunt.digest, executable)
                return found.node
        transfer = Transfer(self._kit, hunt.digest, known, executable, hunt.progressed)
        hunt.on_more = transfer.add
        transfer.add(hunt.sources())
        return await transfer.run()

    async def _store(self, content: bytes, digest: str, executable: bool) -> None:
        try:
            await self._in_thread(lambda: self.cache.put_bytes(content, digest, executable))
        except CacheFullError as error:
            raise FetchError(str(error)) from None
        except OSError as error:
            raise FetchError(f"it cannot be written: {os.strerror(error.errno or 0)}") from None

    def _in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        return self._loop.run_in_executor(self._in, work)
