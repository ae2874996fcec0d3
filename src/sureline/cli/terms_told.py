"""What was asked of a run, promised, foreseen and done about it: for programs and for people."""

from __future__ import annotations

from typing import Any

from sureline.cli import console
from sureline.journal.events import Foreseen, Repaired
from sureline.journal.story import in_words
from sureline.journal.views import RunView
from sureline.journal.words import percent

REPAIRS_SHOWN = 5


def terms_data(view: RunView) -> dict[str, Any] | None:
    """None if nothing was asked."""
    terms, planned, foreseen = view.terms, view.planned, view.foreseen
    if not terms.any:
        return None
    return {
        "deadline": None if terms.deadline_at is None else console.moment(terms.deadline_at),
        "budget": terms.budget,
        "surety_wanted": terms.surety,
        "planned": None
        if planned is None
        else {"surety": _rounded(planned.surety), "cost": planned.cost, "method": planned.method},
        "foreseen": None if foreseen is None else _foreseen_data(foreseen),
        "spent": round(view.spent, 6),
        "late_s": _late_s(view),
    }


def _foreseen_data(seen: Foreseen) -> dict[str, Any]:
    return {
        "at": console.moment(seen.at),
        "early": console.moment(seen.early_at),
        "middle": console.moment(seen.middle_at),
        "late": console.moment(seen.late_at),
        "surety": _rounded(seen.surety),
        "surety_error": _rounded(seen.surety_error),
        "basis": seen.basis,
    }


def repairs_data(view: RunView) -> list[dict[str, Any]]:
    return [_repair_data(event) for event in view.repairs]


def _repair_data(event: Repaired) -> dict[str, Any]:
    return {
        "at": console.moment(event.at),
        "action": event.action,
        "task": event.task or None,
        "attempt": event.attempt or None,
        "from_peer": event.from_peer or None,
        "to_peer": event.to_peer or None,
        "reason": event.reason,
        "cost": event.cost,
        "surety_before": _rounded(event.surety_before),
        "surety_after": _rounded(event.surety_after),
    }


def terms_lines(view: RunView) -> list[str]:
    """For `show`: what was asked and how that stands, then what was done."""
    terms = view.terms
    if not terms.any:
        return []
    asked = []
    if terms.deadline_at is not None:
        asked.append(f"done by {console.moment(terms.deadline_at)} with {percent(terms.surety)}")
    if terms.budget is not None:
        asked.append(f"for at most {terms.budget:g}")
    lines = [f"  asked      {', '.join(asked)}"]
    if view.planned is not None and view.planned.surety is not None:
        lines.append(f"  promised   {percent(view.planned.surety)}, when it began")
    late_s = _late_s(view)
    if late_s is not None:
        how = f"{console.duration(late_s)} late" if late_s else "in time"
        lines.append(f"  was        {how}")
    elif view.foreseen is not None and view.foreseen.surety is not None:
        lines.append(f"  foreseen   {percent(view.foreseen.surety)}, when last looked")
    if view.spent:
        lines.append(f"  spent      {view.spent:g}")
    return lines + repair_lines(view)


def repair_lines(view: RunView) -> list[str]:
    """The last few repairs, in words."""
    lines = [f"  repair     {in_words(event)}" for event in view.repairs[-REPAIRS_SHOWN:]]
    if len(view.repairs) > REPAIRS_SHOWN:
        lines.insert(0, f"  {len(view.repairs)} repairs; the last {REPAIRS_SHOWN}:")
    return lines


def _late_s(view: RunView) -> float | None:
    """By how much the run was late, 0 if it was not; None if it has not succeeded."""
    deadline_at, ended_at = view.terms.deadline_at, view.ended_at
    if deadline_at is None or ended_at is None or view.ended_state != "succeeded":
        return None
    return round(max(0.0, ended_at - deadline_at), 3)


def _rounded(share: float | None) -> float | None:
    return None if share is None else round(share, 4)
