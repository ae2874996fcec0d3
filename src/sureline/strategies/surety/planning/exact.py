"""All schedules, one after the other, in blocks: the front, and how near the terms can be met."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from sureline.strategies.surety.planning.choices import Choices, Ints
from sureline.strategies.surety.planning.front import Schedules, nothing, pareto
from sureline.strategies.surety.planning.judging import Judge, Judged, Method
from sureline.strategies.surety.planning.pert import TIES
from sureline.workflow.terms import Terms

WORK_MAX = 40_000_000
"""Schedules times tasks: up to this, a few seconds."""
DRAWS_MAX = 1_500_000_000
"""The same for simulated schedules: durations added up."""
BLOCK = 32_768


class Nearest(NamedTuple):
    """What each term alone would have to be, the others as they are; infinite or -infinite where
    no value would do. `sure` for the least cost of a schedule as sure as wanted."""

    within: float = math.inf
    budget: float = math.inf
    surety: float = -math.inf

    def better_of(self, other: Nearest) -> Nearest:
        return Nearest(
            min(self.within, other.within),
            min(self.budget, other.budget),
            max(self.surety, other.surety),
        )


class Searched(NamedTuple):
    front: Schedules
    nearest: Nearest


def affordable(choices: Choices, method: Method, samples: int) -> bool:
    """Whether all schedules can be looked at in a few seconds."""
    if choices.schedules * len(choices.options) > WORK_MAX:
        return False
    if method != "montecarlo":
        return True
    steps, prefixes = 0, 1
    for i in choices.order:
        prefixes *= len(choices.options[i])
        steps += prefixes * (1 + len(choices.graph.parents[i]))
    return steps * samples <= DRAWS_MAX


def blocks(choices: Choices) -> Iterator[Ints]:
    """Every schedule, a row each; the last task of the topological order varies fastest."""
    total, count = choices.schedules, len(choices.options)
    for first in range(0, total, BLOCK):
        numbers = np.arange(first, min(first + BLOCK, total), dtype=np.int64)
        rows = np.empty((len(numbers), count), dtype=np.int64)
        for i in reversed(choices.order):
            numbers, rows[:, i] = np.divmod(numbers, len(choices.options[i]))
        yield rows


def search(choices: Choices, terms: Terms, judge: Judge) -> Searched:
    """The exact front of all usable schedules, and what each term would have to be."""
    cost_scale = max(1.0, sum(max(o.price for o in options) for options in choices.options))
    front = nothing(len(choices.options))
    nearest = Nearest()
    for rows in blocks(choices):
        judged = judge.judge(rows)
        nearest = nearest.better_of(nearest_of(judged, terms))
        front = pareto(front.with_(candidates(rows, judged)), cost_scale, choices.scale)
    return Searched(front, nearest)


def candidates(rows: Ints, judged: Judged) -> Schedules:
    """The usable ones."""
    one_each = np.ones(len(rows), dtype=np.int64)
    found = Schedules(rows, judged.cost, judged.expected, judged.surety, one_each)
    return found.rows(judged.usable)


def nearest_of(judged: Judged, terms: Terms) -> Nearest:
    cost, surety = judged.cost, judged.surety
    payable, sure = judged.usable.copy(), judged.usable.copy()
    if terms.budget is not None:
        payable &= cost <= terms.budget + TIES * max(1.0, terms.budget)
    if terms.deadline_at is not None:
        sure &= surety >= terms.surety - TIES
    return Nearest(
        float(judged.needed[payable].min(initial=math.inf)),
        float(cost[sure].min(initial=math.inf)),
        float(surety[payable].max(initial=-math.inf))
        if terms.deadline_at is not None
        else -math.inf,
    )
