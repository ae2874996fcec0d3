"""Reservations while machines leave without a word, which the paper does not show.

Whoever leaves loses what it had promised and what it ran, and says nothing for AWAY_S: requests
that come by are lost, and their owners ask again after their timeout. Then the others know, and a
new, empty machine stands in its place. (How the tree itself heals is another matter: the shape is a
function of who is there; `tests/overlay/test_tree_churn.py` has the laws.)
"""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np

from sureline.experiments.peercomp_grid import Grid
from sureline.experiments.peercomp_warm import Warm
from sureline.world.address import Node

MACHINES = 3000
SHARES = (0.0, 0.01, 0.05)
"""Of the machines leave in a minute."""
AWAY_S = 10.0
MINUTES = 2.0
AFTERWARDS_S = 100.0
"""Three timeouts: by then every booking has ended whose owner is there."""


class Churned(msgspec.Struct, frozen=True):
    """What became of the workload while so many left."""

    leaving_per_minute: float
    """Share of the machines."""
    machines_left: int
    workflows: int
    accepted: float
    """The share of those whose owner stayed."""
    median_s: float | None
    p90_s: float | None
    """To place a workflow."""
    tasks_lost: int
    """That were promised, or ran, on machines that left."""
    owners_lost: int
    """Workflows whose owner left before they were placed."""
    missed: int
    """Promises of machines that stayed and were not kept: there must be none."""


class _Restless(Grid):
    def __init__(self, warm: Warm, seed: int, share: float) -> None:
        super().__init__(len(warm.queues), seed, state=warm.queues, epoch_s=warm.time_s)
        self._random = Random(f"{seed} churn")
        self._gap_s = 60.0 / (share * self.peers) if share else 0.0
        self._away: set[int] = set()
        self.machines_left = self.tasks_lost = 0

    def begin(self, load: float, until_s: float) -> None:
        super().begin(load, until_s)
        if self._gap_s:
            self._next_leaves()

    def _next_leaves(self) -> None:
        at_s = self.sim.time + self._random.expovariate(1 / self._gap_s)
        if at_s < self._until_s:
            self.sim.at(at_s, self._leave)

    def _leave(self) -> None:
        self._next_leaves()
        row, q = self._random.randrange(self.peers), self.queues
        if row in self._away:
            return
        self._away.add(row)
        q.see(row, self.now_s, watched=False)
        self.machines_left += 1
        self.tasks_lost += int(q.sizes[row]) + bool(q.busy[row, 0] > self.now_s)
        q.sizes[row] = 0
        q.busy[row, :2] = self.now_s + AWAY_S
        self.sim.crash(Node(self.agents[row].me))
        self.sim.at(self.sim.time + AWAY_S, lambda: self._replace(row))

    def _replace(self, row: int) -> None:
        self.sim.restart(Node(self.agents[row].me))
        self.agents[row] = self._agent(row, 1.0)
        self._desks.pop(row, None)
        self._away.discard(row)


def churned(warm: Warm, share: float, load: float, seed: int) -> Churned:
    """Some minutes at this load, from this state, which is used up."""
    grid = _Restless(warm, seed, share)
    grid.begin(load, MINUTES * 60)
    grid.run(MINUTES * 60 + AFTERWARDS_S)
    ended = grid.finished
    took_s = [one.booked.took_s for one in ended if not one.booked.reason]
    median_s, p90_s = np.quantile(took_s, (0.5, 0.9)).tolist() if took_s else (None, None)
    return Churned(
        share, grid.machines_left, grid.submitted, len(took_s) / max(1, len(ended)), median_s,
        p90_s, grid.tasks_lost, grid.submitted - len(ended), grid.missed(),
    )  # fmt: skip
