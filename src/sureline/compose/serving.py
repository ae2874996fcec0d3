"""A peer at work: the process that serves from a home, until it is told to go.

Beyond what every node has, it runs tasks for those who may submit (`peer`), keeps journals for
others (`keeper`), serves this home's files, and, in the home that made the grid, enrols machines.
What must survive it lies in the grid's directory of the home, under `peer/`:

| what       | for                                                                       |
|------------|---------------------------------------------------------------------------|
| `blobs/`   | the file cache, shared with other processes of this home                  |
| `keep.db`  | reports that nobody has acknowledged, the newest writer of each run       |
| `kept/`    | journals of runs driven elsewhere                                         |
| `work/`    | where tasks run                                                           |
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple


from sureline.compose.keep import Keep
from sureline.compose.kept import KeptJournals
from sureline.compose.node import Listen, Node
from sureline.journal.locks import RunLock, holder
from sureline.overlay.membership import Offer
from sureline.peer import orphans
from sureline.peer.capacity import Capacity
from sureline.peer.files.cache import FileCache
from sureline.peer.files.marks import CacheMarks
from sureline.peer.files.service import FileService
from sureline.peer.grid_agent import GridPeerAgent
from sureline.peer.jobs import JobEnded
from sureline.peer.runner import Runner
from sureline.run.keeper import Keeper
from sureline.workflow.mistakes import SurelineError, UserError
from sureline.world.address import at
from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.enrolment import EnrolmentDesk
from sureline.world.identity.home import GridHome
from sureline.world.protocol import Job, JobEvent, JobHandle

RUN = "peer"
"""What the runner calls itself: its directory under `work/`, and the token of its processes."""
SLOTS_PER_CORE = 10
SLOTS_MAX = 1024
LOOK_EVERY_S = 1.0
CONTACTS_EVERY_S = 30.0
LEAVING_S = 10.0
"""How long saying goodbye may take, after the tasks are over."""


class PeerSettings(NamedTuple):
    """What a peer offers, and where."""

    capacity: Capacity
    site: str = ""
    price: float = 0.0
    listen: Listen | None = None
    cache_bytes: int = 10 << 30


class Going(NamedTuple):
    """How a peer is to go: `drain` lets tasks finish first."""

    reason: str
    drain: bool = False
    error: SurelineError | None = None


class PeerRunner:
    """A runner whose jobs' outputs become files of the peer's cache."""

    def __init__(self, runner: Runner, cache: FileCache) -> None:
        self._runner = runner
        self._cache = cache
        self.files: FileService | None = None

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        def heard(event: JobEvent) -> None:
            if isinstance(event, JobEnded):
                for record in event.outputs:
                    self._cache.adopt(record)
                    if self.files is not None:
                        self.files.made(record)
            on_event(event)

        return self._runner.start(job, heard, after=after)

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        self._runner.stop(handle, force=force)


def peer_directory(home: GridHome) -> Path:
    """Where the peer of this home keeps what is its own."""
    return home.path / "peer"


def open_cache(home: GridHome, size_bytes: int = 1 << 62) -> FileCache:
    """This home's file cache; only the process that serves bounds its size."""
    root = peer_directory(home)
    root.mkdir(mode=0o700, exist_ok=True)
    return FileCache(root, size_bytes)


