"""What a provider has promised of its machine, and when some of it will be free again.

Everything that is to run counts from when it is promised, not from when it starts, so that nothing
is promised twice. What others have sent without asking is counted as far as it fits.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator

import msgspec

from sureline.peer.capacity import Capacity, Ledger
from sureline.workflow.model import Needs

MANY = 10_000
LOOKED_AT_MAX = 1000
"""Of more promises than this, the ones that end first are looked at."""


class _Promised(msgspec.Struct):
    needs: Needs
    ends_at: float
    counted: bool


class PromisedPlaces:
    def __init__(self, capacity: Capacity) -> None:
        self._whole = Ledger(capacity)
        self._free = Ledger(capacity)
        self._promised: dict[int, _Promised] = {}
        self._last = 0

    @property
    def load(self) -> float:
        """The share of the cores that is promised."""
        whole = self._whole.millicores
        return 1.0 - self._free.millicores / whole if whole else 1.0

    def is_large_enough(self, needs: Needs) -> bool:
        return self._whole.fits(needs)

    def fits(self, needs: Needs) -> bool:
        return self._free.fits(needs)

    def take(self, needs: Needs, ends_at: float) -> int:
        """Promise a place, until about `ends_at`; what comes back gives it up again."""
        self._last += 1
        counted = self._free.fits(needs)
        if counted:
            self._free.take(needs)
        self._promised[self._last] = _Promised(needs, ends_at, counted)
        return self._last

    def expect(self, place: int, ends_at: float) -> None:
        """It will be free at about that time."""
        self._promised[place].ends_at = ends_at

    def give_back(self, place: int) -> None:
        promised = self._promised.pop(place)
        if promised.counted:
            self._free.give_back(promised.needs)

    def count(self, needs: Needs) -> int:
        """How many with these needs fit at once, now; MANY at most."""
        if not self._free.fits(needs):
            return 0
        free = self._free
        shares = [
            (free.millicores, round(needs.cores * 1000)),
            (free.memory_bytes, needs.memory_bytes),
            (free.disk_bytes, needs.disk_bytes),
            (free.gpus, needs.gpus),
            *((free.tags.get(tag, MANY * count), count) for tag, count in needs.tags),
        ]
        return min([MANY, *(there // each for there, each in shares if each)])

    def wait_s(self, needs: Needs, now: float) -> float:
        """When one with these needs is expected to fit, from now."""
        if self._free.fits(needs):
            return 0.0
        free = Ledger(self._free.capacity)
        for promised in self._promised.values():
            if promised.counted:
                free.take(promised.needs)
        for promised in self._soonest():
            if promised.counted:
                free.give_back(promised.needs)
            if free.fits(needs):
                return max(0.0, promised.ends_at - now)
        return float("inf")

    def _soonest(self) -> Iterator[_Promised]:
        yield from heapq.nsmallest(
            LOOKED_AT_MAX, self._promised.values(), key=lambda promised: promised.ends_at
        )
