"""The three ways to forecast on the same data: Monte-Carlo, the paper's PERT, and the plain
critical path.

pert: the critical path of the mean durations, as if there were room for all; the expected finish e
and its variance are sums along it, and the chance to be done by t is Phi((t - e) / sigma). What
is estimated by three points has sigma = (b - a) / 6, as the paper says; the rest its own variance.
It is too hopeful wherever paths run in parallel or tasks wait for room.
cpm: the same path with one number for every duration, the middle one: done by then, or not.
"""

from __future__ import annotations

import math
import time
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from sureline.forecast.durations import BID, TAKES, Durations
from sureline.forecast.finish import SAMPLES, basis_of, finish_forecast, open_tasks
from sureline.forecast.pools import Offers
from sureline.forecast.progress import Progress
from sureline.forecast.result import CRITICAL_MAX, QUANTILE_SHARES, Forecast, Method
from sureline.forecast.shape import Flags, Floats, Shape


class CriticalPath(NamedTuple):
    end_s: float
    variance_s2: float
    tasks: list[int]
    """From the first to the last."""


def finish_by(
    method: Method,
    shape: Shape,
    progress: Progress,
    durations: Durations,
    machine: Offers,
    deadline_s: float | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Forecast:
    """When the open tasks will be done, by this method. `deadline_s` counts from `progress.at`."""
    if method == "montecarlo":
        return finish_forecast(shape, progress, durations, machine, samples, seed, deadline_s)
    began = time.thread_time()
    is_open = open_tasks(shape, progress)
    if method == "pert":
        means_s, variances_s2 = durations.means_s, pert_variances_s2(durations)
    else:
        means_s, variances_s2 = durations.middles_s, np.zeros(len(is_open))
    for task, at in progress.started.items():
        means_s[task] = max(0.0, means_s[task] - (progress.at - at))
    path = critical_path(shape, is_open, means_s, variances_s2)
    finish = NormalDist(path.end_s, math.sqrt(path.variance_s2))
    quantiles_s = [max(0.0, quantile_s(finish, share)) for share in QUANTILE_SHARES]
    surety = None if deadline_s is None else surety_of(finish, deadline_s)
    return Forecast(
        progress.at,
        max(0.0, path.end_s),
        max(0.0, quantile_s(finish, 0.9)),
        quantiles_s[0],
        quantiles_s[-1],
        0.0,
        0.0,
        int(is_open.sum()),
        basis_of(durations, np.flatnonzero(is_open)),
        0,
        time.thread_time() - began,
        method,
        tuple(quantiles_s),
        surety,
        0.0,
        tuple((shape.graph.tasks[task].name, 1.0) for task in path.tasks[:CRITICAL_MAX]),
    )


def pert_variances_s2(durations: Durations) -> Floats:
    """Of every task, what is common to its run included."""
    three_points = (durations.source == TAKES) | (durations.source == BID)
    shifted = (durations.means_s * durations.shift) ** 2
    found: Floats = np.where(
        three_points, (durations.scale_s / 6) ** 2, durations.variances_s2 + shifted
    )
    return found


def critical_path(
    shape: Shape, is_open: Flags, means_s: Floats, variances_s2: Floats
) -> CriticalPath:
    """The longest path of open tasks; of equally long ones, that of the larger variance."""
    ends: dict[int, tuple[float, float]] = {}
    before: dict[int, int] = {}
    parents = shape.graph.parents
    for task in np.argsort(shape.level, kind="stable").tolist():
        if not is_open[task]:
            continue
        above = max((p for p in parents[task] if p in ends), key=ends.__getitem__, default=-1)
        start = ends.get(above, (0.0, 0.0))
        if above >= 0:
            before[task] = above
        ends[task] = start[0] + float(means_s[task]), start[1] + float(variances_s2[task])
    if not ends:
        return CriticalPath(0.0, 0.0, [])
    last = max(ends, key=ends.__getitem__)
    path = [last]
    while path[-1] in before:
        path.append(before[path[-1]])
    return CriticalPath(*ends[last], path[::-1])


def surety_of(finish: NormalDist, deadline_s: float) -> float:
    """The chance to be done by then; a finish without variance is in time or not."""
    if finish.stdev <= 0:
        return float(finish.mean <= deadline_s)
    return finish.cdf(deadline_s)


def quantile_s(finish: NormalDist, share: float) -> float:
    return finish.mean if finish.stdev <= 0 else finish.inv_cdf(share)
