"""How far a run is, in a form that is cheap to copy: a byte per task, and who runs since when.

The thread that records events calls `apply`; any thread may take a `snapshot`. A snapshot never
changes, so a forecast may work on it for as long as it likes.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from sureline.journal.events import (
    COMMITS,
    CancelAsked,
    Event,
    Opened,
    TaskBound,
    TaskEnded,
    TaskEvent,
    TaskProgressed,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.journal.history import OBSERVED_MAX
from sureline.workflow.model import Graph

OPEN, RUNNING, DONE, FAILED = range(4)


class HoldingAttempt(NamedTuple):
    """An attempt that holds its part of a machine."""

    at: float
    """Since when."""
    peer: str = ""
    fraction: float | None = None
    """How much of it is done, if it says so."""
    started: bool = False


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
    fractions: Mapping[int, float] = {}
    """How much of the running tasks is done, of those that say so."""
    peers: Mapping[int, str] = {}
    """Who runs them."""
    copies: Mapping[int, tuple[HoldingAttempt, ...]] = {}
    """Further attempts of running tasks, begun while the first one ran on."""


def untouched(graph: Graph, at: float) -> Progress:
    """A run in which nothing has happened yet."""
    return Progress(at, bytes(len(graph)))


class Tracker:
    """Follows a run's events. Events of tasks that the graph does not have are ignored."""

    def __init__(self, graph: Graph) -> None:
        self._index = graph.index
        self._states = bytearray(len(graph))
        self._attempts: dict[int, dict[int, HoldingAttempt]] = {}
        """Of running tasks, by number, the oldest first."""
        self._retrying: dict[int, float] = {}
        self._observed_s: dict[str, deque[float]] = {}
        self._draining = False
        self._lock = threading.Lock()

    def grow(self, graph: Graph) -> None:
        """The graph has these tasks now."""
        with self._lock:
            self._index = graph.index
            self._states.extend(bytes(len(graph) - len(self._states)))

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

    def committed(self, task: str, kind: str, held_s: float | None) -> None:
        """The task got its result, whatever came before; `held_s` is for how long it held its part
        of the machine, None if nothing ran. For those who take in many events at once."""
        with self._lock:
            index = self._index[task]
            self._attempts.pop(index, None)
            self._retrying.pop(index, None)
            self._states[index] = DONE
            if held_s is not None and kind:
                self._observed_s.setdefault(kind, deque(maxlen=OBSERVED_MAX)).append(held_s)

    def snapshot(self, at: float) -> Progress:
        with self._lock:
            firsts = {task: next(iter(of.values())) for task, of in self._attempts.items()}
            return Progress(
                at,
                bytes(self._states),
                {task: first.at for task, first in firsts.items()},
                dict(self._retrying),
                {kind: tuple(seconds) for kind, seconds in self._observed_s.items()},
                self._draining,
                {t: one.fraction for t, one in firsts.items() if one.fraction is not None},
                {task: first.peer for task, first in firsts.items()},
                {t: tuple(of.values())[1:] for t, of in self._attempts.items() if len(of) > 1},
            )

    def _opened(self) -> None:
        """Another process begins: whatever has no result is to be done again."""
        self._states = bytearray([DONE if state == DONE else OPEN for state in self._states])
        self._attempts.clear()
        self._retrying.clear()
        self._draining = False

    def _apply_to_task(self, task: int, event: TaskEvent) -> None:
        if self._states[task] == DONE:
            if isinstance(event, TaskRevoked):
                self._states[task] = OPEN
            return
        if isinstance(event, TaskStarted) or (isinstance(event, TaskBound) and not event.ahead):
            self._holds(task, event)
        elif isinstance(event, TaskProgressed):
            of_task = self._attempts.get(task, {})
            if event.attempt in of_task:
                told = of_task[event.attempt]._replace(fraction=event.fraction)
                of_task[event.attempt] = told
        elif isinstance(event, TaskEnded):
            self._ended(task, event)
        elif isinstance(event, TaskRetried):
            if task not in self._attempts:
                self._states[task] = OPEN
            self._retrying[task] = event.at + event.delay_s

    def _holds(self, task: int, event: TaskBound | TaskStarted) -> None:
        """An attempt holds its part of a machine, from when it is bound: the time until it starts
        counts too. One that never started does not run on when the next one is bound."""
        known = self._attempts.get(task, {})
        since = known[event.attempt].at if event.attempt in known else event.at
        now = HoldingAttempt(since, event.peer, started=isinstance(event, TaskStarted))
        going_on = {n: one for n, one in known.items() if one.started and n != event.attempt}
        self._attempts[task] = {**going_on, event.attempt: now}
        self._states[task] = RUNNING
        self._retrying.pop(task, None)

    def _ended(self, task: int, event: TaskEnded) -> None:
        of_task = self._attempts.get(task, {})
        ended = of_task.pop(event.attempt, None)
        self._retrying.pop(task, None)
        if event.outcome in COMMITS:
            self._attempts.pop(task, None)
            self._states[task] = DONE
        elif not of_task or not event.attempt:
            self._attempts.pop(task, None)
            self._states[task] = OPEN if event.outcome == "cancelled" else FAILED
        if event.outcome == "succeeded" and event.kind:
            seen = self._observed_s.setdefault(event.kind, deque(maxlen=OBSERVED_MAX))
            seen.append(max(event.elapsed_s, event.at - ended.at if ended else 0.0))
