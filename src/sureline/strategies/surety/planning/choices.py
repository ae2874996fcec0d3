"""What may be chosen: for every task of a graph, the bids for its service, as arrays.

A *schedule* picks one bid for every task. Here is also what one schedule amounts to: who starts
when, what it costs, which path is critical.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sureline.strategies.surety.planning import pert
from sureline.strategies.surety.planning.bids import Listed
from sureline.workflow.model import Graph, Task
from sureline.workflow.shapes import topological_order

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

Schedule = tuple[int, ...]
"""For every task, which of its options is taken."""


class BidOption(NamedTuple):
    """One bid for one task."""

    listed: Listed
    price: float
    expected: float
    variance: float
    early: float
    late: float
    expires: float
    """Infinite if it does not expire."""

    @property
    def label(self) -> str:
        return self.listed.label


class Columns(NamedTuple):
    """Numbers of a task's options."""

    price: Floats
    expected: Floats
    variance: Floats
    expires: Floats


class Choices:
    """The options of every task, in the order of the table. `missing` are services nobody offers.

    A task's service is its kind, or its own name if the table has that. (A task that does not say
    its kind is looked up by its name first.)
    """

    def __init__(self, graph: Graph, bids: Sequence[Listed]) -> None:
        self.graph = graph
        offered: dict[str, list[BidOption]] = {}
        for listed in bids:
            offered.setdefault(listed.bid.service, []).append(_option(listed))
        self.services = [_service(task, offered) for task in graph.tasks]
        self.options = [tuple(offered.get(service, ())) for service in self.services]
        self.missing = tuple(dict.fromkeys(s for s in self.services if s not in offered))
        used = set(self.services)
        self.unused = tuple(service for service in offered if service not in used)
        self.order = topological_order(graph)
        self.scale = max(
            1.0, sum(max((o.late for o in options), default=0.0) for options in self.options)
        )
        """No time of any schedule is beyond this; ties are judged against it."""

    @cached_property
    def columns(self) -> list[Columns]:
        """The numbers of every task's options, as arrays."""
        names = ("price", "expected", "variance", "expires")
        return [Columns(*(column(options, name) for name in names)) for options in self.options]

    @property
    def schedules(self) -> int:
        """How many there are."""
        return math.prod(len(options) for options in self.options)

    def taken(self, schedule: Schedule) -> list[BidOption]:
        return [options[k] for options, k in zip(self.options, schedule, strict=True)]

    def cost(self, schedule: Schedule) -> float:
        return math.fsum(option.price for option in self.taken(schedule))

    def assignment(self, schedule: Schedule) -> dict[str, str]:
        """Task -> the label of the bid that is taken."""
        taken = self.taken(schedule)
        return {task.name: o.label for task, o in zip(self.graph.tasks, taken, strict=True)}


def _option(listed: Listed) -> BidOption:
    bid = listed.bid
    expires = math.inf if bid.expires is None else bid.expires
    return BidOption(
        listed, bid.price, pert.expected(bid), pert.variance(bid), bid.early, bid.late, expires
    )


def _service(task: Task, offered: dict[str, list[BidOption]]) -> str:
    names = (task.kind, task.name) if task.kind else (task.name, task.kind_name)
    return next((name for name in names if name in offered), names[0] if task.kind else names[1])


def column(options: Sequence[BidOption], name: str) -> Floats:
    """One number of every option."""
    return np.array([getattr(option, name) for option in options], dtype=np.float64)


class Timing(NamedTuple):
    """When the tasks of one schedule start and end, if each takes its expected time."""

    starts: list[float]
    ends: list[float]
    slacks: list[float]
    """By how much each may be late without the whole being late."""
    critical: list[int]
    expected: float
    variance: float
    earliest: float
    latest: float


def mean_and_variance(choices: Choices, schedule: Schedule) -> tuple[float, float]:
    """Of the critical path."""
    taken = choices.taken(schedule)
    ends, sums, _ = _paths(choices, [o.expected for o in taken], [o.variance for o in taken])
    last = _longest(choices, range(len(taken)), ends, sums)
    return (0.0, 0.0) if last is None else (ends[last], sums[last])


def timing(choices: Choices, schedule: Schedule) -> Timing:
    """CPM with the expected durations; earliest and latest are CPM with the extreme ones."""
    taken = choices.taken(schedule)
    ends, variances, via = _paths(choices, [o.expected for o in taken], [o.variance for o in taken])
    last = _longest(choices, range(len(taken)), ends, variances)
    critical: list[int] = []
    while last is not None:
        critical.append(last)
        last = via[last]
    critical.reverse()
    durations = [option.expected for option in taken]
    starts = [end - lasts for end, lasts in zip(ends, durations, strict=True)]
    finish = ends[critical[-1]] if critical else 0.0
    return Timing(
        starts,
        ends,
        _slacks(choices, durations, ends, finish),
        critical,
        finish,
        variances[critical[-1]] if critical else 0.0,
        max(_paths(choices, [o.early for o in taken])[0], default=0.0),
        max(_paths(choices, [o.late for o in taken])[0], default=0.0),
    )


def _paths(
    choices: Choices, durations: Sequence[float], variances: Sequence[float] | None = None
) -> tuple[list[float], list[float], list[int | None]]:
    """When each task ends, the variance of the path that decides it, and the task before it."""
    count = len(durations)
    ends, sums = [0.0] * count, [0.0] * count
    via: list[int | None] = [None] * count
    for i in choices.order:
        before = via[i] = _longest(choices, choices.graph.parents[i], ends, sums)
        ends[i] = durations[i] + (0.0 if before is None else ends[before])
        if variances is not None:
            sums[i] = variances[i] + (0.0 if before is None else sums[before])
    return ends, sums, via


def _longest(
    choices: Choices, tasks: Sequence[int], ends: Sequence[float], variances: Sequence[float]
) -> int | None:
    """The task that ends last; of equals the one of the largest variance, then the first."""
    if len(tasks) < 2:
        return tasks[0] if tasks else None
    last = max(ends[i] for i in tasks) - pert.TIES * choices.scale
    tied = sorted(i for i in tasks if ends[i] >= last)
    return max(tied, key=lambda i: variances[i])


def _slacks(
    choices: Choices, durations: Sequence[float], ends: Sequence[float], finish: float
) -> list[float]:
    latest_end = [finish] * len(durations)
    for i in reversed(choices.order):
        for child in choices.graph.children[i]:
            latest_end[i] = min(latest_end[i], latest_end[child] - durations[child])
    return [max(0.0, late - end) for late, end in zip(latest_end, ends, strict=True)]
