"""Simulated lanes, up to a million: each a leaf of the tree that works off what it has promised.

The arithmetic of promises is that of live machines (`strategies/peercomp/queues.py`). Here nobody
starts and ends tasks from outside: a lane that is looked at has worked until now.
"""

from __future__ import annotations

import numpy as np

from sureline.compiled import kernel
from sureline.overlay.tree.leaf import HoleSought, PromisedTime
from sureline.overlay.tree.points import bounds_of, slot_of
from sureline.overlay.tree.summary import Amounts, Summary, summary_of
from sureline.strategies.peercomp.lanes import LEASE_S, PIECES_MAX, SOON_S, slots_of
from sureline.strategies.peercomp.policy import Favour, Policy
from sureline.strategies.peercomp.queues import (
    ACTUAL,
    DUE,
    FAR_S,
    GRAIN_S,
    LEASE,
    STARTLINE,
    UNIT,
    Floats,
    Ints,
    Queues,
    expire,
    holes_of,
    pick,
    place,
    placement,
    release,
    remove,
    settle,
    take,
)
from sureline.world.address import NO_AGENT
from sureline.world.protocol import AgentId

AMPLE = Amounts(30, 30, 30)


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
        remove(queue, ids, size, which)
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
        queues[row], ids[row], sizes[row], free_s, number, first, startlines_s, placed
    ) == len(placed)


@kernel
def advance_all(
    queues: Floats, ids: Ints, sizes: Ints, busy: Floats, now_s: float, log: Floats
) -> None:
    for row in range(len(sizes)):
        sizes[row] = advance(queues[row], ids[row], sizes[row], busy[row], now_s, log)


@kernel
def all_holes(
    queues: Floats, sizes: Ints, busy: Floats, now_s: float, horizon_s: float, counts: Ints,
    found: Floats,
) -> int:  # fmt: skip
    """The holes of every row after each other: `counts` gets how many each has; their sum."""
    total = 0
    for row in range(len(sizes)):
        free_s = max(now_s, busy[row, 0])
        counts[row] = holes_of(queues[row], sizes[row], free_s, horizon_s, found[total:])
        total += counts[row]
    return total


class SimulatedQueues(Queues):
    """`power` is work per second; a length is work divided by it. `busy` has more columns (see
    `advance`). What ended last is in `log`, as (number, position, end), `logged` of them."""

    def __init__(self, power: Floats, depth: int, logged: int = 0) -> None:
        super().__init__(len(power), depth)
        self.power = power
        self.busy = np.zeros((len(power), 5))
        self.log = np.zeros((logged + 1, 3))

    def see(self, row: int, now_s: float, watched: bool) -> None:
        see(self.queue, self.ids, self.sizes, self.busy, row, now_s, watched, self.log)

    def advance_all(self, now_s: float) -> None:
        advance_all(self.queue, self.ids, self.sizes, self.busy, now_s, self.log)


class Lane:
    """Row `row` of `queues`. With `watched`, tasks are started and ended by whoever runs them; else
    the lane works on its own, as simulated machines do."""

    __slots__ = ("favour", "limits", "queues", "row", "shortfall", "watched")

    def __init__(
        self,
        queues: SimulatedQueues,
        row: int,
        limits: Amounts = AMPLE,
        *,
        watched: bool = False,
        shortfall: float = 1.0,
        policy: Policy = "deadline",
    ) -> None:
        self.favour = Favour(policy) if policy != "deadline" else None
        self.queues = queues
        self.row = row
        self.limits = limits
        self.watched = watched
        self.shortfall = shortfall
        """What a task really takes, of what was reserved for it."""

    def summary(self, now_s: float) -> Summary:
        self.queues.see(self.row, now_s, self.watched)
        slot = slot_of(now_s)
        holes = self.queues.holes(self.row, now_s, float(bounds_of(slot)[-1]))
        power = float(self.queues.power[self.row])
        return summary_of(slot, holes, power, self.limits, now_s)

    def reserve(
        self, ask: HoleSought, now_s: float, owner: AgentId = NO_AGENT
    ) -> tuple[PromisedTime, ...]:
        if not (ask.is_sound and len(ask.works) <= PIECES_MAX):
            return ()
        if any(need > has for need, has in zip(ask.limits, self.limits, strict=True)):
            return ()
        q = self.queues
        if self.favour is not None:
            q.see(self.row, now_s, self.watched)
            power = float(q.power[self.row])
            if not self.favour.lets(ask, owner, q, self.row, power, now_s):
                return ()
        placed = np.empty((len(ask.works), 2))
        taken = reserve(
            q.queue, q.ids, q.sizes, q.busy, q.power, self.row, now_s, self.watched, ask.number,
            ask.first, ask.startline_s, ask.middle_s, np.array(ask.works), np.array(ask.dues_s),
            ask.early, self.shortfall, SOON_S, LEASE_S, q.log, placed,
        )  # fmt: skip
        if taken and self.favour is not None:
            self.favour.promised(ask, owner)
        return slots_of(placed) if taken else ()

    def commit(
        self,
        number: int,
        first: int,
        startlines_s: tuple[float, ...],
        now_s: float,
        owner: AgentId = NO_AGENT,
    ) -> tuple[PromisedTime, ...]:
        q = self.queues
        placed = np.empty((len(startlines_s), 2))
        kept = commit(
            q.queue, q.ids, q.sizes, q.busy, self.row, now_s, self.watched, number, first,
            np.array(startlines_s), q.log, placed,
        )  # fmt: skip
        if kept and self.favour is not None:
            lasts_s = float((placed[:, 1] - placed[:, 0]).sum())
            self.favour.keeps((number, first), owner, lasts_s, now_s)
        return slots_of(placed) if kept else ()

    def release(self, number: int, first: int, count: int, now_s: float) -> None:
        q, row = self.queues, self.row
        q.see(row, now_s, self.watched)
        q.sizes[row] = release(q.queue[row], q.ids[row], q.sizes[row], number, first, count)
