"""Driving a run whose tasks run on a grid's peers.

The process that drives works where an embedded one would: in the user's directory, as the run's
only writer. It is a guest of the grid; peers come and go as the membership says.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from sureline.compose.elsewhere import run_part
from sureline.compose.foresight import Foresight
from sureline.compose.kept import Recorded
from sureline.compose.node import Node, grid_loop, guest_suffix
from sureline.compose.parts import Fetcher
from sureline.compose.parts import Recorder as JournalRecorder
from sureline.compose.reuse import reusable
from sureline.compose.serving import offered
from sureline.compose.session import Outcome, Session, Watcher
from sureline.compose.terms import Before, TermsRefusedError, verdict
from sureline.forecast.follow import kinds_of
from sureline.forecast.machines import Part, together
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
from sureline.strategies.surety.services import took_before
from sureline.strategies.surety.submitter import SuretySubmitter
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import SurelineError
from sureline.workflow.model import Graph, Needs
from sureline.world.address import at, name_of
from sureline.world.identity.home import GridHome
from sureline.world.protocol import AgentId, Fetched, Wanted

HELPERS = 3
"""Slot processes for the user's files: hashing what goes out, putting in place what comes back."""
LAST_WORDS_S = 5.0
NAMED_MAX = 5
"""Peers that are named in one sentence."""
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
        self._refused: TermsRefusedError | None = None
        self._left_out: dict[str, None] = {}
        """Peers that ask a price, in a run without a budget."""

    def drive(self) -> Outcome:
        outcome = super().drive()
        if self._refused is not None:
            raise self._refused
        return outcome

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
        foresight = Foresight(loop, self._history, self._watcher.foreseen)
        here = Fetcher(loop, self._directory, self._journal, writer, store, runner, foresight)
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
        submitter = self._make_submitter(node, writer)
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

    def _make_submitter(self, node: Node, writer: RunWriter) -> GridSubmitter:
        """With a budget, peers are dealt with and paid; without one, only free ones are used."""
        world = node.world.place(self._me)
        if self._options.budget is None:
            return GridSubmitter(
                self._me,
                world,
                self._run,
                self._graph,
                SpreadPlacer(self._run),
                self._options,
                self._ended,
                self._past,
                epoch=writer.epoch,
                on_fenced=self._taken_over,
            )
        return SuretySubmitter(
            self._me,
            world,
            self._run,
            self._graph,
            self._options,
            self._ended,
            self._past,
            epoch=writer.epoch,
            on_fenced=self._taken_over,
            on_told=self._watcher.told,
            on_refused=self._refuse if writer.epoch == 1 and not self._options.anyway else None,
            known=took_before(self._journal.durations(kinds_of(self._graph))),
        )

    def _refuse(self, reason: str) -> None:
        """The run ends before it began, and the command says why."""
        self._refused = TermsRefusedError(reason)

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
        usable = [m for m in node.present() if self._is_usable(m)]
        self._name_left_out()
        present = {m.node: offered(m.offer) for m in usable}
        self._warn(list(present.values()))
        for member in usable:
            _tell_price(submitter, member)
        why = await self._why_refused(present)
        if why:
            self._refuse(why)
            self._world.guard(submitter.refuse, why)
            return
        self._world.guard(submitter.start, present)
        self._world.guard(mirror.start)
        for member in node.present():
            self._tell(submitter, mirror, member)
        node.membership.watch(lambda member: self._tell(submitter, mirror, member))

    async def _why_refused(self, present: Mapping[str, Capacity]) -> str:
        """Why the free peers that are there cannot keep the deadline; '' if they can, or if nobody
        can tell. With a budget, the submitter finds out with the bids."""
        options = self._options
        judged = options.deadline_at is not None and options.budget is None
        if not judged or options.anyway or self._view.epoch > 1 or not present:
            return ""
        machine = together(
            Part(name_of(node), c.cores, c.memory_bytes, c.gpus, c.tags)
            for node, c in present.items()
        )
        known = self._before()
        _, refused = await asyncio.to_thread(verdict, self._graph, machine, known, options.terms)
        return "" if refused is None else f"{refused.why}; {refused.nearest}"

    def _before(self) -> Before:
        reused = (
            () if self._options.fresh else reusable(self._graph, self._journal, self._directory)
        )
        return Before(self._history(), tuple(reused))

    def _is_usable(self, member: Member) -> bool:
        """Whether tasks may go there; who asks a price has no use for a run without a budget."""
        if not _runs(member):
            return False
        if member.offer.price > 0 and self._options.budget is None:
            self._left_out[name_of(member.node)] = None
            return False
        return True

    def _name_left_out(self) -> None:
        if self._left_out:
            names = list(self._left_out)[:NAMED_MAX]
            more = len(self._left_out) - len(names)
            others = f" and {more} more" if more else ""
            asks = "asks" if len(self._left_out) == 1 else "ask"
            self._watcher.told(
                f"{', '.join(names)}{others} {asks} a price and will not be used; give --budget to "
                "use peers that do"
            )

    def _tell(self, submitter: GridSubmitter, mirror: Mirror, member: Member) -> None:
        """Pass on what the membership says of a peer."""
        gone = member.state in ("dead", "left")
        if "run" in member.offer.roles:
            (mirror.peer_left if gone else mirror.peer_joined)(member.node)
        if gone:
            words = "it does not answer" if member.state == "dead" else "it has left"
            submitter.peer_left(member.node, words)
        elif self._is_usable(member):
            _tell_price(submitter, member)
            submitter.peer_joined(member.node, offered(member.offer), member.offer.site)
            submitter.peer_load(member.node, member.load)
        else:
            submitter.peer_left(member.node, "it offers something else now")


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


def _tell_price(submitter: GridSubmitter, member: Member) -> None:
    if isinstance(submitter, SuretySubmitter):
        submitter.peer_asks(member.node, member.offer.price, member.offer.site)
