"""Does repair pay? The same grids, the same faults, the same tasks, with four ways to be in time.

- `repair`: the strategy itself: the cheapest plan that meets the terms, watched and repaired.
- `no repair`: the same plan, and then hope.
- `duplicate all`: the same plan, and every task a second time elsewhere as long as money lasts.
- `fastest only`: the quickest plan that the budget allows, and nothing after that.

What a user knows is what the strategy knows: an estimate by three points, and what tasks took in
earlier runs. What the tasks of this run take is drawn once for a seed, and all four meet it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import NamedTuple

import msgspec
import numpy as np

from sureline.experiments.calibration_truth import History, history_of, input_bytes
from sureline.experiments.driver import Driver
from sureline.experiments.faults import Faults
from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.machines import EPOCH_S
from sureline.experiments.repairs_rivals import DuplicatingSubmitter
from sureline.experiments.scenario import SUBMITTER, Scenario, Workload
from sureline.experiments.scenario_reader import find_scenario
from sureline.experiments.work import Work
from sureline.experiments.workloads import workload_graph
from sureline.journal.events import Repaired
from sureline.journal.store import slug
from sureline.run.options import Options
from sureline.strategies.surety.submitter import SuretySubmitter
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph, Takes

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


class Repairs(msgspec.Struct, frozen=True):
    rows: tuple[Row, ...]
    pays: bool
    """Whether, over all scenarios, repair was in time more often than each of the others, or as
    often for less money."""


def compare(
    names: Sequence[str], runs: int, seed: int, progress: Progress = lambda what, n, of: None
) -> Repairs:
    """Raises UserError for a scenario that is unknown or has no terms."""
    rows = []
    for place, name in enumerate(names):
        scenario = find_scenario(name)
        _check(scenario, name)
        for way in WAYS:
            progress(f"{name}, {way}", place, len(names))
            found = [run_once(scenario, seed + number, way) for number in range(runs)]
            rows.append(_row(scenario.name, way, found))
    return Repairs(tuple(rows), _pays(rows))


def _check(scenario: Scenario, name: str) -> None:
    workload = scenario.workload
    if workload.strategy != "surety" or workload.within_s is None or workload.work_s is None:
        raise UserError(
            f'{name} has no deadline to be kept; give its [workload] strategy = "surety", '
            "'within' and 'work'"
        )


def _row(scenario: str, way: str, found: Sequence[Once]) -> Row:
    count = len(found)
    return Row(
        scenario,
        way,
        count,
        round(sum(one.on_time for one in found) / count, 6),
        round(sum(one.paid for one in found) / count, 6),
        round(float(np.median([one.took_s for one in found])), 3),
        round(sum(one.repairs for one in found) / count, 6),
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
    work = Work(exact, seed, fail=workload.fail, fail_kinds=workload.fail_kinds, history=history)
    grid = SimulatedGrid(scenario, seed, work)
    faults = Faults(scenario, seed, grid)
    sort = DuplicatingSubmitter if way == DUPLICATE_ALL else SuretySubmitter
    deadline_at = EPOCH_S + workload.begin_s + workload.within_s
    options = Options(
        grid="simulated",
        budget=workload.budget,
        surety=workload.surety,
        repair=way == REPAIR,
        deadline_at=None if way == FASTEST_ONLY else deadline_at,
    )
    driver = Driver(
        grid.sim,
        SUBMITTER,
        f"{slug(scenario.name)}-s{seed}",
        _as_estimated(exact, workload),
        partial(grid.drive_surety, sort=sort),
        options,
    )
    grid.boot_peers()
    grid.at(workload.begin_s, partial(grid.boot, driver.node, driver.boot))
    faults.schedule()
    grid.sim.run(scenario.duration_s, lambda: driver.over)
    result = driver.result()
    repairs = [e for e in driver.events() if isinstance(e, Repaired) and e.action != "none"]
    done = result.state == "succeeded" and driver.ended_s is not None
    on_time = done and result.makespan_s <= workload.within_s
    return Once(on_time, result.makespan_s, result.paid, len(repairs))


def _as_estimated(graph: Graph, workload: Workload) -> Graph:
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
