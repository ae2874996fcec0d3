"""Puts committed files into the user's directory, a bounded group at a time.

Publishing follows the commit: whatever a crash cuts off here is done again by `resume`.
"""

from __future__ import annotations

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
        self.failures: list[str] = []
        """Sentences on what could not be put in place; at most FAILURES_MAX are kept."""

    @property
    def busy(self) -> bool:
        return self._under_way or bool(self._waiting)

    def add(self, files: Iterable[FileRecord]) -> None:
        self._waiting.extend(files)
        self._next()

    def _next(self) -> None:
        if self._under_way or not self._waiting:
            return
        group = tuple(self._waiting.popleft() for _ in range(min(GROUP_MAX, len(self._waiting))))
        self._under_way = True
        self._groups += 1
        self._world.start(PublishJob(f"publish.{self._groups}", group), self._on_event)

    def _on_event(self, event: JobEvent) -> None:
        if not isinstance(event, JobEnded):
            return
        self._under_way = False
        if event.outcome != "succeeded" and len(self.failures) < FAILURES_MAX:
            self.failures.append(event.reason)
        self._next()
        if not self.busy:
            self._on_idle()
