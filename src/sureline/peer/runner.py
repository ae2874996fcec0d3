"""Driving slot processes from an event loop: jobs in, events out.

The runner does no file work and starts no job itself; that is what slots are for. It keeps a
slot busy with one job at a time, and other jobs wait in the order they came. Slots are started
when they are needed, never more than `max_slots`; a dead one is replaced when the next job comes.

A command may be sent to a slot behind the one that runs there: between two short commands, waking
first this process and then the slot again takes as long as a command. It begins when the other
ends; if the other is still there when the slot announces it, it is recalled and given back.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path

from sureline.peer import orphans
from sureline.peer.confine.rules import Rules
from sureline.peer.confine.rules import encode as encode_rules
from sureline.peer.frames import READY, FrameTooLongError, Recall, Run, SlotReport, Stop, encode
from sureline.peer.jobs import (
    CallJob,
    CheckJob,
    CommandJob,
    FileMissing,
    FileReady,
    JobEnded,
    JobReturned,
    JobStarted,
    PauseJob,
    PublishJob,
    UserFile,
    VerifyJob,
)
from sureline.peer.removing import clear_away
from sureline.peer.runner_slot import SlotProcess
from sureline.world.protocol import Fetched, Job, JobEvent, JobHandle

__all__ = ["SlotRunner"]

_REPEATABLE = (PublishJob, VerifyJob, CheckJob, UserFile)
"""Our own work with files, which may be done again: nobody's command is repeated unasked."""
_TRIES = 3
_QUEUE_LIMIT = 1_000_000
"""Jobs that may wait for a slot. Whoever starts more has lost count."""


class _Work:
    """One job or fetch, from `start` to its end."""

    __slots__ = (
        "announced",
        "cut_short",
        "done",
        "job",
        "on_event",
        "pid",
        "serial",
        "slot",
        "timer",
        "tries",
    )

    def __init__(
        self, serial: int, job: Job | UserFile, on_event: Callable[[JobEvent | Fetched], None]
    ) -> None:
        self.serial = serial
        self.job = job
        self.on_event = on_event
        self.slot: SlotProcess | None = None
        self.pid: int | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.cut_short: JobEnded | None = None
        """How it ended, if the runner itself killed its slot."""
        self.done = False
        self.announced = False
        """The slot has told of its start, and not of its end with it: it is not a short one."""
        self.tries = 0
        """How many slots have died under it."""


