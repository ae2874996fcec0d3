"""Views: what a run's events say about it, folded one event at a time.

A view holds no more than the events told it, so folding them in pieces or at once, from the
database or from memory, gives equal views. The rules:
- A task's last event decides its state, but a result is final: nothing after it counts, unless
  it is revoked.
- When a process takes the run over, every task without a result is waiting again.
- `elapsed_s` is the time that processes spent on the run: for each, from `Opened` to `RunEnded`,
  or to its last event if it was killed or is at work. Time between two processes does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec

from sureline.journal.events import (
    COMMITS,
    CancelAsked,
    Event,
    Foreseen,
    Grown,
    Noted,
    Opened,
    PeerJoined,
    PeerLeft,
    Planned,
    Repaired,
    RunEnded,
    RunState,
    Submitted,
    TaskBound,
    TaskEnded,
    TaskEvent,
    TaskProgressed,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
    Unknown,
)
from sureline.workflow.files import FileRecord
from sureline.workflow.terms import Terms

TaskState = Literal[
    "waiting",
    "ready",
    "bound",
    "running",
    "retrying",
    "succeeded",
    "reused",
    "failed",
    "cancelled",
]


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One attempt that brought no result. `outcome` is failed, timeout or lost."""

    at: float
    attempt: int
    outcome: str
    reason: str
    exit_code: int | None = None
    signal: int | None = None
    trace: str = ""


class TaskView(msgspec.Struct, omit_defaults=True):
    """One task. Times are those of its latest attempt."""

    state: TaskState = "waiting"
    attempts: int = 0
    """The number of the latest attempt; 0 if nothing ran."""
    peer: str = ""
    fraction: float = 0.0
    """How far the running attempt says it is."""
    ready_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    elapsed_s: float = 0.0
    """Of the attempt that ended last."""
    outputs: tuple[FileRecord, ...] = ()
    from_run: str = ""
    failures: list[Failure] = []


class Counts(msgspec.Struct, frozen=True):
    """The tasks of a run by how they ended; what is missing to `total` has not ended.

    Once the run is over, tasks that never got to run count as cancelled: nothing is missing."""

    total: int
    succeeded: int
    reused: int
    failed: int
    cancelled: int


class RunView(msgspec.Struct):
    """One run. Follow it live by applying events as they come."""

    run: str = ""
    name: str = ""
    source: str | None = None
    submitted_at: float | None = None
    total: int = 0
    epoch: int = 0
    ended_state: RunState | None = None
    ended_at: float | None = None
    reason: str = ""
    cancelling: bool = False
    tasks: dict[str, TaskView] = {}
    """By name; a task appears here with its first event unless `of` was given its name."""
    by_state: dict[TaskState, int] = {}
    """How many tasks of `tasks` are in each state; no entry for none."""
    peers: dict[str, float] = {}
    """The cores of the peers that are here, by name."""
    aside: dict[str, PeerLeft] = {}
    """The peers that are there and get nothing, by name: they were set aside."""
    terms: Terms = Terms()
    """What was asked for."""
    planned: Planned | None = None
    """What was promised at the beginning."""
    foreseen: Foreseen | None = None
    """The newest forecast that is on record."""
    repairs: list[Repaired] = []
    """What was done about a deadline in danger, in order."""
    spent: float = 0.0
    """Money: what settled contracts cost in the end."""
    elapsed_earlier_s: float = 0.0
    session_began_at: float | None = None
    last_at: float = 0.0

    @classmethod
    def of(cls, events: Iterable[Event], names: Iterable[str] = ()) -> RunView:
        """Fold all events. `names` are the tasks of the run's graph, so that waiting ones show."""
        view = cls()
        view.add_tasks(names)
        for event in events:
            view.apply(event)
        return view

    def add_tasks(self, names: Iterable[str]) -> None:
        """The graph has these tasks now."""
        new = [name for name in names if name not in self.tasks]
        self.tasks.update((name, TaskView()) for name in new)
        if new:
            self.by_state["waiting"] = self.by_state.get("waiting", 0) + len(new)

    def apply(self, event: Event) -> None:
        """Take in the next event of the run."""
        if self.ended_state is None and type(event) is not Opened:
            self.last_at = event.at
        if isinstance(event, TaskEvent):
            self._apply_to_task(event)
        else:
            handler = _RUN_HANDLERS.get(type(event))
            if handler is not None:
                handler(self, event)

    def state(self, alive: bool) -> str:
        """The run's state, given whether a process holds its lock."""
        if self.ended_state is not None:
            return self.ended_state
        return "running" if alive else "interrupted"

    @property
    def counts(self) -> Counts:
        number = self.by_state.get
        total = max(self.total, len(self.tasks))
        succeeded, reused, failed = number("succeeded", 0), number("reused", 0), number("failed", 0)
        cancelled = number("cancelled", 0)
        if self.ended_state is not None:
            cancelled = total - succeeded - reused - failed
        return Counts(total, succeeded, reused, failed, cancelled)

    @property
    def elapsed_s(self) -> float:
        """The time spent on the run up to its last event (see above)."""
        return self.elapsed_earlier_s + self._session_s()

    def _session_s(self) -> float:
        if self.session_began_at is None:
            return 0.0
        return max(0.0, self.last_at - self.session_began_at)

    def _apply_to_task(self, event: TaskEvent) -> None:
        task = self.tasks.get(event.task)
        if task is None:
            task = self.tasks[event.task] = TaskView()
            self.by_state["waiting"] = self.by_state.get("waiting", 0) + 1
        if task.state in COMMITS and not isinstance(event, TaskRevoked):
            return
        state = _TASK_HANDLERS[type(event)](task, event)
        if state != task.state:
            self._move(task, state)

    def _move(self, task: TaskView, state: TaskState) -> None:
        left = self.by_state[task.state] - 1
        if left:
            self.by_state[task.state] = left
        else:
            del self.by_state[task.state]
        self.by_state[state] = self.by_state.get(state, 0) + 1
        task.state = state

    def _submitted(self, event: Submitted) -> None:
        self.run, self.name, self.source = event.run, event.name, event.source
        self.submitted_at, self.total = event.at, event.total
        if "deadline_at" in event.options or "budget" in event.options:
            self.terms = msgspec.convert(event.options, Terms)

    def _grown(self, event: Grown) -> None:
        self.total += event.tasks

    def _planned(self, event: Planned) -> None:
        self.planned = self.planned or event

    def _foreseen(self, event: Foreseen) -> None:
        self.foreseen = event

    def _repaired(self, event: Repaired) -> None:
        self.repairs.append(event)

    def _noted(self, event: Noted | Unknown) -> None:
        self.spent += event.paid

    def _opened(self, event: Opened) -> None:
        self.elapsed_earlier_s += self._session_s()
        self.session_began_at = self.last_at = event.at
        self.epoch = event.epoch
        self.ended_state = self.ended_at = None
        self.reason = ""
        self.cancelling = False
        self.peers.clear()
        self.aside.clear()
        for task in self.tasks.values():
            if task.state not in COMMITS and task.state != "waiting":
                self._move(task, "waiting")

    def _peer_joined(self, event: PeerJoined) -> None:
        self.peers[event.peer] = event.cores
        self.aside.pop(event.peer, None)

    def _peer_left(self, event: PeerLeft) -> None:
        self.peers.pop(event.peer, None)
        if event.aside_s:
            self.aside[event.peer] = event

    def _cancel_asked(self, event: CancelAsked) -> None:
        self.cancelling = True
        self.reason = event.reason

    def _run_ended(self, event: RunEnded) -> None:
        self.ended_state, self.ended_at = event.state, event.at
        # A run that was asked to stop may still have finished: then nothing went wrong.
        self.reason = "" if event.state == "succeeded" else event.reason or self.reason


