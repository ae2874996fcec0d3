"""Summaries of free time: how many holes of which kind lie below a branch of the tree.

A *hole* is a stretch of time in which a machine could take more work; what it can hold is the
machine's power times its length. A *cell* is a kind of hole: between which two reference points it
lies, and its availability, floored to a step of a fixed scale; besides, the memory, cores and disk
of its machine, floored as well. A summary counts holes by cell, sorted by the cell's key, and has
no entry for what there is none of: near the leaves that is almost everything.

Nothing is ever overstated. `usable` is the work that *every* hole of a cell can do between two
moments; a hole that a summary promises can be used, if nothing has changed since. Cells are ordered
such that a smaller key is a smaller hole: the best fit is the first that is large enough.

Pure arithmetic over arrays, compiled: the agents of both worlds and the sweeps over a million nodes
call the same functions. One module, since compiled code is kept by the file it stands in.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sureline.compiled import compiled
from sureline.overlay.tree.points import FIRST, Floats, bounds_of

Keys = NDArray[np.uint32]
Counts = NDArray[np.int32]
Ints = NDArray[np.int64]

Part = tuple[Keys, Counts, int, int]
"""A summary: keys and counts, and from where to where it stands in them."""
Times = tuple[float, float, float]
Three = tuple[int, int, int]

NONE = np.uint32(0)
FINENESS = 4
"""Availability is floored to a power of two to the one over this. The paper takes 1; then machines
whose power differs by half look alike (see the decision note 0071)."""
LEAST_S = 1.0
"""A shorter hole is not worth counting."""
MEBIBYTE = 1 << 20


class Amounts(NamedTuple):
    """What a machine has beside time, or what a task needs of it, by powers of two."""

    memory: int = 0
    cores: int = 0
    disk: int = 0


def limits_offered(memory_bytes: float, cores: float, disk_bytes: float) -> Amounts:
    """Floored: what is certainly there. Sizes count in MiB."""
    sizes = (memory_bytes / MEBIBYTE, cores, disk_bytes / MEBIBYTE)
    return Amounts(*(min(30, int(size).bit_length()) for size in sizes))


def limits_needed(memory_bytes: float, cores: float, disk_bytes: float) -> Amounts:
    """Ceiled: whatever offers these limits has enough."""
    sizes = (memory_bytes / MEBIBYTE, cores, disk_bytes / MEBIBYTE)
    return Amounts(
        *(0 if size <= 0 else (int(-(-size // 1)) - 1).bit_length() + 1 for size in sizes)
    )


# Keys: level, begin, end, then what the machine has; so keys sort by size first.


@compiled
def key_of(level: int, begin: int, end: int, memory: int, cores: int, disk: int) -> np.uint32:
    return np.uint32((((((level << 5 | begin) << 5 | end) << 5 | memory) << 5 | cores) << 5) | disk)


@compiled
def _level(key: np.uint32) -> int:
    return int(np.int64(key) >> 25)


@compiled
def _begin(key: np.uint32) -> int:
    return int((np.int64(key) >> 20) & 31)


@compiled
def _end(key: np.uint32) -> int:
    return int((np.int64(key) >> 15) & 31)


@compiled
def span(key: np.uint32) -> int:
    """How many intervals between reference points a hole of this cell touches."""
    return _end(key) - max(_begin(key), FIRST - 1)


@compiled
def _has(key: np.uint32, memory: int, cores: int, disk: int) -> bool:
    rest = int(np.int64(key))
    return (rest >> 10) & 31 >= memory and (rest >> 5) & 31 >= cores and rest & 31 >= disk


@compiled
def cell_of(
    begin_s: float, end_s: float, power: float, memory: int, cores: int, disk: int, bounds: Floats
) -> np.uint32:
    """The cell of a hole, or NONE if it is too short. A hole that ends before the last reference
    point, but after the one before it, is cut there: of the last one, the end is known exactly."""
    last = len(bounds) - 1
    begin_s = max(begin_s, bounds[0])
    if end_s < bounds[last]:
        end_s = min(end_s, bounds[last - 1])
    end_s = min(end_s, bounds[last])
    if end_s - begin_s < LEAST_S or power * (end_s - begin_s) < 1.0:
        return NONE
    begin = 0
    while bounds[begin + 1] <= begin_s:
        begin += 1
    end = max(begin + 1, FIRST)
    while bounds[end] < end_s:
        end += 1
    level = int(np.floor(FINENESS * np.log2(power * (end_s - begin_s))))
    return key_of(level, begin, end, memory, cores, disk)


@compiled
def usable(key: np.uint32, bounds: Floats, now_s: float, from_s: float, to_s: float) -> float:
    """The work that any hole of this cell can do between two moments, at least.

    The share of a hole that lies between them is least for a hole at one of the four corners of
    what the cell allows: beginning and ending as early or as late as it may.
    """
    begin, end = _begin(key), _end(key)
    begins_0, begins_1 = max(bounds[begin], min(now_s, bounds[begin + 1])), bounds[begin + 1]
    ends_0, ends_1 = bounds[end - 1] if end > FIRST else bounds[0], bounds[end]
    if end == len(bounds) - 1:
        ends_0 = ends_1
    whole = from_s <= begins_0 and to_s >= ends_1
    if not whole and ends_0 <= begins_0:
        return 0.0
    share = 1.0
    if not whole:
        for begins_s in (begins_0, begins_1):
            for ends_s in (ends_0, ends_1):
                between_s = min(to_s, ends_s) - max(from_s, begins_s)
                if ends_s > begins_s:
                    share = min(share, between_s / (ends_s - begins_s))
                elif between_s < 0:
                    share = 0.0
    return float(max(0.0, share) * 2.0 ** (_level(key) / FINENESS))


@compiled
def holds(
    key: np.uint32, bounds: Floats, now_s: float, times_s: Times, early: float, late: float
) -> bool:
    """Whether any hole of this cell surely does the early work between the first two of these
    times, and the late work between the last two."""
    from_s, middle_s, to_s = times_s
    if 2.0 ** (_level(key) / FINENESS) < early + late:
        return False
    if early > 0 and usable(key, bounds, now_s, from_s, middle_s) < early:
        return False
    return late <= 0 or usable(key, bounds, now_s, middle_s, to_s) >= late


@compiled
def best_fit(
    keys: Keys,
    counts: Counts,
    begin: int,
    end: int,
    bounds: Floats,
    now_s: float,
    times_s: Times,
    early: float,
    late: float,
    limits: Three,
) -> int:
    """Where in keys[begin:end] the smallest cell stands that surely holds the work; -1 if none."""
    memory, cores, disk = limits
    for at in range(begin, end):
        if (
            counts[at] > 0
            and _has(keys[at], memory, cores, disk)
            and holds(keys[at], bounds, now_s, times_s, early, late)
        ):
            return at
    return -1


@compiled
def merge_into(
    keys: Keys,
    counts: Counts,
    a: int,
    a_end: int,
    b: int,
    b_end: int,
    to_keys: Keys,
    to_counts: Counts,
    at: int,
) -> int:
    """Add up keys[a:a_end] and keys[b:b_end], both sorted; the sum stands from `at` on. Returns
    where it ends. Cells with no holes left are dropped."""
    while a < a_end or b < b_end:
        if b >= b_end or (a < a_end and keys[a] < keys[b]):
            key, count = keys[a], counts[a]
            a += 1
        elif a >= a_end or keys[b] < keys[a]:
            key, count = keys[b], counts[b]
            b += 1
        else:
            key, count = keys[a], counts[a] + counts[b]
            a += 1
            b += 1
        if count > 0:
            to_keys[at], to_counts[at] = key, count
            at += 1
    return at


@compiled
def moved(key: np.uint32, old: Floats, new: Floats) -> np.uint32:
    """By later reference points: the part that every hole of this cell has, as a hole of its own.
    NONE if there is no such part any more."""
    begin, end = _begin(key), _end(key)
    begins_s = max(old[begin + 1], new[0])
    ends_s = old[end - 1] if end > FIRST else old[0]
    if end == len(old) - 1:
        ends_s = old[end]
    power = 2.0 ** (_level(key) / FINENESS) / (old[end] - old[begin])
    rest = int(np.int64(key))
    return cell_of(begins_s, ends_s, power, (rest >> 10) & 31, (rest >> 5) & 31, rest & 31, new)


@compiled
def sort_cells(keys: Keys, counts: Counts, size: int) -> int:
    """Sort the first `size` cells by key and add up equal ones; how many are left."""
    order = np.argsort(keys[:size])
    sorted_keys, sorted_counts = keys[:size][order], counts[:size][order]
    at = 0
    for i in range(size):
        if sorted_keys[i] == NONE:
            continue
        if at and keys[at - 1] == sorted_keys[i]:
            counts[at - 1] += sorted_counts[i]
        else:
            keys[at], counts[at] = sorted_keys[i], sorted_counts[i]
            at += 1
    return at


@compiled
def _renewed(keys: Keys, counts: Counts, old: Floats, new: Floats) -> tuple[Keys, Counts]:
    to_keys, to_counts = np.empty_like(keys), counts.copy()
    for i in range(len(keys)):
        to_keys[i] = moved(keys[i], old, new)
    size = sort_cells(to_keys, to_counts, len(keys))
    return to_keys[:size].copy(), to_counts[:size].copy()


class Summary(NamedTuple):
    """Holes by cell. `slot` says by which reference points."""

    slot: int
    keys: Keys
    counts: Counts

    @property
    def holes(self) -> int:
        return int(self.counts.sum())

    def packed(self) -> bytes:
        return self.keys.astype("<u4").tobytes() + self.counts.astype("<i4").tobytes()


EMPTY = Summary(0, np.empty(0, np.uint32), np.empty(0, np.int32))


def unpacked(slot: int, data: bytes) -> Summary:
    """Raises ValueError if the bytes are no summary."""
    both = np.frombuffer(data, "<u4")
    if len(both) % 2:
        raise ValueError("a summary has as many counts as cells")
    half = len(both) // 2
    keys, counts = both[:half].astype(np.uint32), both[half:].astype(np.int32)
    if half and (np.any(keys[1:] <= keys[:-1]) or counts.min() < 1):
        raise ValueError("the cells of a summary are sorted, known, and not empty")
    return Summary(slot, keys, counts)


def summary_of(slot: int, holes: Floats, power: float, limits: Amounts) -> Summary:
    """Of one machine's holes, given as rows of (begin, end)."""
    bounds = bounds_of(slot)
    keys = np.empty(len(holes), np.uint32)
    for i in range(len(holes)):
        keys[i] = cell_of(holes[i, 0], holes[i, 1], power, *limits, bounds)
    counts = np.ones(len(holes), np.int32)
    size = sort_cells(keys, counts, len(keys))
    return Summary(slot, keys[:size].copy(), counts[:size].copy())


