"""Summaries of a whole tree of simulated peers, kept level by level instead of message by message.

A million nodes send millions of updates in a minute of simulated time. Here all nodes of a level
make theirs at once, by the same compiled functions that agents call. What went up in one sweep is
seen one band of levels higher in the next, so a branch knows what a real one would: news that is
some seconds old, older near the root. `tests/experiments/test_peercomp.py` compares with the
messages.
"""

from __future__ import annotations

import msgspec
import numpy as np

from sureline.compiled import kernel
from sureline.experiments.peercomp_lane import SimulatedQueues, all_holes
from sureline.experiments.peercomp_shape import TreeShape
from sureline.overlay.tree.agent import HEADER_BYTES
from sureline.overlay.tree.leaf import HoleSought
from sureline.overlay.tree.points import bounds_of, slot_of
from sureline.overlay.tree.shelf import Piece, fit_in
from sureline.overlay.tree.summary import NONE, Amounts, Counts, Keys, Summary, cell_of, merge_into
from sureline.strategies.peercomp.queues import Floats, Ints

CELL_BYTES = 8


class SweepSettings(msgspec.Struct, frozen=True):
    every_s: float = 2.0
    low_levels: int = 6
    """So many levels above the leaves pass news on within one sweep: their updates are rare, none
    has to wait..."""
    levels_per_sweep: int = 2
    """...and of those above, so many."""


class _Level:
    """The summaries of all branches of one depth, or of all leaves."""

    __slots__ = ("begins", "counts", "ends", "hashes", "keys")

    def __init__(self, rows: int) -> None:
        self.keys: Keys = np.empty(0, np.uint32)
        self.counts: Counts = np.empty(0, np.int32)
        self.begins: Ints = np.zeros(rows, np.int64)
        self.ends: Ints = np.zeros(rows, np.int64)
        self.hashes: Ints = np.zeros(rows, np.int64)


