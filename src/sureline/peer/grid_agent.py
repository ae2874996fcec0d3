"""The agent of a machine that runs tasks for others over a network.

Like `agent.PeerAgent` it admits tasks against its ledger and starts what fits. Beyond that:
- A writer must `Attach` before it may bind. The machine remembers durably the highest epoch of
  each run and that writer's address, and fences older writers.
- A task's inputs are fetched into this machine's store first (`gathering`), while others run; a
  task starts when all of them are here. If one cannot be had, the task is refused, naming it.
- The report of an attempt goes into the outbox and stays there until it is acknowledged.
- What fails through this machine's own fault (a full disk) is given back, as refused: the task is
  not to blame. No other is taken until a check finds the machine well again. An input that is found
  damaged is fetched again.
- Repeated and late messages change nothing: an attempt is known by (run, task, attempt), and those
  that are over are remembered for a while with the epoch in which they were bound.

Which files must stay in the store is said to `Marks`: inputs while they are in use, outputs until
the writer has a copy of its own or the run is over. Nobody may ever say that, so there is a lease:
it is over too when the run's writer has not been heard of for `lease_s`.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable
from itertools import islice

import msgspec

from sureline.peer.admitting import Admitting, Look, Waiting
from sureline.peer.capacity import Capacity, Ledger, is_possible
from sureline.peer.gathering import Gathered, Gathering
from sureline.peer.jobs import (
    BLOB,
    Brought,
    CallJob,
    CheckJob,
    CommandJob,
    JobEnded,
    JobProgressed,
    JobStarted,
    PauseJob,
)
from sureline.peer.marks import Marks, NoMarks
from sureline.peer.messages import (
    Acknowledge,
    Attach,
    Attached,
    AttemptMessage,
    Bind,
    Entrust,
    Fenced,
    Finished,
    Progressed,
    Refused,
    Release,
    Started,
    Withdraw,
)
from sureline.peer.outbox import GATHER_S, Key, Outbox
from sureline.peer.safekeeping import Safekeeping
from sureline.peer.writers import Writers
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Needs
from sureline.workflow.paths import PathError, normalise
from sureline.world.address import name_of
from sureline.world.agent import Agent, handles
from sureline.world.identity.signing import PapersError, WriterAuthority
from sureline.world.protocol import AgentId, JobEvent, JobHandle, World

QUEUE_MAX = 10_000
LOOKED_AT_MAX = 64
LEASE_S = 7 * 86_400.0
"""As long as reports are kept: a machine that was shut for some days can go on with its run."""
LOOK_S = 600.0
"""How often it is looked whether leases are over."""
OVER_MAX = 20_000
"""Attempts that are over and remembered, so that a late copy of a Bind starts nothing."""
FETCHED_AGAIN_MAX = 3
"""An input that is damaged more often than this is given up on here."""
WELL_AGAIN_S = 30.0
"""So often a machine that is ill looks whether it is well again."""
PAGE_MAX = 500
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
"""Both become parts of file names here, whoever made them up."""


class _Task(msgspec.Struct):
    """One attempt, from its Bind to its report."""

    bind: Bind
    bound_s: float
    """By `World.elapsed`, as all intervals are."""
    here: dict[str, FileRecord] = {}
    """Its inputs in this machine's store, by digest."""
    brought: Brought = Brought()
    handle: JobHandle | None = None
    started: bool = False
    pid: int | None = None
    fraction: float | None = None
    fetched_again: int = 0

    @property
    def inputs(self) -> tuple[FileRecord, ...]:
        job = self.bind.job
        return job.inputs if isinstance(job, CommandJob) else ()


