"""What can be said of a run before it starts."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from sureline.compose.reuse import reusable
from sureline.forecast.follow import Forecaster, kinds_of
from sureline.forecast.pools import Offers
from sureline.forecast.progress import DONE, Progress
from sureline.forecast.result import Forecast
from sureline.journal.errors import NoJournalError
from sureline.journal.history import Observed
from sureline.journal.store import Journal
from sureline.run.feasible import Refusal, refusal
from sureline.workflow.mistakes import SurelineError
from sureline.workflow.model import Graph
from sureline.workflow.terms import Terms

History = Mapping[str, Sequence[Observed]]


class TermsRefusedError(SurelineError):
    """The terms cannot be met, and nothing was started. `refusal` says which could be, if known."""

    code = 3

    def __init__(self, said: str, refusal: Refusal | None = None) -> None:
        super().__init__(said)
        self.refusal = refusal


class Before(NamedTuple):
    """What the journal of a directory says about a run that is to start there."""

    history: History
    """What tasks of the graph's kinds took."""
    reused: tuple[int, ...]
    """The tasks whose results are there already."""


def before(graph: Graph, home: Path, *, fresh: bool) -> Before:
    """`fresh`: no result will be used again."""
    try:
        with Journal.open(home, create=False, read_only=True) as journal:
            reused = () if fresh else tuple(reusable(graph, journal, home.parent))
            return Before(journal.durations(kinds_of(graph)), reused)
    except NoJournalError:
        return Before({}, ())


def verdict(
    graph: Graph, machine: Offers, known: Before, terms: Terms
) -> tuple[Forecast, Refusal | None]:
    """The forecast of a whole run, and whether its deadline can be kept."""
    forecaster = Forecaster(graph, machine, known.history)
    forecaster.ask_deadline(terms.deadline_at)
    states = bytearray(len(graph))
    for task in known.reused:
        states[task] = DONE
    forecast = forecaster.forecast(Progress(time.time(), bytes(states)))
    return forecast, refusal(forecast, terms)
