"""Simulated runs of units on limited pools: list scheduling, many runs side by side in arrays.

The engine starts the most urgent ready task that fits, whenever something ends. `start_order` does
just that once, with every task taking its mean. `finish_times` then places the tasks in that order
in all samples at once: each starts when its parents have ended and the lanes it takes are free; of
the lanes free by then it takes those that became free last, which leaves older holes to others.

Where this differs from the engine: in a sample in which the order of ends differs much from that
of the means, a task may wait for one that stands before it in the order though it could overtake
it. Bounded patience with large tasks and the time between tasks are not modelled.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import numpy as np

from sureline.forecast.durations import Durations
from sureline.forecast.folding import Units
from sureline.forecast.pools import Pools, Taking
from sureline.forecast.shape import Floats

BLOCK = 256
"""Durations are drawn for so many units at a time."""


def start_order(units: Units, taking: Sequence[Taking], pools: Pools, running: int) -> list[int]:
    """The units in the order in which the engine would start them, if all took their means.

    The first `running` units hold their lanes already."""
    free = list(pools.lanes)
    missing = [len(parents) for parents in units.parents]
    urgency, mean_s = units.urgency.tolist(), units.mean_s.tolist()
    not_before_s = units.not_before_s.tolist()
    ready: dict[Taking, list[tuple[float, int]]] = {}
    events: list[tuple[float, int, int]] = []  # (when, 0 = ended or 1 = may start, unit)
    order: list[int] = []

    def begin(unit: int, now: float) -> None:
        for pool, lanes in taking[unit]:
            free[pool] -= lanes
        order.append(unit)
        heapq.heappush(events, (now + mean_s[unit], 0, unit))

    for unit in range(len(units)):
        if unit < running:
            begin(unit, 0.0)
        elif not missing[unit]:
            heapq.heappush(events, (not_before_s[unit], 1, unit))
    while events:
        now = events[0][0]
        while events and events[0][0] <= now:
            _, what, unit = heapq.heappop(events)
            if what == 1:
                heapq.heappush(ready.setdefault(taking[unit], []), (-urgency[unit], unit))
                continue
            for pool, lanes in taking[unit]:
                free[pool] += lanes
            for child in units.children[unit]:
                missing[child] -= 1
                if not missing[child]:
                    heapq.heappush(events, (max(now, not_before_s[child]), 1, child))
        while (chosen := _most_urgent(ready, free)) is not None:
            begin(chosen, now)
    return order


def _most_urgent(ready: dict[Taking, list[tuple[float, int]]], free: list[int]) -> int | None:
    best: Taking | None = None
    for taking, heap in ready.items():
        if all(free[pool] >= lanes for pool, lanes in taking) and (
            best is None or heap[0] < ready[best][0]
        ):
            best = taking
    if best is None:
        return None
    heap = ready[best]
    _, unit = heapq.heappop(heap)
    if not heap:
        del ready[best]
    return unit


class Draws:
    """Durations of units, block by block in the order of simulation."""

    def __init__(
        self,
        units: Units,
        durations: Durations,
        elapsed_s: Sequence[float],
        samples: int,
        seed: int,
    ) -> None:
        self._units = units
        self._durations = durations
        self._elapsed_s = elapsed_s  # of the first units, which run
        self._samples = samples
        self._random = np.random.default_rng(seed)
        kinds, self._row = np.unique(durations.kind[units.task], return_inverse=True)
        self._normals = self._random.standard_normal((len(kinds), samples))

    def block(self, numbers: Sequence[int]) -> Floats:
        """A row per unit, a column per sample."""
        units = self._units
        chosen = np.array(numbers, dtype=np.int64)
        tasks = units.task[chosen]
        drawn = self._durations.draw(tasks, self._samples, self._random)
        for row in np.flatnonzero(units.size[chosen] > 1):
            drawn[row] = self._sum(chosen[row])
        shift = self._durations.shift[tasks]
        shifts = np.ones_like(drawn)
        moved = np.flatnonzero(shift)
        shifts[moved] = np.exp(shift[moved, None] * self._normals[self._row[chosen[moved]]])
        drawn *= shifts
        for row in np.flatnonzero(chosen < len(self._elapsed_s)):
            elapsed_s = self._elapsed_s[chosen[row]]
            drawn[row] = self._durations.draw_remaining(
                int(tasks[row]), elapsed_s, shifts[row], self._random
            )
        return drawn

    def _sum(self, unit: int) -> Floats | float:
        """Many tasks in a row: the gamma distribution of their mean and variance."""
        mean_s, variance_s2 = self._units.mean_s[unit], self._units.variance_s2[unit]
        if variance_s2 <= 0 or mean_s <= 0:
            return float(mean_s)
        scale = variance_s2 / mean_s
        return self._random.gamma(mean_s / scale, scale, self._samples)


def finish_times(
    units: Units, order: Sequence[int], taking: Sequence[Taking], pools: Pools, draws: Draws, n: int
) -> Floats:
    """When the last unit ends, in each of `n` samples. Seconds from now."""
    ends = np.zeros((len(units), n))
    lanes = [np.zeros((n, count)) for count in pools.lanes]
    rows = np.arange(n)
    parents, not_before_s = units.parents, units.not_before_s
    for begin in range(0, len(order), BLOCK):
        numbers = order[begin : begin + BLOCK]
        for unit, duration in zip(numbers, draws.block(numbers), strict=True):
            above = parents[unit]
            if not above:
                start = np.full(n, not_before_s[unit])
            elif len(above) == 1:
                start = np.maximum(ends[above[0]], not_before_s[unit])
            else:
                start = np.maximum(ends[above].max(axis=0), not_before_s[unit])
            for pool, count in taking[unit]:
                np.maximum(start, _free_at(lanes[pool], count), out=start)
            end = np.add(start, duration, out=ends[unit])
            for pool, count in taking[unit]:
                _hold(lanes[pool], count, start, end, rows)
    last: Floats = ends.max(axis=0, initial=0.0)
    return last


def _free_at(lanes: Floats, count: int) -> Floats:
    """When `count` lanes are free."""
    few = lanes if count == 1 else np.partition(lanes, count - 1, axis=1)[:, count - 1 :]
    free: Floats = few.min(axis=1)
    return free


def _hold(
    lanes: Floats,
    count: int,
    start: Floats,
    end: Floats,
    rows: np.ndarray[tuple[int], np.dtype[np.int64]],
) -> None:
    """Take the lanes that became free last before `start`."""
    idle = start[:, None] - lanes
    idle[idle < 0] = np.inf
    if count == 1:
        lanes[rows, idle.argmin(axis=1)] = end
    else:
        chosen = np.argpartition(idle, count - 1, axis=1)[:, :count]
        np.put_along_axis(lanes, chosen, end[:, None], axis=1)
