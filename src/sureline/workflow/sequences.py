"""A workflow as sequences of dependent tasks, and the time limits of each.

Whoever reserves time on machines before anything runs does so for chains of tasks, not for single
ones: a chain runs on one machine without moving its data. The decomposition is that of Celaya and
Arronategui ("Distributed Scheduler of Workflows with Deadlines in a P2P Desktop Grid"): the
critical path first; then, again and again, the longest path of what is left such that

1. no edge from a task that is already in a sequence enters it, but into its first task, and
2. no edge from it enters a task that is already in a sequence, but from its last task.

So a sequence touches earlier ones only at its two ends, and once these are placed, its *startline*
(not before) and its *deadline* are known. All sequences whose limits are known go out together: a
*stage*. Of equal paths the one described first is taken, so the result is always the same.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

from sureline.workflow.model import Graph
from sureline.workflow.shapes import topological_order


class Sequences(NamedTuple):
    """Tasks are given by index."""

    tasks: list[list[int]]
    """The tasks of each sequence, in order; sequences in the order of their extraction."""
    of: list[int]
    """For every task, its sequence; -1 if it was placed before."""
    stage: list[int]
    """For every sequence, when its limits are known: after those of all lower stages are placed."""
    minimum_length_s: float
    """Of the critical path: the first sequence."""
    total_length_s: float

    @property
    def width(self) -> int:
        """How many stages there are."""
        return max(self.stage, default=-1) + 1

    @property
    def stages(self) -> list[list[int]]:
        """The sequences of each stage."""
        found: list[list[int]] = [[] for _ in range(self.width)]
        for sequence, stage in enumerate(self.stage):
            found[stage].append(sequence)
        return found


def sequences(
    graph: Graph,
    durations_s: Sequence[float],
    order: Sequence[int] | None = None,
    *,
    placed: Collection[int] = (),
    tasks_max: int | None = None,
) -> Sequences:
    """Take the graph apart. Every task is in exactly one sequence, but those that are `placed`
    already. `order` is a topological one, if the caller has it; a longer sequence than `tasks_max`
    is cut."""
    whole = _Extraction(graph, durations_s, order or topological_order(graph), placed).all()
    least = sum(durations_s[task] for task in whole[0]) if whole else 0.0
    step = tasks_max or len(graph) or 1
    found = [tasks[i : i + step] for tasks in whole for i in range(0, len(tasks), step)]
    of = [-1] * len(graph)
    for number, tasks in enumerate(found):
        for task in tasks:
            of[task] = number
    total = sum(durations_s[task] for tasks in found for task in tasks)
    return Sequences(found, of, _stages(graph, found, of), least, total)


class _Extraction:
    """Keeps, for every task that is left, the longest allowed path that begins with it.

    A path only becomes shorter while others are extracted, so a heap of old lengths finds the
    longest one: whoever comes up with a length that is no longer true is put back.
    """

    def __init__(
        self,
        graph: Graph,
        durations_s: Sequence[float],
        order: Sequence[int],
        placed: Collection[int],
    ) -> None:
        self._parents, self._children = graph.parents, graph.children
        self._durations_s = durations_s
        self._place = [0] * len(graph)
        for place, task in enumerate(order):
            self._place[task] = place
        self._left = [True] * len(graph)
        self._entered = [False] * len(graph)
        """Whether an extracted task has an edge into it: it can only be a first one."""
        self._enters = [False] * len(graph)
        """Whether it has an edge into an extracted task: it can only be a last one."""
        self._length_s = [0.0] * len(graph)
        self._next = [-1] * len(graph)
        for task in placed:
            self._take(task)
        for task in reversed(order):
            if self._left[task]:
                self._look(task)

    def all(self) -> list[list[int]]:
        heap = [(-length_s, task) for task, length_s in enumerate(self._length_s)]
        heapq.heapify(heap)
        found = []
        while heap:
            below, task = heapq.heappop(heap)
            if not self._left[task]:
                continue
            if -below != self._length_s[task]:
                heapq.heappush(heap, (-self._length_s[task], task))
                continue
            found.append(self._extract(task))
        return found

    def _look(self, task: int) -> bool:
        """Find the longest path from here anew; whether it is another one than before."""
        before = (self._length_s[task], self._next[task])
        then, rest_s = -1, 0.0
        if not self._enters[task]:
            for child in self._children[task]:
                if self._left[child] and not self._entered[child]:
                    length_s = self._length_s[child]
                    if then < 0 or (-length_s, child) < (-rest_s, then):
                        then, rest_s = child, length_s
        self._length_s[task] = self._durations_s[task] + rest_s
        self._next[task] = then
        return before != (self._length_s[task], then)

    def _extract(self, first: int) -> list[int]:
        path = [first]
        while self._next[path[-1]] >= 0:
            path.append(self._next[path[-1]])
        changed: set[int] = set()
        for task in path:
            changed |= self._take(task)
        self._look_back(changed)
        return path

    def _take(self, task: int) -> set[int]:
        """It is in a sequence; the tasks to look at again."""
        changed: set[int] = set()
        self._left[task] = False
        for child in self._children[task]:
            if not self._entered[child]:
                self._entered[child] = True
                changed.update(self._parents[child])
        for parent in self._parents[task]:
            self._enters[parent] = True
            changed.add(parent)
        return changed

    def _look_back(self, changed: set[int]) -> None:
        """Look at these tasks again, and at those before them whose paths change with theirs."""
        heap = [(-self._place[task], task) for task in changed if self._left[task]]
        heapq.heapify(heap)
        seen = set(changed)
        while heap:
            _, task = heapq.heappop(heap)
            if self._look(task):
                for parent in self._parents[task]:
                    if self._left[parent] and parent not in seen:
                        seen.add(parent)
                        heapq.heappush(heap, (-self._place[parent], parent))


def _stages(graph: Graph, found: Sequence[Sequence[int]], of: Sequence[int]) -> list[int]:
    stage = [0] * len(found)
    for number, tasks in enumerate(found):
        touched = [of[p] for p in graph.parents[tasks[0]]] + [
            of[c] for c in graph.children[tasks[-1]]
        ]
        stage[number] = max(
            [stage[other] + 1 for other in touched if 0 <= other < number], default=0
        )
    return stage


class Window(NamedTuple):
    """When a task may run: not before `startline_s`, and it ends by `deadline_s`."""

    startline_s: float
    deadline_s: float


def windows(
    graph: Graph,
    durations_s: Sequence[float],
    begin_s: float,
    deadline_s: float,
    placed: Mapping[int, tuple[float, float]],
    order: Sequence[int] | None = None,
) -> list[Window]:
    """The time limits of every task, if those in `placed` begin no later and end no later than
    (latest start, deadline) says.

    Where a neighbour is not placed yet, room is kept for the longest chain of such on that side, by
    their durations. A window can turn out too short for its task: then the deadline cannot be met
    with what is placed.
    """
    order = order or topological_order(graph)
    startline_s = [begin_s] * len(graph)
    for task in order:
        for parent in graph.parents[task]:
            at = placed.get(parent)
            ready_s = startline_s[parent] + durations_s[parent] if at is None else at[1]
            startline_s[task] = max(startline_s[task], ready_s)
    latest_s = [deadline_s] * len(graph)
    for task in reversed(order):
        for child in graph.children[task]:
            at = placed.get(child)
            begins_s = latest_s[child] - durations_s[child] if at is None else at[0]
            latest_s[task] = min(latest_s[task], begins_s)
    return [Window(*pair) for pair in zip(startline_s, latest_s, strict=True)]
