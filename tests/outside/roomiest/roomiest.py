"""Every ready task goes where most memory is free: a strategy in a package of its own.

It keeps one book, of what its own attempts hold on each target, and imports nothing of Sureline but
the port.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sureline.run.port import (
    Action,
    Bound,
    Deciding,
    Engine,
    Needs,
    Noted,
    Over,
    PeerName,
    Strategy,
    Target,
    Unknown,
)


class Settings(msgspec.Struct, frozen=True):
    spare_cores: float = 0.0
    """So many cores of every target are left alone."""


class Room:
    """What is free on one target, by our own attempts."""

    def __init__(self, target: Target, spare_cores: float) -> None:
        self.cores = target.capacity.cores - spare_cores
        self.memory_bytes = target.capacity.memory_bytes
        self.disk_bytes = target.capacity.disk_bytes
        self.gpus = target.capacity.gpus
        self.tags = dict(target.capacity.tags)

    def fits(self, needs: Needs) -> bool:
        return (
            needs.cores <= self.cores + 1e-9
            and needs.memory_bytes <= self.memory_bytes
            and needs.disk_bytes <= self.disk_bytes
            and needs.gpus <= self.gpus
            and all(self._has(tag, count) for tag, count in needs.tags)
        )

    def _has(self, tag: str, count: int) -> bool:
        free = self.tags.get(tag, 0)
        return free is None or count <= free  # None: it has the tag, and does not count it

    def change(self, needs: Needs, sign: int) -> None:
        self.cores += sign * needs.cores
        self.memory_bytes += sign * needs.memory_bytes
        self.disk_bytes += sign * needs.disk_bytes
        self.gpus += sign * needs.gpus
        for tag, count in needs.tags:
            free = self.tags.get(tag)
            self.tags[tag] = None if free is None else free + sign * count


class Roomiest(Deciding):
    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._rooms: dict[PeerName, Room] = {}
        self._ready: dict[int, None] = {}

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        self._engine = engine
        go()

    def target(self, target: Target) -> None:
        self._rooms[target.name] = Room(target, self._settings.spare_cores)

    def gone(self, target: PeerName) -> None:
        del self._rooms[target]

    def ready(self, task: int) -> None:
        self._ready[task] = None

    def bound(self, bound: Bound) -> None:
        self._rooms[bound.target].change(self._needs(bound.task), -1)

    def over(self, over: Over) -> None:
        room = self._rooms.get(over.bound.target)
        if room is not None:
            room.change(self._needs(over.bound.task), 1)

    def decide(self) -> None:
        for task in sorted(self._ready, key=lambda task: (-self._engine.urgency(task), task)):
            target = self.spare(self._needs(task), ())
            if target is not None or not self._engine.wanted(task):
                del self._ready[task]  # if it cannot be bound now, it is told again
            if target is not None:
                self._engine.bind(task, target)

    def spare(self, needs: Needs, but: Sequence[PeerName]) -> PeerName | None:
        others = len(self._rooms) > 1
        fitting = [
            (room.memory_bytes, room.cores, name)
            for name, room in self._rooms.items()
            if room.fits(needs) and not (others and name in but)
        ]
        return max(fitting)[2] if fitting else None

    def _needs(self, task: int) -> Needs:
        return self._engine.graph.tasks[task].needs


roomiest = Strategy(
    name="roomiest",
    summary="a ready task goes to the target with the most memory free",
    settings=Settings,
    deciding=lambda seat: Roomiest(seat.settings),
)
