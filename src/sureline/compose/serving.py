"""A peer at work: the process that serves from a home, until it is told to go.

Beyond what every node has, it runs tasks for those who may submit (`peer`), bids for them and
makes contracts (`market`), keeps journals for others (`keeper`), serves this home's files, and, in
the home that made the grid, enrols machines.
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
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple, Protocol

import msgspec

from sureline.assembly.peer import Certificates, GridPeer, Workplace
from sureline.compose.node import Listen, LiveNode, open_cache, peer_directory
from sureline.compose.peer_memory import Keep
from sureline.compose.piloting import Pilot, at_its_end, check_health
from sureline.compose.relieving import driven_directory, forget_old
from sureline.compose.returning import Returning
from sureline.compose.run_copies import KeptJournals, in_a_thread
from sureline.overlay.membership import Offer
from sureline.peer import orphans
from sureline.peer.capacity import Capacity
from sureline.peer.confine.rules import Rules
from sureline.peer.files.cache import CacheFullError, FileCache
from sureline.peer.files.marks import CacheMarks
from sureline.peer.files.scrubbing import Scrub
from sureline.peer.files.service import FileService
from sureline.peer.grid_agent import GridPeerAgent
from sureline.peer.jobs import BLOB, JobEnded
from sureline.peer.runner import SlotRunner
from sureline.peer.travelling import python_tag
from sureline.run.copies import ROLE
from sureline.strategies import known
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import SurelineError
from sureline.world.address import Node, endpoint_of, name_of
from sureline.world.identity.authority import Authority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.enrolment import EnrolmentDesk
from sureline.world.identity.home import GridHome, HomeClaim
from sureline.world.identity.questions import asked
from sureline.world.identity.renewing import accepting, issuing
from sureline.world.identity.run_keys import GridTrust
from sureline.world.identity.signing import DRIVE, SUBMIT
from sureline.world.identity.whereabouts import hosts_of_interfaces
from sureline.world.live import Runner
from sureline.world.net.interfaces import Berth
from sureline.world.net.moorings import Dialled
from sureline.world.protocol import Job, JobEvent, JobHandle

RUN = "peer"
"""What the runner calls itself: its directory under `work/`, and the token of its processes."""
SLOTS_PER_CORE = 10
SLOTS_MAX = 1024
EVERYWHERE = "0.0.0.0"
LOOK_EVERY_S = 1.0
"""For revocations made in this home, if it holds the authority..."""
LOOK_SELDOM_S = 5.0
"""...and if commands of this home can only have heard of them."""
CONTACTS_EVERY_S = 5.0
BUSY_POLL_S = 0.05
READY_S = 3.0
"""So long before its time a process is started that is to take a run over: it loads its programs
and meets the grid meanwhile."""
LEAVING_S = 10.0
"""How long saying goodbye may take, after the tasks are over."""


class PeerSettings(NamedTuple):
    """What a peer offers, and where."""

    capacity: Capacity
    site: str = ""
    dealing: Mapping[str, float | str] = {}
    """What strategies' halves here are set to, such as a price."""
    listen: Listen | None = None
    cache_bytes: int = 10 << 30
    rules: Rules = Rules()
    """What the tasks of others may do here."""
    pilot: Pilot | None = None
    queue: bool = False
    """Whether it offers to host the task queue of `latebinding`."""
    readers: int = 8
    """How many may read files from here at a time."""
    dialled: Dialled = "auto"
    """Whether others can dial this machine; by default it finds out."""
    carries: bool = True
    """Whether connections between others are carried."""


class Going(NamedTuple):
    """How a peer is to go: `drain` lets tasks finish first."""

    reason: str
    drain: bool = False
    error: SurelineError | None = None


class ClosingRunner(Runner, Protocol):
    """What does a peer's jobs."""

    async def close(self) -> None:
        """Nothing of it is left, and no event comes any more."""


