"""Whether a run can keep its terms, before it starts, and which terms it could keep."""

from __future__ import annotations

import math

import msgspec

from sureline.forecast.result import QUANTILE_SHARES, Forecast
from sureline.journal.words import percent
from sureline.workflow.terms import Terms


class Refusal(msgspec.Struct, frozen=True):
    """`why` is a sentence; the rest are the smallest changes of each term alone that would do."""

    why: str
    within_s: float
    """The earliest deadline that would be kept as surely as was wanted, in seconds from now."""
    surety: float
    """The surety with which the deadline would be kept; 0 if it would not be."""

    @property
    def nearest(self) -> str:
        """What would do, in words."""
        longer = f"--within {self.within_s:.0f}s would do"
        return f"{longer}, so would --surety {self.surety:g}" if self.surety > 0 else longer


def refusal(forecast: Forecast, terms: Terms) -> Refusal | None:
    """None if the terms can be met, or if nobody can tell: where durations are guessed, a refusal
    would be one too."""
    surety, deadline_at = forecast.surety, terms.deadline_at
    if surety is None or deadline_at is None or forecast.basis.guess:
        return None
    if surety + forecast.surety_error >= terms.surety:
        return None
    within_s = quantile_s(forecast, terms.surety)
    asked_s = deadline_at - forecast.at
    why = (
        f"the run would be done within {asked_s:.0f} s with a chance of {percent(surety)} only, "
        f"{percent(terms.surety)} is wanted"
    )
    return Refusal(why, math.ceil(within_s), math.floor(surety * 100) / 100)


def quantile_s(forecast: Forecast, share: float) -> float:
    """By when the run is done with this chance: between the quantiles that the forecast has, on a
    line; beyond them, the latest end that was seen."""
    shares, times = QUANTILE_SHARES, forecast.quantiles_s
    for k in range(1, len(shares)):
        if share <= shares[k]:
            part = (share - shares[k - 1]) / (shares[k] - shares[k - 1])
            return times[k - 1] + max(0.0, part) * (times[k] - times[k - 1])
    return forecast.latest_s
