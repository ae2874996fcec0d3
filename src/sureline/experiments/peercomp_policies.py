"""Policies of machines beside each other: who is promised time when not all can be.

One peer submits a third of all workflows, the others share the rest; every workflow says by chance
that it matters more or less than others. All policies start from the same loaded state and get the
same workflows.
"""

from __future__ import annotations

from random import Random

import msgspec

from sureline.experiments.peercomp_grid import BookingEnded, Grid
from sureline.experiments.peercomp_warm import Warm
from sureline.strategies.peercomp.policy import Policy, Priority

POLICIES: tuple[Policy, ...] = ("deadline", "priority", "fair")
RANKS: tuple[Priority, ...] = ("low", "normal", "high")
GREEDY_SHARE = 1 / 3


class PolicyCompared(msgspec.Struct, frozen=True):
    """What a policy made of the workload; shares of workflows that were accepted."""

    policy: str
    nodes: int
    load: float
    workflows: int
    accepted: float
    by_rank: dict[str, float]
    greedy: float
    others: float
    missed: int
    messages_per_workflow: float


class _Crowd(Grid):
    def __init__(self, warm: Warm, seed: int, policy: Policy) -> None:
        super().__init__(
            len(warm.queues), seed, state=warm.queues, epoch_s=warm.time_s, policy=policy
        )
        self._random = Random(f"{seed} crowd")

    def _arrive(self) -> None:
        draw, row = self._random, self.load.choice(self.peers - 1) + 1
        row = 0 if draw.random() < GREEDY_SHARE else row
        self.submit(row, self.load.draw(), draw.choice(RANKS))
        self._next_arrival()


def policy_compared(
    warm: Warm, policy: Policy, load: float, seed: int, minutes: float
) -> PolicyCompared:
    """Some minutes at this load, from this state, which is used up."""
    grid = _Crowd(warm, seed, policy)
    grid.begin(load, minutes * 60)
    grid.run(minutes * 60 + 60.0)
    ended = grid.finished
    updates = grid.sweeps.updates if grid.sweeps is not None else 0
    messages = int(grid.tally.total[2].sum()) - updates
    return PolicyCompared(
        policy, grid.peers, load, len(ended), _accepted(ended),
        {rank: _accepted([one for one in ended if one.rank == rank]) for rank in RANKS},
        _accepted([one for one in ended if one.owner == 0]),
        _accepted([one for one in ended if one.owner != 0]),
        grid.missed(), messages / max(1, len(ended)),
    )  # fmt: skip


def _accepted(ended: list[BookingEnded]) -> float:
    return sum(not one.booked.reason for one in ended) / max(1, len(ended))
