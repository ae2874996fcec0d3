"""The book of attempts that are under way, as a run's writer sees them.

There may be several of one task: a target that was believed dead goes on with its attempt while
another has been started elsewhere, or a second one was added because the first is late. What
happens to them is decided in `engine`.
"""

from __future__ import annotations

from typing import TypeVar

from sureline.run.port import Bound
from sureline.world.address import PeerName

K = TypeVar("K")
Key = tuple[PeerName, int, int]
"""(target, task, attempt)."""


class Attempts:
    def __init__(self) -> None:
        self._all: dict[Key, Bound] = {}
        self._of_task: dict[int, dict[Key, None]] = {}
        self._of_target: dict[PeerName, dict[Key, None]] = {}
        self._unconfirmed: dict[PeerName, dict[Key, None]] = {}
        self._told_over: dict[int, set[Key]] = {}

    def add(self, bound: Bound) -> None:
        key = (bound.target, bound.task, bound.attempt)
        self._all[key] = bound
        self._of_task.setdefault(bound.task, {})[key] = None
        self._of_target.setdefault(bound.target, {})[key] = None
        if not bound.confirmed:
            self._unconfirmed.setdefault(bound.target, {})[key] = None

    def get(self, target: PeerName, task: int, attempt: int) -> Bound | None:
        return self._all.get((target, task, attempt))

    def remove(self, bound: Bound) -> bool:
        """False if it was not on the book."""
        key = (bound.target, bound.task, bound.attempt)
        if self._all.pop(key, None) is None:
            return False
        _remove(self._of_task, bound.task, key)
        _remove(self._of_target, bound.target, key)
        _remove(self._unconfirmed, bound.target, key)
        return True

    def confirm(self, bound: Bound) -> None:
        if not bound.confirmed:
            bound.confirmed = True
            _remove(self._unconfirmed, bound.target, (bound.target, bound.task, bound.attempt))

    def note_over(self, target: PeerName, task: int, attempt: int) -> None:
        """The target has told that it is over: what still tells of it as under way is older."""
        self._told_over.setdefault(task, set()).add((target, task, attempt))

    def is_over(self, target: PeerName, task: int, attempt: int) -> bool:
        return (target, task, attempt) in self._told_over.get(task, ())

    def committed(self, task: int) -> None:
        """Nothing more is adopted for it, so nothing about it need be remembered."""
        self._told_over.pop(task, None)

    def any_of(self, task: int) -> bool:
        return task in self._of_task

    def of_task(self, task: int) -> list[Bound]:
        return [self._all[key] for key in self._of_task.get(task, ())]

    def of_target(self, target: PeerName) -> list[Bound]:
        return [self._all[key] for key in self._of_target.get(target, ())]

    def all(self) -> list[Bound]:
        return list(self._all.values())

    def unconfirmed_on(self, target: PeerName) -> bool:
        return target in self._unconfirmed


def _remove(table: dict[K, dict[Key, None]], place: K, key: Key) -> None:
    keys = table.get(place)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del table[place]
