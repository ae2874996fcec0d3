"""What a run's events say that matters to one task, folded once."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sureline.journal.events import (
    COMMITS,
    CancelAsked,
    Event,
    Noted,
    Opened,
    Repaired,
    Submitted,
    TaskBound,
    TaskEnded,
    TaskEvent,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.journal.explain_needs import MachineBooks, Shortage
from sureline.journal.explain_reuse import Files
from sureline.journal.views import RunView
from sureline.workflow.model import Graph


class AttemptTold(msgspec.Struct):
    """One attempt, with times in seconds since the epoch; `delay_s` if another was to follow."""

    attempt: int
    peer: str
    bound_at: float
    started_at: float | None = None
    ended_at: float | None = None
    outcome: str = ""
    """Empty while it runs, or if its process was gone before it ended."""
    reason: str = ""
    elapsed_s: float = 0.0
    delay_s: float | None = None


class Case:
    """All events of a run, as one task sees them."""

    def __init__(self, graph: Graph, task: str, events: Iterable[Event]) -> None:
        self.graph = graph
        self.task = task
        self.described = graph.tasks[graph.index[task]]
        self.view = RunView.of((), graph.index)
        self.books = MachineBooks(lambda name: graph.tasks[graph.index[name]].needs)
        self.files = Files()
        self.attempts: list[AttemptTold] = []
        self.repairs: list[Repaired] = []
        """What was done about this task because the deadline was in danger."""
        self.notes: dict[str, Noted] = {}
        """What its strategy noted of this task: of each kind, the last."""
        self.revoked = ""
        self.fresh = False
        self.drained = False
        self.taken_over_at: list[float] = []
        self.ready_at: float | None = None
        self.last_parent = ""
        self.ended: TaskEnded | None = None
        self.waited_for: list[Shortage] = []
        self.overtaken: list[str] = []
        """Tasks that were bound while it was ready."""
        self._parents = {graph.tasks[p].name for p in graph.parents[graph.index[task]]}
        for event in events:
            self._apply(event)

    def _apply(self, event: Event) -> None:
        self.view.apply(event)
        self.books.apply(event)
        self.files.apply(event)
        match event:
            case Submitted():
                self.fresh = bool(event.options.get("fresh"))
            case Opened():
                self.drained = False
                if event.epoch > 1:
                    self.taken_over_at.append(event.at)
            case CancelAsked():
                self.drained = event.drain
            case Repaired() if event.task == self.task:
                self.repairs.append(event)
            case Noted() if event.task == self.task and event.said:
                self.notes.pop(event.kind, None)
                self.notes[event.kind] = event
            case TaskEvent() if event.task == self.task:
                self._apply_own(event)
            case TaskEnded() if event.task in self._parents and event.outcome in COMMITS:
                self.last_parent = event.task
            case TaskBound() if self.view.tasks[self.task].state == "ready":
                self.overtaken.append(event.task)
                self._note_shortage()

    def _note_shortage(self) -> None:
        if not self.waited_for:
            self.waited_for = self.books.short(self.task)

    def _apply_own(self, event: TaskEvent) -> None:
        match event:
            case TaskReady():
                self.ready_at = event.at
                self.waited_for, self.overtaken = [], []
                self._note_shortage()
            case TaskBound():
                self.attempts.append(AttemptTold(event.attempt, event.peer, event.at))
            case TaskStarted() if self.attempts:
                self._attempt(event.attempt).started_at = event.at
            case TaskEnded():
                if self.ended is None or self.ended.outcome not in COMMITS:
                    self.ended = event
                if event.attempt and self.attempts:
                    one = self._attempt(event.attempt)
                    one.ended_at, one.outcome = event.at, event.outcome
                    one.reason, one.elapsed_s = event.reason, event.elapsed_s
            case TaskRetried() if self.attempts:
                self.attempts[-1].delay_s = event.delay_s
                if not self.attempts[-1].outcome:
                    self.attempts[-1].reason = event.reason
            case TaskRevoked():
                self.revoked = event.reason
                self.ended = None

    def _attempt(self, number: int) -> AttemptTold:
        """The one of this number, which may be older than the latest: several may be under way."""
        for one in reversed(self.attempts):
            if one.attempt == number:
                return one
        return self.attempts[-1]
