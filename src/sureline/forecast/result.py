"""What a forecast says, as data and in words: always an interval, and where it comes from."""

from __future__ import annotations

import math
import time
from typing import Literal

import msgspec

_UNITS = ((1.0, "s", 90.0), (60.0, "min", 5400.0), (3600.0, "h", 172800.0), (86400.0, "d", 0.0))
"""Seconds in a unit, its name, and the length up to which it is used (0: always)."""


Method = Literal["montecarlo", "pert", "cpm"]
QUANTILE_SHARES = (0.01, 0.05, *(n / 20 for n in range(2, 19)), 0.95, 0.99)
CRITICAL_MAX = 20
GUESSED_MAX = 100_000


class Basis(msgspec.Struct, frozen=True):
    """What the durations of the open tasks rest on: how many tasks for each source."""

    takes: int = 0
    """The user's own estimate."""
    history: int = 0
    """What tasks of the same kind took, in earlier runs or in this one."""
    guess: int = 0
    """Nothing: a wide guess."""
    earlier_runs: int = 0
    """How many runs the history comes from, this one not counted."""
    kinds: int = 0
    """How many kinds of open tasks have a history."""


class Forecast(msgspec.Struct, frozen=True):
    """When all open tasks will be done. Seconds count from `at`, the instant of the snapshot.

    The run is done by `p50_s` with a chance of 50 %, by `p90_s` with 90 %, if nothing fails and
    no result is reused. The `_error_s` are standard errors: what another seed might change.
    """

    at: float
    p50_s: float
    p90_s: float
    earliest_s: float
    latest_s: float
    p50_error_s: float
    p90_error_s: float
    open_tasks: int
    basis: Basis
    samples: int
    cost_s: float
    """Processor time that this forecast took."""
    method: Method = "montecarlo"
    quantiles_s: tuple[float, ...] = ()
    """The finish time at QUANTILE_SHARES."""
    surety: float | None = None
    """The chance of being done by the deadline, if the forecast was asked about one."""
    surety_error: float = 0.0
    """Its standard error."""
    critical: tuple[tuple[str, float], ...] = ()
    """The tasks that decide when the run ends, and in which share of the simulated runs each did;
    the most decisive first, CRITICAL_MAX at most."""
    guessed: tuple[int, ...] = ()
    """The open tasks, by index, of whose durations nothing is known; GUESSED_MAX at most."""


def describe(forecast: Forecast, now: float) -> str:
    """The forecast in one line, as seen at `now` (seconds since the epoch)."""
    if not forecast.open_tasks:
        return "nothing left to do"
    passed_s = now - forecast.at
    p50_s, p90_s = max(0.0, forecast.p50_s - passed_s), forecast.p90_s - passed_s
    source = basis_words(forecast.basis)
    if p90_s < 0:
        return f"later than foreseen; a new forecast is due ({source})"
    if p90_s < 1:
        return f"done within a second{_in_time(forecast)} ({source})"
    clock = _clock(now, now + p50_s, now + p90_s)
    when = f"done in {interval(p50_s, p90_s)}{_in_time(forecast)}"
    return f"{when} (50 % by {clock[0]}, 90 % by {clock[1]}; {source})"


def _in_time(forecast: Forecast) -> str:
    """How surely it is done by the deadline, if there is one; never more exactly than is known."""
    surety = forecast.surety
    if surety is None:
        return ""
    most, least = 1 - 1 / forecast.samples, 1 / forecast.samples
    if surety > most:
        return f", more than {math.floor(100 * most)} % surely in time"
    if surety < least:
        return f", less than {max(1, math.ceil(100 * least))} % surely in time"
    return f", {100 * surety:.0f} % surely in time"


def interval(low_s: float, high_s: float) -> str:
    """Rounded outwards, so that it is never a single number.

    >>> interval(200, 270), interval(0.2, 3.5), interval(60, 60), interval(5000, 9000)
    ('3 to 5 min', '0 to 4 s', '60 to 61 s', '1 to 3 h')
    """
    unit_s, name = next((u, n) for u, n, most in _UNITS if high_s < most or not most)
    low, high = math.floor(low_s / unit_s), math.ceil(high_s / unit_s)
    return f"{low} to {max(high, low + 1)} {name}"


def _clock(now: float, *ats: float) -> list[str]:
    """Times of day; with seconds if they matter, with the day if it is another one."""
    today = time.localtime(now)[:3]
    form = "%H:%M:%S" if ats[-1] - now < 300 else "%H:%M"
    return [
        time.strftime(form if time.localtime(at)[:3] == today else f"%a %d %b {form}", local)
        for at in ats
        for local in (time.localtime(at),)
    ]


def basis_words(basis: Basis) -> str:
    known = basis.takes + basis.history
    if not known:
        return "a guess: nothing is known of these tasks"
    parts = []
    if basis.history:
        runs = _count(basis.earlier_runs, "earlier run") if basis.earlier_runs else "this run"
        parts.append(f"from {runs} of {_count(basis.kinds, 'kind')}")
    if basis.takes:
        parts.append(f"from 'takes' of {_count(basis.takes, 'task')}")
    if basis.guess:
        parts.append(f"a guess for {_count(basis.guess, 'task')}")
    return ", ".join(parts)


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number:,} {noun}s"
