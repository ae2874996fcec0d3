"""Puts committed files into the user's directory, a bounded group at a time.

Publishing follows the commit: whatever a crash cuts off here is done again by `resume`. Files are
put in place in the order in which they were added, so a number says how far it has come.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable

from sureline.peer.jobs import JobEnded, PublishJob
from sureline.workflow.files import FileRecord
from sureline.world.protocol import JobEvent, World

GROUP_MAX = 64
FAILURES_MAX = 20


class Publisher:
    def __init__(self, world: World, on_idle: Callable[[], None]) -> None:
        self._world = world
        self._on_idle = on_idle
        self._waiting: deque[FileRecord] = deque()
        self._under_way = False
        self._groups = 0
        self._group_size = 0
        self.added = 0
        """How many files were given here so far."""
        self.in_place = 0
        """How many of them have been dealt with."""
        self._awaited: list[tuple[int, int, Callable[[], None]]] = []
        self._asked = 0
        self.failures: list[str] = []
        """Sentences on what could not be put in place; at most FAILURES_MAX are kept."""

    @property
    def busy(self) -> bool:
        return self._under_way or bool(self._waiting)

    def add(self, files: Iterable[FileRecord]) -> None:
        before = len(self._waiting)
        self._waiting.extend(files)
        self.added += len(self._waiting) - before
        self._next()

    def when(self, number: int, action: Callable[[], None]) -> None:
        """Run the action once that many files are `in_place`, which they are not yet."""
        assert number > self.in_place
        self._asked += 1  # keeps actions, which have no order, out of the comparison
        heapq.heappush(self._awaited, (number, self._asked, action))

    def _next(self) -> None:
        if self._under_way or not self._waiting:
            return
        group = tuple(self._waiting.popleft() for _ in range(min(GROUP_MAX, len(self._waiting))))
        self._under_way = True
        self._group_size = len(group)
        self._groups += 1
        self._world.start(PublishJob(f"publish.{self._groups}", group), self._on_event)

    def _on_event(self, event: JobEvent) -> None:
        if not isinstance(event, JobEnded):
            return
        self._under_way = False
        self.in_place += self._group_size
        if event.outcome != "succeeded" and len(self.failures) < FAILURES_MAX:
            self.failures.append(event.reason)
        self._next()
        while self._awaited and self._awaited[0][0] <= self.in_place:
            heapq.heappop(self._awaited)[2]()
        if not self.busy:
            self._on_idle()
