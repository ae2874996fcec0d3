"""Driving a run whose tasks run on a grid's peers.

The process that drives works where an embedded one would: in the user's directory, as the run's
only writer. It is a guest of the grid; peers come and go as the membership says.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

from sureline.assembly.driver import Charge, Present, RunDriver
from sureline.compose.foresight import Foresight
from sureline.compose.node import LiveNode, grid_loop, guest_suffix, open_node
from sureline.compose.parts import EmbeddedFetcher, JournalRecorder
from sureline.compose.reuse import reusable
from sureline.compose.run_copies import JournalRecorded
from sureline.compose.session import Session, Watcher
from sureline.compose.signing import signer_of
from sureline.compose.strikes import remember, remembered
from sureline.compose.terms import Before, verdict
from sureline.forecast.machines import MachinePart, together
from sureline.journal.events import Event, FileFetched, PeerLeft
from sureline.journal.store import Journal
from sureline.journal.writer import RunWriter
from sureline.peer.capacity import Capacity
from sureline.peer.files.cache import FileCache
from sureline.peer.files.service import FetchError, FileService
from sureline.peer.jobs import FileMissing, FileReady, UserFile
from sureline.peer.runner import SlotRunner
from sureline.peer.store import BlobStore
from sureline.peer.travelling import store_calls
from sureline.run.engine import Hearers
from sureline.strategies import strategy
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import SurelineError
from sureline.workflow.model import Graph
from sureline.world.address import Node
from sureline.world.identity.home import GridHome
from sureline.world.protocol import Fetched, Wanted

HELPERS = 3
"""Slot processes for the user's files: hashing what goes out, putting in place what comes back."""
UNBOUNDED = 1 << 62
"""The store of the user's own directory is never cleared by itself."""


class TakenOverError(SurelineError):
    """This process may write the run no more: another one does, or may."""


class Held(NamedTuple):
    """What this process was granted; see `run.grant`."""

    number: int
    writer: str
    voters: tuple[str, ...]
    vote: str
    """The word of this journal as a voter."""


def bring(grid: str, home: Path, file: FileRecord, peer: str) -> None:
    """Fetch one file of a grid, made on this peer, into the store of a directory, as a guest;
    nothing if nobody has it."""

    async def fetch() -> None:
        with contextlib.suppress(FetchError):
            async with open_node(grid, FileCache(home, UNBOUNDED)) as node:
                await node.files.fetch(file, node.nodes_of(peer))

    with grid_loop() as loop:
        loop.run(fetch())


class InputsElsewhere:
    """The user's files for a run that was begun in another directory, perhaps on another machine:
    one that is not here is had from the peers that read it, if it was recorded then."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        here: EmbeddedFetcher,
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
        self, wanted: Wanted, sources: Sequence[Node], on_done: Callable[[Fetched], None]
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
        held: Held,
    ) -> None:
        super().__init__(journal, run, graph, directory, Capacity(0, 0), watcher)
        self._home = home
        self._held = held
        self._driver: RunDriver | None = None
        self._judging: asyncio.Task[None] | None = None

    def _read_past(self) -> str:
        boot = super()._read_past()
        self._past.strikes = remembered(self._home)
        return boot

    def _next_epoch(self, last: int) -> int:
        return self._held.number

    def _run_loop(self, writer: RunWriter) -> None:
        with grid_loop() as loop:
            loop.run(self._serve(writer))

    async def _serve(self, writer: RunWriter) -> None:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        root = self._journal.directory
        runner = SlotRunner(
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
        store_calls(self._graph, store)
        foresight = Foresight(loop, self._history, self._watcher.foreseen)
        here = EmbeddedFetcher(
            loop, self._directory, self._journal, writer, store, runner, foresight
        )
        inputs = InputsElsewhere(loop, here, self._directory, self._journal, self._run)
        try:
            node = await LiveNode.open(
                self._home,
                cache,
                runner=runner,
                recorder=recorder,
                otherwise=inputs,
                guest=guest_suffix(),
                on_crash=self._crashed,
                on_refused=lambda reason: self._crashed(SurelineError(reason)),
                dialled="auto",
            )
            inputs.files = node.files
            async with node:
                await self._drive_on(node, writer)
                if self._error is None:
                    recorder.close()
        finally:
            await runner.close()
            cache.close()

    async def _drive_on(self, node: LiveNode, writer: RunWriter) -> None:
        loop = asyncio.get_running_loop()
        self._world = node.world
        recorded = JournalRecorded(self._journal, self._run, writer.epoch)
        signer = signer_of(self._journal, self._run, writer.epoch, node.credentials)
        charge = Charge(
            self._run,
            self._graph,
            self._options,
            self._past,
            writer.epoch,
            signer,
            self._history,
            os.getpid(),
            self._held.writer,
            self._held.voters,
            self._held.vote,
        )
        driver = RunDriver(node.grid, charge, recorded, self._hearers(writer), self._judge)
        self._driver, self._me = driver, driver.me
        self._made(driver)
        restore = self._listen_to_signals(loop)
        try:
            self._watch_requests(loop)
            await node.meet(self._watcher.told)
            self._world.guard(driver.begin)
            await self._over
            if self._error is None:
                told = asyncio.Event()
                self._world.guard(driver.say_last, told.set)
                await told.wait()
        finally:
            restore()
            if self._poll is not None:
                self._poll.cancel()

    def _made(self, driver: RunDriver) -> None:
        """What drives the run is there, and has not begun."""

    def _hearers(self, writer: RunWriter) -> Hearers:
        return super()._hearers(writer)._replace(on_fenced=self._taken_over)

    def _taken_over(self, reason: str) -> None:
        self._crashed(TakenOverError(reason))

    def _heard(self, event: Event) -> None:
        super()._heard(event)
        if isinstance(event, PeerLeft) and event.strikes:
            remember(self._home, event)
        if self._driver is not None:
            self._driver.mirror.recorded()

    def _judge(self, present: Present, then: Callable[[str], None]) -> None:
        async def judge() -> None:
            why = await self._why_refused(present)
            self._world.guard(then, why)

        self._judging = asyncio.ensure_future(judge())

    async def _why_refused(self, present: Present) -> str:
        """Why the free peers that are there cannot keep the deadline; '' if they can, or if nobody
        can tell, or if the strategy finds out, such as with bids."""
        options = self._options
        judged = options.deadline_at is not None and not strategy(options.strategy).judges
        if not judged or options.anyway or self._view.epoch > 1 or not present:
            return ""
        machine = together(
            MachinePart(target.name, c.cores, c.memory_bytes, c.gpus, c.tags)
            for target in present
            for c in (target.capacity,)
        )
        known = self._before()
        _, refused = await asyncio.to_thread(verdict, self._graph, machine, known, options.terms)
        return "" if refused is None else f"{refused.why}; {refused.nearest}"

    def _before(self) -> Before:
        reused = (
            () if self._options.fresh else reusable(self._graph, self._journal, self._directory)
        )
        return Before(self._history(), tuple(reused))