def _ready(task: TaskView, event: TaskReady) -> TaskState:
    task.ready_at = event.at
    return "ready"


def _bound(task: TaskView, event: TaskBound) -> TaskState:
    task.attempts, task.peer = event.attempt, event.peer
    task.started_at = task.ended_at = None
    return "bound"


def _started(task: TaskView, event: TaskStarted) -> TaskState:
    task.attempts, task.peer = event.attempt, event.peer
    task.started_at, task.ended_at, task.fraction = event.at, None, 0.0
    return "running"


def _progressed(task: TaskView, event: TaskProgressed) -> TaskState:
    task.fraction = event.fraction
    return task.state


def _ended(task: TaskView, event: TaskEnded) -> TaskState:
    task.attempts = event.attempt or task.attempts
    task.peer = event.peer or task.peer
    task.ended_at, task.elapsed_s = event.at, event.elapsed_s
    if event.outcome in ("succeeded", "reused"):
        task.outputs, task.from_run = event.outputs, event.from_run
        return event.outcome
    if event.outcome == "cancelled":
        return "cancelled"
    task.failures.append(
        Failure(
            event.at,
            event.attempt,
            event.outcome,
            event.reason,
            event.exit_code,
            event.signal,
            event.trace,
        )
    )
    return "failed"


def _retried(task: TaskView, event: TaskRetried) -> TaskState:
    return "retrying"


def _revoked(task: TaskView, event: TaskRevoked) -> TaskState:
    task.outputs, task.from_run = (), ""
    return "waiting"


_TASK_HANDLERS: dict[type, Callable[[TaskView, Any], TaskState]] = {
    TaskReady: _ready,
    TaskBound: _bound,
    TaskStarted: _started,
    TaskProgressed: _progressed,
    TaskEnded: _ended,
    TaskRetried: _retried,
    TaskRevoked: _revoked,
}
_RUN_HANDLERS: dict[type, Callable[[RunView, Any], None]] = {
    Submitted: RunView._submitted,
    Opened: RunView._opened,
    PeerJoined: RunView._peer_joined,
    PeerLeft: RunView._peer_left,
    CancelAsked: RunView._cancel_asked,
    Planned: RunView._planned,
    Foreseen: RunView._foreseen,
    Repaired: RunView._repaired,
    Grown: RunView._grown,
    Noted: RunView._noted,
    Unknown: RunView._noted,
    RunEnded: RunView._run_ended,
}