class Sweeps:
    """A `Shelf` for all branches of a tree; row i is the branch of peer i."""

    def __init__(
        self, shape: TreeShape, queues: SimulatedQueues, limits: Amounts, settings: SweepSettings
    ) -> None:
        self.shape = shape
        self.settings = settings
        self._queues = queues
        self._limits = limits
        self.slot = 0
        self.leaves = _Level(shape.peers)
        self.hosts = [np.flatnonzero(shape.depth == depth) for depth in range(shape.height)]
        self.levels = [_Level(len(hosts)) for hosts in self.hosts]
        place = np.zeros(shape.peers, np.int64)
        for hosts in self.hosts:
            place[hosts] = np.arange(len(hosts))
        self._depth, self._place = shape.depth.tolist(), place.tolist()
        self._children = shape.children.tolist() if shape.peers <= 2_000_000 else []
        self._kinds, self._rows = [], []
        for hosts in self.hosts:
            children = shape.children[hosts]
            branch = children >= shape.peers
            self._kinds.append(branch.astype(np.int64))
            self._rows.append(np.where(branch, place[children - shape.peers], children))
        self.updates = 0
        self.updated: list[tuple[Ints, Ints, Ints]] = []
        """Of the last sweep: who sent, to whom, how many bytes."""

    # A shelf.

    def fit(self, row: int, ask: HoleSought, now_s: float, without: int, hope: bool) -> list[Piece]:
        left, right = self._children[row]
        depth = self._depth[row]
        parts = (self._cells(left, depth), self._cells(right, depth))
        return fit_in(*parts, bounds_of(self.slot), ask, now_s, without, hope)

    def _cells(self, child: int, depth: int) -> tuple[Keys, Counts, int, int]:
        peers = self.shape.peers
        if child < peers:
            level, at = self.leaves, child
        else:
            level, at = self.levels[depth + 1], self._place[child - peers]
        return level.keys, level.counts, level.begins[at], level.ends[at]

    def put(self, row: int, side: int, summary: Summary) -> bool:
        raise NotImplementedError("swept summaries come from nobody")

    def below(self, row: int) -> Summary:
        level, at = self.levels[self._depth[row]], self._place[row]
        part = slice(level.begins[at], level.ends[at])
        return Summary(self.slot, level.keys[part].copy(), level.counts[part].copy())

    # Sweeping.

    def sweep(self, now_s: float, *, whole: bool = False) -> None:
        """Let lanes work until now, and pass news on: by a band, or, with `whole`, to the root."""
        self._queues.advance_all(now_s)
        self.updated = []
        slot = slot_of(now_s)
        bands = self._bands()
        if whole or slot != self.slot:
            self.slot = slot
            bands = [[depth for band in bands for depth in band]]
            self._sweep_leaves(now_s)
        for band in reversed(bands):  # the highest first: it sees what the lower ones said before
            for depth in band:
                self._sweep_level(depth)
        if len(bands) > 1:
            self._sweep_leaves(now_s)

    def _bands(self) -> list[list[int]]:
        """Depths in the order of news: lowest band first, in each the deepest first."""
        depths = list(range(len(self.levels) - 1, -1, -1))
        low, step = self.settings.low_levels, self.settings.levels_per_sweep
        bands = [depths[:low]]
        bands += [depths[i : i + step] for i in range(low, len(depths), step)]
        return bands

    def _sweep_leaves(self, now_s: float) -> None:
        q, level = self._queues, self.leaves
        holes = np.empty((int(q.sizes.sum()) + len(q), 2))
        many = np.empty(len(q), np.int64)
        bounds = bounds_of(self.slot)
        total = all_holes(q.queue, q.sizes, q.busy, now_s, float(bounds[-1]), many, holes)
        level.keys, level.counts = np.empty(total, np.uint32), np.empty(total, np.int32)
        cells_of_rows(
            holes, many, q.power, *self._limits, bounds, now_s, level.keys, level.counts,
            level.begins, level.ends,
        )  # fmt: skip
        sums = np.zeros(total + 1, np.int64)
        np.cumsum(level.keys.astype(np.int64), out=sums[1:])
        hashes = sums[level.ends] - sums[level.begins]
        self._note(level, hashes, np.arange(len(q)), self.shape.leaf_parent)

    def _sweep_level(self, depth: int) -> None:
        level, rows, kinds = self.levels[depth], self._rows[depth], self._kinds[depth]
        under = self.levels[depth + 1] if depth + 1 < len(self.levels) else _Level(1)
        leaves = self.leaves
        sizes = leaves.ends - leaves.begins
        under_sizes = under.ends - under.begins
        bound = int(sizes[rows[kinds == 0]].sum() + under_sizes[rows[kinds == 1]].sum())
        keys, counts = np.empty(bound, np.uint32), np.empty(bound, np.int32)
        hashes = np.empty(len(rows), np.int64)
        size = merge_rows(
            kinds, rows, leaves.keys, leaves.counts, leaves.begins, leaves.ends,
            under.keys, under.counts, under.begins, under.ends,
            keys, counts, level.begins, level.ends, hashes,
        )  # fmt: skip
        level.keys, level.counts = keys[:size].copy(), counts[:size].copy()
        hosts = self.hosts[depth]
        self._note(level, hashes, hosts, self.shape.branch_parent[hosts])

    def _note(self, level: _Level, hashes: Ints, hosts: Ints, parents: Ints) -> None:
        changed = (hashes != level.hashes) & (parents >= 0)
        level.hashes = hashes
        size_bytes = HEADER_BYTES + CELL_BYTES * (level.ends - level.begins)[changed]
        self.updates += len(size_bytes)
        self.updated.append((hosts[changed], parents[changed], size_bytes))


# The arithmetic of summaries for very many nodes at once.


@kernel
def cells_of_rows(
    holes: Floats, hole_counts: Ints, power: Floats, memory: int, cores: int, disk: int,
    bounds: Floats, now_s: float, keys: Keys, counts: Counts, begins: Ints, ends: Ints,
) -> int:  # fmt: skip
    """The summaries of many machines: row i stands in keys[begins[i]:ends[i]]. How long all are."""
    at = hole = 0
    for row in range(len(power)):
        begins[row] = at
        many = hole_counts[row]
        for i in range(many):
            keys[at + i] = cell_of(
                holes[hole + i, 0], holes[hole + i, 1], power[row], memory, cores, disk, bounds,
                now_s,
            )  # fmt: skip
            counts[at + i] = 1
        hole += many
        at += sort_few(keys, counts, at, many)
        ends[row] = at
    return at


@kernel
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


@kernel
def merge_rows(
    kinds: Ints, rows: Ints, leaf_keys: Keys, leaf_counts: Counts, leaf_begins: Ints,
    leaf_ends: Ints, keys: Keys, counts: Counts, begins: Ints, ends: Ints, to_keys: Keys,
    to_counts: Counts, to_begins: Ints, to_ends: Ints, hashes: Ints,
) -> int:  # fmt: skip
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