class GridPeerAgent(Agent):
    """`on_load` hears (cores in use, tasks waiting) whenever that changes. The halves
    of strategies here (`admit_by`) are asked before an attempt is admitted, and what starts."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        capacity: Capacity,
        marks: Marks | None = None,
        on_load: Callable[[float, int], None] | None = None,
        lease_s: float = LEASE_S,
        check: Callable[[str, int, bytes], WriterAuthority] | None = None,
    ) -> None:
        super().__init__(me, world)
        self.ledger = Ledger(capacity)
        self._whole = Ledger(capacity)
        self._marks: Marks = marks or NoMarks()
        self._on_load = on_load
        self._writers = Writers(world, self._runs_here)
        self.outbox = Outbox(world, self._writers.address)
        self._lease_s = lease_s
        self._check = check
        self._tasks: dict[Key, _Task] = {}
        self._gathering = Gathering(world, self._brought_in, self._gathered)
        self._entrusted = Safekeeping(world, lambda file, run: self._marks.keep([file], run))
        self._ready: dict[Key, Needs] = {}
        self._wanted: Counter[Needs] = Counter()
        """What those need: mostly the same."""
        self._over: dict[Key, int] = {}
        self._running = 0
        self._leaving = False
        self._admitting: list[Admitting] = []
        self._ill = ""
        """Why this machine takes nothing just now."""
        self._unsaid: dict[Key, None] = {}
        """Attempts that have begun, of which nobody was told."""

    def start(self) -> None:
        """Take up what an earlier process left: its writers hear that it was started again."""
        self._writers.load(self._lease_s)
        self.outbox.load()
        for run, address in self._writers.listening():
            self._tell(run, address, 0)
        self.world.after(LOOK_S, self._look_at_leases)

    def _look_at_leases(self) -> None:
        """Let go of what was kept for runs that nobody speaks for any more."""
        for run in list(self._marks.runs()):
            if self._writers.silent_s(run) > self._lease_s:
                self._marks.release_run(run)
        self._writers.forget_old()
        self.world.after(LOOK_S, self._look_at_leases)

    def _runs_here(self) -> set[str]:
        return {key[0] for key in self._tasks} | self.outbox.runs()

    def admit_by(self, half: Admitting) -> None:
        """From now on a strategy's half has a say here."""
        self._admitting.append(half)

    def leave(self, *, stop: bool) -> None:
        """Take nothing more, and give back what has not started; with `stop`, also what has."""
        self._leaving = True
        for key, task in list(self._tasks.items()):
            if stop or task.handle is None:
                self._stop(key, force=False)

    @property
    def leaving(self) -> bool:
        return self._leaving

    @property
    def capacity(self) -> Capacity:
        return self.ledger.capacity

    def look_again(self) -> None:
        """Something has changed about what may start."""
        self._start_ready()

    @property
    def busy(self) -> int:
        """How many tasks are here, under way or waiting."""
        return len(self._tasks)

    @property
    def cores_in_use(self) -> float:
        """All of them, while this machine takes nothing."""
        if self._ill:
            return self.ledger.capacity.cores
        return self.ledger.capacity.cores - self.ledger.millicores / 1000

    @property
    def waiting(self) -> int:
        return len(self._tasks) - self._running

    def _changed(self) -> None:
        if self._on_load is not None:
            self._on_load(self.cores_in_use, self.waiting)

    # -- writers -------------------------------------------------------------------------------

    @handles(Attach)
    def on_attach(self, sender: AgentId, message: Attach) -> None:
        run, epoch = message.run, message.epoch
        if not RUN_NAME.fullmatch(run) or self._is_old(sender, run, epoch):
            return
        start = b""
        anew = self._writers.address(run) != sender
        if self._check is not None and not self._writers.is_writer(run, epoch, sender):
            try:
                authority = self._check(run, epoch, message.papers)
            except PapersError:
                return  # nothing that whoever sent this could be told would help
            if not self._writers.believes(authority, sender):
                return  # it will ask again, and the writer may be gone by then
            start = authority.start

        def answer() -> None:
            self._tell(message.run, sender, message.serial)
            self.outbox.resend(message.run, anew=anew)

        # The answer promises that older writers are fenced: it must not be forgotten in a crash.
        self._writers.attach(run, epoch, sender, answer, start, message.quiet_s)

    def _is_old(self, sender: AgentId, run: str, epoch: int) -> bool:
        """Fences a writer that is."""
        newest = self._writers.epoch(run)
        if epoch < newest:
            self.world.send(sender, Fenced(run, newest))
        return epoch < newest

    def _may(self, sender: AgentId, run: str, epoch: int) -> bool:
        """Whether the sender may ask for anything, as this run's writer; fences an older one. One
        that has not attached is not heard: it will find out, and attach."""
        if self._is_old(sender, run, epoch) or not self._writers.is_writer(run, epoch, sender):
            return False
        self._writers.heard(run)
        return True

    def _tell(self, run: str, to: AgentId, serial: int) -> None:
        here = [(key, task) for key, task in self._tasks.items() if key[0] == run]
        under_way = [(key[1], key[2], task.started, task.bind.warrant) for key, task in here]
        reports = self.outbox.reports(run)
        pages = max(1, -(-max(len(under_way), len(reports)) // PAGE_MAX))
        for page in range(pages):
            cut = slice(page * PAGE_MAX, (page + 1) * PAGE_MAX)
            self.world.send(
                to,
                Attached(
                    run,
                    self._writers.epoch(run),
                    serial,
                    self._writers.session,
                    page,
                    page == pages - 1,
                    tuple(under_way[cut]),
                    tuple(reports[cut]),
                ),
            )

    @handles(Acknowledge)
    def on_acknowledge(self, sender: AgentId, message: Acknowledge) -> None:
        if self._may(sender, message.run, message.epoch):
            self.outbox.acknowledge(message.run, message.reports)
            self._marks.release(message.unwanted, message.run)

    @handles(Entrust)
    def on_entrust(self, sender: AgentId, message: Entrust) -> None:
        if self._may(sender, message.run, message.epoch):
            self._entrusted.take(sender, message)

    @handles(Release)
    def on_release(self, sender: AgentId, message: Release) -> None:
        if not self._may(sender, message.run, message.epoch):
            return
        if not message.over:
            self._marks.release(message.digests, message.run)
            return
        self._writers.over(message.run)
        self.outbox.drop_run(message.run)
        for key in [key for key in self._tasks if key[0] == message.run]:
            self._stop(key, force=True)
        self._entrusted.forget(message.run)
        self._marks.release_run(message.run)

    # -- admitting -----------------------------------------------------------------------------

    @handles(Bind)
    def on_bind(self, sender: AgentId, bind: Bind) -> None:
        if not self._may(sender, bind.run, bind.epoch):
            return
        key = _key(bind)
        if key in self.outbox:
            self.outbox.resend_one(key)
        elif key in self._tasks:
            if self._tasks[key].started:
                self._say(Started(*key, warrant=self._tasks[key].bind.warrant))
        elif self._over.get(key, -1) < bind.epoch:
            reason = self._objection(bind)
            for half in () if reason else self._admitting:
                reason = reason or half.objection(sender, bind)
            if reason:
                self._say(Refused(*key, reason, warrant=bind.warrant))
            else:
                self._admit(key, bind)

    def _objection(self, bind: Bind) -> str:
        """Why it cannot be run here; '' if it can."""
        if self._leaving:
            return f"{self.me} is leaving"
        if self._ill:
            return f"{self.me} takes nothing now: {self._ill}"
        if not (is_possible(bind.needs) and LABEL.fullmatch(bind.job.label) and _stays(bind)):
            return f"{self.me} cannot make sense of it"
        if not self._whole.fits(bind.needs):
            return f"{self.me} is too small for it"
        if len(self._tasks) >= QUEUE_MAX:
            return f"{self.me} already has {QUEUE_MAX} tasks waiting"
        if not self.outbox.has_room(bind.run):
            return f"{self.me} keeps too many reports that nobody has taken"
        if isinstance(bind.job, CallJob):
            return f"{self.me} runs commands only"
        return ""

    def _admit(self, key: Key, bind: Bind) -> None:
        task = self._tasks[key] = _Task(bind, self.world.elapsed())
        for half in self._admitting:
            half.admitted(bind)
        if task.inputs:
            self._gathering.add(key, task.inputs, bind.sources)
        else:
            self._is_ready(key, task)
        self._changed()

    def _say(self, message: AttemptMessage) -> None:
        writer = self._writers.address(message.run)
        if writer is not None:
            self.world.send(writer, message)

    def _brought_in(self, key: Key, file: FileRecord) -> None:
        self._marks.pin([file], _why(key))

    def _gathered(self, key: Key, gathered: Gathered) -> None:
        task = self._tasks[key]
        task.here, task.brought = gathered.here, gathered.brought
        if not gathered.missing:
            self._is_ready(key, task)
            return
        self._drop(key, None)
        told = ", ".join(gathered.wanted[digest].path for digest in gathered.missing[:3])
        reason = f"{self.me} cannot get {told}{gathered.why}"
        self._say(Refused(*key, reason, tuple(gathered.missing), task.bind.warrant))

    # -- running -------------------------------------------------------------------------------

    def _is_ready(self, key: Key, task: _Task) -> None:
        self._ready[key] = task.bind.needs
        self._wanted[task.bind.needs] += 1
        self._start_ready()

    def _ready_no_more(self, key: Key) -> None:
        needs = self._ready.pop(key, None)
        if needs is not None:
            self._wanted[needs] -= 1
            if not self._wanted[needs]:
                del self._wanted[needs]

    def _start_ready(self) -> None:
        """Start what fits, in the order in which inputs were complete, or that a strategy's half
        gives; smaller ones may overtake, within LOOKED_AT_MAX."""
        started = True
        while started and self._has_room():
            started = False
            for key in self._allowed():
                if key in self._ready and self.ledger.fits(self._tasks[key].bind.needs):
                    started = True
                    self._ready_no_more(key)
                    self._start(key, self._tasks[key])
                    if not self._has_room():
                        return

    def _has_room(self) -> bool:
        """Whether anything fits: if not, nobody need be asked."""
        return any(self.ledger.fits(needs) for needs in self._wanted)

    def _allowed(self) -> list[Key]:
        """What may start now, first first."""
        ordering = [half for half in self._admitting if half.orders]
        if not ordering:
            return list(islice(self._ready, LOOKED_AT_MAX))
        allowed, now = list(self._ready), self.world.elapsed()
        for half in ordering:
            tasks = [self._tasks[key] for key in allowed]
            waiting = [Waiting(task.bind, now - task.bound_s) for task in tasks]
            allowed = [allowed[number] for number in half.order(waiting, self.world.now())]
        return allowed[:LOOKED_AT_MAX]

    def _start(self, key: Key, task: _Task) -> None:
        bind = task.bind
        self.ledger.take(bind.needs)
        self._running += 1
        # Labels name directories here, and tasks of several runs are here.
        job = msgspec.structs.replace(bind.job, label=f"{bind.run}.{bind.job.label}")
        if isinstance(job, CommandJob):
            inputs = tuple(_as(task.here[r.digest], r) for r in job.inputs)
            job = msgspec.structs.replace(job, inputs=inputs)
        task.handle = self.world.start(job, lambda event: self._on_event(key, event))
        self._changed()

    def _on_event(self, key: Key, event: JobEvent) -> None:
        task = self._tasks[key]
        match event:
            case JobStarted(pid=pid):
                task.started, task.pid = True, pid
                if not self._unsaid:
                    self.world.after(GATHER_S, self._say_started)
                self._unsaid[key] = None
            case JobProgressed(fraction=fraction):
                task.fraction = fraction
                self._say(Progressed(*key, fraction, task.bind.warrant))
            case JobEnded():
                self._running -= 1
                self.ledger.give_back(task.bind.needs)
                if event.missing and task.fetched_again < FETCHED_AGAIN_MAX:
                    self._fetch_again(key, task)
                elif event.fault:
                    self._give_back(key, event)
                else:
                    self._drop(key, event)
                    self._report(key, task, event)
                self._start_ready()
                self._changed()

    def _say_started(self) -> None:
        """Of those that are still under way: of the others, the report has said it."""
        unsaid, self._unsaid = self._unsaid, {}
        for key in unsaid:
            task = self._tasks.get(key)
            if task is not None and task.started:
                self._say(Started(*key, task.pid, task.bind.warrant))

    def _fetch_again(self, key: Key, task: _Task) -> None:
        """A stored input was found damaged, and is gone now."""
        task.fetched_again += 1
        task.handle, task.started = None, False
        task.here = {}
        self._gathering.add_again(key, task.inputs, task.bind.sources)

    # -- ill, and well again -------------------------------------------------------------------

    def _give_back(self, key: Key, ended: JobEnded) -> None:
        """This attempt failed, but not by its own doing."""
        warrant = self._tasks[key].bind.warrant
        self._drop(key, None)
        unfit = ended.fault == "unfit"
        told = f"{name_of(self.me)} {ended.reason}" if unfit else f"{self.me}: {ended.reason}"
        self._say(Refused(*key, told, ended.missing, warrant, unfit))
        if ended.fault == "machine" and not self._ill:
            self._ill = ended.reason
            for other in [other for other, task in self._tasks.items() if task.handle is None]:
                self._give_back(other, ended)
            self.world.after(WELL_AGAIN_S, self._look_whether_well)

    def _look_whether_well(self) -> None:
        def heard(event: JobEvent) -> None:
            if not isinstance(event, JobEnded):
                return
            if event.outcome == "succeeded":
                self._ill = ""
                self._changed()
            else:
                self._ill = event.reason
                self.world.after(WELL_AGAIN_S, self._look_whether_well)

        if not self._leaving:
            self.world.start(CheckJob("check"), heard)

    def _report(self, key: Key, task: _Task, ended: JobEnded) -> None:
        if self._writers.is_over(key[0]):
            return
        ended = msgspec.structs.replace(
            ended, stdout_file=_travels(ended.stdout_file), stderr_file=_travels(ended.stderr_file)
        )
        bind, began = task.bind, key in self._unsaid
        pid = task.pid if began else None
        finished = Finished(*key, ended, bind.key, task.brought, bind.warrant, began, pid)
        if ended.outcome == "cancelled":
            self._say(finished)  # if it is lost, the writer asks and finds nothing under way
            return
        self._marks.keep(ended.outputs, key[0])
        # While others wait to start here, whoever binds them is in no hurry.
        self.outbox.add(finished, hurry=not self._ready)

    def _drop(self, key: Key, ended: JobEnded | None) -> None:
        task = self._tasks.pop(key)
        self._ready_no_more(key)
        self._gathering.drop(key)
        self._note_over(key, task.bind.epoch)
        self._marks.unpin(_why(key))
        for half in self._admitting:
            half.over(task.bind, ended, began=task.started)
        self._changed()

    def _note_over(self, key: Key, epoch: int) -> None:
        self._over.pop(key, None)
        self._over[key] = epoch
        if len(self._over) > OVER_MAX:
            del self._over[next(iter(self._over))]

    # -- withdrawing ---------------------------------------------------------------------------

    @handles(Withdraw)
    def on_withdraw(self, sender: AgentId, message: Withdraw) -> None:
        if not self._may(sender, message.run, message.epoch):
            return
        key = _key(message)
        if key in self._tasks:
            self._stop(key, force=message.force)
        elif key not in self.outbox:
            self._note_over(key, message.epoch)  # the Bind may still be on its way

    def _stop(self, key: Key, *, force: bool) -> None:
        task = self._tasks[key]
        if task.handle is not None:
            self.world.stop(task.handle, force=force)
            return
        ended = JobEnded("cancelled", reason="it had not started")
        self._drop(key, ended)
        self._report(key, task, ended)

    # -- for those who deal in what this machine does ---------------------------------------------

    def writer(self, run: str) -> AgentId | None:
        """Who writes the run, as far as this machine knows."""
        return self._writers.address(run)

    def look(self, key: Key) -> Look:
        """How far an attempt is."""
        task = self._tasks.get(key)
        if task is not None:
            elapsed_s = self.world.elapsed() - task.bound_s
            return Look("running" if task.started else "waiting", task.fraction, elapsed_s)
        report = self.outbox.report(key)
        return Look("unknown") if report is None else Look("ended", None, report.ended.elapsed_s)

    def tell_again(self, key: Key) -> None:
        """Send the report of an attempt, if it is kept here."""
        if key in self.outbox:
            self.outbox.resend_one(key)

    def end(self, key: Key) -> None:
        """Stop an attempt as if its writer had withdrawn it; nothing, if it is not under way."""
        if key in self._tasks:
            self._stop(key, force=False)


def _key(message: AttemptMessage) -> Key:
    return (message.run, message.task, message.attempt)


def _stays(bind: Bind) -> bool:
    """Whether all paths of a job lie within its directory, and its numbers are numbers."""
    job = bind.job
    if not isinstance(job, CommandJob):
        return not isinstance(job, PauseJob) or 0 <= job.seconds < math.inf
    paths = (*(record.path for record in job.inputs), *job.outputs)
    try:
        normal = all(normalise(path) == path for path in paths)
    except PathError:
        return False
    return normal and (job.timeout_s is None or 0 <= job.timeout_s < math.inf)


def _why(key: Key) -> str:
    run, task, attempt = key
    return f"{run} {task} {attempt}"


def _travels(log: str | None) -> str | None:
    """The name of a log if it means something elsewhere; its end is in the report anyway."""
    return log if log is not None and log.startswith(BLOB) else None


def _as(stored: FileRecord, wanted: FileRecord) -> FileRecord:
    """The copy in this machine's store, under the name that the task uses."""
    return msgspec.structs.replace(
        wanted, ctime_ns=stored.ctime_ns, size=stored.size, directory=stored.directory
    )
