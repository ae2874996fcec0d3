"""Policies of machines beside each other: who is promised time when not all can be.

One peer submits half of all workflows, the others share the rest; every workflow says by chance
that it matters more or less than others. All policies start from the same loaded state and get the
same workflows.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from statistics import fmean

import msgspec

from sureline.experiments.peercomp_grid import AIMS, BookingEnded, Grid
from sureline.experiments.peercomp_load import POWER_USUAL
from sureline.experiments.peercomp_warm import Warm
from sureline.strategies.peercomp.policy import Policy, Priority

POLICIES: tuple[tuple[Policy, Sequence[float]], ...] = (
    ("deadline", AIMS),
    ("deadline", ()),
    ("priority", AIMS),
    ("fair", AIMS),
)
"""Of machines, and of owners: for which early ends they try first."""
RANKS: tuple[Priority, ...] = ("low", "normal", "high")
GREEDY_SHARE = 0.5


class PolicyCompared(msgspec.Struct, frozen=True):
    """What a policy made of the workload; shares of workflows that were accepted."""

    policy: str
    aim: str
    nodes: int
    load: float
    workflows: int
    accepted: float
    by_rank: dict[str, float]
    greedy: float
    others: float
    speed_up: float
    """As committed; the mean."""
    missed: int
    messages_per_workflow: float


class _Crowd(Grid):
    def __init__(self, warm: Warm, seed: int, policy: Policy, aims: Sequence[float]) -> None:
        super().__init__(
            len(warm.queues), seed, state=warm.queues, epoch_s=warm.time_s, policy=policy,
            aims=aims,
        )  # fmt: skip
        self._random = Random(f"{seed} crowd")
        power = warm.queues.power
        self.greedy = int(abs(power - POWER_USUAL).argmin())
        """Of usual power: deadlines follow from that of the owner."""

    def _arrive(self) -> None:
        draw, row = self._random, self.load.choice(self.peers)
        row = self.greedy if draw.random() < GREEDY_SHARE else row
        self.submit(row, self.load.draw(), draw.choice(RANKS))
        self._next_arrival()


def policy_compared(
    warm: Warm, policy: Policy, aims: Sequence[float], load: float, seed: int, minutes: float
) -> PolicyCompared:
    """Some minutes at this load, from this state, which is used up."""
    grid = _Crowd(warm, seed, policy, aims)
    grid.begin(load, minutes * 60)
    grid.run(minutes * 60 + 60.0)
    ended = grid.finished
    updates = grid.sweeps.updates if grid.sweeps is not None else 0
    messages = int(grid.tally.total[2].sum()) - updates
    gains = [
        one.alone_s / (one.booked.end_s - one.submitted_s) for one in ended if not one.booked.reason
    ]
    return PolicyCompared(
        policy, "early" if aims else "deadline", grid.peers, load, len(ended), _accepted(ended),
        {rank: _accepted([one for one in ended if one.rank == rank]) for rank in RANKS},
        _accepted([one for one in ended if one.owner == grid.greedy]),
        _accepted([one for one in ended if one.owner != grid.greedy]),
        fmean(gains or [0.0]), grid.missed(), messages / max(1, len(ended)),
    )  # fmt: skip


def _accepted(ended: list[BookingEnded]) -> float:
    return sum(not one.booked.reason for one in ended) / max(1, len(ended))
