"""Terms on the command line: done by when, for how much, how surely; and the verdict beforehand."""

from __future__ import annotations

import datetime
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sureline.cli import console
from sureline.workflow.mistakes import UserError
from sureline.workflow.terms import Terms

if TYPE_CHECKING:
    from sureline.forecast.pools import Offers
    from sureline.run.feasible import Refusal
    from sureline.workflow.model import Graph

REFUSED = 3

Within = Annotated[
    str | None,
    Parameter(help="Be done within so long from now, e.g. 20min; a bare number is seconds."),
]
By = Annotated[
    str | None,
    Parameter(
        help="Be done by then: a time of day (18:00, tomorrow's if it has passed), or a "
        "date and a time (2030-01-31T18:00)."
    ),
]
Budget = Annotated[
    float | None,
    Parameter(help="Spend at most so much on peers that ask a price. Default: free peers only."),
]
Surety = Annotated[
    str | None,
    Parameter(help="The chance of being in time that is wanted, e.g. 0.9 or 90%. Default: 0.9."),
]
RepairToo = Annotated[
    bool,
    Parameter(
        name="--repair",
        negative="--no-repair",
        help="Act when the deadline is in danger: run late tasks a second time, and the like.",
    ),
]
Anyway = Annotated[
    bool, Parameter(negative="", help="Start although the terms cannot be met, as it seems.")
]

_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)


def terms(within: str | None, by: str | None, budget: float | None, surety: str | None) -> Terms:
    """What the options ask for; a user's mistake if they make no sense."""
    if within is not None and by is not None:
        raise UserError("--within and --by say the same thing twice; give one of them")
    now = time.time()
    deadline_at = None
    if within is not None:
        deadline_at = now + _within_s(within)
    elif by is not None:
        deadline_at = moment_of(by, now)
    if budget is not None and not 0 <= budget < 1e15:
        raise UserError(f"--budget {budget:g} is not an amount of money; give 0 or more")
    if surety is None:
        return Terms(deadline_at, budget)
    wanted = _surety(surety)
    if deadline_at is None:
        raise UserError("--surety is the chance of meeting a deadline; add --within or --by")
    return Terms(deadline_at, budget, wanted)


def _within_s(text: str) -> float:
    from sureline.workflow.quantities import parse_duration

    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise UserError(f"--within: {error}") from None
    if seconds <= 0:
        raise UserError(f"--within {text} leaves no time at all; give more than 0")
    return seconds


def _surety(text: str) -> float:
    """
    >>> _surety("0.9"), _surety("95%"), _surety("99.5 %")
    (0.9, 0.95, 0.995)
    """
    number, percent, _ = text.strip().partition("%")
    try:
        found = float(number) / (100 if percent else 1)
    except ValueError:
        found = -1.0
    if not 0 < found < 1:
        raise UserError(f"--surety {text} is not a chance; give one between 0 and 1, such as 0.9")
    return round(found, 12)


def moment_of(text: str, now: float) -> float:
    """The instant that a person means, in seconds since the epoch; local time unless it has an
    offset. A time of day is today's, or tomorrow's if that has passed."""
    clock = _CLOCK.fullmatch(text.strip())
    try:
        if clock is None:
            found = datetime.datetime.fromisoformat(text.strip()).timestamp()
        else:
            today = datetime.datetime.fromtimestamp(now)
            wanted = datetime.time(int(clock[1]), int(clock[2]), int(clock[3] or 0))
            found = datetime.datetime.combine(today.date(), wanted).timestamp()
            if found <= now:
                tomorrow = today.date() + datetime.timedelta(days=1)
                found = datetime.datetime.combine(tomorrow, wanted).timestamp()
    except (ValueError, OverflowError, OSError):
        raise UserError(
            f"--by {text!r} is not a time; write 18:00, or a date and a time such as "
            "2030-01-31T18:00"
        ) from None
    if found <= now:
        raise UserError(f"--by {text} has passed; give a time to come")
    return found


def refused(
    graph: Graph,
    machine: Offers,
    home: Path,
    asked: Terms,
    *,
    fresh: bool,
    anyway: bool,
    as_json: bool,
) -> bool:
    """Forecast a run before it starts. If its terms cannot be met, say so, with the nearest that
    can; True if it is not to start for that."""
    from sureline.compose.terms import before, verdict

    if asked.deadline_at is None:
        return False
    forecast, refusal = verdict(graph, machine, before(graph, home, fresh=fresh), asked)
    if refusal is None:
        if forecast.basis.guess:
            known = console.counted(forecast.basis.guess, "task")
            console.note(
                f"note: nothing is known of how long {known} will take: the forecast is "
                "partly a guess, and nothing is refused for it"
            )
        return False
    if anyway:
        console.note(f"note: {refusal.why}; started all the same")
        return False
    console.note(f"sureline: {refusal.why}; {_offer(refusal)}")
    if as_json:
        console.print_json({"run": None, "state": "refused", "refused": refusal_data(refusal)})
    return True


def _offer(refusal: Refusal) -> str:
    """What to do instead."""
    return f"{refusal.nearest}; --anyway starts it as it is"


def refusal_data(refusal: Refusal) -> dict[str, Any]:
    nearest = {
        "within": refusal.within_s,
        "budget": None,
        "surety": refusal.surety if refusal.surety > 0 else None,
    }
    return {"why": refusal.why, "nearest": nearest}
