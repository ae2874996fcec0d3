"""The lanes of one machine, as one leaf of the tree: what it has promised, and what may begin now.

A machine has a lane for every core, and every lane its share of memory, cores and disk. A task that
needs no more takes one lane; a larger one takes several, at the same time: its window is then fixed
on all of them. A lane runs one task at a time, so nothing is ever held that is not there.

Whoever runs tasks here asks `startable` and tells `begin` and `end`. A task begins as early as it
may: its inputs are here, and it makes nobody late. A promise that is not used in time is void, and
does not push others; the task may still begin wherever it fits (`room`).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import NamedTuple

import msgspec
import numpy as np

from sureline.overlay.tree.leaf import HoleSought, PromisedTime
from sureline.overlay.tree.points import bounds_of, slot_of
from sureline.overlay.tree.summary import (
    EMPTY,
    Amounts,
    Summary,
    limits_needed,
    limits_offered,
    merged,
    summary_of,
)
from sureline.peer.capacity import Capacity
from sureline.strategies.peercomp.policy import Favour, Policy
from sureline.strategies.peercomp.queues import (
    FAR_S,
    LATEST,
    LEASE,
    LENGTH,
    STARTLINE,
    UNIT,
    Floats,
    Queues,
    expire,
    latest_starts,
    pick,
    place,
    placement,
    release,
    settle,
    take,
)
from sureline.workflow.model import Needs
from sureline.world.address import NO_AGENT
from sureline.world.protocol import AgentId

LEASE_S = 30.0
"""How long a reservation waits for its commitment."""
SOON_S = 5.0
"""A task that could begin at once is promised for a little later: its commitment is on its way."""
PIECES_MAX = 64
"""Tasks of one sequence on one lane."""
LANES_MAX = 64
DEPTH = 512
"""Tasks that one lane may have promised at a time."""
GRACE_S = 1.0
"""A promise that is not used so long after its task had to begin is void."""
POWER_LEAST = 0.02
RECOVERY = 1.5
SKEW_S = 5.0
"""Clocks may differ by so much..."""
STALE_S = 60.0
"""...and a request may have been on its way for so long."""


class Claim(msgspec.Struct, frozen=True, array_like=True):
    """What an attempt claims: the number of its sequence, its position there, and the time that it
    was promised, in seconds on a machine of power 1."""

    number: int
    unit: int
    work: float
    brought_s: float = 0.0
    """How much of that is for bringing its inputs, which has begun when it is claimed."""


Key = tuple[int, int]
"""(number, position)."""


class _Busy(NamedTuple):
    rows: tuple[int, ...]
    began_s: float
    length_s: float
    power: float


class Lanes:
    def __init__(self, capacity: Capacity, policy: Policy = "deadline") -> None:
        self._favour = Favour(policy)
        self.count = max(1, min(LANES_MAX, int(capacity.cores)))
        self.power = 1.0
        """Of the seconds that a task was forecast to take, so many are done in one."""
        self.queues = Queues(self.count, DEPTH)
        self.guests_now: Callable[[], int] = lambda: 0
        """How many lanes are taken by tasks that were promised nothing."""
        self.on_their_way: Callable[[], Mapping[Key, float]] = dict
        """Tasks whose inputs are being brought, and how many seconds of their time that may take:
        their promises stand for so long after they had to begin."""
        self._busy: dict[object, _Busy] = {}
        shares = [many / self.count for many in range(1, self.count + 1)]
        self._offers = [
            limits_offered(
                share * capacity.memory_bytes, share * capacity.cores, share * capacity.disk_bytes
            )
            for share in shares
        ]

    def width(self, limits: Amounts) -> int:
        """How many lanes a task with these needs takes; 0 if it is too large for the machine."""
        for many, offer in enumerate(self._offers, 1):
            if all(need <= has for need, has in zip(limits, offer, strict=True)):
                return many
        return 0

    @property
    def policy(self) -> Policy:
        return self._favour.policy

    @property
    def promised(self) -> bool:
        """Whether anything is, or runs by a promise."""
        return bool(self._busy) or bool(np.count_nonzero(self.queues.sizes))

    # A leaf of the tree.

    def summary(self, now_s: float) -> Summary:
        rows = self._see(now_s)
        slot = slot_of(now_s)
        horizon_s = float(bounds_of(slot)[-1])
        found = EMPTY._replace(slot=slot)
        for many in sorted({1, len(rows)} - {0}):
            common = [(begin_s, end_s) for begin_s, end_s, _ in self._common(rows, many, now_s)]
            holes = np.minimum(np.array(common if many == 1 else sorted(set(common))), horizon_s)
            offer = self._offers[many - 1]
            found = merged(found, summary_of(slot, holes.reshape(-1, 2), self.power, offer, now_s))
        return found

    def reserve(
        self, ask: HoleSought, now_s: float, owner: AgentId = NO_AGENT
    ) -> tuple[PromisedTime, ...]:
        width = self.width(ask.limits)
        if not (ask.is_sound and len(ask.works) <= PIECES_MAX and width):
            return ()
        if ask.asked_s is not None and not -SKEW_S <= now_s - ask.asked_s <= STALE_S:
            return ()
        rows, q, placed = self._see(now_s), self.queues, np.empty((len(ask.works), 2))
        if self._rows_of(ask.number, ask.first, placed):
            return slots_of(placed)
        lengths_s, dues_s = np.array(ask.works) / self.power, np.array(ask.dues_s)
        from_s = max(ask.startline_s, now_s)
        favour, power = self._favour, self.power
        rows = [row for row in rows if favour.lets(ask, owner, q, row, power, now_s)]
        for begin_s, end_s, lanes in sorted(
            self._common(rows, width, now_s), key=lambda hole: hole[1] - hole[0]
        ):
            if any(q.sizes[row] + len(lengths_s) > DEPTH for row in lanes):
                continue
            for at_s in (max(from_s, now_s + SOON_S), from_s):
                times_s = (at_s, ask.middle_s)
                if place(begin_s, end_s, times_s, lengths_s, dues_s, ask.early, placed):
                    for row in lanes:
                        q.sizes[row] = take(
                            q.queue[row], q.ids[row], q.sizes[row], ask.number, ask.first, from_s,
                            lengths_s, lengths_s, now_s + LEASE_S, placed,
                        )  # fmt: skip
                    favour.promised(ask, owner)
                    return slots_of(placed)
        return ()

    def _rows_of(self, number: int, first: int, placed: Floats) -> list[int]:
        """The lanes that hold these tasks of a sequence, all of them; and when."""
        q = self.queues
        return [
            row
            for row in range(self.count)
            if placement(q.queue[row], q.ids[row], q.sizes[row], number, first, placed)
            == len(placed)
        ]

    def _common(
        self, rows: list[int], width: int, now_s: float
    ) -> Iterator[tuple[float, float, list[int]]]:
        """Holes that so many lanes have at the same time, and those lanes."""
        holes = [(row, hole) for row in rows for hole in self.queues.holes(row, now_s, FAR_S)]
        for row, (begin_s, end_s) in holes:
            others = sorted(
                ((-there[1], other) for other, there in holes if there[0] <= begin_s < there[1]),
            )
            others = [pair for pair in others if pair[1] != row][: width - 1]
            if len(others) == width - 1:
                until_s = min([end_s, *(-end for end, _ in others)])
                yield begin_s, until_s, [row, *(other for _, other in others)]

    def commit(
        self,
        number: int,
        first: int,
        startlines_s: tuple[float, ...],
        now_s: float,
        owner: AgentId = NO_AGENT,
    ) -> tuple[PromisedTime, ...]:
        self._see(now_s)
        if not all(map(math.isfinite, startlines_s)):
            return ()
        q, placed = self.queues, np.empty((len(startlines_s), 2))
        rows = self._rows_of(number, first, placed)
        lasts_s = len(rows) * float((placed[:, 1] - placed[:, 0]).sum()) if rows else 0.0
        if not (rows and self._favour.keeps((number, first), owner, lasts_s, now_s)):
            return ()
        if len(rows) == 1:  # on several it stays where it is, at the same time on all of them
            row = rows[0]
            settle(
                q.queue[row], q.ids[row], q.sizes[row], q.free_s(row, now_s), number, first,
                np.array(startlines_s), placed,
            )  # fmt: skip
        for row in rows:
            mine = q.ids[row, : q.sizes[row]] == number
            q.queue[row, : q.sizes[row], LEASE][mine] = np.inf
        return slots_of(placed)

    def release(self, number: int, first: int, count: int, now_s: float) -> None:
        self._see(now_s)
        q = self.queues
        for row in range(self.count):
            q.sizes[row] = release(q.queue[row], q.ids[row], q.sizes[row], number, first, count)

    # Running.

    def startable(self, present: Collection[Key], now_s: float) -> list[tuple[Key, float]]:
        """Which of the promised tasks whose inputs are here may begin now, and how long each was
        promised to be."""
        rows, q = self._see(now_s), self.queues
        held: Counter[Key] = Counter()
        votes: Counter[Key] = Counter()
        length_s: dict[Key, float] = {}
        running = self._running()
        for row in range(self.count):
            size = int(q.sizes[row])
            keys = self._keys(row)
            held.update(keys)
            for at, key in enumerate(keys):
                q.queue[row, at, STARTLINE] = -FAR_S if key in present else FAR_S
            if row in running or row not in rows:
                continue
            at = pick(q.queue[row], q.ids[row], size, now_s)
            if at >= 0:
                votes[keys[at]] += 1
                length_s[keys[at]] = float(q.queue[row, at, LENGTH])
        return [(key, length_s[key]) for key, count in votes.items() if count == held[key]]

    def room(self, limits: Amounts, length_s: float, now_s: float) -> tuple[int, ...]:
        """Lanes in which a task that is promised nothing makes nobody late if it begins now."""
        rows, width = self._see(now_s), self.width(limits)
        running = self._running()
        found = []
        for row in rows:
            holes = self.queues.holes(row, now_s, FAR_S)
            free = len(holes) and holes[0][0] <= now_s and holes[0][1] >= now_s + length_s
            if row not in running and free:
                found.append(row)
        return tuple(found[:width]) if 0 < width <= len(found) else ()

    def _running(self) -> set[int]:
        return {row for busy in self._busy.values() for row in busy.rows}

    def idle(self) -> int:
        """Lanes that have promised nothing, and run nothing by a promise."""
        running = self._running()
        return sum(row not in running and not self.queues.sizes[row] for row in range(self.count))

    def begin(self, who: object, key: Key, length_s: float, now_s: float) -> None:
        """A promised task has begun: its rows are busy now, and promise nothing for it."""
        rows = tuple(row for row in range(self.count) if key in self._keys(row))
        q = self.queues
        for row in rows:
            q.sizes[row] = release(q.queue[row], q.ids[row], q.sizes[row], key[0], key[1], 1)
        self.begin_in(who, rows, length_s, now_s)

    def begin_in(self, who: object, rows: tuple[int, ...], length_s: float, now_s: float) -> None:
        self._busy[who] = _Busy(rows, now_s, length_s, self.power)

    def end(self, who: object, now_s: float) -> None:
        """It is over. How long it took tells how much this machine does in a second."""
        busy = self.drop(who)
        if busy is not None:
            self._learn(busy, now_s, over=True)

    def drop(self, who: object) -> _Busy | None:
        """It did not begin after all."""
        busy = self._busy.pop(who, None)
        if busy is not None:
            self.queues.busy[list(busy.rows), 0] = 0.0
        return busy

    def _learn(self, busy: _Busy, now_s: float, *, over: bool) -> None:
        """What takes longer than promised makes the machine a slow one, until others do not."""
        took_s = now_s - busy.began_s
        if took_s > busy.length_s:
            self.power = max(POWER_LEAST, min(self.power, busy.power * busy.length_s / took_s))
        elif over:
            self.power = min(1.0, RECOVERY * self.power)

    def _keys(self, row: int, size: int | None = None) -> list[Key]:
        q, size = self.queues, int(self.queues.sizes[row]) if size is None else size
        units = q.queue[row, :size, UNIT].astype(int).tolist()
        return list(zip(q.ids[row, :size].tolist(), units, strict=True))

    def _see(self, now_s: float) -> list[int]:
        """Bring all lanes up to now; those that take promises. What takes longer than promised is
        expected to take as long again."""
        q = self.queues
        for busy in self._busy.values():
            ends_s = busy.began_s + busy.length_s
            if ends_s <= now_s:
                self._learn(busy, now_s, over=False)
                ends_s = now_s + max(1.0, now_s - busy.began_s)
            q.busy[list(busy.rows), 0] = ends_s
        brought_s = self.on_their_way()
        for row in range(self.count):
            size = expire(q.queue[row], q.ids[row], q.sizes[row], now_s)
            latest_starts(q.queue[row], size)
            waits_s = [brought_s.get(key, 0.0) for key in self._keys(row, size)]
            stands = q.queue[row, :size, LATEST] + waits_s >= now_s - GRACE_S
            kept = np.flatnonzero(stands)
            for array in (q.queue[row], q.ids[row]):
                array[: len(kept)] = array[kept]
            q.sizes[row] = len(kept)
        running, guests = self._running(), self.guests_now()
        idle = [row for row in range(self.count) if row not in running and not q.sizes[row]]
        blocked = set(range(self.count) if guests >= self.count else idle[len(idle) - guests :])
        return [row for row in range(self.count) if row not in blocked]


def slots_of(placed: Floats) -> tuple[PromisedTime, ...]:
    return tuple([PromisedTime(*pair) for pair in placed.tolist()])


def limits_of(needs: Needs) -> Amounts:
    return limits_needed(needs.memory_bytes, needs.cores, needs.disk_bytes)