def renewed(summary: Summary, slot: int) -> Summary:
    """The summary by the reference points of a later slot."""
    if slot <= summary.slot or not len(summary.keys):
        return summary._replace(slot=max(slot, summary.slot))
    keys, counts = _renewed(summary.keys, summary.counts, bounds_of(summary.slot), bounds_of(slot))
    return Summary(slot, keys, counts)


def merged(a: Summary, b: Summary) -> Summary:
    """Both together; by the reference points of the later one."""
    slot = max(a.slot, b.slot)
    a, b = renewed(a, slot), renewed(b, slot)
    keys = np.concatenate((a.keys, b.keys))
    counts = np.concatenate((a.counts, b.counts))
    to_keys, to_counts = np.empty_like(keys), np.empty_like(counts)
    size = merge_into(keys, counts, 0, len(a.keys), len(a.keys), len(keys), to_keys, to_counts, 0)
    return Summary(slot, to_keys[:size].copy(), to_counts[:size].copy())


# Searching in the summaries of a branch's two children.


@compiled
def fit_two(
    left: Part, right: Part, bounds: Floats, now_s: float, times_s: Times,
    early: float, late: float, limits: Three, without: int,
) -> int:  # fmt: skip
    """The best fit on either side but `without`: twice the place, plus the side; -1 if none."""
    a = b = -1
    if without != 0:
        keys, counts, begin, end = left
        a = best_fit(keys, counts, begin, end, bounds, now_s, times_s, early, late, limits)
    if without != 1:
        keys, counts, begin, end = right
        b = best_fit(keys, counts, begin, end, bounds, now_s, times_s, early, late, limits)
    if a < 0 and b < 0:
        return -1
    if b < 0 or (a >= 0 and left[0][a] <= right[0][b]):
        return 2 * a
    return 2 * b + 1


