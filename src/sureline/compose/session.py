"""One process's work on one run on this machine: from taking it over to its end."""

from __future__ import annotations

import asyncio
import errno
import os
import platform
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sureline.assembly.writer import make_writer
from sureline.compose.foresight import Foresight, History
from sureline.compose.parts import Elsewhere, EmbeddedFetcher, JournalRecorder
from sureline.compose.terms import TermsRefusedError
from sureline.forecast.follow import kinds_of
from sureline.forecast.result import Forecast
from sureline.journal.errors import JournalError, explained
from sureline.journal.events import (
    Event,
    Grown,
    Noted,
    Opened,
    RunEnded,
    Submitted,
    TaskBound,
    Unknown,
)
from sureline.journal.locks import LOCK, RunLock, boot_id, holder
from sureline.journal.store import Journal
from sureline.journal.views import Counts, RunView
from sureline.journal.words import moment
from sureline.journal.writer import RunWriter
from sureline.peer import orphans
from sureline.peer.agent import PeerAgent
from sureline.peer.capacity import Capacity
from sureline.peer.removing import clear_away
from sureline.peer.runner import SlotRunner
from sureline.peer.store import BlobStore
from sureline.run.engine import Hearers
from sureline.run.options import CancelRun, Options, Past
from sureline.run.port import Target
from sureline.run.warrants import Given
from sureline.strategies import resolved
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph
from sureline.world.address import Node, PeerName
from sureline.world.live import LiveWorld
from sureline.world.protocol import AgentId

WRITER = AgentId("writer")
REQUEST_POLL_S = 0.5
SLOTS_MAX = 1024
NEW_S = 60.0
"""Nobody takes longer from making a run's directory to locking it."""
OF_THE_PLACE = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO}
)
"""Errors that say something about the disk, not about this program."""


class Outcome(msgspec.Struct, frozen=True):
    """How a run ended; `run --json` prints this."""

    run: str
    state: str
    tasks: Counts
    elapsed_s: float
    reason: str = ""
    deadline: str | None = None
    """When it was to be done; None if that did not matter."""
    late_s: float | None = None
    """By how much it was late, 0 if it was not; None if there was no deadline, or no success."""


def outcome_of(run: str, view: RunView) -> Outcome:
    """How a run ended that nobody works on any more."""
    state, deadline_at, late_s = view.state(alive=False), view.terms.deadline_at, None
    if deadline_at is not None and state == "succeeded" and view.ended_at is not None:
        late_s = round(max(0.0, view.ended_at - deadline_at), 3)
    elapsed_s = round(view.elapsed_s, 3)
    deadline = None if deadline_at is None else moment(deadline_at)
    return Outcome(run, state, view.counts, elapsed_s, view.reason, deadline, late_s)


class Watcher:
    """What a face hears of a run while it goes on. Override what you need; never raise."""

    def submitted(self, run: str, graph: Graph, notice: str | None, done: int) -> None:
        """The run exists durably from now on; `done` tasks were committed before."""

    def event(self, event: Event) -> None:
        """Something was recorded."""

    def told(self, sentence: str) -> None:
        """Something that the user should know, and that is no event."""

    def foreseen(self, forecast: Forecast) -> None:
        """A forecast was made to watch over the deadline; without one, none is."""

    def interrupted(self, drain: bool, running: int) -> None:
        """Asked to stop: running tasks may finish (`drain`), or are being stopped."""


@contextmanager
def place_explained(journal: Journal) -> Iterator[None]:
    """A disk that is full, broken or not writable is told in one sentence, as a JournalError."""
    try:
        yield
    except OSError as error:
        if error.errno not in OF_THE_PLACE:
            raise
        raise explained(journal.path, error) from error


def lock_run(journal: Journal, run: str, wait_s: float = 0.0) -> RunLock:
    give_up_s = time.monotonic() + wait_s
    while (lock := RunLock.acquire(journal.work_directory(run))) is None:
        if time.monotonic() >= give_up_s:
            told = f"run {run} is still running in another process"
            raise UserError(f"{told}; stop it with: sureline cancel {run}")
        time.sleep(REQUEST_POLL_S)
    return lock


def opened(epoch: int) -> Opened:
    return Opened(time.time(), epoch, platform.node(), os.getpid(), boot_id())


