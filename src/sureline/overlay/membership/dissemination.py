"""What is still to be passed on, and how often.

Everything is passed on a number of times that grows with the logarithm of the members, what was
passed on least often first, as far as there is room in a message. To hear it from others counts as
well: who is told what it knows already will hardly find anybody who does not.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


def sends_max(present: int) -> int:
    """How often a member passes on one piece of news.

    >>> [sends_max(n) for n in (1, 10, 100, 1000, 10_000)]
    [3, 12, 21, 30, 42]
    """
    return 3 * math.ceil(math.log2(present + 1))


MANY = 100
WEIGHT_MAX = 5


def weight(present: int) -> int:
    """For how many times one time counts, of news that is not urgent. In a large grid there are
    many who pass it on: with seven times of passing it on or hearing it again for each, three of a
    hundred are left out, and comparing tables makes up for that.

    >>> [weight(n) for n in (1, 10, 100, 300, 1000, 10_000)]
    [1, 1, 1, 3, 5, 5]
    """
    return min(max(1, present // MANY), WEIGHT_MAX)


LOAD_SENDS_MAX = 6
"""The next report of a load is not far, and comparing tables makes up for what was missed: there
is no need to reach everybody at any price."""


class Spreader(Generic[T]):
    """News by whom it is about: a later piece replaces an earlier one. `size` is what a piece
    takes of a message's room."""

    def __init__(self, size: Callable[[T], int], items_max: int) -> None:
        self._size = size
        self._items_max = items_max
        self._by_sends: list[dict[str, tuple[T, int, int]]] = [{}]
        """With what each takes of the room, and for how many times one counts."""
        self._sends: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._sends)

    def add(self, name: str, item: T, weight: int = 1) -> None:
        """News: to be passed on from the start, each time counting for so many."""
        self.drop(name)
        if len(self._sends) >= self._items_max:
            self._drop_oldest()
        self._by_sends[0][name] = item, self._size(item), weight
        self._sends[name] = 0

    def drop(self, name: str) -> None:
        sends = self._sends.pop(name, None)
        if sends is not None:
            del self._by_sends[sends][name]

    def heard(self, name: str) -> None:
        """Somebody else passes this on as well: that is as good as having done so."""
        sends = self._sends.get(name)
        if sends is not None:
            self._raise(name, sends)

    def take(self, size_max: int, sends_max: int, fresh: int | None = None) -> list[T]:
        """What the next message carries: of that which is `fresh`, nothing that was passed on so
        often already."""
        if not self._sends:
            return []
        taken: list[T] = []
        chosen: list[tuple[str, int]] = []
        left = size_max
        for sends, level in enumerate(self._by_sends):
            if left <= 0 or (fresh is not None and sends >= fresh):
                break
            if sends >= sends_max:
                for name in list(level):
                    self.drop(name)
                continue
            for name, (item, size, _) in level.items():
                left -= size
                if left < 0:
                    break
                taken.append(item)
                chosen.append((name, sends))
        for name, sends in chosen:
            self._raise(name, sends)
        return taken

    def _raise(self, name: str, sends: int) -> None:
        one = self._by_sends[sends].pop(name)
        sends += one[2]
        while sends >= len(self._by_sends):
            self._by_sends.append({})
        self._by_sends[sends][name] = one
        self._sends[name] = sends

    def _drop_oldest(self) -> None:
        """Forget what was passed on most often: comparing tables makes up for it."""
        for level in reversed(self._by_sends):
            if level:
                self.drop(next(iter(level)))
                return
