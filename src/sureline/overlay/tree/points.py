"""Reference points: the moments between which free time is summarised.

Holes of many machines can be counted together only if their limits are the same. So limits are
taken from a short list of moments that grows almost exponentially, and is the same for everybody in
the same five minutes: each distance from now is rounded up to a multiple of itself. Sixteen hours
is rounded to eight, as in the paper's Table I, all of whose entries follow from this rule.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

MINUTE_S, HOUR_S = 60, 3600
DISTANCES_S = tuple(
    [n * MINUTE_S for n in (5, 10, 15, 30)] + [n * HOUR_S for n in (1, 2, 4, 8, 16, 24)]
)
SLOT_S = DISTANCES_S[0]
"""Everything made within one slot has the same reference points."""
FIRST = 11
"""The first of them lies ten minutes from the begin of the slot. Where a hole begins before that is
known to the minute: it makes all the difference whether a machine is free now or in nine minutes.
What is free already counts as from the minute before."""


def slot_of(time_s: float) -> int:
    return math.floor(time_s / SLOT_S)


def reference_points(time_s: float) -> list[int]:
    """The points of a summary made at this time, the nearest first; those that coincide, once."""
    found = []
    for distance_s in DISTANCES_S:
        grain_s = 8 * HOUR_S if distance_s == 16 * HOUR_S else distance_s
        found.append(math.ceil((time_s + distance_s) / grain_s) * grain_s)
    return sorted(set(found))


@lru_cache(maxsize=64)
def bounds_of(slot: int) -> Floats:
    """The minute before a slot, its minutes up to the first reference point, and the points. A hole
    begins after one of these; it ends before one of the points, which stand from FIRST on."""
    begin_s = slot * SLOT_S
    minutes = [begin_s + MINUTE_S * (n - 1) for n in range(FIRST)]
    return np.array([*minutes, *reference_points(begin_s + 1e-3)], dtype=np.float64)
