"""What a calibration found: points of a reliability diagram, and how far they are off."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

PROMISES = (0.5, 0.8, 0.9, 0.95, 0.99)
WITHIN = 0.02
"""How far the share on time may be from the promise where history is of the same distribution."""
BELOW = 0.05
"""How far it may fall below the promise on runs of which the like were never seen."""


class Point(msgspec.Struct, frozen=True):
    """A promise, and the share of runs that kept it."""

    trace: str
    slots: int
    promised: float
    achieved: float
    runs: int
    pert: float
    """The share that kept the deadline that PERT would have given for the same promise."""
    as_recorded: bool | None = None
    """Whether the run as the trace recorded it keeps the deadline; only of runs never seen."""

    @property
    def off(self) -> float:
        return self.achieved - self.promised


class Agents(msgspec.Struct, frozen=True):
    """Runs of the real agents in the simulator: promised, and on time without and with repair."""

    scenario: str
    promised: float
    runs: int
    achieved: float
    repaired: float
    """The share on time with repair switched on, over the same runs."""
    repairs: int


class Calibration(msgspec.Struct, frozen=True):
    points: tuple[Point, ...]
    brier: float
    """The mean of (promise - 1 if on time else 0) squared: a true promise of p has p * (1 - p)."""
    brier_true: float
    """What promises that are exactly true would have."""
    brier_pert: float
    worst: float
    """The largest distance between a promise and what was achieved."""
    worst_below: float
    """How far the worst promise was missed; 0 if none was."""
    unseen: bool
    """Whether the runs were never seen: then only falling below counts."""
    held: bool
    earlier_runs: int
    before_learning: tuple[Point, ...] = ()
    """What wrong estimates promised before there was any history."""
    agents: tuple[Agents, ...] = ()


def gathered(
    points: Sequence[Point],
    *,
    unseen: bool,
    earlier_runs: int,
    before_learning: Sequence[Point] = (),
    agents: Sequence[Agents] = (),
) -> Calibration:
    """`points` has at least one."""
    worst = max(abs(point.off) for point in points)
    below = max(0.0, *(-point.off for point in points))
    return Calibration(
        tuple(points),
        _mean([brier(point.promised, point.achieved) for point in points]),
        _mean([point.promised * (1 - point.promised) for point in points]),
        _mean([brier(point.promised, point.pert) for point in points]),
        round(worst, 6),
        round(below, 6),
        unseen,
        below <= BELOW if unseen else worst <= WITHIN,
        earlier_runs,
        tuple(before_learning),
        tuple(agents),
    )


def brier(promised: float, achieved: float) -> float:
    """The mean square of what a promise was off, run by run, if a share `achieved` was on time."""
    return achieved * (1 - promised) ** 2 + (1 - achieved) * promised**2


def _mean(values: Sequence[float]) -> float:
    return round(sum(values) / len(values), 6)
