"""Why no plan meets the terms, and the nearest terms that one would meet."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from sureline.strategies.surety.planning.choices import Choices, timing
from sureline.strategies.surety.planning.exact import Nearest
from sureline.workflow.terms import Terms


class NearestTerms(msgspec.Struct, frozen=True):
    """The smallest change of each term alone that would do, the others as they are; None for a
    term that was not given, or if no change of it alone is enough."""

    within: float | None = None
    budget: float | None = None
    surety: float | None = None


class NoPlan(msgspec.Struct, frozen=True):
    why: str
    nearest: NearestTerms = NearestTerms()
    proven: bool = True
    """False if not all schedules were looked at, and one that would do may have been missed."""


def nobody_offers(services: Sequence[str]) -> NoPlan:
    shown = ", ".join(services[:5]) + (f" and {len(services) - 5} more" if services[5:] else "")
    return NoPlan(f"nobody bids for {shown}")


def all_expire(choices: Choices, exact: bool) -> NoPlan:
    """No schedule is usable: of some task, every bid expires before the task could start."""
    quickest = tuple(int(of.expected.argmin()) for of in choices.columns)
    starts = timing(choices, quickest).starts
    for task, options, start in zip(choices.graph.tasks, choices.options, starts, strict=True):
        last = max(option.expires for option in options)
        if last < start:
            return NoPlan(
                f"all bids for {task.name} expire by {last:g}, before it could start, at "
                f"{start:g} if all goes as expected"
            )
    return NoPlan("in every plan, a bid expires before its task could start", proven=exact)


def not_met(terms: Terms, nearest: Nearest, proven: bool, unit: str = "") -> NoPlan:
    """The terms are out of reach; `nearest` tells how far. `unit` is that of times, in words."""
    found = NearestTerms(
        _offer(nearest.within) if terms.deadline_at is not None else None,
        _offer(nearest.budget) if terms.budget is not None else None,
        _offer(nearest.surety) if terms.deadline_at is not None and nearest.surety > 0 else None,
    )
    return NoPlan(_why(terms, proven, unit), found, proven)


def _offer(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _why(terms: Terms, proven: bool, unit: str) -> str:
    asked = []
    if terms.deadline_at is not None:
        asked.append(f"ends within {terms.deadline_at:g}{unit} with a surety of {terms.surety:.6g}")
    if terms.budget is not None:
        asked.append(f"costs at most {terms.budget:g}")
    none = "no plan" if proven else "no plan that was found"
    return f"{none} {' and '.join(asked)}"