@compiled
def cut_two(
    left: Part, right: Part, bounds: Floats, now_s: float, times_s: Times,
    works: Floats, early: int, limits: Three,
) -> tuple[int, float, int, int]:  # fmt: skip
    """Where to cut a sequence in two: the largest first piece that fits, up to a point from which
    the rest fits: a reference point, or that between the early and the late tasks. (tasks in the
    first piece, the point, the fit of each); 0 tasks if it cannot be done."""
    from_s, middle_s, to_s = times_s
    for count in range(len(works) - 1, 0, -1):
        first_early, first_late = works[: min(count, early)].sum(), works[early:count].sum()
        rest_early, rest_late = works[count:early].sum(), works[max(count, early) :].sum()
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
                first_early, first_late, limits, -1,
            )  # fmt: skip
            if one < 0:
                continue
            counts = right[1] if one & 1 else left[1]
            counts[one >> 1] -= 1
            other = fit_two(
                left, right, bounds, now_s, (point_s, max(middle_s, point_s), to_s),
                rest_early, rest_late, limits, -1,
            )  # fmt: skip
            counts[one >> 1] += 1
            if other >= 0:
                return count, point_s, one, other
    return 0, 0.0, -1, -1


@compiled
def search(
    keys_0: Keys, counts_0: Counts, begin_0: int, end_0: int,
    keys_1: Keys, counts_1: Counts, begin_1: int, end_1: int,
    bounds: Floats, now_s: float, from_s: float, middle_s: float, to_s: float,
    works: Floats, early: int, memory: int, cores: int, disk: int, without: int,
) -> tuple[int, float, int, int]:  # fmt: skip
    """Find room for a sequence below the left or the right child, and take it.

    (tasks in the first piece, where it is cut, the sides of the first piece and of the rest): all
    tasks and -1 if it fits whole, 0 tasks if it fits nowhere. `without` is a side that has just
    said that it has nothing; the pieces of a cut may go there.
    """
    left, right = (keys_0, counts_0, begin_0, end_0), (keys_1, counts_1, begin_1, end_1)
    times_s, limits = (from_s, middle_s, to_s), (memory, cores, disk)
    early_work, late_work = works[:early].sum(), works[early:].sum()
    one = fit_two(left, right, bounds, now_s, times_s, early_work, late_work, limits, without)
    count, point_s, other = len(works), to_s, -1
    if one < 0:
        if count == 1:
            return 0, 0.0, -1, -1
        count, point_s, one, other = cut_two(
            left, right, bounds, now_s, times_s, works, early, limits
        )
        if count == 0:
            return 0, 0.0, -1, -1
    for found in (one, other):
        if found >= 0:
            if found & 1:
                counts_1[found >> 1] -= 1
            else:
                counts_0[found >> 1] -= 1
    return count, point_s, one & 1, other & 1 if other >= 0 else -1


