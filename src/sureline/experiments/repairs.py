"""Does repair pay? The same grids, the same faults, the same tasks, with four ways to be in time.

- `repair`: the strategy itself: the cheapest plan that meets the terms, watched and repaired.
- `no repair`: the same plan, and then hope.
- `duplicate all`: the same plan, and every task a second time elsewhere as long as money lasts.
- `fastest only`: the quickest plan that the budget allows, and nothing after that.

What a user knows is what the strategy knows: an estimate by three points, and what tasks took in
earlier runs. What the tasks of this run take is drawn once for a seed, and all four meet it.
What was paid is measured against what it would have cost in hindsight: see `repairs_hindsight`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np

from sureline.experiments.calibration_truth import History, history_of, input_bytes
from sureline.experiments.driver import Driver
from sureline.experiments.faults import Faults
from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.machines import EPOCH_S
from sureline.experiments.repairs_hindsight import least_in_hindsight
from sureline.experiments.repairs_rivals import Duplicating
from sureline.experiments.scenario import SUBMITTER, Scenario, Workload
from sureline.experiments.scenario_reader import find_scenario
from sureline.experiments.work import Work
from sureline.experiments.workloads import workload_graph
from sureline.journal.events import Repaired
from sureline.journal.store import slug
from sureline.run.options import Options
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph, Takes
from sureline.world.address import Node

SCENARIOS = ("repair-stragglers", "repair-failures", "repair-overbooked", "repair-stalling")
REPAIR, NO_REPAIR, DUPLICATE_ALL, FASTEST_ONLY = WAYS = (
    "repair",
    "no repair",
    "duplicate all",
    "fastest only",
)
RUNS = 20
EARLIER_RUNS = 20
DRAWS = 400

Progress = Callable[[str, int, int], None]


class Once(NamedTuple):
    """One simulated run."""

    on_time: bool
    took_s: float
    paid: float
    repairs: int
    least: float | None
    """What the cheapest schedule in hindsight costs; None if none is in time."""


class Row(msgspec.Struct, frozen=True):
    """All runs of one scenario, one way."""

    scenario: str
    way: str
    runs: int
    on_time: float
    """The share that ended by the deadline."""
    paid: float
    """Money, on average."""
    took_s: float
    """The median, from submission to end; a run that did not end counts to the simulation's end."""
    repairs: float
    """Actions, on average."""
    makeable: float
    """The share of the runs that could be in time: in hindsight, or one of the ways was."""
    least: float | None
    """What it would have cost at least to be in time, on average over those: the cheapest schedule
    in hindsight, or a way that was in time for less; None if there are none."""


class Repairs(msgspec.Struct, frozen=True):
    rows: tuple[Row, ...]
    pays: bool
    """Whether, over all scenarios, repair was in time more often than each of the others, or as
    often for less money."""


def compare(
    names: Sequence[str], runs: int, seed: int, progress: Progress = lambda what, n, of: None
) -> Repairs:
    """As many runs at a time as there are cores. Raises UserError for a scenario that is unknown or
    has no terms."""
    scenarios = [find_scenario(name) for name in names]
    for scenario, name in zip(scenarios, names, strict=True):
        _check(scenario, name)
    jobs = [
        (scenario, seed + number, way)
        for scenario in scenarios
        for way in WAYS
        for number in range(runs)
    ]
    found: list[Once] = []
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        for once in pool.map(run_once, *zip(*jobs, strict=True)):
            scenario, _, way = jobs[len(found)]
            progress(f"{scenario.name}, {way}", len(found), len(jobs))
            found.append(once)
    rows: list[Row] = []
    for number, scenario in enumerate(scenarios):
        of_all = found[number * len(WAYS) * runs :][: len(WAYS) * runs]
        by_way = {way: of_all[k * runs :][:runs] for k, way in enumerate(WAYS)}
        rows.extend(rows_of(scenario.name, by_way))
    return Repairs(tuple(rows), _pays(rows))


def _check(scenario: Scenario, name: str) -> None:
    workload = scenario.workload
    if workload.strategy != "surety" or workload.within_s is None or workload.work_s is None:
        raise UserError(
            f'{name} has no deadline to be kept; give its [workload] strategy = "surety", '
            "'within' and 'work'"
        )


