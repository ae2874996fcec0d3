"""What is to happen, in order of time: a calendar of buckets.

A bucket holds what falls into one stretch of time, unsorted, until that stretch is reached; then
it is sorted once. Only the numbers of the buckets are kept in a heap. Entries of the same instant
keep the order in which they were added (sorting is stable).

The width of a bucket is a power of two of seconds, at most one: the beginning of every second is
then the beginning of a bucket, and the arithmetic is exact. It follows the traffic.
"""

from __future__ import annotations

from bisect import insort
from heapq import heapify, heappop, heappush
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from sureline.world.protocol import Action

if TYPE_CHECKING:
    from sureline.world.simulated.place import Place

BUCKET_FEW = 8
BUCKET_MANY = 256
PER_S_MAX = 2**30

Entry = tuple[float, "Place | None", Any, Any, int]
"""A message: (arrival, place it goes to, sender, message, size in bytes).
Anything else: (time, None, life it belongs to or None, timer, 0)."""

time_of = itemgetter(0)


class SimTimer:
    """Holds the action until it has run or is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class Current(list[Entry]):
    """The bucket that is being worked off: sorted, and stays so."""

    __slots__ = ()

    def append(self, entry: Entry) -> None:
        # Never before the entry at work: nothing is added for a time that is over.
        insort(self, entry, key=time_of)


class Calendar:
    def __init__(self) -> None:
        self.per_s = 1024.0
        """Buckets per second."""
        self.buckets: dict[int, list[Entry]] = {}
        self._numbers: list[int] = []

    def add(self, entry: Entry) -> None:
        number = int(entry[0] * self.per_s)
        bucket = self.buckets.get(number)
        if bucket is None:
            self.buckets[number] = [entry]
            heappush(self._numbers, number)
        else:
            bucket.append(entry)

    def next_s(self) -> float | None:
        """When the first bucket begins; None if there is none."""
        return self._numbers[0] / self.per_s if self._numbers else None

    def open(self) -> tuple[int, Current]:
        """The first bucket, sorted; what is added for its stretch of time goes into it in order.
        Must be closed before another one is opened."""
        number = heappop(self._numbers)
        bucket = self.buckets[number]
        bucket.sort(key=time_of)
        current = self.buckets[number] = Current(bucket)
        return number, current

    def close(self, number: int, done: int) -> None:
        """The first `done` entries of the opened bucket are over; the others come back."""
        bucket = self.buckets.pop(number)
        if done < len(bucket):
            self.buckets[number] = bucket[done:]
            heappush(self._numbers, number)

    def adapt(self, per_bucket: float) -> None:
        """Make buckets wider or narrower if the last ones held `per_bucket` entries each."""
        factor = 1.0
        while per_bucket * factor > BUCKET_MANY and self.per_s / factor < PER_S_MAX:
            factor /= 2
        while per_bucket * factor < BUCKET_FEW and self.per_s / factor > 1:
            factor *= 2
        if factor == 1.0:
            return
        self.per_s /= factor
        entries = [entry for number in sorted(self.buckets) for entry in self.buckets[number]]
        self.buckets = {}
        for entry in entries:
            self.buckets.setdefault(int(entry[0] * self.per_s), []).append(entry)
        self._numbers = list(self.buckets)
        heapify(self._numbers)

    def __len__(self) -> int:
        return sum(len(bucket) for bucket in self.buckets.values())
