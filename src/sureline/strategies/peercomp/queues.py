"""What machines have promised: queues of reserved tasks, the holes between them, what starts next.

One row is one lane: it runs one task at a time and does not interrupt it. A queued task has a
*startline* (its inputs are there), a length on this machine, and a time at which it is *due*. Tasks
stand in the order in which they are due. Pushed as far back as that allows, each begins at its
*latest start*, and between them lie the holes: a sequence that fits into a hole makes nobody late.

That is also how admission works: it looks for a hole, it does not trust an order. (Earliest
deadline first is not best where tasks are not interrupted and have startlines: a short task that
may not begin yet is made late by a long one that may.) For the same reason `pick` starts a task out
of order only if it will be over before the latest start of everyone it overtakes.

Arrays over rows, so that a live machine has a few and the simulator a million
(`experiments/peercomp_lane.py`); both call the same functions.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from sureline.compiled import kernel

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GRAIN_S = 1e-6
"""Times that differ by less are the same."""
FAR_S = 1e15
"""No time is later: until then a lane is free."""
FIELDS = 7
STARTLINE, DUE, LENGTH, LEASE, ACTUAL, LATEST, UNIT = range(FIELDS)
"""Columns of a queued task: `LEASE` is until when it waits for its commitment, infinite once it is
committed; `ACTUAL` what it will really take; `UNIT` its position in its sequence."""


@kernel
def latest_starts(queue: Floats, size: int) -> None:
    """Push every task back as far as its own due time and the tasks after it allow."""
    end_s = np.inf
    for i in range(size - 1, -1, -1):
        end_s = min(end_s, queue[i, DUE])
        queue[i, LATEST] = end_s - queue[i, LENGTH]
        end_s = queue[i, LATEST]


@kernel
def holes_of(queue: Floats, size: int, free_s: float, horizon_s: float, found: Floats) -> int:
    """The holes from `free_s` on, as rows of (begin, end); how many. `found` has size + 1 rows."""
    latest_starts(queue, size)
    count, begin_s = 0, free_s
    for i in range(size + 1):
        end_s = queue[i, LATEST] if i < size else horizon_s
        if end_s > begin_s + GRAIN_S:
            found[count, 0], found[count, 1] = begin_s, end_s
            count += 1
        if i < size:
            begin_s = max(begin_s, queue[i, LATEST] + queue[i, LENGTH])
    return count


@kernel
def _insert(queue: Floats, ids: Ints, size: int, row: Floats, number: int) -> None:
    at = size
    while at > 0 and queue[at - 1, DUE] > row[DUE]:
        queue[at], ids[at] = queue[at - 1], ids[at - 1]
        at -= 1
    queue[at], ids[at] = row, number


@kernel
def remove(queue: Floats, ids: Ints, size: int, at: int) -> None:
    for i in range(at, size - 1):
        queue[i], ids[i] = queue[i + 1], ids[i + 1]


@kernel
def place(
    begin_s: float, end_s: float, times_s: tuple[float, float], lengths_s: Floats, dues_s: Floats,
    early: int, placed: Floats,
) -> bool:  # fmt: skip
    """Put a sequence into a hole: its first `early` tasks as early as can be, to end before the
    second of these times; the others as late as can be, to begin after it. `placed` gets the
    (latest start, due) of each; False if it cannot be done."""
    soon_s, middle_s = times_s
    at_s = max(begin_s, soon_s)
    for k in range(early):
        placed[k, 0], placed[k, 1] = at_s, at_s + lengths_s[k]
        at_s += lengths_s[k]
        if at_s > min(dues_s[k], end_s) + GRAIN_S:
            return False
    if early and at_s > middle_s + GRAIN_S:
        return False
    least_s = max(at_s, middle_s)
    at_s = end_s
    for k in range(len(lengths_s) - 1, early - 1, -1):
        at_s = min(at_s, dues_s[k])
        placed[k, 0], placed[k, 1] = at_s - lengths_s[k], at_s
        at_s -= lengths_s[k]
    return early == len(lengths_s) or at_s >= least_s - GRAIN_S


@kernel
def take(
    queue: Floats, ids: Ints, size: int, number: int, first: int, from_s: float,
    lengths_s: Floats, actual_s: Floats, lease_s: float, placed: Floats,
) -> int:  # fmt: skip
    """Queue a sequence where it was placed; the new size. The lease ends at the latest when its
    first task would have to begin."""
    row = np.empty(FIELDS)
    for k in range(len(lengths_s)):
        row[STARTLINE], row[DUE], row[LENGTH] = from_s, placed[k, 1], lengths_s[k]
        row[LEASE], row[ACTUAL] = min(lease_s, placed[0, 0]), actual_s[k]
        row[LATEST], row[UNIT] = placed[k, 0], first + k
        _insert(queue, ids, size + k, row, number)
    return size + len(lengths_s)


@kernel
def placement(queue: Floats, ids: Ints, size: int, number: int, first: int, placed: Floats) -> int:
    """Where the tasks of a sequence stand, from `first` on: (latest start, due); how many."""
    count = 0
    latest_starts(queue, size)
    for i in range(size):
        at = int(queue[i, UNIT]) - first
        if ids[i] == number and 0 <= at < len(placed):
            placed[at, 0], placed[at, 1] = queue[i, LATEST], queue[i, DUE]
            count += 1
    return count


@kernel
def release(queue: Floats, ids: Ints, size: int, number: int, first: int, count: int) -> int:
    """Drop these tasks of a sequence, as far as they have not begun; the new size."""
    at = 0
    for i in range(size):
        if ids[i] != number or not first <= queue[i, UNIT] < first + count:
            queue[at], ids[at] = queue[i], ids[i]
            at += 1
    return at


@kernel
def expire(queue: Floats, ids: Ints, size: int, now_s: float) -> int:
    """Drop all whose lease is over; the new size."""
    at = 0
    for i in range(size):
        if queue[i, LEASE] >= now_s - GRAIN_S:
            queue[at], ids[at] = queue[i], ids[i]
            at += 1
    return at


@kernel
def settle(
    queue: Floats, ids: Ints, size: int, free_s: float, number: int, first: int,
    startlines_s: Floats, placed: Floats,
) -> int:  # fmt: skip
    """Commit a sequence: its startlines are known now, so each task moves to the earliest place
    that the holes allow, and the time it no longer needs is free again. How many were found."""
    count = 0
    before_s = -np.inf
    for k in range(len(startlines_s)):
        at = -1
        for i in range(size):
            if ids[i] == number and int(queue[i, UNIT]) == first + k:
                at = i
        if at < 0:
            continue
        count += 1
        row = queue[at].copy()
        remove(queue, ids, size, at)
        row[STARTLINE], row[LEASE] = startlines_s[k], np.inf
        found = np.empty((size, 2))
        least_s = max(before_s, startlines_s[k])
        for i in range(holes_of(queue, size - 1, free_s, FAR_S, found)):
            end_s = max(found[i, 0], least_s) + row[LENGTH]
            if end_s <= min(found[i, 1], row[DUE]) + GRAIN_S:
                row[DUE] = min(end_s, row[DUE])
                break
        _insert(queue, ids, size - 1, row, number)
        before_s = row[DUE]
        placed[k, 0], placed[k, 1] = row[DUE] - row[LENGTH], row[DUE]
    return count


@kernel
def pick(queue: Floats, ids: Ints, size: int, now_s: float) -> int:
    """Which task should begin now, if the lane is free; -1 if none should."""
    latest_starts(queue, size)
    limit_s = np.inf
    for i in range(size):
        may = queue[i, LEASE] == np.inf and queue[i, STARTLINE] <= now_s + GRAIN_S
        for j in range(i):
            may = may and ids[j] != ids[i]
        if may and now_s + queue[i, LENGTH] <= limit_s + GRAIN_S:
            return i
        limit_s = min(limit_s, queue[i, LATEST])
    return -1


class Queues:
    """The queues of some lanes."""

    def __init__(self, rows: int, depth: int) -> None:
        self.queue = np.zeros((rows, depth, FIELDS))
        self.ids = np.zeros((rows, depth), np.int64)
        self.sizes = np.zeros(rows, np.int64)
        self.busy = np.zeros((rows, 1))
        """Until when each has work under way."""

    def __len__(self) -> int:
        return len(self.sizes)

    def free_s(self, row: int, now_s: float) -> float:
        """When the task under way ends, or now."""
        return max(now_s, float(self.busy[row, 0]))

    def is_idle(self, row: int, now_s: float) -> bool:
        """Whether it has nothing under way, and has promised nothing."""
        return not self.sizes[row] and not self.busy[row, 0] > now_s

    def holes(self, row: int, now_s: float, horizon_s: float) -> Floats:
        size = int(self.sizes[row])
        found = np.empty((size + 1, 2))
        count = holes_of(self.queue[row], size, self.free_s(row, now_s), horizon_s, found)
        return found[:count]
