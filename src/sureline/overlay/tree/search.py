"""Finding a hole for a sequence in the summaries of a branch's two children, and where to cut it.

Cells are ordered by size, so the best fit is the first cell that is large enough. If none is, the
sequence is cut in two at a reference point: the largest first piece for which the rest fits, too.
"""

from __future__ import annotations

import numpy as np

from sureline.compiled import kernel
from sureline.overlay.tree.points import FIRST, Floats
from sureline.overlay.tree.summary import Counts, Keys, has, least, likely, usable

Part = tuple[Keys, Counts, int, int]
"""A summary: keys and counts, and from where to where it stands in them."""
Times = tuple[float, float, float]
"""From when, between the early and the late tasks, until when."""
Three = tuple[int, int, int]
"""Memory, cores and disk."""


@kernel
def holds(
    key: np.uint32, bounds: Floats, now_s: float, times_s: Times, early: float, late: float,
    hope: bool,
) -> bool:  # fmt: skip
    """Whether a hole of this cell does the early work between the first two of these times, and the
    late work between the last two: surely, or, with `hope`, likely. What is no number fits
    nowhere."""
    from_s, middle_s, to_s = times_s
    if hope:
        if not early <= 0 and not likely(key, bounds, now_s, from_s, middle_s) >= early:
            return False
        return late <= 0 or likely(key, bounds, now_s, middle_s, to_s) >= late
    if not least(key) >= early + late:
        return False
    if early > 0 and usable(key, bounds, now_s, from_s, middle_s) < early:
        return False
    return late <= 0 or usable(key, bounds, now_s, middle_s, to_s) >= late


@kernel
def best_fit(
    part: Part, bounds: Floats, now_s: float, times_s: Times, early: float, late: float,
    limits: Three, hope: bool,
) -> int:  # fmt: skip
    """Where the smallest cell stands that holds the work; -1 if none."""
    keys, counts, begin, end = part
    memory, cores, disk = limits
    for at in range(begin, end):
        if (
            counts[at] > 0
            and has(keys[at], memory, cores, disk)
            and holds(keys[at], bounds, now_s, times_s, early, late, hope)
        ):
            return at
    return -1


@kernel
def total(works: Floats) -> float:
    """Added up one by one, in machine code and without it."""
    found = 0.0
    for work in works:
        found += work
    return found


@kernel
def fit_two(
    left: Part, right: Part, bounds: Floats, now_s: float, times_s: Times,
    early: float, late: float, limits: Three, without: int, hope: bool,
) -> int:  # fmt: skip
    """The best fit on either side but `without`: twice the place, plus the side; -1 if none."""
    a = b = -1
    if without != 0:
        a = best_fit(left, bounds, now_s, times_s, early, late, limits, hope)
    if without != 1:
        b = best_fit(right, bounds, now_s, times_s, early, late, limits, hope)
    if a < 0 and b < 0:
        return -1
    if b < 0 or (a >= 0 and left[0][a] <= right[0][b]):
        return 2 * a
    return 2 * b + 1


@kernel
def cut_two(
    left: Part, right: Part, bounds: Floats, now_s: float, times_s: Times,
    works: Floats, early: int, limits: Three, hope: bool,
) -> tuple[int, float, int, int]:  # fmt: skip
    """Where to cut a sequence in two: the largest first piece that fits, up to a point from which
    the rest fits: a reference point, or that between the early and the late tasks. (tasks in the
    first piece, the point, the fit of each); 0 tasks if it cannot be done."""
    from_s, middle_s, to_s = times_s
    for count in range(len(works) - 1, 0, -1):
        first_early, first_late = total(works[: min(count, early)]), total(works[early:count])
        rest_early, rest_late = total(works[count:early]), total(works[max(count, early) :])
        for i in range(FIRST - 1, len(bounds)):
            point_s = middle_s if i < FIRST else bounds[i]
            if i < FIRST and count != early:
                continue
            if point_s <= from_s or point_s >= to_s:
                continue
            if (count < early and point_s >= middle_s) or (count > early and point_s <= middle_s):
                continue
            one = fit_two(
                left, right, bounds, now_s, (from_s, min(middle_s, point_s), point_s),
                first_early, first_late, limits, -1, hope,
            )  # fmt: skip
            if one < 0:
                continue
            counts = right[1] if one & 1 else left[1]
            counts[one >> 1] -= 1
            other = fit_two(
                left, right, bounds, now_s, (point_s, max(middle_s, point_s), to_s),
                rest_early, rest_late, limits, -1, hope,
            )  # fmt: skip
            counts[one >> 1] += 1
            if other >= 0:
                return count, point_s, one, other
    return 0, 0.0, -1, -1


@kernel
def search(
    left: Part, right: Part, bounds: Floats, now_s: float, times_s: Times, works: Floats,
    early: int, limits: Three, without: int, hope: bool,
) -> tuple[int, float, int, int]:  # fmt: skip
    """Find room for a sequence below the left or the right child, and take it.

    (tasks in the first piece, where it is cut, the sides of the first piece and of the rest): all
    tasks and -1 if it fits whole, 0 tasks if it fits nowhere. `without` is a side that has just
    said that it has nothing; the pieces of a cut may go there.
    """
    early_work, late_work = total(works[:early]), total(works[early:])
    one = fit_two(left, right, bounds, now_s, times_s, early_work, late_work, limits, without, hope)
    count, point_s, other = len(works), times_s[2], -1
    if one < 0:
        count, point_s, one, other = cut_two(
            left, right, bounds, now_s, times_s, works, early, limits, hope
        )
    for found in (one, other):
        if found >= 0:
            (right if found & 1 else left)[1][found >> 1] -= 1
    return count, point_s, one & 1, other & 1 if other >= 0 else -1
