"""The front of graphs with too many schedules to look at all: good schedules and a proven bound.

For limits on the expected end, from the quickest to the cheapest schedule, a linear program tells
how fast each task should be (see `tradeoff`). Each answer is rounded to schedules, and what slack
these leave is spent on cheaper bids. To find surer ones, the same is done with durations that count
their variance too: a path with e + k * variance <= L is sure at e + z * sigma <= L + z^2 / (4 k)
for every z. All schedules found are judged exactly; the front is what none of them dominates.

The bound is on money and expected time: no schedule at all that is expected as early costs less
than `floors` says. Surer schedules of the same cost and time may exist.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from sureline.strategies.surety.planning.choices import Choices, Ints, mean_and_variance
from sureline.strategies.surety.planning.exact import Nearest, candidates, nearest_of
from sureline.strategies.surety.planning.front import Schedules, pareto
from sureline.strategies.surety.planning.judging import Judge, Sampling, judge_for
from sureline.strategies.surety.planning.tradeoff import Floor, Tradeoff
from sureline.workflow.terms import Terms

SAMPLES = 2_000
LIMITS = 14
"""Limits tried for every way to count the durations."""
CLOSER = 6
"""Limits tried between the last schedule that is sure enough and the first that is not."""
CAUTIONS = (0.0, 2.0)
"""How much the variance counts, in units of what suits the surety that is wanted."""

Lengths = list[list[float]]
"""A duration by task and option."""


class Bounded(NamedTuple):
    """`floors[row]`: no schedule expected as early as this one of the front costs less."""

    front: Schedules
    nearest: Nearest
    floors: Sequence[float] = ()
    cost_error: float = 0.0
    time_error: float = 0.0
    terms_floor: float = 0.0
    """No schedule that meets the terms costs less; infinite if there is none."""


def search(choices: Choices, terms: Terms, judge: Judge) -> Bounded:
    """Many good schedules, the front of them, and how much better any other can be."""
    searching = _Search(choices, terms, judge)
    for caution in CAUTIONS if terms.deadline_at is not None else CAUTIONS[:1]:
        searching.sweep(caution)
    return searching.result()


class _Search:
    def __init__(self, choices: Choices, terms: Terms, judge: Judge) -> None:
        self._choices = choices
        self._terms = terms
        self._judge = judge
        self._rounding = _Rounding(choices)
        self._found: dict[bytes, Ints] = {}
        self._expected = [[o.expected for o in options] for options in choices.options]
        self._cheapest = [order[0] for order in self._rounding.by_price]
        self._floor = Floor(choices.cost(tuple(self._cheapest)))

    def sweep(self, caution: float) -> None:
        """Schedules for limits between the quickest and the cheapest one."""
        lengths = self._lengths(caution)
        quickest = _least(lengths)
        low, high = (self._rounding.length(lengths, p) for p in (quickest, self._cheapest))
        self._add([self._rounding.spent(lengths, p) for p in (quickest, self._cheapest)])
        program = Tradeoff(self._choices, lengths)
        steps = np.linspace(0.0, 1.0, LIMITS) ** 2  # prices change fastest near the quickest
        for limit in (low + (high - low) * steps).tolist():
            self._try(program, lengths, limit, counts=caution == 0)
        if self._terms.deadline_at is not None:
            self._come_closer(program, lengths, low, high, counts=caution == 0)

    def _come_closer(
        self, program: Tradeoff, lengths: Lengths, low: float, high: float, counts: bool
    ) -> None:
        """Halve the way to the longest limit that is still sure enough: the cheapest such."""
        for _ in range(CLOSER):
            middle = (low + high) / 2
            made = self._try(program, lengths, middle, counts)
            sure = len(made) and self._judge.judge(made).surety.max() >= self._terms.surety
            low, high = (middle, high) if sure else (low, middle)

    def _try(self, program: Tradeoff, lengths: Lengths, limit: float, counts: bool) -> Ints:
        """Find the schedules for a limit; those of plain durations `count` for the bound."""
        solved = program.solve(limit)
        if solved is None:
            return np.empty((0, len(lengths)), dtype=np.int64)
        if counts:
            self._floor.add(solved)
        wanted = solved.durations.tolist()
        return self._add(
            [
                self._rounding.spent(lengths, self._rounding.down(lengths, wanted), limit),
                self._rounding.spent(lengths, self._rounding.nearest(lengths, wanted)),
            ]
        )

    def _add(self, schedules: Sequence[Sequence[int]]) -> Ints:
        rows = np.array(schedules, dtype=np.int64)
        for row in rows:
            self._found[row.tobytes()] = row
        return rows

    def _lengths(self, caution: float) -> Lengths:
        _, variance = mean_and_variance(self._choices, tuple(_least(self._expected)))
        if not caution or variance <= 0:
            return self._expected
        z = NormalDist().inv_cdf(min(max(self._terms.surety, 0.7), 0.9999))
        weight = caution * z / (2 * math.sqrt(variance))
        return [[o.expected + weight * o.variance for o in opts] for opts in self._choices.options]

    def result(self) -> Bounded:
        rows = np.array(list(self._found.values()))
        cost_scale = max(1.0, sum(max(o.price for o in opts) for opts in self._choices.options))
        time_scale = self._choices.scale
        by_equations = judge_for(self._choices, self._terms, "pert")
        thinned = pareto(candidates(rows, by_equations.judge(rows)), cost_scale, time_scale)
        judged = self._judge.judge(thinned.schedules)
        front = pareto(candidates(thinned.schedules, judged), cost_scale, time_scale)
        floors = [self._floor.at(expected) for expected in front.expected.tolist()]
        nearest = nearest_of(judged, self._terms)
        errors = _errors(front, floors, self._quickest(), self._floor.at(math.inf))
        return Bounded(front, nearest, floors, *errors, self._terms_floor())

    def _quickest(self) -> float:
        """No schedule is expected earlier."""
        return self._rounding.length(self._expected, _least(self._expected))

    def _terms_floor(self) -> float:
        """By the equations, a surety of a half or more needs an expected end by the deadline."""
        deadline = self._terms.deadline_at
        if deadline is None or self._terms.surety < 0.5 or isinstance(self._judge, Sampling):
            return self._floor.at(math.inf)
        hopeless = deadline < self._quickest() * (1 - 1e-12)
        return math.inf if hopeless else self._floor.at(deadline)


class _Rounding:
    """From durations that tasks should have to bids that they can have."""

    def __init__(self, choices: Choices) -> None:
        self._order = choices.order
        self._parents = choices.graph.parents
        self._children = choices.graph.children
        self._expected = [[o.expected for o in options] for options in choices.options]
        self._expires = [[o.expires for o in options] for options in choices.options]
        self._expiring = any(math.isfinite(at) for expires in self._expires for at in expires)
        self._prices = [[o.price for o in options] for options in choices.options]
        self.by_price: list[list[int]] = [
            np.lexsort((of.expected, of.price)).tolist() for of in choices.columns
        ]
        """The options of every task, the cheapest first."""

    def down(self, lengths: Lengths, wanted: Sequence[float]) -> list[int]:
        """For every task the cheapest bid that is as fast as wanted."""
        return [
            next((k for k in order if of[k] <= fast * (1 + 1e-9) + 1e-12), of.index(min(of)))
            for of, order, fast in zip(lengths, self.by_price, wanted, strict=True)
        ]

    def nearest(self, lengths: Lengths, wanted: Sequence[float]) -> list[int]:
        """For every task the cheapest bid that is as fast as the one nearest to what is wanted."""
        near = [
            max(fast, min(of, key=lambda each: abs(each - fast)))  # used at once
            for of, fast in zip(lengths, wanted, strict=True)
        ]
        return self.down(lengths, near)

    def length(self, lengths: Lengths, picks: Sequence[int]) -> float:
        ends = [0.0] * len(picks)
        for i in self._order:
            start = max([ends[p] for p in self._parents[i]], default=0.0)
            ends[i] = start + lengths[i][picks[i]]
        return max(ends, default=0.0)

    def spent(
        self, lengths: Lengths, picks: Sequence[int], limit: float | None = None
    ) -> list[int]:
        """The slack up to the limit (or the schedule's own end) spent on cheaper bids: task after
        task, the cheapest one that leaves the others their time and has not expired by then."""
        limit = self.length(lengths, picks) if limit is None else limit
        first_come = self._spend(lengths, picks, limit, forwards=True)
        if self._expiring:
            return first_come
        # Who is asked first gets the slack: the other way round others do.
        last_come = self._spend(lengths, picks, limit, forwards=False)
        return min(first_come, last_come, key=self._cost)

    def _cost(self, picks: Sequence[int]) -> float:
        return sum([prices[k] for prices, k in zip(self._prices, picks, strict=True)])

    def _spend(
        self, lengths: Lengths, picks: Sequence[int], limit: float, forwards: bool
    ) -> list[int]:
        """Forwards from the entries or, time reversed, from the exits."""
        order = self._order if forwards else self._order[::-1]
        above: Sequence[Sequence[int]] = self._parents if forwards else self._children
        below: Sequence[Sequence[int]] = self._children if forwards else self._parents
        latest = [limit] * len(picks)
        for i in reversed(order):
            for child in below[i]:
                latest[i] = min(latest[i], latest[child] - lengths[child][picks[child]])
        ends, expected = [0.0] * len(picks), [0.0] * len(picks)
        chosen = list(picks)
        for i in order:
            of = lengths[i]
            start = max([ends[p] for p in above[i]], default=0.0)
            room = max(latest[i] - start, of[picks[i]]) * (1 + 1e-12)
            alive, at = self.by_price[i], 0.0
            if self._expiring:
                at = max([expected[p] for p in above[i]], default=0.0)
                alive = [k for k in alive if self._expires[i][k] >= at] or alive
            k = next((k for k in alive if of[k] <= room), -1)
            if k < 0:
                k = min(alive, key=of.__getitem__)
            chosen[i], ends[i], expected[i] = k, start + of[k], at + self._expected[i][k]
        return chosen


def _least(lengths: Lengths) -> list[int]:
    return [of.index(min(of)) for of in lengths]


def _errors(
    front: Schedules, floors: Sequence[float], quickest: float, cheapest: float
) -> tuple[float, float]:
    """For every schedule there is one of the front that is at most so much dearer and later.

    It is the next on the stairs of (expected, cost) that is not expected earlier, since nobody who
    is as early costs less than its floor; past the last, the last."""
    stairs: list[int] = []
    for row in np.lexsort((front.cost, front.expected)).tolist():
        if not stairs or front.cost[row] < front.cost[stairs[-1]]:
            stairs.append(row)
    if not stairs:
        return 0.0, 0.0
    dearer = [float(front.cost[row]) - floors[row] for row in stairs]
    dearer.append(float(front.cost[stairs[-1]]) - cheapest)
    ends = [quickest, *front.expected[stairs].tolist()]
    return max(0.0, *dearer), max(0.0, *(b - a for a, b in pairwise(ends)))
