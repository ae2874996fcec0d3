"""Attempts that are under way on peers, as a run's writer sees them.

There may be several of one task: a peer that was believed dead goes on with its attempt while
another has been started elsewhere. What happens to them is decided in `grid_submitter`.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec

K = TypeVar("K")
Key = tuple[str, int, int]
"""(peer, task, attempt)."""


class Binding(msgspec.Struct):
    peer: str
    task: int
    attempt: int
    serial: int
    """Of the last Attach that went to the peer before this was bound: an answer to a later one
    must tell of it."""
    session: int
    """The peer's, when this was bound: after a restart of the peer, it is not under way."""
    told: int = 1
    """How often the Bind was sent."""
    confirmed: bool = False
    """The peer has told of it."""
    started: bool = False
    withdrawn: bool = False
    booked: bool = True
    """Whether it holds what it needs of the peer; an adopted report does not."""

    @property
    def key(self) -> Key:
        return (self.peer, self.task, self.attempt)


class Attempts:
    def __init__(self) -> None:
        self._all: dict[Key, Binding] = {}
        self._of_task: dict[int, dict[Key, None]] = {}
        self._of_peer: dict[str, dict[Key, None]] = {}
        self._unconfirmed: dict[str, dict[Key, None]] = {}
        self._told_over: dict[int, set[Key]] = {}

    def add(self, binding: Binding) -> None:
        key = binding.key
        self._all[key] = binding
        self._of_task.setdefault(binding.task, {})[key] = None
        self._of_peer.setdefault(binding.peer, {})[key] = None
        if not binding.confirmed:
            self._unconfirmed.setdefault(binding.peer, {})[key] = None

    def get(self, peer: str, task: int, attempt: int) -> Binding | None:
        return self._all.get((peer, task, attempt))

    def pop(self, peer: str, task: int, attempt: int) -> Binding | None:
        key = (peer, task, attempt)
        binding = self._all.pop(key, None)
        if binding is not None:
            _remove(self._of_task, task, key)
            _remove(self._of_peer, peer, key)
            _remove(self._unconfirmed, peer, key)
        return binding

    def confirm(self, binding: Binding) -> None:
        if not binding.confirmed:
            binding.confirmed = True
            _remove(self._unconfirmed, binding.peer, binding.key)

    def note_over(self, peer: str, task: int, attempt: int) -> None:
        """The peer has told that it is over: what still tells of it as under way is older."""
        self._told_over.setdefault(task, set()).add((peer, task, attempt))

    def is_over(self, peer: str, task: int, attempt: int) -> bool:
        return (peer, task, attempt) in self._told_over.get(task, ())

    def committed(self, task: int) -> None:
        """Nothing more is adopted for it, so nothing about it need be remembered."""
        self._told_over.pop(task, None)

    def of_task(self, task: int) -> list[Binding]:
        return [self._all[key] for key in self._of_task.get(task, ())]

    def of_peer(self, peer: str) -> list[Binding]:
        return [self._all[key] for key in self._of_peer.get(peer, ())]

    def all(self) -> list[Binding]:
        return list(self._all.values())

    def on(self, peer: str) -> bool:
        """Whether anything is under way there."""
        return peer in self._of_peer

    def unconfirmed_on(self, peer: str) -> bool:
        return peer in self._unconfirmed


def _remove(table: dict[K, dict[Key, None]], place: K, key: Key) -> None:
    keys = table.get(place)
    if keys is not None:
        keys.pop(key, None)
        if not keys:
            del table[place]
