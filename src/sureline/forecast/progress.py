"""How far a run is, in a form that is cheap to copy: a byte per task, and who runs since when.

The thread that records events calls `apply`; any thread may take a `snapshot`. A snapshot never
changes, so a forecast may work on it for as long as it likes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping

import msgspec

from sureline.journal.events import (
    COMMITS,
    CancelAsked,
    Event,
    Opened,
    TaskBound,
    TaskEnded,
    TaskEvent,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.journal.history import OBSERVED_MAX
from sureline.workflow.model import Graph

OPEN, RUNNING, DONE, FAILED = range(4)


class Progress(msgspec.Struct, frozen=True):
    """One instant of a run. Tasks are given by index."""

    at: float
    states: bytes
    """OPEN, RUNNING, DONE or FAILED, one byte per task."""
    started: Mapping[int, float] = {}
    """Since when the running tasks hold their part of the machine."""
    retrying: Mapping[int, float] = {}
    """When the tasks that failed will be tried again."""
    observed_s: Mapping[str, tuple[float, ...]] = {}
    """For how long tasks held their part of the machine in this run, by kind."""
    draining: bool = False
    """Only what runs now will still finish."""


def untouched(graph: Graph, at: float) -> Progress:
    """A run in which nothing has happened yet."""
    return Progress(at, bytes(len(graph)))


class Tracker:
    """Follows a run's events. Events of tasks that the graph does not have are ignored."""

    def __init__(self, graph: Graph) -> None:
        self._index = graph.index
        self._states = bytearray(len(graph))
        self._started: dict[int, float] = {}
        self._retrying: dict[int, float] = {}
        self._observed_s: dict[str, deque[float]] = {}
        self._draining = False
        self._lock = threading.Lock()

    def apply(self, event: Event) -> None:
        """Take in the next event of the run."""
        with self._lock:
            if isinstance(event, TaskEvent):
                task = self._index.get(event.task)
                if task is not None:
                    self._apply_to_task(task, event)
            elif isinstance(event, Opened):
                self._opened()
            elif isinstance(event, CancelAsked):
                self._draining = True

    def snapshot(self, at: float) -> Progress:
        with self._lock:
            return Progress(
                at,
                bytes(self._states),
                dict(self._started),
                dict(self._retrying),
                {kind: tuple(seconds) for kind, seconds in self._observed_s.items()},
                self._draining,
            )

    def _opened(self) -> None:
        """Another process begins: whatever has no result is to be done again."""
        self._states = bytearray([DONE if state == DONE else OPEN for state in self._states])
        self._started.clear()
        self._retrying.clear()
        self._draining = False

    def _holds_from(self, task: int, event: TaskBound | TaskStarted) -> bool:
        """Whether the task begins to hold its part of the machine with this event."""
        if isinstance(event, TaskBound):
            return not event.ahead
        return self._states[task] != RUNNING

    def _apply_to_task(self, task: int, event: TaskEvent) -> None:
        if self._states[task] == DONE:
            if isinstance(event, TaskRevoked):
                self._states[task] = OPEN
            return
        if isinstance(event, TaskBound | TaskStarted) and self._holds_from(task, event):
            # From now on it holds its part of the machine: the time until it starts counts too.
            self._states[task] = RUNNING
            self._started[task] = event.at
            self._retrying.pop(task, None)
        elif isinstance(event, TaskEnded):
            self._ended(task, event)
        elif isinstance(event, TaskRetried):
            self._states[task] = OPEN
            self._retrying[task] = event.at + event.delay_s

    def _ended(self, task: int, event: TaskEnded) -> None:
        began_at = self._started.pop(task, event.at)
        self._retrying.pop(task, None)
        if event.outcome in COMMITS:
            self._states[task] = DONE
        else:
            self._states[task] = OPEN if event.outcome == "cancelled" else FAILED
        if event.outcome == "succeeded" and event.kind:
            seen = self._observed_s.setdefault(event.kind, deque(maxlen=OBSERVED_MAX))
            seen.append(max(event.elapsed_s, event.at - began_at))
