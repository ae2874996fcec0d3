"""Matching at the queue itself, one pilot at a time: the highest rank of its column, and of equal
ranks that of the run whose turn it is.

The paper's queue looks at every task that waits, for every request, and is charged for that
(`queue.EXAMINED_S`). What it would find is found here without: a task that is ranked by the files
a pilot holds is either among those that read one of them, or the first of the others of its run.
Tasks with formulas of their own are all looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heapify, heappop, heappush

from sureline.strategies.latebinding.judging import View, rank_of
from sureline.strategies.latebinding.messages import ListedTask, TaskId

Turn = tuple[float, int, float, str]
Order = tuple[float, Turn, float, int]
"""(-rank, turn of the run, -urgency, number): the lowest is taken."""
SWEEP_FROM = 100


class CentralTasks:
    """What waits for the queue to match it."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, tuple[int, ListedTask]] = {}
        self._of_file: dict[str, dict[TaskId, None]] = {}
        self._plain: dict[tuple[str, str], list[tuple[float, int, TaskId]]] = {}
        """By run and the site of their inputs, the most urgent first."""
        self._others: dict[TaskId, None] = {}
        self._tracked = 0

    def __len__(self) -> int:
        return len(self._tasks)

    @property
    def tracked(self) -> bool:
        """Whether pilots are to tell the queue of their files."""
        return self._tracked > 0

    def add(self, number: int, listed: ListedTask) -> None:
        self._tasks[listed.id] = number, listed
        self._tracked += listed.architecture == "pre-dht"
        if listed.requires or listed.rank or listed.but or listed.takes_s:
            self._others[listed.id] = None
            return
        heap = self._plain.setdefault((listed.run, listed.home), [])
        heappush(heap, (-listed.urgency, number, listed.id))
        if len(heap) > 2 * len(self._tasks) + SWEEP_FROM:
            heap[:] = [entry for entry in heap if self._is(entry[2], entry[1])]
            heapify(heap)
        for _, digest, _ in listed.inputs:
            self._of_file.setdefault(digest, {})[listed.id] = None

    def remove(self, task: TaskId) -> None:
        if task not in self._tasks:
            return
        _, listed = self._tasks.pop(task)
        self._others.pop(task, None)
        self._tracked -= listed.architecture == "pre-dht"
        for _, digest, _ in listed.inputs:
            readers = self._of_file.get(digest, {})
            readers.pop(task, None)
            if not readers:
                self._of_file.pop(digest, None)

    def best(
        self,
        view: View,
        held: Mapping[str, None],
        elsewhere: Callable[[str], bool],
        turn: Callable[[str], Turn],
    ) -> tuple[float, ListedTask] | None:
        """(rank, task). `elsewhere` tells of a site whether its own pilots ask for its tasks, and
        `turn` of a run when it comes: the lowest is next."""
        best: tuple[Order, ListedTask] | None = None
        for task in self._candidates(view, held):
            number, listed = self._tasks[task]
            if listed.home not in ("", view.site) and elsewhere(listed.home):
                continue
            rank = rank_of(listed, view)
            if rank is None:
                continue
            order = (-rank, turn(listed.run), -listed.urgency, number)
            if best is None or order < best[0]:
                best = order, listed
        return None if best is None else (-best[0][0], best[1])

    def _candidates(self, view: View, held: Mapping[str, None]) -> Iterable[TaskId]:
        yield from self._others
        for digest in held if len(held) < len(self._of_file) else self._of_file:
            if digest in held:
                yield from self._of_file.get(digest, ())
        for key in list(self._plain):
            yield from self._first(key, view)

    def _first(self, key: tuple[str, str], view: View) -> Iterable[TaskId]:
        """The most urgent that could run there; as a rule it is the first of all."""
        heap = self._plain[key]
        while heap and not self._is(heap[0][2], heap[0][1]):
            heappop(heap)
        if not heap:
            del self._plain[key]
        elif rank_of(self._tasks[heap[0][2]][1], view) is not None:
            yield heap[0][2]
        else:
            yield from [task for _, number, task in heap if self._is(task, number)]

    def _is(self, task: TaskId, number: int) -> bool:
        return task in self._tasks and self._tasks[task][0] == number
