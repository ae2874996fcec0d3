"""How long tasks of one kind took, against what was expected of them."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from sureline.web.record import Record
from sureline.workflow.model import Takes

POINTS_MAX = 150


class KindStory(NamedTuple):
    """`durations_s` are those of attempts that succeeded, in order; at most POINTS_MAX of them,
    evenly chosen. `spread_s` is (least, lower quartile, median, upper quartile, most)."""

    kind: str
    tasks: int
    ran: int
    total_s: float
    spread_s: tuple[float, float, float, float, float] | None
    durations_s: tuple[float, ...]
    takes: tuple[float, float, float] | None
    """The estimates' medians (optimistic, likely, pessimistic), of those tasks that have one."""


def durations_by_kind(record: Record) -> list[KindStory]:
    """The kinds, those that took most time in all first."""
    members: defaultdict[str, list[int]] = defaultdict(list)
    for i, task in enumerate(record.graph.tasks):
        members[task.kind_name].append(i)
    took: defaultdict[str, list[float]] = defaultdict(list)
    for attempt in record.attempts:
        if attempt.outcome == "succeeded":
            took[record.graph.tasks[attempt.task].kind_name].append(attempt.took_s)
    found = []
    for kind, tasks in members.items():
        durations = sorted(took[kind])
        found.append(
            KindStory(
                kind,
                len(tasks),
                len(durations),
                sum(durations),
                spread(durations) if durations else None,
                tuple(_some(durations)),
                _estimate([record.graph.tasks[i].takes for i in tasks]),
            )
        )
    return sorted(found, key=lambda story: (-story.total_s, story.kind))


def spread(ordered: Sequence[float]) -> tuple[float, float, float, float, float]:
    """The five numbers of a box plot.

    >>> spread([1.0, 2.0, 3.0, 4.0, 5.0])
    (1.0, 2.0, 3.0, 4.0, 5.0)
    """
    if len(ordered) == 1:
        return (ordered[0],) * 5
    low, middle, high = statistics.quantiles(ordered, n=4, method="inclusive")
    return ordered[0], low, middle, high, ordered[-1]


def _some(ordered: list[float]) -> list[float]:
    if len(ordered) <= POINTS_MAX:
        return ordered
    step = (len(ordered) - 1) / (POINTS_MAX - 1)
    return [ordered[round(k * step)] for k in range(POINTS_MAX)]


def _estimate(takes: Sequence[Takes | None]) -> tuple[float, float, float] | None:
    known = [one for one in takes if one is not None]
    if not known:
        return None
    return (
        statistics.median(one.optimistic_s for one in known),
        statistics.median(one.likely_s for one in known),
        statistics.median(one.pessimistic_s for one in known),
    )
