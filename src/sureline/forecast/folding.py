"""The open tasks as units to be simulated: one each, or, in a large graph, many to a unit.

Tasks of one level, kind and need are alike. They are folded into units that hold one place of the
machine and take as long as all their members in a row. A group of n tasks of which s can run at
once becomes units of n / (fineness * s) tasks, getting smaller down to single tasks at the end of
the group, so that the places still end evenly. What waits for a member waits for its whole unit:
that, and the sums, which are drawn by mean and variance, are the price. Running tasks stay alone.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sureline.forecast.durations import Durations
from sureline.forecast.pools import Pools
from sureline.forecast.shape import Flags, Floats, Ints, Shape

UNITS_MAX = 12_500
"""About what can be simulated in a second; more only if the graph cannot be folded further."""
FINENESS = (8, 4, 2)
"""Tried in turn until few enough units are left. At 1, the first units would be a place's whole
share, and the places would end unevenly (8 % too late); from 2 on the error is below 1 %."""


class Units(NamedTuple):
    """Arrays by unit. `task` is a member (the only one, if `size` is 1)."""

    task: Ints
    size: Ints
    mean_s: Floats
    variance_s2: Floats
    urgency: Floats
    not_before_s: Floats
    level: Ints
    edges: Ints
    """(parent, child), without repetition."""
    unit_of: Ints
    """By task; -1 for one that is not open."""

    def __len__(self) -> int:
        return len(self.task)


def units_of(
    shape: Shape,
    durations: Durations,
    pools: Pools,
    is_open: Flags,
    alone: Ints,
    not_before_s: Floats,
) -> Units:
    """`alone` are open tasks that stay units of their own: those that run, or are otherwise
    special. `not_before_s` is by task."""
    tasks = np.flatnonzero(is_open)
    unit_of = np.full(len(is_open), -1, dtype=np.int64)
    if len(tasks) <= UNITS_MAX:
        unit_of[tasks] = np.arange(len(tasks))
        return _gathered(shape, durations, unit_of, tasks, not_before_s)
    unit_of[alone] = np.arange(len(alone))
    waiting = tasks[unit_of[tasks] < 0]
    for by_kind in (True, False):
        for fineness in FINENESS:
            numbers = _folded(shape, pools, waiting, fineness, by_kind)
            if numbers.max(initial=-1) < UNITS_MAX:
                break
        else:
            continue
        break
    unit_of[waiting] = numbers + len(alone)
    return _gathered(shape, durations, unit_of, tasks, not_before_s)


def _folded(shape: Shape, pools: Pools, tasks: Ints, fineness: int, by_kind: bool) -> Ints:
    """The number of the unit that each of the tasks belongs to."""
    kind = shape.kind[tasks] if by_kind else np.zeros(len(tasks), dtype=np.int64)
    level, need = shape.level[tasks], shape.needs_class[tasks]
    order = np.lexsort((-shape.urgency[tasks], need, kind, level))
    differs = np.zeros(len(tasks), dtype=bool)
    for key in (level, kind, need):
        differs[1:] |= key[order][1:] != key[order][:-1]
    starts = np.concatenate([[0], np.flatnonzero(differs), [len(tasks)]])
    at_once = [_at_once(pools, number) for number in range(len(shape.needs))]
    sizes: list[int] = []
    for begin, end in zip(starts[:-1].tolist(), starts[1:].tolist(), strict=True):
        left, places = end - begin, at_once[int(need[order[begin]])]
        while left:
            size = max(1, left // (fineness * places))
            sizes.append(size)
            left -= size
    numbers = np.empty(len(tasks), dtype=np.int64)
    numbers[order] = np.repeat(np.arange(len(sizes)), sizes)
    return numbers


def _at_once(pools: Pools, need: int) -> int:
    """How many tasks of this need can run at once; a need of nothing is not worth folding."""
    return min([pools.lanes[pool] // lanes for pool, lanes in pools.taking[need]], default=1 << 40)


def _gathered(
    shape: Shape, durations: Durations, unit_of: Ints, tasks: Ints, not_before_s: Floats
) -> Units:
    unit = unit_of[tasks]
    count = int(unit.max(initial=-1)) + 1
    task = np.zeros(count, dtype=np.int64)
    task[unit] = tasks
    urgency = np.full(count, -np.inf)
    np.maximum.at(urgency, unit, shape.urgency[tasks])
    start = np.zeros(count)
    np.maximum.at(start, unit, not_before_s[tasks])
    level = np.zeros(count, dtype=np.int64)
    level[unit] = shape.level[tasks]
    ends = unit_of[shape.edges]
    ends = ends[(ends >= 0).all(axis=1)]
    codes = np.unique(ends[:, 0] * count + ends[:, 1])
    edges = np.stack(np.divmod(codes, max(1, count)), axis=1)
    return Units(
        task,
        np.bincount(unit, minlength=count),
        _sums(unit, durations.means_s[tasks], count),
        _sums(unit, durations.variances_s2[tasks], count),
        urgency,
        start,
        level,
        edges,
        unit_of,
    )


def _sums(unit: Ints, values: Floats, count: int) -> Floats:
    found: Floats = np.bincount(unit, values, minlength=count).astype(np.float64)
    return found
