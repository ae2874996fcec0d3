"""What is to happen, in order of time: a calendar of buckets.

A bucket holds what falls into one stretch of time, unsorted, until that stretch is reached; then
it is sorted once. Only the numbers of the buckets are kept in a heap. What is added to the stretch
at work goes into a small heap of its own. Entries of the same instant keep the order in which they
were added (sorting is stable).

A bucket is one flat list, four items for each entry: an object per entry would have to be followed
by the collector of cycles, and fetched from memory with its neighbours when its time comes.

The width of a bucket is a power of two of seconds, at most one: the beginning of every second is
then the beginning of a bucket, and the arithmetic is exact. It follows the traffic.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from heapq import heapify, heappop, heappush
from itertools import chain, count
from operator import itemgetter
from typing import Any

from sureline.world.protocol import Action, AgentId

BUCKET_FEW = 32
BUCKET_AIM = 256
BUCKET_MANY = 1024
"""How many entries a bucket should hold. Fewer, and buckets cost more than sorting; more, and
what belongs to one bucket does not stay in the processor's cache."""
PER_S_MAX = 2.0**30

Entry = tuple[float, AgentId | None, Any, Any]
"""A message over the network: (arrival, to, sender, message).
Anything else: (time, None, the life it belongs to or None, timer)."""

_time_of = itemgetter(0)


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

    def extend(self, entry: Entry) -> None:
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
        self.buckets: dict[int, list[Any] | Soon] = {}
        self.soon = Soon()
        self.opened: list[Entry] = []
        """Those entries of the opened bucket that are still to be counted."""
        self._numbers: list[int] = []

    def add(self, entry: Entry) -> None:
        number = int(entry[0] * self.per_s)
        bucket = self.buckets.get(number)
        if bucket is None:
            self.buckets[number] = list(entry)
            heappush(self._numbers, number)
        else:
            bucket.extend(entry)

    def next_number(self) -> int | None:
        return self._numbers[0] if self._numbers else None

    def open(self) -> list[Entry]:
        """The first bucket, sorted. From now on, until it is closed, what is added for its stretch
        of time goes to `soon`; what lies there comes before a later entry of the bucket."""
        number = heappop(self._numbers)
        entries = list(_entries(self.buckets[number]))
        self.buckets[number] = self.soon
        entries.sort(key=_time_of)
        return entries

    def close(self, number: int, left: Iterable[Entry] = ()) -> None:
        """What is left of the opened bucket, and what was added meanwhile, comes back."""
        del self.buckets[number]
        heap = self.soon.heap
        entries = [*left, *(heappop(heap)[2] for _ in range(len(heap)))]
        if entries:
            self.buckets[number] = list(chain.from_iterable(entries))
            heappush(self._numbers, number)

    def adapt(self, per_bucket: float) -> None:
        """Make buckets wider or narrower if the last ones held `per_bucket` entries each."""
        if BUCKET_FEW <= per_bucket <= BUCKET_MANY:
            return
        times = 2.0 ** round(math.log2(max(per_bucket, 1.0) / BUCKET_AIM))
        per_s = min(PER_S_MAX, max(1.0, self.per_s * times))
        if per_s == self.per_s:
            return
        old, self.buckets = self.buckets, {}
        self.per_s = per_s
        for number in sorted(old):
            for entry in _entries(old.pop(number)):
                self.buckets.setdefault(int(entry[0] * per_s), []).extend(entry)
        self._numbers = list(self.buckets)
        heapify(self._numbers)

    def __iter__(self) -> Iterator[Entry]:
        """All that is to happen, in no particular order."""
        yield from self.opened
        for bucket in self.buckets.values():
            yield from _entries(bucket)


def _entries(bucket: list[Any] | Soon) -> Iterator[Entry]:
    if isinstance(bucket, Soon):
        return (entry for _, _, entry in bucket.heap)
    return zip(bucket[0::4], bucket[1::4], bucket[2::4], bucket[3::4], strict=True)