def rows_of(scenario: str, by_way: Mapping[str, Sequence[Once]]) -> list[Row]:
    """`by_way` has the runs of each way, in the same order of seeds."""
    least = [_least(of_seed) for of_seed in zip(*by_way.values(), strict=True)]
    return [_row(scenario, way, found, least) for way, found in by_way.items()]


def _least(of_seed: Sequence[Once]) -> float | None:
    """The least money that was in time, or would have been."""
    found = [once.least for once in of_seed if once.least is not None]
    found += [once.paid for once in of_seed if once.on_time]
    return min(found, default=None)


def _row(scenario: str, way: str, found: Sequence[Once], least: Sequence[float | None]) -> Row:
    count = len(found)
    known = [money for money in least if money is not None]
    return Row(
        scenario,
        way,
        count,
        round(sum(one.on_time for one in found) / count, 6),
        round(sum(one.paid for one in found) / count, 6),
        round(float(np.median([one.took_s for one in found])), 3),
        round(sum(one.repairs for one in found) / count, 6),
        round(len(known) / count, 6),
        round(sum(known) / len(known), 6) if known else None,
    )


def _pays(rows: Sequence[Row]) -> bool:
    on_time, paid = dict.fromkeys(WAYS, 0.0), dict.fromkeys(WAYS, 0.0)
    for row in rows:
        on_time[row.way] += row.on_time
        paid[row.way] += row.paid
    return all(
        on_time[REPAIR] > on_time[way]
        or (on_time[REPAIR] == on_time[way] and paid[REPAIR] <= paid[way])
        for way in WAYS[1:]
    )


def run_once(scenario: Scenario, seed: int, way: str) -> Once:
    """Simulate one run to its end, or to the end of the scenario."""
    workload = scenario.workload
    assert workload.within_s is not None, "a scenario of this experiment has a deadline"
    exact = workload_graph(workload, seed)
    history = _history(exact, workload, seed)
    estimated = as_estimated(exact, workload)
    work = Work(exact, seed, fail=workload.fail, fail_kinds=workload.fail_kinds, history=history)
    grid = SimulatedGrid(scenario, seed, work)
    faults = Faults(scenario, seed, grid)
    deadline_at = EPOCH_S + workload.begin_s + workload.within_s
    options = Options(
        grid="simulated",
        strategy=workload.strategy,
        budget=workload.budget,
        surety=workload.surety,
        repair=way == REPAIR,
        deadline_at=None if way == FASTEST_ONLY else deadline_at,
    )
    driver = Driver(
        grid.sim,
        Node(SUBMITTER),
        f"{slug(scenario.name)}-s{seed}",
        estimated,
        grid.drive,
        options,
        Duplicating if way == DUPLICATE_ALL else None,
    )
    grid.boot_peers()
    grid.at(workload.begin_s, partial(grid.boot, driver.node, driver.boot))
    faults.schedule()
    grid.sim.run(scenario.duration_s, lambda: driver.over)
    result = driver.result()
    repairs = [e for e in driver.events() if isinstance(e, Repaired) and e.action != "none"]
    done = result.state == "succeeded" and driver.ended_s is not None
    on_time = done and result.makespan_s <= workload.within_s
    seconds = [work.seconds_of(task.name) for task in exact.tasks]
    least = least_in_hindsight(scenario, estimated, seconds, grid.boxes)
    return Once(on_time, result.makespan_s, result.paid, len(repairs), least)


def as_estimated(graph: Graph, workload: Workload) -> Graph:
    """What a user would say of the tasks, who knows how long such tasks take but not these."""
    assert workload.work_s is not None
    random = Random("estimates")
    drawn = sorted(workload.work_s.draw(random) for _ in range(DRAWS))
    low, likely, high = (drawn[int(DRAWS * share)] for share in (0.05, 0.5, 0.95))
    takes = Takes(low, likely, high)
    tasks = [msgspec.structs.replace(task, takes=takes) for task in graph.tasks]
    return Graph(graph.name, tasks, file_sizes=graph.file_sizes, source=graph.source)


def _history(graph: Graph, workload: Workload, seed: int) -> History:
    """Earlier runs of the same workflow on machines that kept their word."""
    assert workload.work_s is not None
    random = Random(f"{seed}/earlier")
    drawn = [[workload.work_s.draw(random) for _ in graph.tasks] for _ in range(EARLIER_RUNS)]
    return history_of(graph, np.array(drawn), input_bytes(graph))
