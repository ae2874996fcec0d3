"""The finish time of a graph on limited machines, by Monte-Carlo."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from sureline.forecast.change import Change
from sureline.forecast.durations import BID, GUESS, HISTORY, TAKES, Durations
from sureline.forecast.folding import Units, units_of
from sureline.forecast.kernel import COUNTED_MAX
from sureline.forecast.pools import Offers, pools_for
from sureline.forecast.progress import DONE, FAILED, RUNNING, HoldingAttempt, Progress
from sureline.forecast.remaining import Projection, total_s
from sureline.forecast.result import (
    CRITICAL_MAX,
    GUESSED_MAX,
    QUANTILE_SHARES,
    Basis,
    Forecast,
)
from sureline.forecast.rooms import Rooms, rooms_for
from sureline.forecast.shape import Flags, Floats, Ints, Shape
from sureline.forecast.simulate import KnownRunning, Simulated, SimulatedCopy, simulated

SAMPLES = 1000
SAMPLES_MIN = 200
STARTS_MAX = 500_000
"""Units * samples: above this, samples are reduced to bound the cost (about 50 ms)."""

BYTES_PER_S = 50e6
"""What files travel at between machines, where nothing is known of it."""


class Outside(NamedTuple):
    """What else is known, beside the graph, its durations and its progress."""

    speeds: Mapping[str, float] = MappingProxyType({})
    """Of the machines, by peer; 1 if it is not known."""
    projection: Projection = "linear"


NOTHING = Outside()


def finish_forecast(
    shape: Shape,
    progress: Progress,
    durations: Durations,
    machine: Offers,
    samples: int = SAMPLES,
    seed: int = 0,
    deadline_s: float | None = None,
    changes: Sequence[Change] = (),
    outside: Outside = NOTHING,
) -> Forecast:
    """When the open tasks will be done. Equal arguments give equal forecasts, but for their cost.

    Tasks that wait for a failed one never run and do not count. That an attempt may fail, or that
    a past result may be reused, is not foreseen. `deadline_s` counts from `progress.at`.
    """
    began = time.thread_time()
    units, found = _simulated(shape, progress, durations, machine, samples, seed, changes, outside)
    times = found.ends_s
    surety = None if deadline_s is None else float((times <= deadline_s).mean())
    quantiles = _quantiles(times, QUANTILE_SHARES)
    p50_s, p90_s = _quantiles(times, (0.5, 0.9))
    return Forecast(
        progress.at,
        p50_s,
        p90_s,
        float(times.min()),
        float(times.max()),
        standard_error(times, 0.5),
        standard_error(times, 0.9),
        int(units.size.sum()),
        basis_of(durations, np.flatnonzero(units.unit_of >= 0)),
        len(times),
        time.thread_time() - began,
        "montecarlo",
        tuple(quantiles),
        surety,
        0.0 if surety is None else error_of_share(surety, len(times)),
        _critical(shape, units, found),
        _guessed(durations, np.flatnonzero(units.unit_of >= 0)),
    )


def finish_times(
    shape: Shape,
    progress: Progress,
    durations: Durations,
    machine: Offers,
    samples: int,
    seed: int = 0,
    changes: Sequence[Change] = (),
    outside: Outside = NOTHING,
) -> Floats:
    """The simulated finish times themselves, in seconds from `progress.at`: exactly `samples`."""
    _, found = _simulated(
        shape, progress, durations, machine, samples, seed, changes, outside, exactly=True
    )
    return found.ends_s


def _simulated(
    shape: Shape,
    progress: Progress,
    durations: Durations,
    machine: Offers,
    samples: int,
    seed: int,
    changes: Sequence[Change],
    outside: Outside,
    *,
    exactly: bool = False,
) -> tuple[Units, Simulated]:
    is_open = open_tasks(shape, progress)
    rooms = rooms_for(shape.needs, machine, outside.speeds)
    running, copies = _running(progress, durations, is_open, rooms, outside)
    changes = [change for change in changes if is_open[change.task]]
    alone = {*running, *(change.task for change in changes)}
    not_before_s = np.zeros(len(is_open))
    for task, at in progress.retrying.items():
        not_before_s[task] = max(0.0, at - progress.at)
    units = units_of(
        shape,
        durations,
        pools_for(shape.needs, machine),
        is_open,
        np.array(sorted(alone), dtype=np.int64),
        not_before_s,
    )
    if not exactly:
        affordable = STARTS_MAX // max(1, len(units))
        samples = max(min(samples, SAMPLES_MIN), min(samples, affordable))
    extra_s = shape.input_bytes / BYTES_PER_S if rooms.several else np.zeros(len(is_open))
    return units, simulated(
        shape, durations, units, rooms.room, running, copies, extra_s, changes, samples, seed
    )


def _running(
    progress: Progress, durations: Durations, is_open: Flags, rooms: Rooms, outside: Outside
) -> tuple[dict[int, KnownRunning], list[SimulatedCopy]]:
    """What runs, and the further attempts of it."""

    def known(task: int, attempt: HoldingAttempt) -> KnownRunning:
        elapsed_s = max(0.0, progress.at - attempt.at)
        speed = outside.speeds.get(attempt.peer, 1.0)
        total = None
        if attempt.fraction is not None:
            total = total_s(durations, task, elapsed_s, attempt.fraction, speed, outside.projection)
        return KnownRunning(elapsed_s, speed, rooms.group_of.get(attempt.peer, 0), total)

    running = {}
    for task, at in sorted(progress.started.items()):
        if is_open[task]:
            first = HoldingAttempt(at, progress.peers.get(task, ""), progress.fractions.get(task))
            running[task] = known(task, first)
    copies = [
        SimulatedCopy(task, known(task, attempt))
        for task, attempts in sorted(progress.copies.items())
        for attempt in attempts
        if task in running
    ]
    return running, copies


def open_tasks(shape: Shape, progress: Progress) -> Flags:
    """Which tasks will still end: not done, not failed, not waiting for a failed one."""
    states = np.frombuffer(progress.states, dtype=np.uint8)
    if progress.draining:
        running: Flags = states == RUNNING
        return running
    is_open: Flags = (states != DONE) & (states != FAILED)
    doomed = np.flatnonzero(states == FAILED).tolist()
    children = shape.graph.children
    while doomed:
        for child in children[doomed.pop()]:
            if is_open[child]:
                is_open[child] = False
                doomed.append(child)
    return is_open


def _quantiles(times: Floats, shares: Sequence[float]) -> list[float]:
    """At k / (samples + 1), which is right on average however few samples there are."""
    found: list[float] = np.quantile(times, shares, method="weibull").tolist()
    return found


def standard_error(times: Floats, share: float) -> float:
    """Of a quantile, from the order of the samples: no form of distribution is assumed."""
    margin = math.sqrt(share * (1 - share) / len(times))
    low, high = np.quantile(times, (max(0.0, share - margin), min(1.0, share + margin)))
    return float(high - low) / 2


def error_of_share(share: float, samples: int) -> float:
    """The standard error of a share that was counted; Laplace's estimate, so that a share of all
    or none is not held to be certain."""
    smoothed = (share * samples + 1) / (samples + 2)
    return math.sqrt(smoothed * (1 - smoothed) / samples)


def _critical(shape: Shape, units: Units, found: Simulated) -> tuple[tuple[str, float], ...]:
    counted = min(len(found.ends_s), COUNTED_MAX)
    order = np.argsort(-found.decided, kind="stable")[:CRITICAL_MAX]
    return tuple(
        (shape.graph.tasks[units.task[unit]].name, float(found.decided[unit] / counted))
        for unit in order.tolist()
        if found.decided[unit]
    )


def _guessed(durations: Durations, tasks: Ints) -> tuple[int, ...]:
    return tuple(tasks[durations.source[tasks] == GUESS][:GUESSED_MAX].tolist())


def basis_of(durations: Durations, tasks: Ints) -> Basis:
    source = durations.source[tasks]
    kinds = np.unique(durations.kind[tasks[source == HISTORY]]).tolist()
    runs = set().union(*(durations.earlier_runs_of_kind[kind] for kind in kinds))
    return Basis(
        int((source == TAKES).sum() + (source == BID).sum()),
        int((source == HISTORY).sum()),
        int((source == GUESS).sum()),
        len(runs),
        len(kinds),
    )
