"""One file on its way in, from all who have it: drives `schedule` with real answers and threads.

Content is addressed by the digest of the whole file, so the list of chunk digests, too, comes from
sources that may lie. Sources are kept apart by the list they name, and one list is worked by at a
time. If the whole turns out wrong, the list was: those who gave it are dropped, another list is
tried, and chunks in which both lists agree stay.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from typing import NamedTuple, TypeVar

from blake3 import blake3

from sureline.peer.files.asking import Buffers, FileAsker, FileOffer
from sureline.peer.files.cache import CacheFullError, FileCache
from sureline.peer.files.candidates import Candidates, Key
from sureline.peer.files.chunks import Flags, chunk_span
from sureline.peer.files.finding import FetchError, OnProgress
from sureline.peer.files.partial import BusyError, Partial
from sureline.peer.files.schedule import ChunkRequest, Schedule
from sureline.peer.files.serving import save_list
from sureline.peer.files.wire import NO_ANSWER, BadAnswerError, Buffer, RefusedError
from sureline.world.address import NO_NODE, Node

T = TypeVar("T")

LISTS_MAX = 8
"""So many lists of chunks are tried for one file."""
TICK_S = 0.2
REFRESHES = 16
"""How often, at least, all sources are asked what they have while a file comes in."""
Locate = Callable[[str], Awaitable[Sequence[Node]]]


class TransferKit(NamedTuple):
    """What all transfers of a node share."""

    cache: FileCache
    asker: FileAsker
    threads: Executor
    buffers: Buffers
    partials: dict[str, Partial]
    me: Node
    locate: Locate
    complain: Callable[[Node, str], None]
    """Tells a node that its copy is wrong; that may last longer than a transfer."""


class _NoChunkError(Exception):
    """An answer without a chunk."""


class Transfer:
    """`size` may be None: then the sources say it. `executable` is how it will be stored."""

    def __init__(
        self,
        kit: TransferKit,
        digest: str,
        size: int | None,
        executable: bool,
        on_progress: OnProgress,
    ) -> None:
        self._kit = kit
        self._digest = digest
        self._executable = executable
        self._on_progress = on_progress
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._candidates = Candidates(kit.asker, kit.locate, digest, size, kit.me, self._heard)
        self._partial: Partial
        self._schedule: Schedule | None = None
        self._key: Key | None = None
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._asking: dict[ChunkRequest, asyncio.Future[tuple[Buffer, Flags | None]]] = {}
        self._given: dict[Node, int] = {}
        self._progress_at = self._loop.time()
        self._kept_since = 0
        self._failure: BaseException | None = None

    def add(self, nodes: Sequence[Node], offer: tuple[Node, FileOffer] | None = None) -> None:
        """Nodes that may have it."""
        self._candidates.add(nodes)
        if offer is not None:
            self._candidates.take(*offer)

    async def run(self) -> Node:
        """Bring the file into the cache; the node that gave most of it. Raises FetchError."""
        try:
            self._partial = await self._in_thread(
                lambda: Partial.open(self._kit.cache.incoming, self._digest)
            )
        except BusyError as error:
            raise FetchError(str(error)) from None
        looking = asyncio.ensure_future(self._candidates.look())
        done = False
        try:
            for _ in range(LISTS_MAX):
                key = await self._choose()
                if await self._begin(key) and await self._download(key):
                    done = await self._finish(key)
                    if done:
                        return max(self._given, key=self._given.__getitem__, default=NO_NODE)
            raise FetchError(f"no source of {self._digest[:16]} gives what its digest says")
        finally:
            looking.cancel()
            await self._stop()
            self._kit.partials.pop(self._digest, None)
            await self._in_thread(self._partial.finish if done else self._partial.close)

    # -- lists of chunks ----------------------------------------------------------------------

    async def _choose(self) -> Key:
        """The list that most sources name, as soon as they have spoken. The one that was given up
        last is taken again only if there is no other."""
        while True:
            key = self._candidates.best(besides=self._key) or self._candidates.best()
            if key is not None and self._candidates.settled():
                return key
            self._candidates.check_hope(self._progress_at)
            await self._pause()

    async def _begin(self, key: Key) -> bool:
        """Get the list, make room, and work by it; whether that can be done."""
        size, list_digest = key
        chunks = None
        for node in self._candidates.sources(key):
            try:
                chunks = await self._kit.asker.chunk_list(node, self._digest, size, list_digest)
                break
            except (*NO_ANSWER, RefusedError) as error:
                self._candidates.silent(node, str(error) or type(error).__name__)
            except BadAnswerError as error:
                self._candidates.drop(node, str(error))
        if chunks is None:
            return False
        partial = self._partial
        listed = chunks

        def begin() -> None:
            with self._kit.cache.reserved(max(0, size - partial.reserved_bytes)):
                partial.begin(size, listed)

        try:
            await self._in_thread(begin)
        except CacheFullError as error:
            self._candidates.refuse(key, str(error))
            return False
        except OSError as error:
            raise FetchError(f"it cannot be written: {os.strerror(error.errno or 0)}") from None
        seed = int.from_bytes(blake3(self._kit.me.encode()).digest()[:8], "big")
        self._schedule = Schedule(partial.kept, seed)
        self._key = key
        self._kit.partials[self._digest] = partial
        for node in self._candidates.sources(key):
            self._heard(node, self._candidates.offer(node))
        return True

    def _heard(self, node: Node, offer: FileOffer | None) -> None:
        """A node has said what it has; None if it has gone silent."""
        if self._schedule is not None and offer is not None and offer.key == self._key:
            others = bool(offer.others)
            self._schedule.offer(node, offer.has, offer.handed, others=others)
        self._wake.set()

    async def _finish(self, key: Key) -> bool:
        """Whether the whole is right. Then it is a stored file now; else the list is refused."""
        await self._stop()
        partial, cache = self._partial, self._kit.cache
        if not await self._in_thread(partial.whole):
            for node in self._candidates.refuse(key, "the chunks are not the file"):
                self._kit.complain(node, self._digest)
            self._schedule = None
            return False

        def admit() -> None:
            cache.admit(partial.path, self._digest, self._executable)
            blob = cache.store.blob_path(self._digest, self._executable)
            save_list(cache, self._digest, key[0], os.stat(blob).st_mtime_ns, partial.chunks)

        await self._in_thread(admit)
        return True

    # -- chunks -------------------------------------------------------------------------------

    async def _download(self, key: Key) -> bool:
        """Whether all chunks are there; False if the sources of this list lack what is missing,
        and another list may do better."""
        schedule = self._schedule
        assert schedule is not None
        self._progressed(0)
        while not schedule.complete:
            self._wake.clear()
            for request in schedule.requests(self._loop.time()):
                self._start(self._get(schedule, request))
            self._tidy(schedule)
            if schedule.starved:
                if self._candidates.best(besides=key) is not None:
                    return False
                self._candidates.check_hope(self._progress_at, schedule.missing, schedule.count)
            await self._pause(schedule.due(self._loop.time()))
            if self._failure is not None:
                raise self._failure
        return True

    def _tidy(self, schedule: Schedule) -> None:
        """Cancel what nobody waits for any more, and forget sources that were dropped."""
        for request, task in list(self._asking.items()):
            if schedule.kept[request.chunk] or request.source in schedule.dropped:
                task.cancel()
        for node, why in schedule.dropped.items():
            self._candidates.drop(node, why)

    async def _get(self, schedule: Schedule, request: ChunkRequest) -> None:
        """Ask for one chunk, verify it, write it."""
        try:
            with await self._kit.buffers.take() as buffer:
                body = await self._ask(schedule, request, buffer)
                if schedule.arrived(*request, self._loop.time()):
                    right = await self._keep(request.chunk, body)
                    self._judge(schedule, request, right)
        except _NoChunkError:
            pass  # the schedule knows
        finally:
            self._wake.set()

    async def _ask(self, schedule: Schedule, request: ChunkRequest, buffer: bytearray) -> Buffer:
        """The body of the answer. Raises _NoChunkError when the schedule knows that there is
        none."""
        node, chunk = request
        asker, size = self._kit.asker, self._partial.size
        asking = asyncio.ensure_future(asker.chunk(node, self._digest, size, chunk, buffer))
        self._asking[request] = asking
        try:
            body, handed = await asking
            if handed is not None:
                schedule.gave_away(node, handed)
            return body
        except asyncio.CancelledError:
            if not asking.cancelled():
                raise
            schedule.fail(node, chunk, self._loop.time(), busy=True)
        except RefusedError as error:
            gone, busy = error.why == "unknown", error.why == "busy"
            schedule.fail(node, chunk, self._loop.time(), gone=gone, busy=busy)
        except BadAnswerError:
            schedule.arrived(node, chunk, self._loop.time())
            self._judge(schedule, request, False)
        except NO_ANSWER:
            schedule.fail(node, chunk, self._loop.time())
        finally:
            del self._asking[request]
        raise _NoChunkError

    async def _keep(self, chunk: int, body: Buffer) -> bool:
        try:
            return await self._in_thread(lambda: self._partial.keep(chunk, body))
        except OSError as error:
            raise FetchError(f"it cannot be written: {os.strerror(error.errno or 0)}") from None

    def _judge(self, schedule: Schedule, request: ChunkRequest, right: bool) -> None:
        if right:
            schedule.keep(*request)
            length = chunk_span(self._partial.size, request.chunk)[1]
            self._given[request.source] = self._given.get(request.source, 0) + length
            self._progressed(1)
        else:
            schedule.reject(*request)
            self._kit.complain(request.source, self._digest)

    def _progressed(self, chunks: int) -> None:
        self._kept_since += chunks
        self._progress_at = self._loop.time()
        schedule = self._schedule
        assert schedule is not None
        if self._kept_since * REFRESHES >= schedule.count:
            self._kept_since = 0
            self._candidates.refresh()
        there = (schedule.count - schedule.missing) * chunk_span(self._partial.size, 0)[1]
        self._on_progress(min(there, self._partial.size), self._partial.size)

    # -- tasks --------------------------------------------------------------------------------

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        if not task.cancelled() and task.exception() is not None:
            self._failure = task.exception()
            self._wake.set()

    async def _pause(self, until: float | None = None) -> None:
        """Until something happens, but not for long: hope and haste are looked at regularly."""
        limit = TICK_S if until is None else min(TICK_S, max(0.0, until - self._loop.time()))
        try:
            await asyncio.wait_for(self._wake.wait(), limit)
        except TimeoutError:
            pass
        self._wake.clear()

    async def _stop(self) -> None:
        """End all tasks; those that hold a chunk end by themselves."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for asking in list(self._asking.values()):
            asking.cancel()

    def _in_thread(self, work: Callable[[], T]) -> Awaitable[T]:
        return self._loop.run_in_executor(self._kit.threads, work)
