"""Calibration with the real agents: the engine runs in the simulator, with and without repair.

The kernel that measures thousands of runs is a model of the engine. Here the engine runs: agents,
messages, staging and publishing of files, the monitor and its repairs. A promise is made from
earlier runs as before; then the same tasks are run twice, once without terms, once with the
promise's deadline and its surety as terms, so that the monitor may act. Without terms, the share on
time should be what was promised; with them it may be more, and must not be less.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec
import numpy as np

from sureline.experiments.calibration import EARLIER_RUNS, SAMPLES, deadlines_s
from sureline.experiments.calibration_cases import CalibrationCase, small_cases
from sureline.experiments.calibration_result import PROMISES, Agents
from sureline.experiments.calibration_truth import History
from sureline.experiments.driver import Driver
from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.machines import EPOCH_S
from sureline.experiments.processes import in_processes
from sureline.experiments.scenario import Scenario
from sureline.experiments.scenario_reader import find_scenario
from sureline.experiments.work import Work
from sureline.forecast.durations import durations_of
from sureline.forecast.shape import Floats, Shape
from sureline.journal.events import Repaired
from sureline.run.options import Options
from sureline.strategies import strategy
from sureline.workflow.model import Graph, Takes

PROMISED = 0.9

Progress = Callable[[str, int, int], None]


class _Stage(NamedTuple):
    """A made-up workflow on the machines of a shipped scenario."""

    case: str
    scenario: str


STAGES = (
    _Stage("stages", "one-machine"),
    _Stage("random-graph", "one-machine"),
    _Stage("mosaic", "quiet-lab"),
)


RUNS_OF_CHUNK = 20
"""What one process does at a time."""


class _Ran(NamedTuple):
    took_s: float
    repairs: int


class Chunk(NamedTuple):
    """Some of the runs of a stage."""

    stage: _Stage
    case: CalibrationCase
    numbers: range
    seed: int


class _Kept(NamedTuple):
    """How many runs of a chunk were on time, without and with terms, and how many repairs."""

    plain: int
    repaired: int
    repairs: int


def agents_keep_promises(runs: int, seed: int, progress: Progress) -> list[Agents]:
    """One result for each of the stages: of the runs that were promised PROMISED before they began,
    the share on time when nobody watched, and when the monitor might repair. Both are the same
    runs, with the same deadlines and the same work."""
    cases = {case.name: case for case in small_cases(seed)}
    starts = range(0, runs, RUNS_OF_CHUNK)
    chunks = [
        Chunk(stage, cases[stage.case], range(at, min(runs, at + RUNS_OF_CHUNK)), seed)
        for at in starts
        for stage in STAGES
    ]
    kept = in_processes(_kept, chunks, lambda done: progress("real agents", done, len(chunks)))
    return [
        _gathered(stage, runs, kept[place :: len(STAGES)]) for place, stage in enumerate(STAGES)
    ]


def _gathered(stage: _Stage, runs: int, kept: Sequence[_Kept]) -> Agents:
    plain, repaired, repairs = (sum(counts) for counts in zip(*kept, strict=True))
    name = f"{stage.case} on {stage.scenario}"
    return Agents(name, PROMISED, runs, plain / runs, repaired / runs, repairs)


def _kept(chunk: Chunk) -> _Kept:
    case, scenario = chunk.case, _calm(find_scenario(chunk.stage.scenario))
    shape = Shape(case.graph)
    slots = round(sum(site.machines * site.cores.arguments[0] for site in scenario.sites))
    plain = repaired = repairs = 0
    for number in chunk.numbers:
        random = np.random.default_rng([chunk.seed, number, 5])
        history = case.truth.history(EARLIER_RUNS, random)
        durations = durations_of(shape, history, {})
        promised_s = deadlines_s(shape, durations, slots, SAMPLES, number)
        within_s = float(promised_s[PROMISES.index(PROMISED)])
        took_s = case.truth.draw(1, random)[0]
        seed = chunk.seed + number
        without = run_agents(scenario, case.graph, took_s, {}, seed)
        with_terms = run_agents(scenario, case.graph, took_s, history, seed, within_s)
        plain += without.took_s <= within_s
        repaired += with_terms.took_s <= within_s
        repairs += with_terms.repairs
    return _Kept(plain, repaired, repairs)


def _calm(scenario: Scenario) -> Scenario:
    """The scenario's machines and nothing that goes wrong on them."""
    workload = msgspec.structs.replace(scenario.workload, fail=0.0)
    return msgspec.structs.replace(scenario, workload=workload, faults=(), duration_s=1e6)


def run_agents(
    scenario: Scenario,
    graph: Graph,
    took_s: Floats,
    history: History,
    seed: int,
    within_s: float | None = None,
) -> _Ran:
    """Simulate one run of a graph whose tasks take `took_s`; with terms, if `within_s` is given."""
    work = Work(_exact(graph, took_s), seed, history=history)
    grid = SimulatedGrid(scenario, seed, work)
    workload = scenario.workload
    deadline_at = None if within_s is None else EPOCH_S + workload.begin_s + within_s
    embedded = strategy(workload.strategy).where == "here"
    options = Options(
        grid="" if embedded else "simulated",
        strategy=workload.strategy,
        deadline_at=deadline_at,
        surety=PROMISED,
    )
    node = scenario.submitter_names()[0]
    driver = Driver(grid.sim, node, f"run-{seed}", graph, grid.drive, options)
    if not embedded:
        grid.boot_peers()
    grid.at(workload.begin_s, partial(grid.boot, driver.node, driver.boot))
    grid.sim.run(scenario.duration_s, lambda: driver.over)
    return _Ran(driver.result().makespan_s, sum(1 for _ in _repairs(driver)))


def _repairs(driver: Driver) -> Iterator[Repaired]:
    for event in driver.events():
        if isinstance(event, Repaired) and event.action != "none":
            yield event


def _exact(graph: Graph, took_s: Floats) -> Graph:
    """What the simulated machines know, and nobody else."""
    tasks = [
        msgspec.structs.replace(task, takes=Takes(s, s, s))
        for task, s in zip(graph.tasks, took_s.tolist(), strict=True)
    ]
    return Graph(graph.name, tasks, file_sizes=graph.file_sizes)
