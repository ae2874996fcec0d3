"""Ready tasks in the order in which they should start.

Tasks that need the same of a machine form a class with one heap, so that a pick looks at the head
of each class, never at every task: the most urgent head that fits is taken. A task that does not
fit may be overtaken by smaller ones (a machine should not idle), but only PATIENCE times in a row:
then everything waits until it fits, so that large tasks do not starve.
"""

from __future__ import annotations

import heapq
from typing import Protocol

from sureline.workflow.model import Needs

PATIENCE = 200
HEADS_MAX = 64

Entry = tuple[float, int]
"""(-urgency, task): the smallest is the most urgent; ties go to the earlier task."""


class _Room(Protocol):
    """Where tasks may start: a machine's ledger, or many machines together."""

    def fits(self, needs: Needs) -> bool: ...


class ReadyQueue:
    """`patience` None: whoever asks sees to it that large tasks do not starve."""

    def __init__(self, patience: int | None = PATIENCE) -> None:
        self._patience = patience
        self._classes: dict[Needs, list[Entry]] = {}
        self._heads: list[tuple[Entry, int, Needs]] = []
        """Heads of classes; an entry that is no longer its class's head is stale and dropped."""
        self._gone: set[int] = set()
        """Tasks that were taken out of the middle: their entries are dropped when they come up."""
        self._size = 0
        self._overtaken = 0
        self._pushes = 0

    def __len__(self) -> int:
        return self._size

    def push(self, task: int, needs: Needs, urgency: float) -> None:
        if task in self._gone:  # its entry is still there
            self._gone.discard(task)
            self._size += 1
            return
        entry = (-urgency, task)
        heap = self._classes.setdefault(needs, [])
        heapq.heappush(heap, entry)
        self._size += 1
        if heap[0] == entry:
            self._push_head(entry, needs)

    def _push_head(self, entry: Entry, needs: Needs) -> None:
        self._pushes += 1  # keeps Needs, which have no order, out of the comparison
        heapq.heappush(self._heads, (entry, self._pushes, needs))

    def pop_fitting(self, room: _Room) -> tuple[int, Needs] | None:
        """Remove the most urgent task that fits; that task and its needs, or None."""
        passed: list[tuple[Entry, int, Needs]] = []
        found: tuple[int, Needs] | None = None
        while self._heads and len(passed) < HEADS_MAX:
            head = heapq.heappop(self._heads)
            entry, _, needs = head
            heap = self._classes.get(needs)
            if not heap or heap[0] != entry:
                continue  # stale
            if room.fits(needs):
                found = (self._take(needs, heap), needs)
                break
            passed.append(head)
            if self._patience is not None and self._overtaken >= self._patience:
                break
        for head in passed:
            heapq.heappush(self._heads, head)
        if found is not None:
            self._overtaken = self._overtaken + 1 if passed else 0
        return found

    def head_of(self, needs: Needs) -> int | None:
        """The most urgent of the tasks that need exactly this; it stays."""
        heap = self._classes.get(needs)
        return heap[0][1] if heap else None

    def alike(self, needs: Needs, most: int) -> list[int]:
        """Some of those that need exactly this and are as urgent as the most urgent of them."""
        heap = self._classes.get(needs, [])
        return [task for key, task in heap[:most] if key == heap[0][0] and task not in self._gone]

    def take(self, task: int, needs: Needs) -> None:
        """Remove one of the tasks that need exactly this."""
        heap = self._classes[needs]
        if heap[0][1] == task:
            self._take(needs, heap)
        else:
            self._gone.add(task)
            self._size -= 1

    def pop_equal(self, needs: Needs) -> int | None:
        """Remove the most urgent of the tasks that need exactly this."""
        heap = self._classes.get(needs)
        return self._take(needs, heap) if heap else None

    def _take(self, needs: Needs, heap: list[Entry]) -> int:
        _, task = heapq.heappop(heap)
        self._size -= 1
        while heap and heap[0][1] in self._gone:
            self._gone.discard(heapq.heappop(heap)[1])
        if heap:
            self._push_head(heap[0], needs)
        else:
            del self._classes[needs]
        return task