# The same for very many nodes at once.


@compiled
def cells_of_rows(
    holes: Floats,
    hole_counts: Ints,
    power: Floats,
    memory: int,
    cores: int,
    disk: int,
    bounds: Floats,
    keys: Keys,
    counts: Counts,
    begins: Ints,
    ends: Ints,
) -> int:
    """The summaries of many machines: row i stands in keys[begins[i]:ends[i]]. How long all are."""
    at = hole = 0
    for row in range(len(power)):
        begins[row] = at
        many = hole_counts[row]
        for i in range(many):
            keys[at + i] = cell_of(
                holes[hole + i, 0], holes[hole + i, 1], power[row], memory, cores, disk, bounds
            )
            counts[at + i] = 1
        hole += many
        at += sort_few(keys, counts, at, many)
        ends[row] = at
    return at


@compiled
def sort_few(keys: Keys, counts: Counts, begin: int, size: int) -> int:
    """As `sort_cells`, in place and from `begin` on, for a handful of cells."""
    left = 0
    for i in range(size):
        key = keys[begin + i]
        if key == NONE:
            continue
        at = begin + left
        while at > begin and keys[at - 1] > key:
            at -= 1
        if at > begin and keys[at - 1] == key:
            counts[at - 1] += 1
            continue
        for j in range(begin + left, at, -1):
            keys[j], counts[j] = keys[j - 1], counts[j - 1]
        keys[at], counts[at] = key, 1
        left += 1
    return left


@compiled
def merge_rows(
    kinds: Ints,
    rows: Ints,
    leaf_keys: Keys,
    leaf_counts: Counts,
    leaf_begins: Ints,
    leaf_ends: Ints,
    keys: Keys,
    counts: Counts,
    begins: Ints,
    ends: Ints,
    to_keys: Keys,
    to_counts: Counts,
    to_begins: Ints,
    to_ends: Ints,
    hashes: Ints,
) -> int:
    """Merge the summaries of the children of every branch of a level: child `rows[i, side]`, a leaf
    where `kinds[i, side]` is 0. `hashes` tells which have changed. How long all are."""
    at = 0
    pair_keys = np.empty(0, np.uint32)
    pair_counts = np.empty(0, np.int32)
    for i in range(len(rows)):
        size = 0
        middle = 0
        for side in range(2):
            child = rows[i, side]
            leaf = kinds[i, side] == 0
            begin = leaf_begins[child] if leaf else begins[child]
            end = leaf_ends[child] if leaf else ends[child]
            if size + end - begin > len(pair_keys):
                more = 2 * (size + end - begin)
                new_keys, new_counts = np.empty(more, np.uint32), np.empty(more, np.int32)
                new_keys[:size], new_counts[:size] = pair_keys[:size], pair_counts[:size]
                pair_keys, pair_counts = new_keys, new_counts
            for j in range(begin, end):
                pair_keys[size] = leaf_keys[j] if leaf else keys[j]
                pair_counts[size] = leaf_counts[j] if leaf else counts[j]
                size += 1
            if side == 0:
                middle = size
        to_begins[i] = at
        at = merge_into(pair_keys, pair_counts, 0, middle, middle, size, to_keys, to_counts, at)
        to_ends[i] = at
        found = np.int64(17)
        for j in range(to_begins[i], at):
            found = found * 1000003 + np.int64(to_keys[j]) * 31 + np.int64(to_counts[j])
        hashes[i] = found
    return at
