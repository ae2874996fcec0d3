"""A run as its pictures need it: every attempt with its times, every session, every task's events.

Folded from the journal like any view, together with the graph and with whether a process still
works on the run. A *session* is one process's work on the run. An attempt that a dead process left
open ended with its session and counts as lost.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

import msgspec

from sureline.journal.events import (
    COMMITS,
    AnyEvent,
    Foreseen,
    Noted,
    Opened,
    PeerJoined,
    PeerLeft,
    Repaired,
    RunEnded,
    Submitted,
    TaskBound,
    TaskEnded,
    TaskEvent,
    TaskProgressed,
    TaskReady,
    TaskRetried,
    TaskStarted,
)
from sureline.journal.views import RunView
from sureline.workflow.model import Graph, Pause


class _Session(msgspec.Struct):
    began_at: float
    ended_at: float
    host: str
    pid: int
    ended: Literal["properly", "killed", "going on"] = "killed"


class Attempt(msgspec.Struct):
    """One attempt. `began_at` is when it started, or when it was bound if it never did."""

    task: int
    number: int
    peer: str
    session: int
    began_at: float
    ended_at: float
    eligible_at: float
    """From when it could have run: the task was ready, or its back-off was over."""
    outcome: str = "running"
    took_s: float = 0.0
    """As measured on its machine once it has ended."""
    window: tuple[float, float] | None = None
    """The time that it was promised."""


class _Presence(msgspec.Struct):
    """A machine that took part, from when to when."""

    peer: str
    cores: float
    memory_bytes: int
    joined_at: float
    left_at: float


class Record:
    """Made by `of`. Tasks are given by their index in `graph`."""

    def __init__(self, graph: Graph, alive: bool, now: float) -> None:
        self.graph = graph
        self.alive = alive
        self.now = now
        """The time that the record was made."""
        self.view = RunView()
        self.submitted: Submitted | None = None
        self.sessions: list[_Session] = []
        self.presences: list[_Presence] = []
        self.attempts: list[Attempt] = []
        """In order of their beginning."""
        self.events: list[list[AnyEvent]] = [[] for _ in graph.tasks]
        """By task; of an attempt's progress only the latest."""
        self.foreseen: list[Foreseen] = []
        """The forecasts on record, in order."""
        self.finished_at: dict[int, float] = {}
        """When a task's last attempt was over, or its result was found."""
        self.delays_s = 0.0
        """The back-offs before retries, summed."""
        self.states: list[str] = []
        self._open: dict[tuple[int, int], Attempt] = {}
        self._eligible_at: dict[int, float] = {}
        self._windows: dict[str, tuple[float, float]] = {}

    @classmethod
    def of(cls, graph: Graph, events: Iterable[AnyEvent], *, alive: bool, now: float) -> Record:
        """Fold a run's events. `alive`: a process works on it; `now` is the time of looking."""
        record = cls(graph, alive, now)
        record.view = RunView.of((), [task.name for task in graph.tasks])
        for event in events:
            record._apply(event)
        record._close()
        return record

    @property
    def state(self) -> str:
        return self.view.state(self.alive)

    @property
    def began_at(self) -> float:
        """The zero of all times that are shown."""
        if self.sessions:
            return self.sessions[0].began_at
        return self.view.submitted_at or self.now

    @property
    def seen_until(self) -> float:
        """The last moment that the record tells of."""
        return self.sessions[-1].ended_at if self.sessions else self.began_at

    @property
    def pretended(self) -> bool:
        return bool(self.graph.tasks) and all(
            isinstance(task.action, Pause) for task in self.graph.tasks
        )

    def ready_and_waiting(self) -> list[tuple[int, float]]:
        """The tasks that could run from a moment on, but had not begun when the record ends."""
        return list(self._eligible_at.items())

    def _apply(self, event: AnyEvent) -> None:
        self.view.apply(event)
        if isinstance(event, TaskEvent):
            task = self.graph.index.get(event.task)
            if task is not None:
                self._apply_to_task(task, event)
        elif isinstance(event, Submitted):
            self.submitted = event
        elif isinstance(event, Foreseen):
            self.foreseen.append(event)
        elif isinstance(event, Repaired) and event.task in self.graph.index:
            self.events[self.graph.index[event.task]].append(event)
        elif isinstance(event, Noted) and event.window is not None:
            self._windows[event.task] = event.window
        elif isinstance(event, Opened):
            self._end_session("killed")
            self.sessions.append(_Session(event.at, event.at, event.host, event.pid))
        elif isinstance(event, PeerJoined):
            self.presences.append(
                _Presence(event.peer, event.cores, event.memory_bytes, event.at, float("inf"))
            )
        elif isinstance(event, PeerLeft):
            for presence in self.presences:
                if presence.peer == event.peer:
                    presence.left_at = min(presence.left_at, event.at)
        if self.sessions and self.sessions[-1].ended != "properly":
            self.sessions[-1].ended_at = event.at
        if isinstance(event, RunEnded):
            self._end_session("properly")

    def _apply_to_task(self, task: int, event: TaskEvent) -> None:
        match event:
            case TaskReady():
                self._eligible_at[task] = event.at
            case TaskRetried(delay_s=delay_s):
                self._eligible_at[task] = event.at + delay_s
                self.delays_s += delay_s
            case TaskBound(attempt=number, peer=peer):
                self._begin(task, number, peer, event.at)
            case TaskStarted(attempt=number, peer=peer):
                self._begin(task, number, peer, event.at)
            case TaskEnded():
                self._end_attempt(task, event)
        self._remember(task, event)

    def _remember(self, task: int, event: TaskEvent) -> None:
        story = self.events[task]
        if isinstance(event, TaskProgressed) and story and isinstance(story[-1], TaskProgressed):
            story.pop()
        story.append(event)  # type: ignore[arg-type]  # every TaskEvent is one of AnyEvent

    def _begin(self, task: int, number: int, peer: str, at: float) -> None:
        attempt = self._open.get((task, number))
        if attempt is None:
            eligible_at = min(self._eligible_at.pop(task, at), at)
            session = max(0, len(self.sessions) - 1)
            attempt = Attempt(task, number, peer, session, at, at, eligible_at)
            attempt.window = self._windows.get(self.graph.tasks[task].name)
            self._open[task, number] = attempt
            self.attempts.append(attempt)
        attempt.began_at, attempt.peer = at, peer

    def _has_result(self, task: int) -> bool:
        return self.view.tasks[self.graph.tasks[task].name].state in COMMITS

    def _end_attempt(self, task: int, event: TaskEnded) -> None:
        if event.outcome in COMMITS or not self._has_result(task):
            self.finished_at[task] = event.at
        self._eligible_at.pop(task, None)
        if not event.attempt:
            return
        if (task, event.attempt) not in self._open:
            self._begin(task, event.attempt, event.peer, event.at - event.elapsed_s)
        attempt = self._open.pop((task, event.attempt))
        attempt.ended_at = max(event.at, attempt.began_at)
        attempt.outcome = event.outcome
        attempt.took_s = event.elapsed_s

    def _end_session(self, how: Literal["properly", "killed", "going on"]) -> None:
        if not self.sessions:
            return
        session = self.sessions[-1]
        session.ended = how if session.ended == "killed" else session.ended
        for presence in self.presences:
            presence.left_at = min(presence.left_at, session.ended_at)
        for (task, _), attempt in self._open.items():
            attempt.outcome = "running" if how == "going on" else "lost"
            attempt.ended_at = max(session.ended_at, attempt.began_at)
            attempt.took_s = attempt.ended_at - attempt.began_at
            if not self._has_result(task):
                self.finished_at[task] = attempt.ended_at
        self._open.clear()
        if how != "going on":
            self._eligible_at.clear()

    def _close(self) -> None:
        if self.alive and self.view.ended_state is None and self.sessions:
            self.sessions[-1].ended_at = max(self.now, self.sessions[-1].ended_at)
            self._end_session("going on")
        else:
            self._end_session("killed")
        self.attempts.sort(key=lambda attempt: attempt.began_at)
        self.states = [self._shown(self.view.tasks[task.name].state) for task in self.graph.tasks]

    def _shown(self, state: str) -> str:
        """In a run that is over nothing waits; in one that nobody works on nothing runs."""
        if state in COMMITS or state == "failed":
            return state
        if self.view.ended_state is not None:
            return "cancelled"
        return state if self.alive else "waiting"
