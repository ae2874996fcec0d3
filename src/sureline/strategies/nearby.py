"""Which targets have the large files that tasks read, or have been told to fetch them.

To fetch a large file may take longer than to wait until a target that has it can take another
task. How long that will be is not known. So a target that is idle waits for as long as fetching
would take, and then fetches after all: it never loses more than twice what was needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

from sureline.peer.messages import Finished
from sureline.run.port import Bound, Engine, Over
from sureline.world.address import PeerName
from sureline.world.protocol import World

LARGE_BYTES = 1 << 20
"""Files below this are fetched wherever they are needed."""
FETCHED_BYTES_PER_S = 25e6
"""How fast files are believed to come, before any has."""
RECENT_WEIGHT = 0.3
WAIT_MAX_S = 30.0
LOOK_S = 0.1
"""Whoever has waited for long enough may learn it so much later."""


class Nearby:
    """`is_there` tells whether a target takes part. Without a world nobody waits."""

    def __init__(
        self, engine: Engine, world: World | None, is_there: Callable[[PeerName], bool]
    ) -> None:
        self._engine = engine
        self._world = world
        self._is_there = is_there
        self._fetched: dict[PeerName, set[str]] = {}
        """The large files that each target has been told to fetch."""
        self._idle_since_s: dict[PeerName, float] = {}
        """When a target first had nothing to do but what is better done elsewhere."""
        self._fetching: dict[tuple[int, int], int] = {}
        """By task and attempt: how many bytes it waits for."""
        self._bytes_per_s = FETCHED_BYTES_PER_S
        self._look_at_s = math.inf

    def bound(self, bound: Bound) -> None:
        self._idle_since_s.pop(bound.target, None)
        large = self.large(bound.task)
        if large:
            missing_bytes = self.missing_bytes(bound.task, bound.target)
            if missing_bytes:
                self._fetching[bound.task, bound.attempt] = missing_bytes
            self._fetched.setdefault(bound.target, set()).update(large)

    def over(self, over: Over) -> None:
        """What an attempt waited for, before it began, was its files."""
        missing_bytes = self._fetching.pop((over.bound.task, over.bound.attempt), 0)
        if not missing_bytes or self._world is None or not isinstance(over.told, Finished):
            return
        waited_s = self._world.now() - over.bound.since - over.told.ended.elapsed_s
        if waited_s > 0:
            faster = missing_bytes / waited_s - self._bytes_per_s
            self._bytes_per_s += RECENT_WEIGHT * faster

    def gone(self, target: PeerName) -> None:
        self._fetched.pop(target, None)
        self._idle_since_s.pop(target, None)

    def large(self, task: int) -> dict[str, int]:
        """The large files that it reads, with their sizes."""
        reads = self._engine.reads(task)
        return {file.digest: file.size for file in reads if file.size >= LARGE_BYTES}

    def missing_bytes(self, task: int, target: PeerName) -> int:
        """What would have to be fetched there."""
        here = self._fetched.get(target, ())
        fetched = sum(size for digest, size in self.large(task).items() if digest not in here)
        return max(0, fetched - self._engine.held(task).get(target, 0)) if fetched else 0

    def least(self, tasks: Iterable[int], target: PeerName) -> int:
        """The task of which least is to be fetched there; of those, the first."""
        return min(tasks, key=lambda one: (self.missing_bytes(one, target), one))

    def is_elsewhere(self, task: int, target: PeerName) -> bool:
        """Whether something is missing there, and another target has, or will have, all of it."""
        if not self.missing_bytes(task, target):
            return False
        large, held = self.large(task), self._engine.held(task)
        whole = sum(large.values())
        others = {*self._fetched, *held} - {target}
        return any(
            self._is_there(other)
            and (held.get(other, 0) >= whole or large.keys() <= self._fetched.get(other, set()))
            for other in others
        )

    def waits(self, task: int, target: PeerName) -> bool:
        """Whether an idle target had better not begin with this, now."""
        if self._world is None or not self.is_elsewhere(task, target):
            return False
        now_s = self._world.elapsed()
        since_s = self._idle_since_s.setdefault(target, now_s)
        wait_s = min(WAIT_MAX_S, self.missing_bytes(task, target) / self._bytes_per_s)
        if since_s + wait_s <= now_s:
            return False
        if since_s + wait_s < self._look_at_s - LOOK_S:
            self._look_at_s = since_s + wait_s + LOOK_S
            self._world.after(self._look_at_s - now_s, self._look)
        return True

    def _look(self) -> None:
        self._look_at_s = math.inf
        self._engine.wake()