class Session:
    """One process's work on one run: from taking it over to its end.

    How it is to be run, and what earlier processes did, is read from the journal.
    """

    def __init__(
        self,
        journal: Journal,
        run: str,
        graph: Graph,
        directory: Path,
        machine: Capacity,
        watcher: Watcher | None,
    ) -> None:
        self._journal = journal
        self._run = run
        self._graph = graph
        self._functions = dict(graph.functions)
        """Of calls, by digest; those of calls that the graph grew by come in addition."""
        self._directory = directory
        self._machine = machine
        self._options = Options()
        self._past = Past()
        self._watcher = watcher or Watcher()
        self._me = WRITER
        self._view = RunView()
        self._interrupts = 0
        self._requests_seen = 0
        self._poll: asyncio.TimerHandle | None = None
        self._error: BaseException | None = None
        self._refused: TermsRefusedError | None = None
        self._lock = lock_run(journal, run)

    def drive(self) -> Outcome:
        try:
            _clear_leftovers(self._journal, self._run)
            boot = self._read_past()
            writer = self._journal.take(self._run, self._opened, self._next_epoch)
            if writer.epoch > 1 and boot != boot_id():
                # The machine went down since: the journal was synced, the stored files were not.
                self._options = msgspec.structs.replace(self._options, verify=True)
            self._watcher.submitted(
                self._run,
                self._graph,
                self._journal.notice or self._lock.notice,
                len(self._past.committed),
            )
            for left in orphans.left_aside(self._journal.directory):
                self._watcher.told(f"a task's working files could not be removed: {left}")
            self._run_loop(writer)
        finally:
            # Also when an interrupt came before there was a runner to clear up after itself.
            aside = orphans.aside_of(str(self._journal.directory))
            clear_away(str(self._journal.work_directory(self._run)), aside)
            self._lock.release()
        if self._error is not None:
            raise self._error
        if self._refused is not None:
            raise self._refused
        return outcome_of(self._run, self._view)

    def _run_loop(self, writer: RunWriter) -> None:
        asyncio.run(self._serve(writer))

    def _next_epoch(self, last: int) -> int:
        """The lock sees to it that nobody else takes the run over from here."""
        return last + 1

    def _opened(self, epoch: int) -> Opened:
        event = opened(epoch)
        self._view.apply(event)
        return event

    def _read_past(self) -> str:
        """What the journal says was done already, and how the run is to be run; the boot in which
        the last process worked on it. We hold the lock, so nobody else writes meanwhile."""
        boot = ""
        noted: list[Noted | Unknown] = []
        seals: dict[Given, bytes] = {}
        for entry in self._journal.events(self._run):
            self._view.apply(entry.event)
            match entry.event:
                case Submitted(options=chosen):
                    self._options = msgspec.convert(chosen, Options)
                case Opened(boot=at_boot):
                    boot = at_boot
                case Noted() | Unknown() as note:
                    noted.append(note)
                case TaskBound(seal=seal) as bound if seal:
                    seals[bound.task, bound.attempt, bound.peer] = seal
        attempts = {name: task.attempts for name, task in self._view.tasks.items()}
        committed = {ended.task: ended for ended in self._journal.commits(self._run)}
        self._options = resolved(self._options)
        seals = {given: seal for given, seal in seals.items() if given[0] not in committed}
        self._past = Past(committed, attempts, tuple(noted), seals)
        return boot

    async def _serve(self, writer: RunWriter) -> None:
        loop = asyncio.get_running_loop()
        self._over = loop.create_future()
        slots = _slots(self._machine, self._graph)
        runner = SlotRunner(
            loop,
            root=self._journal.directory,
            directory=self._directory,
            run=self._run,
            functions=self._functions,
            max_slots=slots,
        )
        if len(self._journal.runs()) == 1 and not self._options.sites:  # nothing can be reused
            runner.warm(min(slots - 1, len(self._graph)))
        recorder = JournalRecorder(loop, writer, self._heard, self._crashed)
        store = BlobStore(self._journal.directory, self._directory)
        foresight = Foresight(loop, self._history, self._watcher.foreseen)
        fetcher = EmbeddedFetcher(
            *(loop, self._directory, self._journal, writer, store, runner, foresight),
            self._elsewhere(),
        )
        self._world = LiveWorld(loop, runner, fetcher, recorder, on_crash=self._crashed)
        targets = self._join_targets(loop)
        engine, agents = make_writer(
            Node(platform.node() or "here"),
            WRITER,
            self._world.place,
            self._run,
            self._graph,
            self._options,
            self._past,
            self._history,
            self._hearers(writer),
        )
        for agent in agents:
            self._world.join(agent)
        restore = self._listen_to_signals(loop)
        try:
            self._watch_requests(loop)
            self._world.guard(engine.start, targets)
            await self._over
            if self._error is None:
                recorder.close()
        finally:
            restore()
            if self._poll is not None:
                self._poll.cancel()
            await self._leave_targets()
            await runner.close()

    def _elsewhere(self) -> Elsewhere | None:
        """Where files, and results of other directories, are looked for, if anywhere."""
        return None

    def _join_targets(self, loop: asyncio.AbstractEventLoop) -> list[Target]:
        """Who takes the tasks; their agents join the world."""
        name = platform.node() or "here"
        here = AgentId(name)
        self._world.join(PeerAgent(here, self._world.place(here), self._machine))
        return [Target(PeerName(name), here, self._machine)]

    async def _leave_targets(self) -> None:
        """The world is over for them."""

    def _hearers(self, writer: RunWriter) -> Hearers:
        refusable = writer.epoch == 1 and not self._options.anyway
        return Hearers(
            self._ended,
            on_told=self._watcher.told,
            on_refused=self._refuse if refusable else None,
        )

    def _refuse(self, reason: str) -> None:
        """The run ends before it began, and the command says why."""
        self._refused = TermsRefusedError(reason)

    def _history(self) -> History:
        return self._journal.durations(kinds_of(self._graph))

    def _heard(self, event: Event) -> None:
        if isinstance(event, Grown):
            self._graph = self._graph.grown(event.growth)
            self._functions.update(self._graph.functions)
        self._view.apply(event)
        self._watcher.event(event)

    def _ended(self, ended: RunEnded) -> None:
        if not self._over.done():
            self._over.set_result(None)

    def _crashed(self, error: BaseException) -> None:
        self._error = self._error or error
        if not self._over.done():
            self._over.set_result(None)

    # -- being asked to stop -------------------------------------------------------------------

    def _listen_to_signals(self, loop: asyncio.AbstractEventLoop) -> Callable[[], None]:
        """Ctrl-C drains, then stops, then kills; a request to terminate stops, then kills."""
        if threading.current_thread() is not threading.main_thread():
            return lambda: None
        urgencies = {signal.SIGINT: 1, signal.SIGTERM: 2}
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:  # as under nohup
            urgencies[signal.SIGHUP] = 2
        before = {number: signal.getsignal(number) for number in urgencies}
        for number, urgency in urgencies.items():
            loop.add_signal_handler(number, self._interrupt, urgency)

        def restore() -> None:
            for number, handler in before.items():
                loop.remove_signal_handler(number)
                signal.signal(number, handler)

        return restore

    def _interrupt(self, urgency: int, reason: str = "interrupted") -> None:
        self._interrupts = max(self._interrupts + 1, urgency)
        drain, force = self._interrupts == 1, self._interrupts >= 3
        under_way = self._view.by_state.get("running", 0) + self._view.by_state.get("bound", 0)
        self._watcher.interrupted(drain, under_way)
        self._world.post(AgentId("console"), self._me, CancelRun(drain, force, reason))

    def _watch_requests(self, loop: asyncio.AbstractEventLoop) -> None:
        """Other processes ask through the journal: that works across machines too."""
        self._poll = loop.call_later(REQUEST_POLL_S, self._watch_requests, loop)
        try:
            requests = self._journal.requests(self._run)
        except JournalError as error:
            self._world.crash(error)
            return
        for request in requests[self._requests_seen :]:
            self._interrupt(1 if request.what == "drain" else 2, "cancelled by another process")
        self._requests_seen = len(requests)