class PeerRunner:
    """A runner whose jobs' outputs, and long logs, become files of the peer's cache.

    A log that is kept in a file is named `blob:DIGEST:SIZE` from here on: it can be had from any
    node of the grid."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, runner: Runner, cache: FileCache, root: Path
    ) -> None:
        self._loop = loop
        self._runner = runner
        self._cache = cache
        self._root = root
        self.files: FileService | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        def heard(event: JobEvent) -> None:
            if not isinstance(event, JobEnded):
                on_event(event)
                return
            for record in event.outputs:
                self._made(record)
            if event.stdout_file is None and event.stderr_file is None:
                on_event(event)
                return
            task = self._loop.create_task(self._with_logs(event, on_event))
            self._tasks.add(task)  # a task that nobody holds may vanish
            task.add_done_callback(self._tasks.discard)

        return self._runner.start(job, heard, after=after)

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        self._runner.stop(handle, force=force)

    def _made(self, record: FileRecord) -> None:
        self._cache.adopt(record)
        if self.files is not None:
            self.files.made(record)

    async def _with_logs(self, event: JobEnded, on_event: Callable[[JobEvent], None]) -> None:
        stdout = await self._loop.run_in_executor(None, self._stored, event.stdout_file)
        stderr = await self._loop.run_in_executor(None, self._stored, event.stderr_file)
        names = []
        for record in (stdout, stderr):
            if record is not None:
                self._made(record)
            names.append(None if record is None else f"{BLOB}{record.digest}:{record.size}")
        on_event(msgspec.structs.replace(event, stdout_file=names[0], stderr_file=names[1]))

    def _stored(self, log: str | None) -> FileRecord | None:
        """Move a log into the cache; None if there is none, or no room for it."""
        if log is None:
            return None
        path = self._root / log
        try:
            return self._cache.put(str(path), log)
        except (CacheFullError, OSError):
            return None
        finally:
            path.unlink(missing_ok=True)


class ServingPeer:
    """`on_ready` hears the node once others can reach it; `tell` is given sentences for people.
    Without a `runner` jobs are done in slot processes."""

    def __init__(
        self,
        home: GridHome,
        settings: PeerSettings,
        on_ready: Callable[[LiveNode], None],
        tell: Callable[[str], None],
        runner: ClosingRunner | None = None,
    ) -> None:
        self._home = home
        capacity = settings.capacity
        python = {**capacity.tags, python_tag(): None}
        self._settings = settings._replace(capacity=msgspec.structs.replace(capacity, tags=python))
        self._on_ready = on_ready
        self._tell = tell
        self._runner = runner
        self._root = peer_directory(home)
        self._started_at = time.time()
        self._stop_at = float("inf")
        """By the loop's clock: when what still runs is stopped."""
        self._going: asyncio.Future[Going]
        self._drivings: set[asyncio.Task[None]] = set()
        self._berth = Berth()
        """How it is reached, as far as was told."""

    def go(self, going: Going) -> None:
        """Ask it to go; the second time, at once."""
        if not self._going.done():
            self._going.set_result(going)
        else:
            self._hurry.set()

    def drain(self, going: Going) -> None:
        """Ask it to go when its tasks are over; asked again, it is in no hurry."""
        if not self._going.done():
            self.go(going)

    async def serve(self) -> None:
        """Serve until told to go. Raises IdentityError if another process serves from this
        home."""
        claim = self._home.claim()
        try:
            self._root.mkdir(mode=0o700, exist_ok=True)
            await self._serve_alone(claim)
        finally:
            claim.release()

    async def _serve_alone(self, claim: HomeClaim) -> None:
        loop = asyncio.get_running_loop()
        self._going = loop.create_future()
        self._hurry = asyncio.Event()
        orphans.clear_run(self._root, RUN)
        for left in orphans.left_aside(self._root):
            self._tell(f"a task's working files could not be removed: {left}")
        runner = self._runner or self._slots(loop)
        cache = open_cache(self._home, self._settings.cache_bytes)
        keep = Keep(loop, self._root / "keep.db", self._crashed)
        kept = KeptJournals(self._root / "kept", in_a_thread(loop))
        adopting = PeerRunner(loop, runner, cache, self._root)
        try:
            pilot = self._settings.pilot
            if pilot is not None:
                await check_health(pilot, runner, self._root)
                drained = Going("its lifetime is nearly over", drain=True)
                self._stop_at = at_its_end(pilot, lambda: self.drain(drained))
            node = await self._open(adopting, cache, keep)
            if await self._move_to_better_host(node):
                node = await self._open(adopting, cache, keep)
            async with node:
                await self._at_work(node, adopting, kept, claim)
        finally:
            await runner.close()
            keep.close()
            cache.close()

    async def _move_to_better_host(self, node: LiveNode) -> bool:
        """Find out how others reach this node. If they cannot dial it where it says, but at another
        address of this machine, and nobody chose the first: take that one, with another node."""
        await node.settle()
        listen = self._settings.listen
        chosen = listen is None or listen.advertise or listen.host != EVERYWHERE
        chosen = chosen or self._settings.dialled != "auto"
        if chosen or node.transport.berth.can_be_dialled is not False:
            return False
        told = endpoint_of(node.id).host
        others = [host for host in hosts_of_interfaces() if host != told]
        better = await node.transport.dialled_at(others)
        if not better:
            return False
        self._tell(f"others cannot dial this machine at {told}, but at {better}: serves there")
        port = endpoint_of(node.id).port
        self._settings = self._settings._replace(listen=Listen(EVERYWHERE, port, better))
        await node.close()
        return True

    def _slots(self, loop: asyncio.AbstractEventLoop) -> SlotRunner:
        return SlotRunner(
            loop,
            root=self._root,
            directory=self._root,
            run=RUN,
            functions={},
            max_slots=min(SLOTS_MAX, math.ceil(self._settings.capacity.cores * SLOTS_PER_CORE) + 1),
            rules=self._settings.rules,
        )

    async def _open(self, runner: PeerRunner, cache: FileCache, keep: Keep) -> LiveNode:
        desk = None
        if self._home.holds_authority:
            desk = EnrolmentDesk(
                Authority.open(self._home),
                Credentials.load(self._home),
                contacts=lambda: [node.id, *self._home.contacts()],
            )
        node = await LiveNode.open(
            self._home,
            cache,
            runner=runner,
            recorder=keep,
            offer=self._offer(),
            listen=self._settings.listen,
            on_stranger=desk.answer if desk is not None else None,
            on_crash=self._crashed,
            on_refused=self._refused,
            dialled=self._settings.dialled,
            carries=self._settings.carries,
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
            self._said_of_itself(),
            tuple(sorted(Credentials.load(self._home).identity.roles)),
            self._started_at,
        )

    def _said_of_itself(self) -> dict[str, float | str]:
        said: dict[str, float | str] = {}
        if self._settings.queue:
            said["queue"] = 1.0
        if self._settings.pilot is not None:
            said["pilot"] = 1.0
        if self._ends_at is not None:
            said["ends_at"] = self._ends_at
        return said

    @property
    def _ends_at(self) -> float | None:
        pilot = self._settings.pilot
        if pilot is None or pilot.lifetime_s is None:
            return None
        return self._started_at + pilot.stop_after_s

    def _crashed(self, error: BaseException) -> None:
        if isinstance(error, SurelineError):
            self.go(Going(str(error), error=error))
        elif not self._going.done():
            self._going.set_exception(error)  # a mistake in the program: the process ends by it

    def _tell_berth(self, berth: Berth) -> None:
        """If how others reach this machine has changed, its user should know."""
        if berth == self._berth or berth.can_be_dialled is None:
            return
        was, self._berth = self._berth, berth
        why = f" ({berth.why_not})" if berth.why_not else ""
        if berth.relays != was.relays and berth.relays:
            names = ", ".join(name_of(relay) for relay in berth.relays)
            self._tell(f"others cannot dial this machine{why}; it is reached through {names}")
        elif not berth.can_be_dialled and not berth.relays:
            self._tell(f"others cannot dial this machine{why}, and nobody carries to it")
        elif berth.can_be_dialled and was.relays:
            self._tell("others can dial this machine again")

    def _superseded(self) -> None:
        reason = "another process serves under the name of this peer"
        self.go(Going(reason, error=SurelineError(f"{reason}; this one stops")))

    def _refused(self, reason: str) -> None:
        self.go(Going(reason, error=SurelineError(f"{reason}; this peer stops")))

    # -- at work --------------------------------------------------------------------------------

    async def _at_work(
        self, node: LiveNode, runner: PeerRunner, kept: KeptJournals, claim: HomeClaim
    ) -> None:
        runner.files = node.files
        peer = self._make_peer(node, kept)
        node.world.guard(peer.start)
        node.files.serve(self._settings.readers)
        node.membership.on_superseded = self._superseded
        await node.settle()  # which it has, unless it has just moved
        node.begin_joining()
        claim.announce(node.id)
        remember_port(self._home, node.id)
        self._on_ready(node)
        forget_old(self._home, node.cache, time.time())
        aside = [asyncio.ensure_future(Scrub(node.cache).run())]
        if SUBMIT in node.credentials.identity.roles:
            aside.append(asyncio.ensure_future(Returning(self._home, node, self._tell).run()))
        try:
            going = await self._look_after(node)
        finally:
            for one in aside:
                one.cancel()
            for driving in self._drivings:
                driving.cancel()
        await self._leave(node, peer.agent, going)
        if going.error is not None:
            raise going.error

    def _make_peer(self, node: LiveNode, kept: KeptJournals) -> GridPeer:
        home, credentials, settings = self._home, node.credentials, self._settings
        workplace = None
        if "run" in credentials.identity.roles and settings.capacity.cores:
            marks = CacheMarks(node.cache)
            strategies = list(known().values())
            dealing = {**settings.dealing, "ends_at": self._ends_at or 0.0}
            workplace = Workplace(settings.capacity, marks, strategies, dealing)
        certificates = Certificates(
            home.issuer().name,
            credentials.renewal_request,
            accepting(credentials),
            issuing(Authority.open(home)) if home.holds_authority else None,
            lambda question, by: asked(credentials, question, by, ROLE),
        )
        take_over = self._take_over if DRIVE in credentials.identity.roles else None
        trust = GridTrust(credentials)
        return GridPeer(node.grid, kept, trust, workplace, certificates, take_over, READY_S)

    def _take_over(self, run: str, in_s: float, over: Callable[[], None]) -> None:
        """Have a process of its own take over a run that nobody writes, in a moment."""
        task = asyncio.ensure_future(self._relieve(run, time.monotonic() + in_s, over))
        self._drivings.add(task)  # a task that nobody holds may vanish
        task.add_done_callback(self._drivings.discard)

    async def _relieve(self, run: str, at_s: float, over: Callable[[], None]) -> None:
        self._tell(f"run {run} has no writer any more; takes it over")
        place = driven_directory(self._home)
        place.mkdir(mode=0o700, exist_ok=True)
        log = os.open(place / f"{run}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "sureline.compose.relieving",
                self._home.grid,
                run,
                str(at_s),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "SURELINE_HOME": str(self._home.home)},
                start_new_session=True,
            )
        finally:
            os.close(log)
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            process.kill()  # others take the run over; asked kindly, it would cancel the run
            raise
        self._tell(f"run {run} is over" if code == 0 else f"run {run} is left to others")
        over()

    async def _look_after(self, node: LiveNode) -> Going:
        """Until it is to go: hear of revocations made in this home, remember contacts."""
        loop = asyncio.get_running_loop()
        look_every_s = LOOK_EVERY_S if self._home.holds_authority else LOOK_SELDOM_S
        next_contacts_at = loop.time() + LOOK_EVERY_S
        while True:
            done, _ = await asyncio.wait([self._going], timeout=look_every_s)
            if done:
                return self._going.result()
            node.publish_revocations()
            self._tell_berth(node.transport.berth)
            if loop.time() >= next_contacts_at:
                next_contacts_at = loop.time() + CONTACTS_EVERY_S
                if node.contacts_are_old():
                    node.remember_contacts()

    async def _leave(self, node: LiveNode, agent: GridPeerAgent | None, going: Going) -> None:
        """Give back or finish the tasks, let others fetch what only this peer has, say goodbye."""
        node.remember_contacts()
        if agent is not None and going.error is None:
            await self._clear(node, agent, going)
        for parting in node.grid.partings():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LEAVING_S):
                    await _done(parting)

    async def _clear(self, node: LiveNode, agent: GridPeerAgent, going: Going) -> None:
        if going.drain and agent.busy:
            self._tell(f"lets {agent.busy} tasks finish; again to stop them")
        agent.leave(stop=not going.drain)
        await self._until_idle(agent, self._stop_at, in_a_hurry=self._hurry)
        if agent.busy:
            agent.leave(stop=True)
            await self._until_idle(agent, asyncio.get_running_loop().time() + LEAVING_S)
        await self._until_reported(agent)

    async def _until_idle(
        self, agent: GridPeerAgent, give_up_at: float, in_a_hurry: asyncio.Event | None = None
    ) -> None:
        """Until no task is left here, it is too late, or somebody is in a hurry."""
        loop = asyncio.get_running_loop()
        while agent.busy and loop.time() < give_up_at:
            if in_a_hurry is not None and in_a_hurry.is_set():
                return
            await asyncio.sleep(BUSY_POLL_S)

    async def _until_reported(self, agent: GridPeerAgent) -> None:
        """Give the writers a moment to take the reports; what they do not take stays on disk."""
        give_up_at = asyncio.get_running_loop().time() + LEAVING_S
        while len(agent.outbox) and not self._hurry.is_set():
            if asyncio.get_running_loop().time() > give_up_at:
                return
            await asyncio.sleep(BUSY_POLL_S)


async def _done(action: Callable[[Callable[[], None]], None]) -> None:
    done = asyncio.Event()
    action(done.set)
    await done.wait()


def remember_port(home: GridHome, node: Node) -> None:
    """So that the next process of this home listens where others look for it."""
    path = peer_directory(home) / "port"
    path.with_suffix(".new").write_text(str(endpoint_of(node).port))
    path.with_suffix(".new").replace(path)


def last_port(home: GridHome) -> int | None:
    """Where the peer of this home listened last."""
    try:
        return int((peer_directory(home) / "port").read_text())
    except (OSError, ValueError):
        return None  # it never did, or the file is damaged: any port will do
