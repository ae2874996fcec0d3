"""Choosing a plan: which bid for which task, within the terms, or why there is none.

`plan` is pure: equal arguments give equal plans. Times count from the start of the workflow, in
the unit of the bids; so does the deadline of the terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import msgspec
import numpy as np

from sureline.strategies.surety.planning import bounded, exact, refusal
from sureline.strategies.surety.planning.bids import Listed
from sureline.strategies.surety.planning.choices import (
    Choices,
    Schedule,
    Timing,
    mean_and_variance,
    timing,
)
from sureline.strategies.surety.planning.front import Schedules
from sureline.strategies.surety.planning.judging import Method, Sampling, judge_for
from sureline.strategies.surety.planning.pert import at_least, at_most, surety_of
from sureline.strategies.surety.planning.refusal import NoPlan
from sureline.workflow.model import Graph
from sureline.workflow.terms import Terms

SAMPLES = 10_000
COUNTED_MAX = 10**15
QUANTILE_SHARES = (0.01, *(n / 20 for n in range(1, 20)), 0.99)


class Weights(NamedTuple):
    """What matters how much, each against its range on the front."""

    time: float
    cost: float
    surety: float


class FrontPoint(msgspec.Struct, frozen=True):
    """A plan of the front. `alike` schedules have these numbers; the first is shown."""

    cost: float
    expected: float
    surety: float | None
    assignment: dict[str, str]
    alike: int = 1
    cost_at_least: float | None = None
    """No plan that is expected as early costs less; None if the front is exact."""
    peers: list[str] = []
    """Where nobody bids: the machines that are used."""


class Step(msgspec.Struct, frozen=True):
    """A task of the chosen plan. start and end are expected ones."""

    task: str
    service: str
    provider: str
    line: int
    """Of the bid, in the table."""
    cost: float
    time: float
    early: float
    late: float
    start: float
    end: float
    slack: float
    critical: bool


class Errors(msgspec.Struct, frozen=True):
    """How far the listed front may be from the true one: for every plan there is a listed one that
    is expected at most `expected` later and costs at most `cost` more."""

    cost: float = 0.0
    expected: float = 0.0


class Plan(msgspec.Struct, frozen=True):
    """What was chosen, or why nothing was; numbers are None, lists empty, where there is no plan.

    `expected` is by expected durations along the critical path with pert and cpm, the mean of the
    simulated ends with montecarlo. earliest and latest are the longest paths of the optimistic and
    of the pessimistic durations: no end lies beyond them, if the bids are kept."""

    name: str
    method: Method
    terms: Terms
    cost: float | None
    reserve: float | None
    """What the budget has left."""
    expected: float | None
    earliest: float | None
    latest: float | None
    surety: float | None
    surety_error: float
    critical_path: list[str]
    assignment: dict[str, str]
    front: list[FrontPoint]
    refused: NoPlan | None
    tasks: list[Step] = []
    quantiles: list[tuple[float, float]] = []
    """(share, time): by this time, this share of all runs would have ended."""
    exact: bool = True
    error: Errors = Errors()
    schedules: int | None = None
    """How many there are in all; None if more than COUNTED_MAX."""
    peers: list[str] = []
    """Where nobody bids: the machines that are used; none for this one."""
    source: str = "bids"
    """What the durations rest on."""

    def chose(self, point: FrontPoint) -> bool:
        """Whether this point of the front is the plan."""
        return self.refused is None and (
            (point.cost, point.expected, point.assignment, point.peers)
            == (self.cost, self.expected, self.assignment, self.peers)
        )

    @classmethod
    def without(
        cls, name: str, method: Method, terms: Terms, why: NoPlan, front: Sequence[FrontPoint] = ()
    ) -> Plan:
        """No plan, why, and what there is instead."""
        return cls(
            name=name,
            method=method,
            terms=terms,
            cost=None,
            reserve=None,
            expected=None,
            earliest=None,
            latest=None,
            surety=None,
            surety_error=0.0,
            critical_path=[],
            assignment={},
            front=list(front),
            refused=why,
        )


def plan(
    graph: Graph,
    bids: Sequence[Listed],
    terms: Terms,
    method: Method = "montecarlo",
    weights: Weights | None = None,
    seed: int = 0,
    samples: int = SAMPLES,
) -> Plan:
    """The plan that meets the terms for the least money; of equally cheap ones the surest, then
    the quickest. With `weights`, the plan of the front that meets the terms with the least
    weighted sum of time, cost and lack of surety, each as a share of its range on the front.
    """
    return plan_of(Choices(graph, bids), terms, method, weights, seed, samples)


def plan_of(
    choices: Choices,
    terms: Terms,
    method: Method = "montecarlo",
    weights: Weights | None = None,
    seed: int = 0,
    samples: int = SAMPLES,
) -> Plan:
    """The same of choices that are made already."""
    if choices.missing:
        return Plan.without(
            choices.graph.name, method, terms, refusal.nobody_offers(choices.missing)
        )
    whole = exact.affordable(choices, method, samples)
    if whole:
        judge = judge_for(choices, terms, method, samples, seed)
        searched = bounded.Bounded(*exact.search(choices, terms, judge))
    else:
        samples = min(samples, bounded.SAMPLES)
        judge = judge_for(choices, terms, method, samples, seed)
        searched = bounded.search(choices, terms, judge)
    front = _points(choices, terms, method, searched)
    chosen = _choose(searched.front, terms, weights)
    if chosen is None:
        why = _reason(choices, terms, searched, whole)
        made = Plan.without(choices.graph.name, method, terms, why)
    else:
        row = searched.front.schedules[chosen]
        ends = judge.finish(row) if isinstance(judge, Sampling) else None
        schedule = _schedule(searched.front, chosen)
        made = _plan(choices, terms, method, schedule, front[chosen], ends)
    return msgspec.structs.replace(
        made,
        front=front,
        exact=whole,
        error=Errors(searched.cost_error, searched.time_error),
        schedules=_counted(choices),
    )


def _schedule(front: Schedules, row: int) -> Schedule:
    return tuple(front.schedules[row].tolist())


def _points(
    choices: Choices, terms: Terms, method: Method, found: bounded.Bounded
) -> list[FrontPoint]:
    points = []
    front = found.front
    for row in range(len(front.cost)):
        schedule = _schedule(front, row)
        expected, surety = float(front.expected[row]), _number(front.surety[row])
        if method != "montecarlo":
            expected, surety = _by_equations(choices, schedule, terms, method)
        points.append(
            FrontPoint(
                choices.cost(schedule),
                expected,
                surety,
                choices.assignment(schedule),
                int(front.alike[row]),
                found.floors[row] if found.floors else None,
            )
        )
    return points


def _by_equations(
    choices: Choices, schedule: Schedule, terms: Terms, method: Method
) -> tuple[float, float | None]:
    mean, variance = mean_and_variance(choices, schedule)
    if terms.deadline_at is None:
        return mean, None
    return mean, surety_of(terms.deadline_at, mean, 0.0 if method == "cpm" else variance)


def _number(value: float) -> float | None:
    return None if math.isnan(value) else float(value)


def _choose(front: Schedules, terms: Terms, weights: Weights | None) -> int | None:
    """The row of the front to take; None if none meets the terms."""
    meets = [row for row in range(len(front.cost)) if _meets(front, row, terms)]
    lack = 1.0 - np.nan_to_num(front.surety)
    usual = {row: (_plain(front.cost[row]), lack[row], front.expected[row]) for row in meets}
    if weights is None:
        return min(meets, key=lambda row: usual[row], default=None)
    shares = [_shares(front.expected), _shares(front.cost), 1 - _shares(front.surety)]
    weighted = sum(w * share for w, share in zip(weights, shares, strict=True))
    rounded = np.round(np.asarray(weighted), 12)
    return min(meets, key=lambda row: (rounded[row], usual[row]), default=None)


def _plain(cost: float) -> float:
    """Without the last digits, in which sums of the same numbers may differ."""
    return float(f"{cost:.12g}")


def _shares(values: np.typing.NDArray[np.float64]) -> np.typing.NDArray[np.float64]:
    """Where each value lies between the least and the greatest; 0 if they are all equal."""
    known = np.nan_to_num(values)
    width = np.ptp(known) if len(known) else 0.0
    return (known - known.min(initial=np.inf)) / width if width > 0 else np.zeros_like(known)


def _meets(front: Schedules, row: int, terms: Terms) -> bool:
    payable = terms.budget is None or at_most(float(front.cost[row]), terms.budget)
    return payable and (
        terms.deadline_at is None or at_least(float(front.surety[row]), terms.surety)
    )


def _reason(choices: Choices, terms: Terms, found: bounded.Bounded, whole: bool) -> NoPlan:
    if not len(found.front.cost):
        return refusal.all_expire(choices, whole)
    too_dear = terms.budget is not None and not at_most(found.terms_floor, terms.budget)
    proven = whole or too_dear or math.isinf(found.terms_floor)
    return refusal.not_met(terms, found.nearest, proven)


def _plan(
    choices: Choices,
    terms: Terms,
    method: Method,
    schedule: Schedule,
    point: FrontPoint,
    ends: np.typing.NDArray[np.float64] | None,
) -> Plan:
    when = timing(choices, schedule)
    tasks = choices.graph.tasks
    error = 0.0 if ends is None else error_of(point.surety, ends)
    return Plan(
        name=choices.graph.name,
        method=method,
        terms=terms,
        cost=point.cost,
        reserve=None if terms.budget is None else max(0.0, terms.budget - point.cost),
        expected=point.expected,
        earliest=when.earliest,
        latest=when.latest,
        surety=point.surety,
        surety_error=error,
        critical_path=[tasks[i].name for i in when.critical],
        assignment=point.assignment,
        front=[],
        refused=None,
        tasks=_steps(choices, schedule, when),
        quantiles=_quantiles(method, when, ends),
    )


def error_of(surety: float | None, ends: np.typing.NDArray[np.float64]) -> float:
    """The standard error of a share of samples; above 0 even if all or none of them were in time,
    unless nothing is uncertain."""
    if surety is None or ends.min() == ends.max():
        return 0.0
    share = (surety * len(ends) + 1) / (len(ends) + 2)
    return math.sqrt(share * (1 - share) / len(ends))


def _counted(choices: Choices) -> int | None:
    return choices.schedules if choices.schedules <= COUNTED_MAX else None


def _steps(choices: Choices, schedule: Schedule, when: Timing) -> list[Step]:
    critical = set(when.critical)
    steps = []
    for i, option in enumerate(choices.taken(schedule)):
        steps.append(
            Step(
                choices.graph.tasks[i].name,
                choices.services[i],
                option.label,
                option.listed.line,
                option.price,
                option.listed.bid.time,
                option.early,
                option.late,
                when.starts[i],
                when.ends[i],
                when.slacks[i],
                i in critical,
            )
        )
    return steps


def _quantiles(
    method: Method, when: Timing, ends: np.typing.NDArray[np.float64] | None
) -> list[tuple[float, float]]:
    if ends is not None:
        at = np.quantile(ends, QUANTILE_SHARES)
        return [(share, float(each)) for share, each in zip(QUANTILE_SHARES, at, strict=True)]
    sigma = 0.0 if method == "cpm" else math.sqrt(when.variance)
    if sigma == 0:
        return [(share, when.expected) for share in QUANTILE_SHARES]
    normal = NormalDist(when.expected, sigma)
    return [(share, normal.inv_cdf(share)) for share in QUANTILE_SHARES]
