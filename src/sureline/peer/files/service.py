"""The files of one node: answers others, fetches for this one, and says in the DHT what is here.

A fetch looks into the cache, asks the sources it was given, and then the DHT. Fetches of the same
content share one transfer. A node that serves announces a long file when its transfer begins: its
chunks are served from then on. Of a directory only the manifest is announced: who has it, has the
rest.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import re
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, TypeVar

from sureline.peer.files import directories
from sureline.peer.files.asking import Asker, Buffers
from sureline.peer.files.cache import CacheFullError, FileCache
from sureline.peer.files.candidates import FetchError
from sureline.peer.files.chunks import chunk_count
from sureline.peer.files.directories import UNKNOWN_SIZE
from sureline.peer.files.partial import Partial
from sureline.peer.files.serving import Server
from sureline.peer.files.small import Found, NobodyError, ask_for_small
from sureline.peer.files.transfer import Kit, OnProgress, Transfer
from sureline.peer.files.wire import Body, Bulk, unique
from sureline.workflow.files import FileRecord
from sureline.world.address import Node

__all__ = ["UNKNOWN_SIZE", "Fetched", "FetchError", "FileService"]

T = TypeVar("T")

TRANSFERS_MAX = 8
"""So many files come in at once; others wait their turn."""
WAITING_MAX = 100_000
BUFFERS = 20
LOCATE_S = 10.0
FRESH_S = 1.0
ANNOUNCED_PER_TURN = 50
"""So many digests are announced each FRESH_S: after a restart the DHT is told little by little."""
_DIGEST = re.compile("[0-9a-f]{64}")

Announce = Callable[[str], None]
Locate = Callable[[str, Callable[[Sequence[Node]], None]], None]


class Fetched(NamedTuple):
    """`file` is the local copy. `source` gave it, or most of it; '' if it was here."""

    file: FileRecord
    source: Node


class _Flight:
    """One content on its way in, and those who wait for it."""

    def __init__(self) -> None:
        self.sources: list[Node] = []
        self.transfer: Transfer | None = None
        self.listeners: list[OnProgress] = []
        self.task: asyncio.Task[Node] | None = None

    def progressed(self, there: int, size: int) -> None:
        for listener in self.listeners:
            listener(there, size)


class FileService:
    """`bulk` asks other nodes; `answer` is what it must call for the requests of others.

    `announce` and `withdraw` put this node's place into the DHT, and take it out; `locate` calls
    back once with the nodes that are known to hold a digest.
    """

    def __init__(
        self,
        cache: FileCache,
        bulk: Bulk,
        *,
        me: Node,
        announce: Announce,
        withdraw: Announce,
        locate: Locate,
    ) -> None:
        self.cache = cache
        self.me = me
        self._loop = asyncio.get_running_loop()
        self._announce = announce
        self._withdraw = withdraw
        self._locate = locate
        self._in = ThreadPoolExecutor(2, "files-in")
        self._out = ThreadPoolExecutor(2, "files-out")
        partials: dict[str, Partial] = {}
        self._asker = Asker(bulk, me)
        self._kit = Kit(cache, self._asker, self._in, Buffers(BUFFERS), partials, me, self.locate)
        self._server = Server(cache, self._out, partials)
        self._flights: dict[str, _Flight] = {}
        self._turns = asyncio.Semaphore(TRANSFERS_MAX)
        self._serving: asyncio.Task[None] | None = None
        self._told: dict[str, None] = {}
        """What the DHT has been told of, longest not looked at first."""
        self._directory_kit = directories.Kit(cache, self._content, self._in_thread, self.locate)
        cache.on_evicted = lambda digest: self._soon(withdraw, digest)

    def _soon(self, action: Announce, digest: str) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed: there is nobody to tell
            self._loop.call_soon_threadsafe(action, digest)

    async def answer(self, peer: str, request: bytes) -> tuple[bytes, Body]:
        """Answer the bulk request of an enrolled peer."""
        return await self._server.answer(peer, request)

    def serve(self) -> None:
        """Serve this home's cache from now on: announce what is in it, and what other processes
        put there."""
        self.cache.shared.serve(self.cache.size_bytes_max)
        if self._serving is None:
            self._serving = asyncio.ensure_future(self._announce_all())

    async def _announce_all(self) -> None:
        waiting = deque(self.cache.shared.announced())
        while True:
            waiting.extendleft(self.cache.shared.take_fresh(ANNOUNCED_PER_TURN))
            for _ in range(min(ANNOUNCED_PER_TURN, len(waiting))):
                digest = waiting.popleft()
                if self.cache.path(digest) is not None:
                    self._tell(digest)
            self._forget_some()
            await self._in_thread(self.cache.sync)
            await asyncio.sleep(FRESH_S)

    def _tell(self, digest: str) -> None:
        self._told[digest] = None
        self._announce(digest)

    def _forget_some(self) -> None:
        """Look whether other processes of this home have evicted what was announced: a few at a
        time, in turn."""
        for digest in list(itertools.islice(self._told, ANNOUNCED_PER_TURN)):
            del self._told[digest]
            if digest in self._flights or self.cache.path(digest) is not None:
                self._told[digest] = None
            else:
                self._withdraw(digest)

    async def close(self) -> None:
        """End all transfers; what has come in so far stays for later."""
        tasks: list[asyncio.Task[Node] | asyncio.Task[None]] = [
            flight.task for flight in self._flights.values() if flight.task is not None
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
        self.made(record)
        return record

    def made(self, record: FileRecord) -> None:
        """This is in the cache now: announce it, or have it announced by the peer that serves
        this home."""
        self.cache.shared.remember(record.digest, fresh=self._serving is None)
        if self._serving is not None:
            self._tell(record.digest)

    async def locate(self, digest: str) -> list[Node]:
        """The nodes that the DHT knows to hold this, without this one."""
        found: asyncio.Future[list[Node]] = self._loop.create_future()

        def heard(nodes: Sequence[Node]) -> None:
            if not found.done():
                found.set_result([node for node in unique(nodes) if node != self.me])

        self._locate(digest, heard)
        try:
            return await asyncio.wait_for(found, LOCATE_S)
        except TimeoutError:
            return []

    async def fetch(
        self,
        record: FileRecord,
        sources: Sequence[Node] = (),
        on_progress: OnProgress | None = None,
    ) -> Fetched:
        """Bring a file or directory into the cache. Its size may be UNKNOWN_SIZE.

        Raises FetchError with one sentence on why it cannot be had.
        """
        if not _DIGEST.fullmatch(record.digest):
            raise FetchError(f"{record.digest[:80]!r} is not the digest of stored content")
        ready = await self._in_thread(lambda: self.cache.ready(record))
        if ready is not None:
            return Fetched(ready, "")
        pin = await self._in_thread(lambda: self.cache.pin(record, "being fetched"))
        if self._serving is not None and chunk_count(max(record.size, 0)) > 1:
            self._tell(record.digest)  # others may have what comes as it comes
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
        return Fetched(ready, source)

    async def _content(
        self,
        digest: str,
        size: int,
        executable: bool,
        sources: Sequence[Node],
        on_progress: OnProgress | None = None,
    ) -> Node:
        """Bring one content in, by the transfer that is under way if there is one; its source."""
        flight = self._flights.get(digest)
        if flight is None:
            if len(self._flights) >= WAITING_MAX:
                raise FetchError("too many files are being fetched already")
            flight = self._flights[digest] = _Flight()
            flight.task = asyncio.ensure_future(self._fly(flight, digest, size, executable))
            flight.task.add_done_callback(lambda task: self._landed(digest, task))
        flight.sources.extend(node for node in sources if node not in flight.sources)
        if flight.transfer is not None:
            flight.transfer.add(sources)
        if on_progress is not None:
            flight.listeners.append(on_progress)
        assert flight.task is not None
        return await asyncio.shield(flight.task)

    def _landed(self, digest: str, task: asyncio.Task[Node]) -> None:
        self._flights.pop(digest, None)
        if not task.cancelled():
            task.exception()  # those who wait get it; if nobody does, it is no news

    async def _fly(self, flight: _Flight, digest: str, size: int, executable: bool) -> Node:
        async with self._turns:
            known = None if size == UNKNOWN_SIZE else size
            if known is None or chunk_count(known) == 1:
                found = await self._small(flight, digest, known)
                content = found.offer.content
                if content is not None:
                    await self._store(content, digest, executable)
                    return found.node
                flight.sources.insert(0, found.node)
            transfer = Transfer(self._kit, digest, known, executable, flight.progressed)
            flight.transfer = transfer
            transfer.add(flight.sources)
            return await transfer.run()

    async def _small(self, flight: _Flight, digest: str, size: int | None) -> Found:
        """What a source gives at the first question: all of it, if it is short. Those are asked
        too who are named while others are."""
        asked: dict[Node, None] = {}
        told: list[str] = []
        located = False
        while True:
            named = [node for node in unique(flight.sources) if node not in asked]
            if not named and not located:
                located = True
                named = [node for node in await self.locate(digest) if node not in asked]
            if not named:
                break
            asked.update(dict.fromkeys(named))
            try:
                return await ask_for_small(self._asker, digest, size, named)
            except NobodyError as error:
                told.append(str(error))
        why = "; ".join(filter(None, told))
        raise FetchError(
            f"no node that holds {digest[:16]} can be used ({why})"
            if why
            else f"no node is known to hold {digest[:16]}"
        )

    async def _store(self, content: bytes, digest: str, executable: bool) -> None:
        try:
            await self._in_thread(lambda: self.cache.put_bytes(content, digest, executable))
        except CacheFullError as error:
            raise FetchError(str(error)) from None
        except OSError as error:
            raise FetchError(f"it cannot be written: {os.strerror(error.errno or 0)}") from None

    def _in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        return self._loop.run_in_executor(self._in, work)
