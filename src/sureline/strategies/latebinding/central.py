"""Matching at the queue itself, one pilot at a time: the highest rank of its column.

The paper's queue looks at every task that waits, for every request, and is charged for that
(`queue.EXAMINED_S`). What it would find is found here without: a task that is ranked by the files
a pilot holds is either among those that read one of them, or the first of the others. Tasks with
formulas of their own are all looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from heapq import heappop, heappush

from sureline.strategies.latebinding.judging import View, rank_of
from sureline.strategies.latebinding.messages import ListedTask, TaskId

Order = tuple[float, float, int]
"""(rank, urgency, -number): the highest is taken."""


class CentralTasks:
    """What waits for the queue to match it."""

    def __init__(self) -> None:
        self._tasks: dict[TaskId, tuple[int, ListedTask]] = {}
        self._of_file: dict[str, dict[TaskId, None]] = {}
        self._plain: dict[str, list[tuple[float, int, TaskId]]] = {}
        """By the site of their inputs, the most urgent first."""
        self._others: dict[TaskId, None] = {}

    def __len__(self) -> int:
        return len(self._tasks)

    def add(self, number: int, listed: ListedTask) -> None:
        self._tasks[listed.id] = number, listed
        if listed.requires or listed.rank or listed.but or listed.takes_s:
            self._others[listed.id] = None
            return
        heap = self._plain.setdefault(listed.home, [])
        heappush(heap, (-listed.urgency, number, listed.id))
        for _, digest, _ in listed.inputs:
            self._of_file.setdefault(digest, {})[listed.id] = None

    def remove(self, task: TaskId) -> None:
        found = self._tasks.pop(task, None)
        self._others.pop(task, None)
        for _, digest, _ in () if found is None else found[1].inputs:
            readers = self._of_file.get(digest, {})
            readers.pop(task, None)
            if not readers:
                self._of_file.pop(digest, None)

    def best(
        self, view: View, held: Mapping[str, None], elsewhere: Callable[[str], bool]
    ) -> tuple[Order, ListedTask] | None:
        """`elsewhere` tells of a site whether its own pilots ask for its tasks."""
        best: tuple[Order, ListedTask] | None = None
        for task in self._candidates(view, held):
            number, listed = self._tasks[task]
            if listed.home not in ("", view.site) and elsewhere(listed.home):
                continue
            rank = rank_of(listed, view)
            if rank is None:
                continue
            order = (rank, listed.urgency, -number)
            if best is None or order > best[0]:
                best = order, listed
        return best

    def _candidates(self, view: View, held: Mapping[str, None]) -> Iterable[TaskId]:
        yield from self._others
        for digest in held if len(held) < len(self._of_file) else self._of_file:
            if digest in held:
                yield from self._of_file.get(digest, ())
        for home in list(self._plain):
            yield from self._first(home, view)

    def _first(self, home: str, view: View) -> Iterable[TaskId]:
        """The most urgent that could run there; as a rule it is the first of all."""
        heap = self._plain[home]
        while heap and self._tasks.get(heap[0][2], (-1,))[0] != heap[0][1]:
            heappop(heap)
        if not heap:
            del self._plain[home]
        elif rank_of(self._tasks[heap[0][2]][1], view) is not None:
            yield heap[0][2]
        else:
            yield from [task for _, number, task in heap if self._is(task, number)]

    def _is(self, task: TaskId, number: int) -> bool:
        return task in self._tasks and self._tasks[task][0] == number
