"""Are promised numbers true? Of the runs promised p, the share that was on time.

Two questions are asked. *Same distribution*: a truth (`calibration_truth`) draws earlier runs; a
forecast learns from them, as it would from a journal, and says by when a run will be done with a
surety of p; then runs drawn from the same truth are held against that. Histories are drawn anew
again and again, so the share is over histories, too: a forecast that had luck with one history
shows it. *Never seen*: the history is one folder of recorded runs, the runs are those of another.

The runs are scheduled by a kernel of their own (`calibration_kernel`), not by the forecast's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np

from sureline.experiments.calibration_cases import (
    CalibrationCase,
    generated_cases,
    learned_from,
    recorded_s,
    trace_cases,
    unseen_cases,
)
from sureline.experiments.calibration_kernel import KernelGraph, run_times
from sureline.experiments.calibration_result import PROMISES, Calibration, Point, gathered
from sureline.experiments.calibration_truth import History
from sureline.experiments.processes import in_processes
from sureline.forecast.durations import Durations, durations_of
from sureline.forecast.finish import finish_times
from sureline.forecast.methods import finish_by
from sureline.forecast.progress import untouched
from sureline.forecast.result import QUANTILE_SHARES
from sureline.forecast.shape import Floats, Shape
from sureline.peer.capacity import Capacity

SLOTS = (2, 8, 16, 64)
RUNS = 2_000
EARLIER_RUNS = 20
RUNS_OF_HISTORY = 10
"""Runs held against one forecast before another history is drawn, at least."""
HISTORIES_MAX = 1_000
"""Further runs cost little, further histories much, and a thousand tell the share to 0.003."""
SAMPLES = 199
"""Of a forecast. Promises are read off at k / (samples + 1): that is right on average, however
few there are, and over hundreds of histories averages are what counts."""
RUNS_FOR_PROCESSES = 5_000
"""In all: below this, starting further processes takes longer than the work."""
SAMPLES_OF_ONE = 9_999
"""Where there is only one history, so that nothing is averaged."""

Progress = Callable[[str, int, int], None]
"""Hears what is being measured, how many are done, and how many there are."""


class Settings(NamedTuple):
    runs: int = RUNS
    slots: Sequence[int] = SLOTS
    earlier_runs: int = EARLIER_RUNS
    seed: int = 0


def calibrate(
    traces: Path | None, learn: Path | None, settings: Settings, progress: Progress
) -> Calibration:
    """Measure all cases. Raises UserError for a folder without traces."""
    if learn is not None:
        assert traces is not None, "the command saw to it"
        return _unseen(learned_from(learn), traces, settings, progress)
    cases = [*(trace_cases(traces) if traces else ()), *generated_cases(settings.seed)]
    asked = [_Asked(case, settings) for case in cases]
    asked += [
        _Asked(case, settings, learn=False) for case in cases if case.name == "wrong-estimates"
    ]
    found = _measured(asked, progress)
    return gathered(
        [point for of_case in found[: len(cases)] for point in of_case],
        unseen=False,
        earlier_runs=settings.earlier_runs,
        before_learning=[point for of_case in found[len(cases) :] for point in of_case],
    )


class _Asked(NamedTuple):
    case: CalibrationCase
    settings: Settings
    learn: bool = True


def _measured(asked: Sequence[_Asked], progress: Progress) -> list[list[Point]]:
    """The points of each. The slowest are begun first, so that no processor is idle at the end."""
    order = sorted(range(len(asked)), key=lambda place: -len(asked[place].case.graph))
    begun = [asked[place] for place in order]
    told = partial(_tell, progress, len(asked))
    if sum(one.settings.runs for one in asked) < RUNS_FOR_PROCESSES:
        found = []
        for number, one in enumerate(begun):
            told(number)
            found.append(_points(one))
    else:
        found = in_processes(_points, begun, told)
    return [points for _, points in sorted(zip(order, found, strict=True))]


def _tell(progress: Progress, count: int, done: int) -> None:
    progress("promises", done, count)


def _points(asked: _Asked) -> list[Point]:
    return same_distribution(asked.case, asked.settings, learn=asked.learn)


def same_distribution(
    case: CalibrationCase, settings: Settings, *, learn: bool = True
) -> list[Point]:
    """The points of one case: history and runs are of one truth."""
    shape, layout = Shape(case.graph), KernelGraph(case.graph)
    on_time = {slots: np.zeros((2, len(PROMISES))) for slots in settings.slots}
    of_history = max(RUNS_OF_HISTORY, -(-settings.runs // HISTORIES_MAX))
    done = 0
    while done < settings.runs:
        random = np.random.default_rng([settings.seed, done, crc32(case.name.encode())])
        batch = min(of_history, settings.runs - done)
        history = case.truth.history(settings.earlier_runs, random) if learn else {}
        durations = durations_of(shape, history, {})
        drawn_s = case.truth.draw(batch, random)
        pert_s = pert_deadlines_s(shape, durations)
        for slots, counts in on_time.items():
            ours_s = deadlines_s(shape, durations, slots, SAMPLES, done)
            took_s = run_times(layout, drawn_s, slots)
            counts[0] += (took_s[:, None] <= ours_s).sum(axis=0)
            counts[1] += (took_s[:, None] <= pert_s).sum(axis=0)
        done += batch
    return [
        _point(case.name, slots, place, counts / done, done)
        for slots, counts in on_time.items()
        for place in range(len(PROMISES))
    ]


def _point(name: str, slots: int, place: int, shares: Floats, runs: int) -> Point:
    ours, pert = (round(float(share), 6) for share in shares[:, place])
    return Point(name, slots, PROMISES[place], ours, runs, pert)


def deadlines_s(shape: Shape, durations: Durations, slots: int, samples: int, seed: int) -> Floats:
    """By when the run will be done, for each promise."""
    begin = untouched(shape.graph, 0.0)
    times_s = finish_times(shape, begin, durations, _machine(slots), samples, seed)
    found: Floats = np.quantile(times_s, PROMISES, method="weibull")
    return found


def pert_deadlines_s(shape: Shape, durations: Durations) -> Floats:
    """The same by PERT, which knows of no slots."""
    begin = untouched(shape.graph, 0.0)
    quantiles_s = finish_by("pert", shape, begin, durations, _machine(1)).quantiles_s
    return np.array([quantiles_s[QUANTILE_SHARES.index(share)] for share in PROMISES])


def _machine(slots: int) -> Capacity:
    return Capacity(float(slots), 1 << 50, 1 << 50, 0, {})


def _unseen(history: History, traces: Path, settings: Settings, progress: Progress) -> Calibration:
    cases, recorded = unseen_cases(traces), recorded_s(traces)
    points: list[Point] = []
    for number, case in enumerate(cases):
        progress(case.name, number, len(cases))
        points += never_seen(case, history, recorded[case.name], settings)
    runs = {seen.run for observed in history.values() for seen in observed}
    return gathered(points, unseen=True, earlier_runs=len(runs))


def never_seen(
    case: CalibrationCase, history: History, recorded: Floats, settings: Settings
) -> list[Point]:
    """The points of one trace, given what other traces tell of its kinds."""
    shape, layout = Shape(case.graph), KernelGraph(case.graph)
    durations = durations_of(shape, history, {})
    drawn_s = case.truth.draw(settings.runs, np.random.default_rng([settings.seed, 1]))
    pert_s = pert_deadlines_s(shape, durations)
    points = []
    for slots in settings.slots:
        ours_s = deadlines_s(shape, durations, slots, SAMPLES_OF_ONE, settings.seed)
        took_s = run_times(layout, drawn_s, slots)
        happened_s = run_times(layout, recorded, slots)[0]
        for place, share in enumerate(PROMISES):
            points.append(
                Point(
                    case.name,
                    slots,
                    share,
                    round(float((took_s <= ours_s[place]).mean()), 6),
                    settings.runs,
                    round(float((took_s <= pert_s[place]).mean()), 6),
                    bool(happened_s <= ours_s[place]),
                )
            )
    return points
