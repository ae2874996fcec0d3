"""The finish time of a graph on limited slots, by Monte-Carlo."""

from __future__ import annotations

import math
import time

import numpy as np

from sureline.forecast.durations import GUESS, HISTORY, TAKES, Durations
from sureline.forecast.folding import Units, units_of
from sureline.forecast.pools import Offers, Pools, pools_for
from sureline.forecast.progress import DONE, FAILED, RUNNING, Progress
from sureline.forecast.result import Basis, Forecast
from sureline.forecast.shape import Flags, Floats, Ints, Shape
from sureline.forecast.simulate import Draws, finish_times, start_order

SAMPLES = 200
SAMPLES_MIN = 40
ELEMENTS_MAX = 100_000_000
"""Units * (lanes + LANES_OF_UNIT) * samples: above this, samples are reduced to bound the cost."""
LANES_OF_UNIT = 24
"""What a unit costs besides its lanes, in lanes."""


def finish_forecast(
    shape: Shape,
    progress: Progress,
    durations: Durations,
    machine: Offers,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Forecast:
    """When the open tasks will be done. Equal arguments give equal forecasts, but for their cost.

    Tasks that wait for a failed one never run and do not count. That an attempt may fail, or that
    a past result may be reused, is not foreseen.
    """
    began = time.thread_time()
    is_open = open_tasks(shape, progress)
    running = np.array(sorted(progress.started), dtype=np.int64)
    running = running[is_open[running]]
    pools = pools_for(shape.needs, machine)
    not_before_s = np.zeros(len(is_open))
    for task, at in progress.retrying.items():
        not_before_s[task] = max(0.0, at - progress.at)
    units = units_of(shape, durations, pools, is_open, running, not_before_s)
    samples = max(min(samples, SAMPLES_MIN), min(samples, _affordable(units, pools)))
    elapsed_s = [max(0.0, progress.at - progress.started[task]) for task in running.tolist()]
    times = _simulated(shape, durations, units, pools, elapsed_s, samples, seed)
    return Forecast(
        progress.at,
        float(np.quantile(times, 0.5)),
        float(np.quantile(times, 0.9)),
        float(times.min()),
        float(times.max()),
        standard_error(times, 0.5),
        standard_error(times, 0.9),
        int(is_open.sum()),
        _basis(durations, np.flatnonzero(is_open)),
        samples,
        time.thread_time() - began,
    )


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


def standard_error(times: Floats, share: float) -> float:
    """Of a quantile, from the order of the samples: no form of distribution is assumed."""
    margin = math.sqrt(share * (1 - share) / len(times))
    low, high = np.quantile(times, (max(0.0, share - margin), min(1.0, share + margin)))
    return float(high - low) / 2


def _simulated(
    shape: Shape,
    durations: Durations,
    units: Units,
    pools: Pools,
    elapsed_s: list[float],
    samples: int,
    seed: int,
) -> Floats:
    # With a lane for everybody, nobody ever waits for one.
    tight = [
        pool
        for pool, lanes in enumerate(pools.lanes)
        if lanes < _sum_of_lanes(pools, pool, shape.needs_class[units.task])
    ]
    taking = [
        tuple((pool, lanes) for pool, lanes in of_need if pool in tight) for of_need in pools.taking
    ]
    of_unit = [taking[need] for need in shape.needs_class[units.task].tolist()]
    order = start_order(units, of_unit, pools, len(elapsed_s))
    draws = Draws(units, durations, elapsed_s, samples, seed)
    return finish_times(units, order, of_unit, pools, draws, samples)


def _sum_of_lanes(pools: Pools, pool: int, needs: Ints) -> int:
    """How many lanes of a pool tasks of these needs would take together."""
    per_need = [dict(taking).get(pool, 0) for taking in pools.taking]
    return int(np.array(per_need, dtype=np.int64)[needs].sum())


def _affordable(units: Units, pools: Pools) -> int:
    return ELEMENTS_MAX // max(1, len(units) * (sum(pools.lanes) + LANES_OF_UNIT))


def _basis(durations: Durations, tasks: Ints) -> Basis:
    source = durations.source[tasks]
    kinds = np.unique(durations.kind[tasks[source == HISTORY]]).tolist()
    runs = set().union(*(durations.earlier_runs_of_kind[kind] for kind in kinds))
    return Basis(
        int((source == TAKES).sum()),
        int((source == HISTORY).sum()),
        int((source == GUESS).sum()),
        len(runs),
        len(kinds),
    )