def _slots(machine: Capacity, graph: Graph) -> int:
    """Slot processes at most: as many as may run at once, and one to move files meanwhile."""
    smallest = min((task.needs.cores for task in graph.tasks), default=1.0)
    return min(SLOTS_MAX, int(machine.cores / smallest) + 1)


def _clear_leftovers(journal: Journal, mine: str) -> None:
    """End what crashed processes left behind, of this run and of others: jobs and passing files."""
    work = journal.work_directory(mine).parent
    BlobStore(journal.directory).sweep()
    for name in os.listdir(work):
        if name == mine:
            _clear_own(journal, mine)
            continue
        if not (work / name).is_dir():
            continue  # a file on its way into the store
        if RunLock.held_elsewhere(work / name) or _is_new(work / name):
            continue
        lock = RunLock.acquire(work / name)
        if lock is not None:
            orphans.clear_run(journal.directory, name)
            lock.release()


def _is_new(work: Path) -> bool:
    """Whether a run is just being created: its process is about to take the lock."""
    try:
        if time.time() - os.stat(work).st_mtime > NEW_S:
            return False
        return holder(work) is None and not set(os.listdir(work)) - {LOCK}
    except FileNotFoundError:
        return True  # it ended meanwhile


def _clear_own(journal: Journal, run: str) -> None:
    """As `orphans.clear_run`, but the lock, which we hold, stays."""
    orphans.kill(orphans.token_of(os.path.abspath(journal.directory), run, ""), prefix=True)
    with os.scandir(journal.work_directory(run)) as entries:
        for entry in list(entries):
            if entry.is_dir(follow_symlinks=False):
                clear_away(entry.path, orphans.aside_of(str(journal.directory)))
            elif entry.name != LOCK:
                os.unlink(entry.path)
