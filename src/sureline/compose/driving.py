"""Driving a run whose tasks run on a grid's peers.

The process that drives works where an embedded one would: in the user's directory, as the run's
only writer. It is a guest of the grid; peers come and go as the membership says.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from sureline.compose.elsewhere import run_part
from sureline.compose.kept import Recorded
from sureline.compose.node import Node, grid_loop, guest_suffix
from sureline.compose.parts import Fetcher
from sureline.compose.parts import Recorder as JournalRecorder
from sureline.compose.serving import offered
from sureline.compose.session import Session, Watcher
from sureline.journal.events import Event, FileFetched
from sureline.journal.store import Journal
from sureline.journal.writer import RunWriter
from sureline.overlay.membership import Member
from sureline.peer.capacity import Capacity, Ledger
from sureline.peer.files.cache import FileCache
from sureline.peer.files.service import FetchError, FileService
from sureline.peer.jobs import FileMissing, FileReady, UserFile
from sureline.peer.runner import Runner
from sureline.peer.store import BlobStore
from sureline.run.grid_submitter import GridSubmitter
from sureline.run.mirror import Mirror
from sureline.run.presence import Presence
from sureline.run.presence import part as driver_part
from sureline.strategies.spread import SpreadPlacer
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import SurelineError
from sureline.workflow.model import Graph, Needs
from sureline.world.address import at
from sureline.world.identity.home import GridHome
from sureline.world.protocol import AgentId, Fetched, Wanted

HELPERS = 3
"""Slot processes for the user's files: hashing what goes out, putting in place what comes back."""
LAST_WORDS_S = 5.0
UNBOUNDED = 1 << 62
"""The store of the user's own directory is never cleared by itself."""


class TakenOverError(SurelineError):
    """Another process has taken the run over."""


class InputsElsewhere:
    """The user's files for a run that was begun in another directory, perhaps on another machine:
    one that is not here is had from the peers that read it, if it was recorded then."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        here: Fetcher,
        directory: Path,
        journal: Journal,
        run: str,
    ) -> None:
        self._loop = loop
        self._here = here
        self._directory = directory
        self._journal = journal
        self._run = run
        self.files: FileService | None = None
        self._recorded: dict[str, FileRecord] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def fetch(
        self, wanted: Wanted, sources: Sequence[AgentId], on_done: Callable[[Fetched], None]
    ) -> None:
        record = None
        if isinstance(wanted, UserFile) and not os.path.lexists(self._directory / wanted.path):
            record = self._known().get(wanted.path)
        if record is None or self.files is None:
            self._here.fetch(wanted, sources, on_done)
            return
        task = self._loop.create_task(self._bring(self.files, record, on_done))
        self._tasks.add(task)  # a task that nobody holds may vanish
        task.add_done_callback(self._tasks.discard)

    def _known(self) -> dict[str, FileRecord]:
        """What earlier processes read of the user's, by path."""
        if self._recorded is None:
            self._recorded = {
                entry.event.file.path: entry.event.file
                for entry in self._journal.events(self._run)
                if isinstance(entry.event, FileFetched) and entry.event.source == "local"
            }
        return self._recorded

    async def _bring(
        self, files: FileService, record: FileRecord, on_done: Callable[[Fetched], None]
    ) -> None:
        answer: Fetched
        try:
            answer = FileReady((await files.fetch(record)).file)
        except (FetchError, OSError) as error:
            answer = FileMissing(
                record.path,
                f"input {record.path} is not in this directory, and no peer has it any more "
                f"({error}); put it here",
            )
        on_done(answer)


