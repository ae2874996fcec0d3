"""What is to happen, in order of time: a calendar of buckets.

A bucket holds what falls into one stretch of time, unsorted, until that stretch is reached; then
it is sorted once. Only the numbers of the buckets are kept in a heap. What is added to the stretch
at work goes into a small heap of its own. Entries of the same instant keep the order in which they
were added (sorting is stable).

The width of a bucket is a power of two of seconds, at most one: the beginning of every second is
then the beginning of a bucket, and the arithmetic is exact. It follows the traffic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush
from itertools import count
from operator import itemgetter
from typing import Any

from sureline.world.protocol import Action, AgentId

BUCKET_FEW = 32
BUCKET_AIM = 256
BUCKET_MANY = 1024
"""How many entries a bucket should hold. Fewer, and buckets cost more than sorting; more, and
what belongs to one bucket does not stay in the processor's cache."""
PER_S_MAX = 2.0**30

Entry = tuple[float, AgentId | None, Any, Any, int]
"""A message over the network: (arrival, to, sender, message, size in bytes or 0 if not measured).
Anything else: (time, None, the life it belongs to or None, timer, 0)."""

time_of = itemgetter(0)


class SimTimer:
    """Holds the action until it has run or is cancelled."""

    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class Soon:
    """What is added to the bucket at work. Looks like a bucket to whoever adds."""

    __slots__ = ("_number", "heap")

    def __init__(self) -> None:
        self.heap: list[tuple[float, int, Entry]] = []
        self._number = count().__next__

    def append(self, entry: Entry) -> None:
        heappush(self.heap, (entry[0], self._number(), entry))


class Calendar:
    """Also holds what every message needs beside it: the time, and the default link's ways."""

    __slots__ = (
        "_numbers",
        "buckets",
        "delays",
        "more_delays",
        "now",
        "opened",
        "ordered",
        "per_s",
        "soon",
    )

    def __init__(self) -> None:
        self.now = 0.0
        self.delays: list[float] = []
        """Draws of the default link's delay; `more_delays` makes more."""
        self.more_delays: Callable[[], list[float]] = list
        self.ordered = True
        """Whether the default link keeps the order of messages between two agents."""
        self.per_s = 1024.0
        """Buckets per second."""
        self.buckets: dict[int, list[Entry] | Soon] = {}
        self.soon = Soon()
        self.opened: list[Entry] = []
        """Those entries of the opened bucket that are still to be counted."""
        self._numbers: list[int] = []

    def add(self, entry: Entry) -> None:
        number = int(entry[0] * self.per_s)
        bucket = self.buckets.get(number)
        if bucket is None:
            self.buckets[number] = [entry]
            heappush(self._numbers, number)
        else:
            bucket.append(entry)

    def next_number(self) -> int | None:
        return self._numbers[0] if self._numbers else None

    def open(self) -> list[Entry]:
        """The first bucket, sorted. From now on, until it is closed, what is added for its stretch
        of time goes to `soon`; what lies there comes before a later entry of the bucket."""
        number = heappop(self._numbers)
        bucket = self.buckets[number]
        assert not isinstance(bucket, Soon), "a bucket is open already"
        self.buckets[number] = self.soon
        bucket.sort(key=time_of)
        return bucket

    def close(self, number: int, left: list[Entry]) -> None:
        """What is left of the opened bucket, and what was added meanwhile, comes back."""
        del self.buckets[number]
        heap = self.soon.heap
        left += [heappop(heap)[2] for _ in range(len(heap))]
        if left:
            self.buckets[number] = left
            heappush(self._numbers, number)

    def adapt(self, per_bucket: float) -> None:
        """Make buckets wider or narrower if the last ones held `per_bucket` entries each."""
        if BUCKET_FEW <= per_bucket <= BUCKET_MANY:
            return
        times = 2.0 ** round(math.log2(max(per_bucket, 1.0) / BUCKET_AIM))
        per_s = min(PER_S_MAX, max(1.0, self.per_s * times))
        if per_s == self.per_s:
            return
        entries = [entry for number in sorted(self.buckets) for entry in self._bucket(number)]
        self.per_s = per_s
        again: dict[int, list[Entry] | Soon] = {}
        for entry in entries:
            again.setdefault(int(entry[0] * per_s), []).append(entry)
        self.buckets = again
        self._numbers = list(again)
        heapify(self._numbers)

    def _bucket(self, number: int) -> list[Entry]:
        found = self.buckets[number]
        return [entry for _, _, entry in found.heap] if isinstance(found, Soon) else found

    def __iter__(self) -> Iterator[Entry]:
        """All that is to happen, in no particular order."""
        yield from self.opened
        for number in self.buckets:
            yield from self._bucket(number)
