"""What observed durations of one kind say about the next ones.

The model: log duration = what the kind takes + a shift common to all its tasks in one run (another
machine, larger data, a busy disk) + what is the task's own. The shift matters: a thousand tasks
average their own parts away, never the shift. So a forecast draws it once per kind and simulated
run, and draws the tasks' own parts from the observed residuals, smoothed, with their tails.

Tasks that finished in the current run tell its shift; they are weighed against the earlier runs by
the precision of both, so that a few of them soon outweigh any history.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from sureline.forecast.shape import Floats
from sureline.journal.history import Observed

TABLE_POINTS = 512
"""A distribution is a table of this many quantiles, at the middles of equal shares."""
QUANTILES: Floats = (np.arange(TABLE_POINTS) + 0.5) / TABLE_POINTS
ENOUGH = 3
"""Fewer observations than this do not show their own spread."""
SHIFT_UNKNOWN = 0.15
"""The spread (of logarithms) of runs around each other, if only one run is known."""
SPREAD_MIN = 0.02
"""No kind is believed to be steadier than this (2 %)."""
SECONDS_MIN = 1e-4
SPREAD_OF_FEW = {1: math.log(3) / 1.645, 2: math.log(2) / 1.645}
"""One observation: right within a factor of 3 at 90 %; two: of 2."""
SHIFT_SHARE_OF_FEW = 0.75
"""How much of that variance is thought common to all tasks of the kind."""

_SMOOTHING: Floats = np.array([NormalDist().inv_cdf((i + 0.5) / 16) for i in range(16)])


class Learned(NamedTuple):
    """A kind's next duration in this run: middle_s * exp(shift * common normal) * own draw."""

    middle_s: float
    shift: float
    spread: float
    """Standard deviation of the logarithm of the own part."""
    own: Floats | None
    """Quantiles of the own part, around 1; None for a lognormal one."""


class _Runs(NamedTuple):
    """Logarithms of durations, a list for each earlier run, and those of the current one."""

    earlier: list[Floats]
    current: Floats


def learn(history: Sequence[Observed], this_run_s: Sequence[float], run: str) -> Learned | None:
    """From earlier runs and the current one, called `run`; None if nothing was observed."""
    by_run: dict[str, list[float]] = {}
    for seen in history:
        if seen.run != run or not this_run_s:
            by_run.setdefault(seen.run, []).append(seen.elapsed_s)
    runs = _Runs([_logs(v) for v in by_run.values()], _logs(this_run_s))
    number = sum(map(len, runs.earlier)) + len(runs.current)
    if number == 0:
        return None
    if number < ENOUGH:
        return _from_few(np.concatenate([*runs.earlier, runs.current]))
    return _from_many(runs, number)


def _logs(seconds: Sequence[float]) -> Floats:
    return np.log(np.maximum(np.array(seconds, dtype=np.float64), SECONDS_MIN))


def _from_few(logs: Floats) -> Learned:
    total = SPREAD_OF_FEW[len(logs)] + float(logs.std())
    shift = total * math.sqrt(SHIFT_SHARE_OF_FEW)
    own = total * math.sqrt(1 - SHIFT_SHARE_OF_FEW)
    return Learned(math.exp(float(logs.mean())), shift, own, None)


def _from_many(runs: _Runs, number: int) -> Learned:
    rich = [logs for logs in [*runs.earlier, runs.current] if len(logs) >= ENOUGH]
    centre = float(np.concatenate([*runs.earlier, runs.current]).mean())
    residuals = np.concatenate(
        [
            logs - (logs.mean() if len(logs) >= ENOUGH else centre)
            for logs in [*runs.earlier, runs.current]
        ]
    )
    lost = len(rich) or 1  # one degree of freedom for every mean that was subtracted
    spread = math.sqrt(float((residuals**2).sum()) / max(1, number - lost))
    spread = max(spread, SPREAD_MIN)
    middle, variance = _this_run(runs, spread, _between(rich, spread))
    return Learned(math.exp(middle), math.sqrt(variance), spread, _own_table(residuals, spread))


def _between(rich: Sequence[Floats], spread: float) -> float:
    """Variance of the runs' shifts."""
    if not rich:
        return 0.0  # a task or two per run: the shift cannot be told from what is a task's own
    if len(rich) == 1:
        return SHIFT_UNKNOWN**2
    means = np.array([logs.mean() for logs in rich])
    noise = float(np.mean([spread**2 / len(logs) for logs in rich]))
    return max(0.0, float(means.var(ddof=1)) - noise)


def _this_run(runs: _Runs, spread: float, between: float) -> tuple[float, float]:
    """Where the current run's durations lie (in logarithms), and the variance of that."""
    weight = weighted = 0.0
    if runs.earlier:
        weights = [1 / (between + spread**2 / len(logs)) for logs in runs.earlier]
        centre = sum(w * float(logs.mean()) for w, logs in zip(weights, runs.earlier, strict=True))
        centre /= sum(weights)
        weight = 1 / (between + 1 / sum(weights))
        weighted = weight * centre
    if len(runs.current):
        precision = len(runs.current) / spread**2
        weight += precision
        weighted += precision * float(runs.current.mean())
    return weighted / weight, 1 / weight


def _own_table(residuals: Floats, spread: float) -> Floats:
    """Quantiles of exp(residual): smoothed, and wider the fewer there are.

    Smoothing widens, so it is scaled back to the spread; then, like Student's distribution, few
    observations are given longer tails than they show, around the same mean.
    """
    number = len(residuals)
    bandwidth = 0.5 * 1.06 * spread * number**-0.2
    cloud = (residuals[:, None] + bandwidth * _SMOOTHING[None, :]).ravel()
    deviation = float(cloud.std())
    scale = spread / deviation if deviation > 0 else 1.0
    cloud *= scale
    mean = float(np.exp(cloud).mean())
    cloud.sort()
    shares = (np.arange(len(cloud)) + 0.5) / len(cloud)
    quantiles: Floats = np.exp((1 + 2 / number) * np.interp(QUANTILES, shares, cloud))
    return quantiles * (mean / float(quantiles.mean()))
