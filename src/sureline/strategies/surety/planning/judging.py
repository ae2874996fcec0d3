"""Judging many schedules at once: what each costs, when it ends, and how surely in time.

Three methods. `pert` is the paper's (see `pert`). `cpm` takes the expected durations for certain.
`montecarlo` draws every duration from the beta-PERT distribution of its bid and follows all paths,
so that parallel paths delay what joins them, as they do; the same draws serve every schedule, so
that differences between schedules are real.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

import numpy as np

from sureline.strategies.surety.planning.choices import BidOption, Choices, Floats, Ints
from sureline.strategies.surety.planning.pert import TIES, deviations_for, phi
from sureline.workflow.terms import Terms

Method = Literal["pert", "montecarlo", "cpm"]

DIGITS = 13
"""Sums of times are the same if they agree to so many."""
KEPT_MAX = 8_000_000
"""So many drawn durations are kept for the next schedule."""


class Judged(NamedTuple):
    """Arrays by schedule. `needed` is the earliest deadline that would be met as surely as the
    terms want; `usable` tells that no bid expires before its task is expected to start."""

    cost: Floats
    expected: Floats
    surety: Floats
    """Not a number if there is no deadline."""
    needed: Floats
    usable: np.typing.NDArray[np.bool_]


class Judge(Protocol):
    def judge(self, schedules: Ints) -> Judged:
        """A row per schedule, a column per task: which option is taken."""


def judge_for(
    choices: Choices, terms: Terms, method: Method, samples: int = 0, seed: int = 0
) -> Judge:
    if method == "montecarlo":
        return Sampling(choices, terms, samples, seed)
    return _Equations(choices, terms, certain=method == "cpm")


class _Paths(NamedTuple):
    cost: Floats
    expected: Floats
    variance: Floats
    usable: np.typing.NDArray[np.bool_]


def _paths(choices: Choices, schedules: Ints) -> _Paths:
    """Costs and the critical paths by expected times; of equally long ones the most uncertain."""
    count = len(schedules)
    slip = TIES * choices.scale
    ends: list[Floats] = [np.empty(0)] * len(choices.options)
    variances: list[Floats] = [np.empty(0)] * len(choices.options)
    cost, usable = np.zeros(count), np.ones(count, dtype=bool)
    for i in choices.order:
        of, picked = choices.columns[i], schedules[:, i]
        start, before = _joined(choices.graph.parents[i], ends, variances, slip, count)
        cost += of.price[picked]
        ends[i] = start + of.expected[picked]
        variances[i] = before + of.variance[picked]
        if np.isfinite(of.expires).any():
            usable &= start <= of.expires[picked] + slip
    expected, variance = _joined(range(len(ends)), ends, variances, slip, count)
    return _Paths(cost, expected, variance, usable)


def _joined(
    tasks: Sequence[int], ends: list[Floats], variances: list[Floats], slip: float, count: int
) -> tuple[Floats, Floats]:
    """When the last of these tasks ends, and the largest variance of those that end then."""
    if not tasks:
        return np.zeros(count), np.zeros(count)
    if len(tasks) == 1:
        return ends[tasks[0]], variances[tasks[0]]
    last = ends[tasks[0]]
    for i in tasks[1:]:
        last = np.maximum(last, ends[i])
    variance = np.zeros(count)
    for i in tasks:
        np.maximum(variance, np.where(ends[i] >= last - slip, variances[i], 0.0), out=variance)
    return last, variance


class _Equations:
    def __init__(self, choices: Choices, terms: Terms, certain: bool) -> None:
        self._choices = choices
        self._terms = terms
        self._certain = certain

    def judge(self, schedules: Ints) -> Judged:
        found = _paths(self._choices, schedules)
        # Equal sums in another order must give equal sureties, or ties would not be ties.
        mean = np.round(found.expected, DIGITS - math.ceil(math.log10(self._choices.scale)))
        sigma = np.zeros_like(mean) if self._certain else np.sqrt(found.variance)
        return Judged(
            found.cost,
            found.expected,
            self._surety(mean, sigma),
            self._needed(mean, sigma),
            found.usable,
        )

    def _surety(self, mean: Floats, sigma: Floats) -> Floats:
        deadline = self._terms.deadline_at
        if deadline is None:
            return np.full(len(mean), np.nan)
        sure = (mean <= deadline + TIES * self._choices.scale).astype(np.float64)
        spread = sigma > 0
        x = (deadline - mean[spread]) / sigma[spread]
        sure[spread] = [phi(each) for each in x.tolist()]
        return sure

    def _needed(self, mean: Floats, sigma: Floats) -> Floats:
        wanted = self._terms.surety
        if wanted <= 0:
            return np.zeros(len(mean))
        return np.maximum(0.0, mean + deviations_for(wanted) * sigma)


class Sampling:
    """Follows the schedules one by one; what a schedule shares with the one before is kept, so
    neighbours in the order of enumeration cost little."""

    def __init__(self, choices: Choices, terms: Terms, samples: int, seed: int) -> None:
        self._choices = choices
        self._terms = terms
        self._samples = samples
        self._exits = [i for i, below in enumerate(choices.graph.children) if not below]
        random = np.random.default_rng(seed)
        # Latin hypercube: every task has each stratum once, in an order of its own.
        self._strata = [random.permutation(samples).astype(np.int32) for _ in choices.options]
        self._quantiles: dict[float, Floats] = {}
        self._drawn: dict[tuple[int, int], Floats | float] = {}
        self._ends: list[Floats | float] = [0.0] * len(choices.options)
        self._previous: Ints | None = None

    def judge(self, schedules: Ints) -> Judged:
        found = _paths(self._choices, schedules)
        judged = [self._one(row) for row in schedules]
        expected, surety, needed = np.array(judged).reshape(len(judged), 3).T
        return Judged(found.cost, expected, surety, needed, found.usable)

    def finish(self, schedule: Ints) -> Floats:
        """When the whole ends, in every sample."""
        order, ends, parents = self._choices.order, self._ends, self._choices.graph.parents
        first = 0
        if self._previous is not None:
            differs = np.flatnonzero(schedule[order] != self._previous[order])
            first = int(differs[0]) if len(differs) else len(order)
        for i in order[first:]:
            lasts = self.durations(i, int(schedule[i]))
            above = parents[i]
            if not above:
                ends[i] = lasts
                continue
            start = ends[above[0]]
            for p in above[1:]:
                start = np.maximum(start, ends[p])
            ends[i] = start + lasts
        self._previous = schedule.copy()
        last: Floats = np.zeros(self._samples)
        for i in self._exits:
            np.maximum(last, ends[i], out=last)
        return last

    def _one(self, schedule: Ints) -> tuple[float, float, float]:
        finish = self.finish(schedule)
        slip = TIES * self._choices.scale
        deadline, wanted = self._terms.deadline_at, self._terms.surety
        surety = math.nan if deadline is None else float((finish <= deadline + slip).mean())
        rank = math.ceil(wanted * self._samples - TIES * self._samples)
        needed = 0.0 if rank <= 0 else float(np.partition(finish, rank - 1)[rank - 1])
        return float(finish.mean()), surety, needed

    def durations(self, task: int, k: int) -> Floats | float:
        """What a task takes with one of its options, in every sample."""
        drawn = self._drawn.get((task, k))
        if drawn is None:
            drawn = self._draw(self._choices.options[task][k], self._strata[task])
            if len(self._drawn) * self._samples < KEPT_MAX:
                self._drawn[task, k] = drawn
        return drawn

    def _draw(self, option: BidOption, strata: np.typing.NDArray[np.int32]) -> Floats | float:
        width = option.late - option.early
        if width <= 0:
            return option.late
        mode = (option.listed.bid.time - option.early) / width
        quantiles = self._quantiles.get(mode)
        if quantiles is None:
            quantiles = self._quantiles[mode] = beta_pert(mode, self._samples)
        return option.early + width * quantiles[strata]


NODES = 128


def beta_pert(mode: float, points: int) -> Floats:
    """Quantiles of the beta-PERT distribution on 0..1 at the middles of so many equal shares."""
    from scipy.special import betaincinv

    shares = (np.arange(points) + 0.5) / points
    # Dense at both ends, where the quantiles change fastest.
    nodes = np.sin(np.arange(NODES + 1) * (np.pi / 2 / NODES)) ** 2
    at_nodes: Floats = betaincinv(1 + 4 * mode, 5 - 4 * mode, nodes)
    between: Floats = np.interp(shares, nodes, at_nodes)
    return between
