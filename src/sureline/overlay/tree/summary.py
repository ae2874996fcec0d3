"""Summaries of free time: how many holes of which kind lie below a branch of the tree.

A *hole* is a stretch of time in which a machine could take more work; what it can hold is the
machine's power times its length. A *cell* is a kind of hole: between which two reference points it
lies, and its availability, floored to a step of a fixed scale; besides, the memory, cores and disk
of its machine, floored as well. A summary counts holes by cell, sorted by the cell's key, and has
no entry for what there is none of: near the leaves that is almost everything.

Nothing is ever overstated. `usable` is the work that *every* hole of a cell can do between two
moments; a hole that a summary promises can be used, if nothing has changed since. Cells are ordered
such that a smaller key is a smaller hole: the best fit is the first that is large enough.

Pure arithmetic over arrays: the agents of both worlds and the sweeps over a million nodes call the
same functions. `search` finds holes for work in summaries.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sureline.compiled import kernel
from sureline.overlay.tree.points import FIRST, Floats, bounds_of

Keys = NDArray[np.uint32]
Counts = NDArray[np.int32]

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


@kernel
def key_of(level: int, begin: int, end: int, memory: int, cores: int, disk: int) -> np.uint32:
    return np.uint32((((((level << 5 | begin) << 5 | end) << 5 | memory) << 5 | cores) << 5) | disk)


@kernel
def least(key: np.uint32) -> float:
    """The work that every hole of this cell can hold, all in all."""
    return float(2.0 ** ((np.int64(key) >> 25) / FINENESS))


@kernel
def _begin(key: np.uint32) -> int:
    return int((np.int64(key) >> 20) & 31)


@kernel
def _end(key: np.uint32) -> int:
    return int((np.int64(key) >> 15) & 31)


@kernel
def has(key: np.uint32, memory: int, cores: int, disk: int) -> bool:
    rest = int(np.int64(key))
    return (rest >> 10) & 31 >= memory and (rest >> 5) & 31 >= cores and rest & 31 >= disk


@kernel
def cell_of(
    begin_s: float, end_s: float, power: float, memory: int, cores: int, disk: int,
    bounds: Floats, now_s: float,
) -> np.uint32:  # fmt: skip
    """The cell of a hole, or NONE if it is too short. A hole that ends before the last reference
    point, but after the one before it, is cut there: of the last one, the end is known exactly."""
    last = len(bounds) - 1
    begin_s = max(begin_s, now_s)
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
    if begin_s <= now_s:
        begin -= 1
    level = math.floor(FINENESS * math.log2(power * (end_s - begin_s)))
    return key_of(level, begin, end, memory, cores, disk)


@kernel
def usable(key: np.uint32, bounds: Floats, now_s: float, from_s: float, to_s: float) -> float:
    """The work that any hole of this cell can do between two moments, at least.

    The share of a hole that lies between them is least for a hole at one of the four corners of
    what the cell allows: beginning and ending as early or as late as it may.
    """
    begins_0, begins_1, ends_0, ends_1 = _ranges(key, bounds, now_s)
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
    return float(max(0.0, share) * least(key))


@kernel
def likely(key: np.uint32, bounds: Floats, now_s: float, from_s: float, to_s: float) -> float:
    """The same for a hole in the middle of what the cell allows."""
    begins_0, begins_1, ends_0, ends_1 = _ranges(key, bounds, now_s)
    begins_s, ends_s = (begins_0 + begins_1) / 2, (max(ends_0, begins_1) + ends_1) / 2
    if ends_s <= begins_s:
        return 0.0
    share = min(1.0, (min(to_s, ends_s) - max(from_s, begins_s)) / (ends_s - begins_s))
    return float(max(0.0, share) * 2.0 ** (0.5 / FINENESS) * least(key))


@kernel
def _ranges(key: np.uint32, bounds: Floats, now_s: float) -> tuple[float, float, float, float]:
    """When a hole of this cell begins and ends, at the earliest and at the latest."""
    begin, end = _begin(key), _end(key)
    begins_0, begins_1 = max(bounds[begin], min(now_s, bounds[begin + 1])), bounds[begin + 1]
    ends_0, ends_1 = bounds[end - 1] if end > FIRST else bounds[0], bounds[end]
    if end == len(bounds) - 1:
        ends_0 = ends_1
    return begins_0, begins_1, ends_0, ends_1


@kernel
def merge_into(
    keys: Keys, counts: Counts, a: int, a_end: int, b: int, b_end: int, to_keys: Keys,
    to_counts: Counts, at: int,
) -> int:  # fmt: skip
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


@kernel
def moved(key: np.uint32, old: Floats, new: Floats) -> np.uint32:
    """By later reference points: the part that every hole of this cell has, as a hole of its own.
    NONE if there is no such part any more."""
    begin, end = _begin(key), _end(key)
    begins_s = max(old[begin + 1], new[1])
    ends_s = old[end - 1] if end > FIRST else old[0]
    if end == len(old) - 1:
        ends_s = old[end]
    power = least(key) / (old[end] - old[begin])
    rest = int(np.int64(key))
    memory, cores, disk = (rest >> 10) & 31, (rest >> 5) & 31, rest & 31
    return cell_of(begins_s, ends_s, power, memory, cores, disk, new, new[1])


@kernel
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


@kernel
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


def summary_of(slot: int, holes: Floats, power: float, limits: Amounts, now_s: float) -> Summary:
    """Of one machine's holes from now on, given as rows of (begin, end)."""
    bounds = bounds_of(slot)
    keys = np.empty(len(holes), np.uint32)
    for i in range(len(holes)):
        keys[i] = cell_of(holes[i, 0], holes[i, 1], power, *limits, bounds, now_s)
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