class SlotRunner:
    """Runs jobs of one run. `root` is `.sureline`, `directory` the user's.

    `functions` gives the bytes of calls' functions by digest and is read when a call is sent.
    `env` is the environment of slots and jobs, by default this process's. With `rules`, jobs are
    commands of others, and held to them. All methods are to be
    called in the loop's thread.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        root: Path,
        directory: Path,
        run: str,
        functions: Mapping[str, bytes],
        max_slots: int,
        grace_s: float = 5.0,
        env: Mapping[str, str] | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._loop = loop
        self._root = os.path.abspath(root)
        self._directory = os.path.abspath(directory)
        self._run = run
        self._functions = functions
        self._max_slots = max_slots
        self._grace_s = grace_s
        self._env = dict(os.environ if env is None else env)
        self._rules = "" if rules is None or rules.kind == "none" else encode_rules(rules)
        self._serial = 0
        self._slots_started = 0
        self._slots: set[SlotProcess] = set()
        self._idle: list[SlotProcess] = []
        self._waiting: deque[_Work] = deque()
        self._pauses: set[_Work] = set()
        self._at_work: dict[SlotProcess, _Work] = {}
        self._behind: dict[SlotProcess, _Work] = {}
        """Commands that a slot has been given but has not begun."""
        self._closed = False
        self._work = f"{self._root}/work/{run}"
        os.makedirs(self._work, exist_ok=True)
        os.makedirs(f"{self._root}/blobs", exist_ok=True)

    # -- asked from above -------------------------------------------------------------------

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        """Run a job; see the World protocol for what `on_event` hears. Never calls it at once."""
        work = self._new_work(job, on_event)  # type: ignore[arg-type]  # jobs report job events
        if after is not None:
            assert isinstance(after, _Work)
            self._start_behind(work, after)
        elif isinstance(job, PauseJob):
            self._start_pause(work, job)
        elif isinstance(job, (CommandJob, CallJob, PublishJob, VerifyJob, CheckJob)):
            self._enqueue(work)
        else:
            raise TypeError(f"no such job here: {type(job).__name__}")
        return work

    def fetch(self, wanted: UserFile, on_done: Callable[[Fetched], None]) -> None:
        """Bring a file of the user's into the store, or describe it where it lies."""
        self._enqueue(self._new_work(wanted, on_done))  # type: ignore[arg-type]  # hears Fetched

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        """Ask a job to end: SIGTERM, then SIGKILL after the grace period; with `force`, SIGKILL.

        A call cannot be asked, so its slot is killed. A publication is only cut short by `force`.
        """
        assert isinstance(handle, _Work)
        work = handle
        if work.done or self._closed:
            return
        if work.slot is None:
            self._cancel_unstarted(work)
        elif isinstance(work.job, CommandJob):
            self._send(work.slot, encode(Stop(work.serial, force)))
        elif force or isinstance(work.job, CallJob):
            self._kill_under(work, JobEnded("cancelled", reason="was stopped"))

    async def close(self) -> None:
        """Kill everything; no process of this run is left, and no event comes any more."""
        self.close_now()

    def close_now(self) -> None:
        if self._closed:
            return
        self._closed = True
        for pause in self._pauses:
            if pause.timer is not None:
                pause.timer.cancel()
        for work in self._at_work.values():
            if work.timer is not None:
                work.timer.cancel()
        for slot in self._slots:
            self._forget_fd(slot)
            slot.kill()
        for slot in self._slots:
            slot.wait()
            slot.close()
        for work in self._at_work.values():
            if work.pid is not None:
                orphans.kill_group(work.pid)
        if self._slots_started:
            orphans.kill(orphans.token_of(self._root, self._run, ""), prefix=True)
            orphans.kill_adopted(())
        self._slots.clear()
        self._idle.clear()
        self._at_work.clear()
        self._behind.clear()
        self._waiting.clear()
        clear_away(self._work, orphans.aside_of(self._root))

    # -- work without a slot ----------------------------------------------------------------

    def _new_work(
        self, job: Job | UserFile, on_event: Callable[[JobEvent | Fetched], None]
    ) -> _Work:
        if self._closed:
            raise RuntimeError("the runner is closed")
        self._serial += 1
        return _Work(self._serial, job, on_event)

    def _start_pause(self, work: _Work, job: PauseJob) -> None:
        ended = JobEnded("succeeded", exit_code=0, elapsed_s=job.seconds)
        self._pauses.add(work)
        self._soon(work, JobStarted())
        work.timer = self._loop.call_later(max(0.0, job.seconds), self._end, work, ended)

    def _cancel_unstarted(self, work: _Work) -> None:
        if work.timer is not None:
            work.timer.cancel()
        if work in self._waiting:
            self._waiting.remove(work)
        work.done = True
        self._pauses.discard(work)
        self._soon(work, JobEnded("cancelled", reason="was stopped"))

    def _soon(self, work: _Work, event: JobEvent | Fetched) -> None:
        self._loop.call_soon(self._tell, work, event)

    def _tell(self, work: _Work, event: JobEvent | Fetched) -> None:
        if not self._closed:
            work.on_event(event)

    def _end(self, work: _Work, event: JobEvent | Fetched) -> None:
        """The last event of a job."""
        if work.done:
            return
        work.done = True
        if work.timer is not None:
            work.timer.cancel()
        self._pauses.discard(work)
        self._tell(work, event)

    # -- work in slots ----------------------------------------------------------------------

    def _enqueue(self, work: _Work) -> None:
        if not self._waiting:
            self._waiting.append(work)
            self._serve_waiting()
            return
        if len(self._waiting) >= _QUEUE_LIMIT:
            raise RuntimeError(f"more than {_QUEUE_LIMIT} jobs are waiting for a slot")
        self._waiting.append(work)

    def _serve_waiting(self) -> None:
        """Give waiting jobs to slots that are free or can be started."""
        while self._waiting:
            try:
                slot = self._free_slot()
            except OSError as error:
                if self._slots:
                    return  # one of those will take it
                work = self._waiting.popleft()
                work.done = True
                self._soon(work, _not_run(work, f"no process could be started for it: {error}"))
                continue
            if slot is None:
                return
            self._dispatch(slot, self._waiting.popleft())

    def _start_behind(self, work: _Work, other: _Work) -> None:
        slot = other.slot
        if (
            slot is None
            or self._at_work.get(slot) is not other
            or slot in self._behind
            or other.announced
            or not isinstance(other.job, CommandJob)
            or not isinstance(work.job, CommandJob)
        ):
            self._give_back(work)
            return
        try:
            frame = encode(Run(work.serial, work.job))
        except FrameTooLongError:
            self._give_back(work)  # the ordinary way says what is wrong
            return
        work.slot = slot
        self._behind[slot] = work
        self._send(slot, frame)

    def _give_back(self, work: _Work) -> None:
        work.slot = None
        work.done = True
        self._soon(work, JobReturned())

    def warm(self, count: int) -> None:
        """Start slots that are about to be needed: they load while the run is being prepared."""
        with contextlib.suppress(OSError):  # told when a job is due
            self._idle.extend([slot for _ in range(count) if (slot := self._new_slot())])

    def _free_slot(self) -> SlotProcess | None:
        """Raises OSError if one is due and cannot be started."""
        return self._idle.pop() if self._idle else self._new_slot()

    def _new_slot(self) -> SlotProcess | None:
        if len(self._slots) >= self._max_slots:
            return None
        self._slots_started += 1
        name = f"slot-{self._slots_started}"
        slot = SlotProcess(
            name=name,
            root=self._root,
            directory=self._directory,
            run=self._run,
            grace_s=self._grace_s,
            env={**self._env, orphans.TOKEN: orphans.token_of(self._root, self._run, name)},
            rules=self._rules,
        )
        self._slots.add(slot)
        self._loop.add_reader(slot.fd, self._readable, slot)
        return slot

    def _dispatch(self, slot: SlotProcess, work: _Work) -> None:
        job = work.job
        function: bytes | None = None
        if isinstance(job, CallJob) and slot.needs_function(job.function):
            function = self._functions[job.function]
        try:
            frame = encode(Run(work.serial, job, function))  # type: ignore[arg-type]  # _enqueue
        except FrameTooLongError as error:
            self._idle.append(slot)
            reason = f"its arguments and function are too long to pass on ({error})"
            work.done = True
            self._soon(work, JobEnded("failed", reason=reason))
            self._loop.call_soon(self._serve_waiting)
            return
        if isinstance(job, CallJob):
            slot.has_function(job.function)
            work.pid = slot.pid
            self._soon(work, JobStarted(slot.pid))
            if slot.ready:
                self._start_clock(work)
        work.slot = slot
        self._at_work[slot] = work
        self._send(slot, frame)

    def _send(self, slot: SlotProcess, frame: bytearray) -> None:
        if slot.send(frame):
            self._loop.add_writer(slot.fd, self._writable, slot)

    def _writable(self, slot: SlotProcess) -> None:
        if not slot.send_rest():
            self._loop.remove_writer(slot.fd)

    def _start_clock(self, work: _Work) -> None:
        """A call's time runs from when its slot is up: starting one is not the call's doing."""
        if isinstance(work.job, CallJob) and work.job.timeout_s is not None:
            work.timer = self._loop.call_later(work.job.timeout_s, self._call_overdue, work)

    def _call_overdue(self, work: _Work) -> None:
        assert isinstance(work.job, CallJob)
        reason = f"took longer than its timeout of {work.job.timeout_s:g} s"
        self._kill_under(
            work, JobEnded("timeout", reason=reason, elapsed_s=work.job.timeout_s or 0.0)
        )

    def _kill_under(self, work: _Work, ended: JobEnded) -> None:
        """End a job by killing its slot; `_lost` reports `ended` when it is dead."""
        if work.cut_short is None and work.slot is not None:
            work.cut_short = ended
            work.slot.kill()

    def _readable(self, slot: SlotProcess) -> None:
        said = slot.receive()
        if said is None:
            self._forget_fd(slot)
            self._bury(slot)
            return
        for message in said:
            self._heard(slot, message)
        behind = self._behind.get(slot)
        if behind is not None and self._at_work[slot].announced:
            self._send(slot, encode(Recall(behind.serial)))

    def _heard(self, slot: SlotProcess, message: SlotReport) -> None:
        work = self._at_work.get(slot)
        if message.serial == READY:
            slot.ready = True
            if work is not None:
                self._start_clock(work)
            return
        if work is None or self._closed:
            return
        report = message.report
        if work.serial != message.serial:
            self._heard_of_behind(slot, message)
            return
        if isinstance(report, (JobEnded, FileReady, FileMissing)):
            if work.cut_short is not None:
                return  # the slot is being killed; its death is reported
            del self._at_work[slot]
            behind = self._behind.pop(slot, None)
            if behind is not None:
                self._at_work[slot] = behind
            elif self._waiting:
                self._dispatch(slot, self._waiting.popleft())
            else:
                self._idle.append(slot)
            self._end(work, report)
        else:
            if isinstance(report, JobStarted):
                work.pid = report.pid
                work.announced = True
            self._tell(work, report)

    def _heard_of_behind(self, slot: SlotProcess, message: SlotReport) -> None:
        """A command that had not begun was recalled, or stopped."""
        behind = self._behind.get(slot)
        if behind is None or behind.serial != message.serial:
            return
        del self._behind[slot]
        if isinstance(message.report, JobReturned):
            self._give_back(behind)
        else:
            behind.slot = None
            self._end(behind, message.report)

    # -- dead slots -------------------------------------------------------------------------

    def _forget_fd(self, slot: SlotProcess) -> None:
        self._loop.remove_reader(slot.fd)
        self._loop.remove_writer(slot.fd)

    def _bury(self, slot: SlotProcess, delay_s: float = 0.001) -> None:
        """The slot has closed its socket, so it is dying; report when it is dead."""
        if self._closed:
            return
        slot.kill()
        if not slot.is_dead():
            self._loop.call_later(delay_s, self._bury, slot, min(1.0, delay_s * 2))
            return
        self._slots.discard(slot)
        if slot in self._idle:
            self._idle.remove(slot)
        work = self._at_work.pop(slot, None)
        behind = self._behind.pop(slot, None)
        if work is not None:
            self._lost(slot, work)
        if behind is not None:
            self._give_back(behind)  # what ran had not ended, so this had not begun
        slot.close()
        self._serve_waiting()

    def _lost(self, slot: SlotProcess, work: _Work) -> None:
        """Kill what the job may have left, and report its end."""
        if work.pid is not None and work.pid != slot.pid:
            orphans.kill_group(work.pid)
        labels = [slot.name]
        if isinstance(work.job, CommandJob):
            labels.append(work.job.label)
        for label in labels:
            orphans.kill(orphans.token_of(self._root, self._run, label))
        orphans.kill_adopted([one.pid for one in self._slots])
        ended = work.cut_short
        work.tries += 1
        if ended is None and isinstance(work.job, _REPEATABLE) and work.tries < _TRIES:
            work.slot = work.pid = None
            self._waiting.appendleft(work)
            return
        if ended is None:
            ended = JobEnded(
                "lost",
                signal=slot.signal,
                reason=slot.epitaph(),
                stderr=slot.last_words(),
                fault="" if slot.ready else "machine",
            )
        if isinstance(work.job, UserFile):
            self._end(work, _not_run(work, ended.reason))
        else:
            self._end(work, ended)


def _not_run(work: _Work, reason: str) -> JobEnded | FileMissing:
    if isinstance(work.job, UserFile):
        return FileMissing(work.job.path, reason)
    return JobEnded("lost", reason=reason, fault="machine")
