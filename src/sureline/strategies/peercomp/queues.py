"""What machines have promised: queues of reserved tasks, the holes between them, what starts next.

One row is one lane: it runs one task at a time and does not interrupt it. A queued task has a
*startline* (its inputs are there), a length on this machine, and a time at which it is *due*. Tasks
stand in the order in which they are due. Pushed as far back as that allows, each begins at its
*latest start*, and between them lie the holes: a sequence that fits into a hole makes nobody late.

That is also how admission works: it looks for a hole, it does not trust an order. (Earliest
deadline first is not best where tasks are not interrupted and have startlines: a short task that
may not begin yet is made late by a long one that may.) For the same reason `pick` starts a task out
of order only if it will be over before the latest start of everyone it overtakes.

Arrays over rows, so that a live machine has a few and the simulator a million; compiled, and in one
module since compiled code is kept by its file.
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
def _remove(queue: Floats, ids: Ints, size: int, at: int) -> None:
    for i in range(at, size - 1):
        queue[i], ids[i] = queue[i + 1], ids[i + 1]


@kernel
def place(
    begin_s: float,
    end_s: float,
    times_s: tuple[float, float],
    lengths_s: Floats,
    dues_s: Floats,
    early: int,
    placed: Floats,
) -> bool:
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
def best_hole(
    queue: Floats, size: int, free_s: float, from_s: float, middle_s: float, lengths_s: Floats,
    dues_s: Floats, early: int, soon_s: float, placed: Floats,
) -> float:  # fmt: skip
    """How long the smallest hole is that holds a sequence; infinite if none does. `placed` gets
    where it lies in that hole: if there is time, such that no task has to begin before `soon_s`,
    since it takes a moment until it is committed."""
    found = np.empty((size + 1, 2))
    best_s, best, best_from_s = np.inf, -1, 0.0
    for i in range(holes_of(queue, size, free_s, FAR_S, found)):
        length_s = found[i, 1] - found[i, 0]
        for at_s in (max(from_s, soon_s), from_s):
            if (best < 0 or length_s < best_s) and place(
                found[i, 0], found[i, 1], (at_s, middle_s), lengths_s, dues_s, early, placed
            ):
                best_s, best, best_from_s = length_s, i, at_s
    if best >= 0:
        times_s = (best_from_s, middle_s)
        place(found[best, 0], found[best, 1], times_s, lengths_s, dues_s, early, placed)
    return best_s


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
    queue: Floats,
    ids: Ints,
    size: int,
    free_s: float,
    horizon_s: float,
    number: int,
    first: int,
    startlines_s: Floats,
    placed: Floats,
) -> int:
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
        _remove(queue, ids, size, at)
        row[STARTLINE], row[LEASE] = startlines_s[k], np.inf
        found = np.empty((size, 2))
        least_s = max(before_s, startlines_s[k])
        for i in range(holes_of(queue, size - 1, free_s, horizon_s, found)):
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


@kernel
def next_startline(queue: Floats, size: int, now_s: float) -> float:
    found = np.inf
    for i in range(size):
        if queue[i, LEASE] == np.inf and queue[i, STARTLINE] > now_s + GRAIN_S:
            found = min(found, queue[i, STARTLINE])
    return found


@kernel
def advance(queue: Floats, ids: Ints, size: int, busy: Floats, now_s: float, log: Floats) -> int:
    """Let a lane work until now, as if it had been watched all the time; the new size.

    `busy` is (until when it is busy, since when it is free, tasks that ended, that were late, and
    seconds worked). Leases that are over are dropped first. `log`, if it has rows, gets (number,
    position, end) of what ended; its first row counts them.
    """
    size = expire(queue, ids, size, now_s)
    while True:
        at_s = max(busy[0], busy[1])
        if at_s > now_s:
            return size
        which = pick(queue, ids, size, at_s)
        if which < 0:
            busy[1] = next_startline(queue, size, at_s)
            if busy[1] > now_s:
                busy[1] = now_s
                return size
            continue
        busy[0] = at_s + queue[which, ACTUAL]
        busy[1] = busy[0]
        busy[2] += 1
        busy[4] += queue[which, ACTUAL]
        if busy[0] > queue[which, DUE] + 1e-3:
            busy[3] += 1
        if len(log) > 1:
            log[0, 0] += 1
            at = int(log[0, 0]) % (len(log) - 1) + 1
            log[at, 0], log[at, 1], log[at, 2] = ids[which], queue[which, UNIT], busy[0]
        _remove(queue, ids, size, which)
        size -= 1


@kernel
def see(
    queues: Floats, ids: Ints, sizes: Ints, busy: Floats, row: int, now_s: float,
    watched: bool, log: Floats,
) -> None:  # fmt: skip
    """Bring a lane up to now: drop leases that are over; if nobody else runs its tasks, do so."""
    if watched:
        sizes[row] = expire(queues[row], ids[row], sizes[row], now_s)
    else:
        sizes[row] = advance(queues[row], ids[row], sizes[row], busy[row], now_s, log)


@kernel
def reserve(
    queues: Floats, ids: Ints, sizes: Ints, busy: Floats, power: Floats, row: int, now_s: float,
    watched: bool, number: int, first: int, from_s: float, middle_s: float, works: Floats,
    dues_s: Floats, early: int, shortfall: float, soon_s: float, lease_s: float, log: Floats,
    placed: Floats,
) -> bool:  # fmt: skip
    """Take a sequence into the smallest hole that holds it, or not at all. What was taken before is
    told again."""
    see(queues, ids, sizes, busy, row, now_s, watched, log)
    size = sizes[row]
    if placement(queues[row], ids[row], size, number, first, placed) == len(placed):
        return True
    lengths_s = works / power[row]
    free_s, from_s = max(now_s, busy[row, 0]), max(from_s, now_s)
    best_s = best_hole(
        queues[row], size, free_s, from_s, middle_s, lengths_s, dues_s, early, now_s + soon_s,
        placed,
    )  # fmt: skip
    if best_s == np.inf or size + len(works) > len(queues[row]):
        return False
    sizes[row] = take(
        queues[row], ids[row], size, number, first, from_s, lengths_s, lengths_s * shortfall,
        now_s + lease_s, placed,
    )  # fmt: skip
    return True


@kernel
def commit(
    queues: Floats, ids: Ints, sizes: Ints, busy: Floats, row: int, now_s: float, watched: bool,
    number: int, first: int, startlines_s: Floats, log: Floats, placed: Floats,
) -> bool:  # fmt: skip
    """`settle`; False if it is no longer there whole."""
    see(queues, ids, sizes, busy, row, now_s, watched, log)
    free_s = max(now_s, busy[row, 0])
    return settle(
        queues[row], ids[row], sizes[row], free_s, np.inf, number, first, startlines_s, placed
    ) == len(placed)


@kernel
def advance_all(
    queues: Floats, ids: Ints, sizes: Ints, busy: Floats, now_s: float, log: Floats
) -> None:
    for row in range(len(sizes)):
        sizes[row] = advance(queues[row], ids[row], sizes[row], busy[row], now_s, log)


@kernel
def all_holes(
    queues: Floats,
    sizes: Ints,
    busy: Floats,
    now_s: float,
    horizon_s: float,
    counts: Ints,
    found: Floats,
) -> int:
    """The holes of every row after each other: `counts` gets how many each has; their sum."""
    total = 0
    for row in range(len(sizes)):
        free_s = max(now_s, busy[row, 0])
        counts[row] = holes_of(queues[row], sizes[row], free_s, horizon_s, found[total:])
        total += counts[row]
    return total


class Queues:
    """The queues of some lanes. `power` is work per second; a length is work divided by it."""

    def __init__(self, power: Floats, depth: int, logged: int = 0) -> None:
        rows = len(power)
        self.power = power
        self.queue = np.zeros((rows, depth, FIELDS))
        self.ids = np.zeros((rows, depth), np.int64)
        self.sizes = np.zeros(rows, np.int64)
        self.busy = np.zeros((rows, 5))
        self.log = np.zeros((logged + 1, 3))
        """What ended last, as (number, position, end), `logged` of them."""

    def __len__(self) -> int:
        return len(self.sizes)

    def free_s(self, row: int, now_s: float) -> float:
        """When the task under way ends, or now."""
        return max(now_s, float(self.busy[row, 0]))

    def holes(self, row: int, now_s: float, horizon_s: float) -> Floats:
        size = int(self.sizes[row])
        found = np.empty((size + 1, 2))
        count = holes_of(self.queue[row], size, self.free_s(row, now_s), horizon_s, found)
        return found[:count]

    def see(self, row: int, now_s: float, watched: bool) -> None:
        see(self.queue, self.ids, self.sizes, self.busy, row, now_s, watched, self.log)

    def advance_all(self, now_s: float) -> None:
        advance_all(self.queue, self.ids, self.sizes, self.busy, now_s, self.log)
