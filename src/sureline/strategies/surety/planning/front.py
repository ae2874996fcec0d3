"""The Pareto front: the schedules than which none is cheaper, quicker and surer at once.

A schedule dominates another if it costs no more, is expected no later and is no less sure, and is
better in one of the three. Schedules that are equal in all three are one point of the front; the
first in the order of the table stands for them.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sureline.strategies.surety.planning.choices import Floats, Ints

DIGITS = 12
"""Costs and times that agree to so many digits are equal: they are sums of decimal numbers."""


class Schedules(NamedTuple):
    """Schedules and what they come to, as arrays. `alike` counts those a row stands for."""

    schedules: Ints
    cost: Floats
    expected: Floats
    surety: Floats
    alike: Ints

    def rows(self, chosen: Ints | np.typing.NDArray[np.bool_]) -> Schedules:
        return Schedules(
            self.schedules[chosen],
            self.cost[chosen],
            self.expected[chosen],
            self.surety[chosen],
            self.alike[chosen],
        )

    def with_(self, other: Schedules) -> Schedules:
        return Schedules(
            np.concatenate((self.schedules, other.schedules)),
            np.concatenate((self.cost, other.cost)),
            np.concatenate((self.expected, other.expected)),
            np.concatenate((self.surety, other.surety)),
            np.concatenate((self.alike, other.alike)),
        )


def nothing(tasks: int) -> Schedules:
    none = np.empty(0)
    return Schedules(np.empty((0, tasks), np.int64), none, none, none, np.empty(0, np.int64))


def pareto(found: Schedules, cost_scale: float, time_scale: float) -> Schedules:
    """Those that nothing dominates, the cheapest first; of equals the first, which counts all.

    In the order of (cost, expected, -surety) the first that is left is dominated by nobody that is
    left: it belongs to the front, and all that it dominates can go.
    """
    cost = np.round(found.cost / cost_scale, DIGITS)
    expected = np.round(found.expected / time_scale, DIGITS)
    surety = np.nan_to_num(found.surety, nan=0.0)
    left = np.lexsort((-surety, expected, cost))
    kept, alike = [], []
    while len(left):
        best = left[0]
        worse = (
            (cost[left] >= cost[best])
            & (expected[left] >= expected[best])
            & (surety[left] <= surety[best])
        )
        same = (
            worse
            & (cost[left] == cost[best])
            & (expected[left] == expected[best])
            & (surety[left] == surety[best])
        )
        kept.append(int(left[same].min()))
        alike.append(int(found.alike[left[same]].sum()))
        left = left[~worse]
    chosen = found.rows(np.array(kept, dtype=np.int64))
    return chosen._replace(alike=np.array(alike, dtype=np.int64))
