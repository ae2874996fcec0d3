"""The agent of a machine that runs tasks for others over a network.

Like `agent.PeerAgent` it admits tasks against its ledger and starts what fits. Beyond that:
- A writer must `Attach` before it may bind. The machine remembers durably the highest epoch of
  each run and that writer's address, and fences older writers.
- A task's inputs are fetched into this machine's store first, for a few waiting tasks at a time
  and while others run; a task starts when all of them are here. If one cannot be had, the task is
  refused, naming it.
- The report of an attempt goes into the outbox and stays there until it is acknowledged.
- What fails through this machine's own fault (a full disk) is given back, as refused: the task is
  not to blame. No other is taken until a check finds the machine well again. An input that is found
  damaged is fetched again.
- Repeated and late messages change nothing: an attempt is known by (run, task, attempt), and those
  that are over are remembered for a while with the epoch in which they were bound.

Which files must stay in the store is said to `Marks`: inputs while they are in use, outputs until
the writer has a copy of its own or the run is over.
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Callable, Iterable
from typing import Protocol

import msgspec

from sureline.peer.capacity import Capacity, Ledger, is_possible
from sureline.peer.jobs import (
    BLOB,
    Blob,
    CallJob,
    CheckJob,
    CommandJob,
    FileMissing,
    FileReady,
    JobEnded,
    JobProgressed,
    JobStarted,
    PauseJob,
)
from sureline.peer.messages import (
    Acknowledge,
    Attach,
    Attached,
    Attempt,
    Bind,
    Brought,
    Fenced,
    Finished,
    Progressed,
    Refused,
    Release,
    Started,
    Withdraw,
)
from sureline.peer.outbox import Key, Outbox
from sureline.peer.toll import Look, Toll
from sureline.peer.writers import Writers
from sureline.workflow.files import FileRecord
from sureline.workflow.paths import PathError, normalise
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Fetched, JobEvent, JobHandle, World

QUEUE_MAX = 10_000
LOOKED_AT_MAX = 64
FETCHING_MAX = 8
"""Tasks whose inputs are fetched at the same time."""
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


class Marks(Protocol):
    """Keeps a store from evicting what is needed. All of it is idempotent."""

    def pin(self, files: Iterable[FileRecord], why: str) -> None:
        """Needed here just now. Gone after a crash."""

    def unpin(self, why: str) -> None: ...

    def keep(self, files: Iterable[FileRecord], run: str) -> None:
        """This may be the only copy in the grid of what a run needs. Survives a crash."""

    def release(self, digests: Iterable[str], run: str) -> None: ...

    def release_run(self, run: str) -> None: ...


class NoMarks:
    """For a store that never evicts."""

    def pin(self, files: Iterable[FileRecord], why: str) -> None: ...
    def unpin(self, why: str) -> None: ...
    def keep(self, files: Iterable[FileRecord], run: str) -> None: ...
    def release(self, digests: Iterable[str], run: str) -> None: ...
    def release_run(self, run: str) -> None: ...


class _Task(msgspec.Struct):
    """One attempt, from its Bind to its report."""

    bind: Bind
    bound_at: float
    pending: dict[str, None] = {}
    """Digests that are on their way."""
    here: dict[str, FileRecord] = {}
    missing: list[str] = []
    why: str = ""
    """The first reason that was given for something missing."""
    brought: Brought = Brought()
    handle: JobHandle | None = None
    started: bool = False
    fraction: float | None = None
    fetched_again: int = 0

    @property
    def inputs(self) -> tuple[FileRecord, ...]:
        job = self.bind.job
        return job.inputs if isinstance(job, CommandJob) else ()


class GridPeerAgent(Agent):
    """`on_load` hears (cores in use, tasks waiting) whenever that changes. `toll`, if there is
    one, is asked before an attempt is admitted."""

    toll: Toll | None = None

    def __init__(
        self,
        me: AgentId,
        world: World,
        capacity: Capacity,
        marks: Marks | None = None,
        on_load: Callable[[float, int], None] | None = None,
    ) -> None:
        super().__init__(me, world)
        self.ledger = Ledger(capacity)
        self._whole = Ledger(capacity)
        self._marks: Marks = marks or NoMarks()
        self._on_load = on_load
        self._writers = Writers(world)
        self.outbox = Outbox(world, self._writers.address)
        self._tasks: dict[Key, _Task] = {}
        self._to_fetch: deque[Key] = deque()
        self._fetching = 0
        self._flights: dict[str, list[Key]] = {}
        """Who waits for a file that is on its way, by digest."""
        self._ready: deque[Key] = deque()
        self._over: dict[Key, int] = {}
        self._running = 0
        self._leaving = False
        self._ill = ""
        """Why this machine takes nothing just now."""

    def start(self) -> None:
        """Take up what an earlier process left: its writers hear that it was started again."""
        self._writers.load()
        self.outbox.load()
        for run, address in self._writers.listening():
            self._tell(run, address, 0)

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
        if not self._may(sender, message.run, message.epoch, new=True):
            return

        def answer() -> None:
            self._tell(message.run, sender, message.serial)
            self.outbox.resend(message.run)

        # The answer promises that older writers are fenced: it must not be forgotten in a crash.
        self._writers.attach(message.run, message.epoch, sender, answer)

    def _may(self, sender: AgentId, run: str, epoch: int, new: bool = False) -> bool:
        """Whether this epoch may ask for anything; fences an older one. An epoch that has not
        attached is not heard: its writer will find out, and attach."""
        if not RUN_NAME.fullmatch(run):
            return False
        newest = self._writers.epoch(run)
        if epoch < newest:
            self.world.send(sender, Fenced(run, newest))
            return False
        return new or (epoch == newest and self._writers.is_known(run))

    def _tell(self, run: str, to: AgentId, serial: int) -> None:
        under_way = [(k[1], k[2], t.started) for k, t in self._tasks.items() if k[0] == run]
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
                self._say(Started(*key))
        elif self._over.get(key, -1) < bind.epoch:
            reason = self._objection(bind)
            if not reason and self.toll is not None:
                reason = self.toll.objection(sender, bind)
            if reason:
                self._say(Refused(*key, reason))
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
        task = self._tasks[key] = _Task(bind, self.world.now())
        if self.toll is not None:
            self.toll.admitted(bind)
        if task.inputs:
            self._to_fetch.append(key)
            self._fetch_more()
        else:
            self._ready.append(key)
            self._start_ready()
        self._changed()

    def _say(self, message: Attempt) -> None:
        writer = self._writers.address(message.run)
        if writer is not None:
            self.world.send(writer, message)

    # -- fetching ------------------------------------------------------------------------------

    def _fetch_more(self) -> None:
        while self._to_fetch and self._fetching < FETCHING_MAX:
            key = self._to_fetch.popleft()
            task = self._tasks.get(key)
            if task is None:
                continue
            self._fetching += 1
            task.pending = dict.fromkeys(record.digest for record in task.inputs)
            for record in {record.digest: record for record in task.inputs}.values():
                self._fetch(key, record, task.bind.sources.get(record.digest, ()))

    def _fetch(self, key: Key, record: FileRecord, sources: tuple[str, ...]) -> None:
        waiters = self._flights.get(record.digest)
        if waiters is not None:
            waiters.append(key)
            return
        self._flights[record.digest] = [key]
        digest = record.digest
        self.world.fetch(Blob(record), sources, lambda fetched: self._fetched(digest, fetched))

    def _fetched(self, digest: str, fetched: Fetched) -> None:
        for key in self._flights.pop(digest):
            task = self._tasks.get(key)
            if task is None or digest not in task.pending:
                continue
            del task.pending[digest]
            if isinstance(fetched, FileReady):
                task.here[digest] = fetched.file
                task.brought = _counted(task.brought, fetched)
                self._marks.pin([fetched.file], _why(key))
            else:
                task.missing.append(digest)
                if isinstance(fetched, FileMissing) and not task.why:
                    task.why = f" ({fetched.reason})"
            if not task.pending:
                self._fetching -= 1
                self._gathered(key, task)
        self._fetch_more()
        self._start_ready()

    def _gathered(self, key: Key, task: _Task) -> None:
        if not task.missing:
            self._ready.append(key)
            return
        self._drop(key, None)
        paths = {record.digest: record.path for record in task.inputs}
        told = ", ".join(paths[digest] for digest in task.missing[:3])
        self._say(Refused(*key, f"{self.me} cannot get {told}{task.why}", tuple(task.missing)))

    # -- running -------------------------------------------------------------------------------

    def _start_ready(self) -> None:
        """Start what fits, in the order in which inputs were complete; smaller ones may overtake,
        within LOOKED_AT_MAX."""
        place = 0
        while place < min(len(self._ready), LOOKED_AT_MAX):
            key = self._ready[place]
            task = self._tasks.get(key)
            if task is None:
                del self._ready[place]
            elif self.ledger.fits(task.bind.needs):
                del self._ready[place]
                self._start(key, task)
            else:
                place += 1

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
                task.started = True
                self._say(Started(*key, pid))
            case JobProgressed(fraction=fraction):
                task.fraction = fraction
                self._say(Progressed(*key, fraction))
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

    def _fetch_again(self, key: Key, task: _Task) -> None:
        """A stored input was found damaged, and is gone now."""
        task.fetched_again += 1
        task.handle, task.started = None, False
        task.here = {}
        self._to_fetch.append(key)
        self._fetch_more()

    # -- ill, and well again -------------------------------------------------------------------

    def _give_back(self, key: Key, ended: JobEnded) -> None:
        """This attempt failed, but not by its own doing."""
        if self._tasks[key].pending:
            self._fetching -= 1
        self._drop(key, None)
        self._say(Refused(*key, f"{self.me}: {ended.reason}", ended.missing))
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
        finished = Finished(*key, ended, task.bind.key, task.brought)
        if ended.outcome == "cancelled":
            self._say(finished)  # if it is lost, the writer asks and finds nothing under way
            return
        self._marks.keep(ended.outputs, key[0])
        self.outbox.add(finished)

    def _drop(self, key: Key, ended: JobEnded | None) -> None:
        task = self._tasks.pop(key)
        self._note_over(key, task.bind.epoch)
        self._marks.unpin(_why(key))
        if self.toll is not None:
            self.toll.over(task.bind, ended, began=task.started)
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
        if task.pending:
            self._fetching -= 1
        ended = JobEnded("cancelled", reason="it had not started")
        self._drop(key, ended)
        self._report(key, task, ended)
        self._fetch_more()

    # -- for those who deal in what this machine does ---------------------------------------------

    def writer(self, run: str) -> AgentId | None:
        """Who writes the run, as far as this machine knows."""
        return self._writers.address(run)

    def look(self, key: Key) -> Look:
        """How far an attempt is."""
        task = self._tasks.get(key)
        if task is not None:
            elapsed_s = self.world.now() - task.bound_at
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


def _key(message: Attempt) -> Key:
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


def _counted(before: Brought, fetched: FileReady) -> Brought:
    size = fetched.file.size
    if fetched.source:
        return msgspec.structs.replace(
            before, peer_files=before.peer_files + 1, peer_bytes=before.peer_bytes + size
        )
    return msgspec.structs.replace(
        before, here_files=before.here_files + 1, here_bytes=before.here_bytes + size
    )