class GridSession(Session):
    """One process's work on one run over a grid."""

    def __init__(
        self,
        journal: Journal,
        run: str,
        graph: Graph,
        directory: Path,
        home: GridHome,
        watcher: Watcher | None,
    ) -> None:
        super().__init__(journal, run, graph, directory, Capacity(0, 0), watcher)
        self._home = home
        self._mirror: Mirror | None = None

    def _run_loop(self, writer: RunWriter) -> None:
        with grid_loop() as loop:
            loop.run(self._serve(writer))

    async def _serve(self, writer: RunWriter) -> None:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        root = self._journal.directory
        runner = Runner(
            loop,
            root=root,
            directory=self._directory,
            run=self._run,
            functions={},
            max_slots=HELPERS,
        )
        recorder = JournalRecorder(loop, writer, self._heard, self._crashed)
        cache = FileCache(root, UNBOUNDED)
        store = BlobStore(root, self._directory)
        here = Fetcher(loop, self._directory, self._journal, writer, store, runner)
        inputs = InputsElsewhere(loop, here, self._directory, self._journal, self._run)
        try:
            node = await Node.open(
                self._home,
                cache,
                runner=runner,
                recorder=recorder,
                otherwise=inputs,
                guest=guest_suffix(),
                on_crash=self._crashed,
                on_refused=lambda reason: self._crashed(SurelineError(reason)),
            )
            inputs.files = node.files
            async with node:
                await self._drive_on(node, writer)
                if self._error is None:
                    recorder.close()
        finally:
            await runner.close()
            cache.close()

    async def _drive_on(self, node: Node, writer: RunWriter) -> None:
        loop = asyncio.get_running_loop()
        self._world = node.world
        self._me = at(node.id, run_part(self._run))
        submitter = GridSubmitter(
            self._me,
            node.world.place(self._me),
            self._run,
            self._graph,
            SpreadPlacer(self._run),
            self._options,
            self._ended,
            self._past,
            epoch=writer.epoch,
            on_fenced=self._taken_over,
        )
        self._mirror = self._make_mirror(node, writer, submitter)
        me = at(node.id, driver_part(self._run))
        presence = Presence(me, node.world.place(me), self._run, writer.epoch, os.getpid())
        for agent in (submitter, self._mirror, presence):
            self._world.join(agent)
        restore = self._listen_to_signals(loop)
        try:
            self._watch_requests(loop)
            await self._begin(node, submitter)
            await self._over
            if self._error is None:
                await self._tell_keepers()
        finally:
            restore()
            if self._poll is not None:
                self._poll.cancel()

    def _make_mirror(self, node: Node, writer: RunWriter, submitter: GridSubmitter) -> Mirror:
        me = at(node.id, f"mirror.{self._run}")
        return Mirror(
            me,
            node.world.place(me),
            self._run,
            writer.epoch,
            self._graph.to_bytes(),
            Recorded(self._journal, self._run, writer.epoch),
            submitter.taken_over,
        )

    def _taken_over(self, reason: str) -> None:
        self._crashed(TakenOverError(reason))

    def _heard(self, event: Event) -> None:
        super()._heard(event)
        if self._mirror is not None:
            self._mirror.recorded()

    async def _tell_keepers(self) -> None:
        """The end of the run is durable here; let its keepers have it too, if they answer."""
        assert self._mirror is not None
        done = asyncio.Event()
        self._world.guard(self._mirror.drain, LAST_WORDS_S, done.set)
        await done.wait()

    def _warn(self, machines: Sequence[Capacity]) -> None:
        """Say which tasks will wait for a machine that is not there."""
        unfit = _unfit(self._graph, machines)
        if not machines:
            self._watcher.told("no peer of the grid runs tasks just now; the run waits for one")
        elif unfit:
            others = f" and {len(unfit) - 1} more" if len(unfit) > 1 else ""
            self._watcher.told(
                f"no peer is large enough for {unfit[0]}{others} just now; why: "
                f"sureline explain {self._run} {unfit[0]}"
            )

    async def _begin(self, node: Node, submitter: GridSubmitter) -> None:
        """Meet the grid, then start; peers that come later are told of as they come."""
        assert self._mirror is not None
        mirror = self._mirror
        await node.join()
        present = {m.node: offered(m.offer) for m in node.present() if _runs(m)}
        self._warn(list(present.values()))
        self._world.guard(submitter.start, present)
        self._world.guard(mirror.start)
        for member in node.present():
            _tell(submitter, mirror, member)
        node.membership.watch(lambda member: _tell(submitter, mirror, member))


def _unfit(graph: Graph, machines: Sequence[Capacity]) -> list[str]:
    """The tasks that no machine is large enough for."""
    ledgers = [Ledger(machine) for machine in machines]
    fits: dict[Needs, bool] = {}
    unfit = []
    for task in graph.tasks:
        if task.needs not in fits:
            fits[task.needs] = any(ledger.fits(task.needs) for ledger in ledgers)
        if not fits[task.needs]:
            unfit.append(task.name)
    return unfit


def _runs(member: Member) -> bool:
    return "run" in member.offer.roles and member.offer.cores > 0


def _tell(submitter: GridSubmitter, mirror: Mirror, member: Member) -> None:
    """Pass on what the membership says of a peer."""
    gone = member.state in ("dead", "left")
    if "run" in member.offer.roles:
        (mirror.peer_left if gone else mirror.peer_joined)(member.node)
    if not _runs(member):
        return
    if gone:
        words = "it does not answer" if member.state == "dead" else "it has left"
        submitter.peer_left(member.node, words)
    else:
        submitter.peer_joined(member.node, offered(member.offer), member.offer.site)
        submitter.peer_load(member.node, member.load)