class ServingPeer:
    """`on_ready` hears the node once others can reach it; `tell` is given sentences for people."""

    def __init__(
        self,
        home: GridHome,
        settings: PeerSettings,
        on_ready: Callable[[Node], None],
        tell: Callable[[str], None],
    ) -> None:
        self._home = home
        self._settings = settings
        self._on_ready = on_ready
        self._tell = tell
        self._root = peer_directory(home)
        self._going: asyncio.Future[Going]

    def go(self, going: Going) -> None:
        """Ask it to go; the second time, at once."""
        if not self._going.done():
            self._going.set_result(going)
        else:
            self._hurry.set()

    async def serve(self) -> None:
        """Serve until told to go. Raises UserError if another process serves from this home."""
        self._root.mkdir(mode=0o700, exist_ok=True)
        lock = RunLock.acquire(self._root / "serving")
        if lock is None:
            owner = holder(self._root / "serving")
            who = f" (process {owner.pid} on {owner.host})" if owner is not None else ""
            raise UserError(
                f"a peer serves grid {self._home.grid} from this home already{who}; stop it with "
                "'sureline leave', or set SURELINE_HOME for another peer"
            )
        try:
            await self._serve_alone()
        finally:
            lock.release()

    async def _serve_alone(self) -> None:
        loop = asyncio.get_running_loop()
        self._going = loop.create_future()
        self._hurry = asyncio.Event()
        orphans.clear_run(self._root, RUN)
        capacity = self._settings.capacity
        runner = Runner(
            loop,
            root=self._root,
            directory=self._root,
            run=RUN,
            functions={},
            max_slots=min(SLOTS_MAX, math.ceil(capacity.cores * SLOTS_PER_CORE) + 1),
        )
        cache = open_cache(self._home, self._settings.cache_bytes)
        keep = Keep(loop, self._root / "keep.db", self._crashed)
        kept = KeptJournals(self._root / "kept")
        adopting = PeerRunner(runner, cache)
        try:
            node = await self._open(adopting, cache, keep)
            async with node:
                await self._at_work(node, adopting, kept)
        finally:
            await runner.close()
            keep.close()
            kept.close()
            cache.close()

    async def _open(self, runner: PeerRunner, cache: FileCache, keep: Keep) -> Node:
        desk = None
        if self._home.holds_authority:
            desk = EnrolmentDesk(
                Authority.open(self._home),
                Credentials.load(self._home),
                contacts=lambda: [node.id, *self._home.contacts()],
            )
        node = await Node.open(
            self._home,
            cache,
            runner=runner,
            recorder=keep,
            offer=self._offer(),
            listen=self._settings.listen,
            on_stranger=desk.answer if desk is not None else None,
            on_crash=self._crashed,
            on_refused=self._refused,
        )
        return node

    def _offer(self) -> Offer:
        capacity, settings = self._settings.capacity, self._settings
        return Offer(
            capacity.cores,
            capacity.memory_bytes,
            capacity.disk_bytes,
            capacity.gpus,
            dict(capacity.tags),
            settings.site,
            settings.price,
            tuple(sorted(Credentials.load(self._home).identity.roles)),
            time.time(),
        )

    def _crashed(self, error: BaseException) -> None:
        failure = error if isinstance(error, SurelineError) else None
        if failure is None:
            raise error
        self.go(Going(str(failure), error=failure))

    def _refused(self, reason: str) -> None:
        self.go(Going(reason, error=SurelineError(f"{reason}; this peer stops")))

    # -- at work --------------------------------------------------------------------------------

    async def _at_work(self, node: Node, runner: PeerRunner, kept: KeptJournals) -> None:
        runner.files = node.files
        agent = self._join_parts(node, kept)
        node.files.serve()
        joining = node.begin_joining()
        self._home.start_serving(node.id)
        try:
            self._on_ready(node)
            going = await self._look_after(node)
            joining.cancel()
            await self._leave(node, agent, going)
        finally:
            self._home.stop_serving()
        if going.error is not None:
            raise going.error

    def _join_parts(self, node: Node, kept: KeptJournals) -> GridPeerAgent | None:
        me = at(node.id, "keeper")
        node.world.join(Keeper(me, node.world.place(me), kept))
        roles = node.credentials.identity.roles
        if "run" not in roles or not self._settings.capacity.cores:
            return None
        me = at(node.id, "peer")
        agent = GridPeerAgent(
            me,
            node.world.place(me),
            self._settings.capacity,
            CacheMarks(node.cache),
            node.membership.report,
        )
        node.world.join(agent)
        node.world.guard(agent.start)
        return agent

    async def _look_after(self, node: Node) -> Going:
        """Until it is to go: hear of revocations made in this home, remember contacts."""
        loop = asyncio.get_running_loop()
        next_contacts_at = loop.time() + LOOK_EVERY_S
        while True:
            done, _ = await asyncio.wait([self._going], timeout=LOOK_EVERY_S)
            if done:
                return self._going.result()
            node.publish_revocations()
            if loop.time() >= next_contacts_at:
                node.remember_contacts()
                next_contacts_at = loop.time() + CONTACTS_EVERY_S

    async def _leave(self, node: Node, agent: GridPeerAgent | None, going: Going) -> None:
        """Give back or finish the tasks, let others fetch what only this peer has, say goodbye."""
        node.remember_contacts()
        if agent is not None and going.error is None:
            await self._clear(node, agent, going)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEAVING_S):
                await _done(node.kademlia.leave)
                await _done(node.membership.leave)

    async def _clear(self, node: Node, agent: GridPeerAgent, going: Going) -> None:
        if going.drain and agent.busy:
            self._tell(f"lets {agent.busy} tasks finish; again to stop them")
        agent.leave(stop=not going.drain)
        while agent.busy and not self._hurry.is_set():
            await asyncio.sleep(0.05)
        if agent.busy:
            agent.leave(stop=True)


async def _done(action: Callable[[Callable[[], None]], None]) -> None:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    action(lambda: done.done() or done.set_result(None))  # type: ignore[func-returns-value]  # once
    await done


def offered(offer: Offer) -> Capacity:
    """What a member offers, as the placing half of a run sees it."""
    return Capacity(
        offer.cores, offer.memory_bytes, offer.disk_bytes, offer.gpus, dict(offer.tags)
    )


__all__ = ["Going", "PeerSettings", "ServingPeer", "offered", "open_cache", "peer_directory"]
