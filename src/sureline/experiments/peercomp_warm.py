"""A grid that is already at work: the steady state of a small one, drawn for each of many lanes.

To simulate a million nodes into a steady state would take hours. In the tree a lane's queue depends
on the other lanes only through the load that all of them share, so the lanes of two thousand,
simulated until nothing changes any more, are a sample of what the lanes of any number look like:
each new lane is a copy of one of them, drawn at random. `alike` compares such a start with a grid
that was simulated into its state with another seed.
"""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from sureline.experiments.peercomp_grid import DEPTH, Grid
from sureline.experiments.peercomp_lane import SimulatedQueues, all_holes
from sureline.overlay.tree.points import bounds_of, slot_of

Floats = NDArray[np.float64]

DONORS = 2000
"""Fewer differ too much from each other: of four of 600 the promised work differed by 30 %, since
one large workflow fills many lanes with equal tasks; of two of 2,000 by 4 %."""
LOGGED = 400_000
SETTLE_S = 3600.0
"""After so long the share of busy lanes and the lengths of queues no longer grow."""


class Warm(msgspec.Struct, frozen=True):
    """A state, and when it is so."""

    queues: SimulatedQueues
    time_s: float


def settled(load: float, seed: int, peers: int = DONORS, seconds: float = SETTLE_S) -> Grid:
    """Simulate some peers under load until they are in their steady state."""
    grid = Grid(peers, seed, logged=LOGGED)
    grid.begin(load, seconds)
    grid.run(seconds)
    grid.queues.advance_all(grid.now_s)
    return grid


def state_of(grid: Grid) -> Warm:
    return Warm(grid.queues, grid.now_s)


def drawn(donors: Warm, peers: int, seed: int, logged: int = 0) -> Warm:
    """As many lanes as wanted, each like one of the donors."""
    chosen = np.random.RandomState(seed).randint(0, len(donors.queues), peers)
    source = donors.queues
    made = SimulatedQueues(source.power[chosen], DEPTH, logged)
    made.queue[:] = source.queue[chosen]
    made.ids[:] = source.ids[chosen]
    made.sizes[:] = source.sizes[chosen]
    made.busy[:] = source.busy[chosen]
    made.busy[:, 2:] = 0
    return Warm(made, donors.time_s)


class Alike(msgspec.Struct, frozen=True):
    """The same quantity in two grids: means, and the largest gap between the two distributions
    (Kolmogorov and Smirnov), beside the gap between two grids that were both simulated."""

    what: str
    warm: float
    simulated: float
    gap: float
    usual_gap: float
    agrees: bool


SLACK = 0.08
"""How much larger the gap of a warm start may be: about what chance makes of 600 lanes."""


def alike(warm: Warm, simulated: Warm, another: Warm) -> list[Alike]:
    """Whether a warm start differs from a simulated grid no more than another such grid does."""
    ours, theirs, others = _measured(warm), _measured(simulated), _measured(another)
    found = []
    for what, values in ours.items():
        gap = float(stats.ks_2samp(values, theirs[what]).statistic)
        usual = float(stats.ks_2samp(others[what], theirs[what]).statistic)
        means = float(values.mean()), float(theirs[what].mean())
        found.append(Alike(what, *means, gap, usual, gap <= usual + SLACK))
    return found


def _measured(warm: Warm) -> dict[str, Floats]:
    q, now_s = warm.queues, warm.time_s
    rows = len(q)
    lengths = q.queue[:, :, 2].copy()
    lengths[np.arange(DEPTH)[None, :] >= q.sizes[:, None]] = 0.0
    holes = np.empty((int(q.sizes.sum()) + rows, 2))
    many = np.empty(rows, np.int64)
    horizon_s = float(bounds_of(slot_of(now_s))[-1])
    total = all_holes(q.queue, q.sizes, q.busy, now_s, horizon_s, many, holes)
    near = np.clip(holes[:total], now_s, now_s + 3600.0)
    first = np.concatenate(([0], np.cumsum(many)[:-1]))
    largest = np.maximum.reduceat(near[:, 1] - near[:, 0], first)
    left_s = np.maximum(0.0, q.busy[:, 0] - now_s)
    return {
        "queued tasks": q.sizes.astype(float),
        "promised work, s": lengths.sum(axis=1) + left_s,
        "holes": many.astype(float),
        "largest near hole, s": largest,
    }
