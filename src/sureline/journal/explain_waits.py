"""Whom a task waits for: its parents, where the chains of waiting end, and who is more urgent."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

import msgspec

from sureline.journal.events import COMMITS
from sureline.journal.views import RunView
from sureline.journal.words import counted, duration, listed
from sureline.workflow.model import Graph
from sureline.workflow.shapes import urgencies

BLOCKERS_MAX = 100
WAITS_TOLD = 3
_ARE = {
    "waiting": "waits itself",
    "ready": "is ready",
    "bound": "is about to start",
    "running": "is running",
    "retrying": "failed and will be tried again",
    "failed": "failed",
    "cancelled": "did not run",
}
_SHORT = {"bound": "about to start", "retrying": "to be tried again", "cancelled": "not run"}


class WaitsFor(msgspec.Struct, frozen=True):
    """A parent without a result. `inputs` are the files it is to make; none for an order (`after:`)
    or for a call's result."""

    task: str
    state: str
    inputs: list[str]

    @property
    def words(self) -> str:
        is_now = _ARE.get(self.state, self.state)
        if self.inputs:
            return f"{listed(self.inputs)}, which {self.task} makes; {self.task} {is_now}"
        return f"{self.task}, which {is_now}"


def waits_in_words(task: str, waits: list[WaitsFor], over: bool) -> list[str]:
    """A sentence for each if they are few, else one for all."""
    verb = "waited" if over else "waits"
    if len(waits) <= WAITS_TOLD:
        return [f"{task} {verb} for {wait.words}." for wait in waits]
    by_state: dict[str, list[str]] = {}
    for wait in waits:
        by_state.setdefault(wait.state, []).append(wait.task)
    parts = [
        f"{len(names)} {_SHORT.get(state, state)} ({listed(names)})"
        for state, names in by_state.items()
    ]
    return [f"{task} {verb} for {counted(len(waits), 'task')}: {'; '.join(parts)}."]


class Blocker(msgspec.Struct, frozen=True):
    """Where a chain of waiting ends. `chain` begins with the explained task and ends here."""

    task: str
    state: str
    chain: list[str]
    reason: str = ""

    @property
    def words(self) -> str:
        way = ", which waits for ".join(self.chain[1:6])
        far = " (and so on)" if len(self.chain) > 6 else ""
        last = f"; {self.task}" if far else ", which"
        return f"The chain: {self.chain[0]} waits for {way}{far}{last} {_ARE.get(self.state)}."


class Ahead(msgspec.Struct, frozen=True):
    """Ready tasks that start before this one. An urgency is the longest way in seconds from a
    task's start to the end of the workflow, by `takes:`; a task without it counts as a second."""

    tasks: int
    first: list[str]
    urgency_s: float
    most_urgent_s: float

    @property
    def words(self) -> str:
        go = "goes" if self.tasks == 1 else "go"
        names = listed(self.first, 3, self.tasks)
        told = f"{counted(self.tasks, 'ready task')} {go} first ({names}): "
        if self.most_urgent_s > self.urgency_s:
            return told + (
                f"more work waits for them (the longest way to the end takes "
                f"{duration(self.most_urgent_s)}, from here {duration(self.urgency_s)})."
            )
        return told + "as urgent as this one, and described before it."


def waits_for(graph: Graph, task: str, states: Mapping[str, str]) -> list[WaitsFor]:
    index = graph.index[task]
    described = graph.tasks[index]
    made: dict[int, list[str]] = {}
    for path in described.inputs:
        maker = graph.maker(path)
        if maker is not None:
            made.setdefault(maker, []).append(path)
    found = []
    for parent in graph.parents[index]:
        name = graph.tasks[parent].name
        if states[name] not in COMMITS:
            found.append(WaitsFor(name, states[name], made.get(parent, [])))
    return found


def blockers(graph: Graph, task: str, states: Mapping[str, str], view: RunView) -> list[Blocker]:
    """The nearest ends of chains first, at most BLOCKERS_MAX; failed ones before all others."""
    came_from: dict[int, int] = {}
    start = graph.index[task]
    queue, found = deque([start]), list[Blocker]()
    while queue and len(found) < BLOCKERS_MAX:
        here = queue.popleft()
        for parent in graph.parents[here]:
            state = states[graph.tasks[parent].name]
            if parent in came_from or state in COMMITS:
                continue
            came_from[parent] = here
            if state in ("waiting", "cancelled"):
                queue.append(parent)
            else:
                found.append(_blocker(graph, parent, start, came_from, states, view))
    return sorted(found, key=lambda blocker: blocker.state != "failed")


def _blocker(
    graph: Graph,
    end: int,
    start: int,
    came_from: Mapping[int, int],
    states: Mapping[str, str],
    view: RunView,
) -> Blocker:
    chain = [end]
    while chain[-1] != start:
        chain.append(came_from[chain[-1]])
    names = [graph.tasks[k].name for k in reversed(chain)]
    failures = view.tasks[names[-1]].failures
    reason = failures[-1].reason if failures else ""
    return Blocker(names[-1], states[names[-1]], names, reason)


def ahead_of(graph: Graph, task: str, states: Mapping[str, str]) -> Ahead:
    """Which ready tasks the engine would rather start: the same order as the submitter's."""
    urgency = urgencies(graph)
    index = graph.index[task]
    mine = (-urgency[index], index)
    before = sorted(
        (-urgency[k], k)
        for k, t in enumerate(graph.tasks)
        if states[t.name] == "ready" and (-urgency[k], k) < mine
    )
    most = -before[0][0] if before else urgency[index]
    names = [graph.tasks[k].name for _, k in before[:3]]
    return Ahead(len(before), names, urgency[index], most)
