"""Running a scenario from its first moment to its outcome."""

from __future__ import annotations

import os
import traceback
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import msgspec

from sureline.experiments import invariants
from sureline.experiments.driver import Driver
from sureline.experiments.faults import Faults
from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.machine_files import SimulatedStore
from sureline.experiments.machines import EPOCH_S
from sureline.experiments.outcome import Checked, ScenarioOutcome, ScenarioTraffic
from sureline.experiments.protocols import ProtocolRun
from sureline.experiments.scenario import PROTOCOLS, Scenario
from sureline.experiments.work import Work
from sureline.experiments.workloads import workload_graph
from sureline.journal.events import AnyEvent
from sureline.journal.store import slug
from sureline.peer.capacity import Ledger
from sureline.run.binds import check_travels
from sureline.run.options import Options
from sureline.strategies import strategy
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph
from sureline.world.simulated.simulation import SimulationError

Progress = Callable[[float, int], None]
"""Hears the virtual time and the number of events, now and then."""


def run_scenario(
    scenario: Scenario, seed: int, progress: Progress | None = None, graph: Graph | None = None
) -> ScenarioOutcome:
    """Simulate until everything is over, or the scenario's duration has passed. `graph` is taken in
    place of the workflow that the scenario describes."""
    if scenario.workload.kind in PROTOCOLS:
        return _run_protocol(scenario, seed, progress)
    return _run_workflows(scenario, seed, progress, graph)


def _run_workflows(
    scenario: Scenario, seed: int, progress: Progress | None, graph: Graph | None
) -> ScenarioOutcome:
    workload = scenario.workload
    graph = graph or workload_graph(workload, seed)
    work = Work(graph, seed, fail=workload.fail, fail_kinds=workload.fail_kinds)
    grid = SimulatedGrid(scenario, seed, work)
    here = strategy(workload.strategy).where == "here"
    _check_possible(graph, grid, here=here)
    faults = Faults(scenario, seed, grid)
    drivers = list(_drivers(scenario, seed, grid, graph))
    if not here:
        grid.boot_peers()
    at_s = workload.begin_s
    for driver in drivers:
        if workload.within_s is not None:
            deadline_at = EPOCH_S + at_s + workload.within_s
            driver.options = msgspec.structs.replace(driver.options, deadline_at=deadline_at)
        for node in driver.machines:
            grid.at(at_s, partial(grid.boot, node, partial(driver.boot, node)))
        if workload.cancel_s is not None:
            grid.at(at_s + workload.cancel_s, partial(grid.cancel, driver.node, driver.run))
        at_s += workload.every_s.draw(faults.random)
    faults.schedule()
    sound = _let_happen(grid, scenario, progress, lambda: all(driver.over for driver in drivers))
    checks = [sound]
    checks += [check for driver in drivers for check in _check_run(scenario, grid, driver)]
    checks += _check_grid(scenario, grid)
    return ScenarioOutcome(
        scenario.name,
        seed,
        round(grid.sim.time, 6),
        grid.sim.events,
        tuple(driver.result() for driver in drivers),
        None,
        traffic_of(grid, len(graph) * len(drivers)),
        dict(faults.counts),
        tuple(faults.happened),
        tuple(_joined(checks)),
        tuple(driver.lines() for driver in drivers),
    )


def _check_possible(graph: Graph, grid: SimulatedGrid, *, here: bool) -> None:
    """Raise UserError for a workflow that could never finish here."""
    if not here:
        check_travels(graph)
    machines = [Ledger(box.capacity) for box in grid.boxes.values()]
    for task in graph.tasks:
        if not any(machine.fits(task.needs) for machine in machines):
            raise UserError(
                f"{task.name} needs more than any machine of the scenario has; give [grid] more "
                "cores, memory or disk"
            )


def _drivers(scenario: Scenario, seed: int, grid: SimulatedGrid, graph: Graph) -> Iterator[Driver]:
    workload = scenario.workload
    nodes = scenario.submitter_names()
    options = Options(
        grid="" if strategy(workload.strategy).where == "here" else "simulated",
        strategy=workload.strategy,
        settings=workload.settings,
        budget=workload.budget,
        surety=workload.surety,
        repair=workload.repair,
        takeover_after_s=workload.takeover_s,
    )
    for number, node in enumerate(nodes, 1):
        name = f"{slug(scenario.name)}-s{seed}" + (f"-{number}" if len(nodes) > 1 else "")
        visit = grid.visit if options.grid else None
        driver = Driver(
            grid.sim, node, name, graph, grid.drive, options, visit=visit, papers=grid.papers
        )
        if workload.standbys:
            last = number * workload.standbys
            standbys = scenario.standby_names()[last - workload.standbys : last]
            driver.look_after(standbys, workload.look_s)
        grid.drivers[name] = driver
        yield driver


def _let_happen(
    grid: SimulatedGrid, scenario: Scenario, progress: Progress | None, over: Callable[[], bool]
) -> Checked:
    """Run the simulation. An agent that raises ends it: that is the worst that can be found."""
    heard = None if progress is None else lambda sim: progress(sim.time, sim.events)
    try:
        grid.sim.run(scenario.duration_s, over, progress=heard)
    except SimulationError as error:
        return _checked("no agent failed", [f"{error}, in {_place_of(error)}"])
    return _checked("no agent failed", [])


def _place_of(error: SimulationError) -> str:
    """The line that raised what ended the simulation."""
    frames = traceback.extract_tb((error.__cause__ or error).__traceback__)
    return f"{os.path.basename(frames[-1].filename)}:{frames[-1].lineno}" if frames else "no code"


def _check_run(scenario: Scenario, grid: SimulatedGrid, driver: Driver) -> Iterator[Checked]:
    graph, events = driver.graph, driver.events()
    failed = invariants.failed_for_good(graph, events)
    for node in driver.machines:
        yield from _check_journal(graph, driver.events(node), grid.boxes[node].store)
    journals = {node: driver.entries(node) for node in driver.machines}
    copies = [box.kept.copies().get(driver.run, []) for box in grid.boxes.values()]
    yield _checked("one line of epochs", invariants.one_line(journals))
    yield _checked("copies true", invariants.copies_true(journals, copies))
    yield _checked("can be resumed", invariants.resumable(graph, driver.run, journals, copies))
    yield _checked("one writer at a time", driver.problems)
    away = [f"{node}: {one}" for node, found in driver.missing.items() for one in found]
    yield _checked("results come home", away)
    for what, audit in strategy(scenario.workload.strategy).audits.items():
        yield _checked(what, list(audit(events, driver.options.terms)))
    if scenario.checks.finish:
        yield _checked("finished", invariants.finished(graph, events, failed))
    if scenario.checks.makespan_s is not None:
        took_s = driver.result().makespan_s
        late = took_s > scenario.checks.makespan_s
        problem = f"{driver.run} took {took_s:.1f} s, more than {scenario.checks.makespan_s:g} s"
        yield _checked("fast enough", [problem] if late else [])


def _check_journal(
    graph: Graph, events: Sequence[AnyEvent], store: SimulatedStore
) -> Iterator[Checked]:
    """What must hold of each machine's journal by itself."""
    yield _checked("each task committed once", invariants.commits_once(events))
    yield _checked("order respected", invariants.order_respected(graph, events))
    yield _checked("attempts numbered", invariants.attempts_bound_once(events))
    yield _checked("outputs right", invariants.outputs_right(graph, events))
    yield _checked("outputs delivered", invariants.delivered(graph, events, store.published))


def _check_grid(scenario: Scenario, grid: SimulatedGrid) -> Iterator[Checked]:
    for box in grid.boxes.values():
        found = invariants.never_overcommitted(box.node, box.claimed.cores, box.log)
        yield _checked("no machine over-committed", found)
    peaks = {node: peak.messages for node, peak in grid.sim.counters.peaks().items()}
    limit = scenario.checks.messages_per_second
    yield _checked("no message storm", invariants.no_storm(peaks, limit))


def _checked(what: str, problems: Sequence[str]) -> Checked:
    return Checked(what, tuple(problems))


def _joined(checks: Sequence[Checked]) -> Iterator[Checked]:
    """One line per thing that was checked, over all runs and machines."""
    problems: dict[str, list[str]] = {}
    for check in checks:
        problems.setdefault(check.what, []).extend(check.problems)
    for what, found in problems.items():
        yield Checked(what, tuple(found[: invariants.PROBLEMS_MAX]))


def traffic_of(grid: SimulatedGrid, tasks: int) -> ScenarioTraffic:
    counters = grid.sim.counters
    kinds = sorted(counters.by_type().items(), key=lambda item: (-item[1].sent, item[0]))
    total = sum(kind.sent for _, kind in kinds)
    sent = {node: traffic.sent for node, traffic in counters.by_node().items()}
    busiest = max(sent, key=lambda node: (sent[node], node), default="")
    peaks = {node: peak.messages for node, peak in counters.peaks().items()}
    peak = max(peaks, key=lambda node: (peaks[node], node), default="")
    return ScenarioTraffic(
        total,
        sum(kind.sent_bytes for _, kind in kinds),
        sum(bulk.sent_bytes for bulk in counters.bulk_by_node().values()),
        round(total / tasks, 3) if tasks else 0.0,
        {name: (kind.sent, kind.sent_bytes) for name, kind in kinds if kind.sent},
        busiest,
        sent.get(busiest, 0),
        peak,
        peaks.get(peak, 0),
    )


def _run_protocol(scenario: Scenario, seed: int, progress: Progress | None) -> ScenarioOutcome:
    grid = SimulatedGrid(scenario, seed, None)
    faults = Faults(scenario, seed, grid)
    asked = ProtocolRun(scenario, seed, grid)
    asked.schedule()
    faults.schedule()
    sound = _let_happen(grid, scenario, progress, lambda: asked.over)
    result, checks = asked.result(), [sound, *_check_grid(scenario, grid)]
    if scenario.workload.kind == "lookups":
        lost = invariants.nothing_lost(asked.held, asked.found, scenario.checks.found)
        checks.append(_checked("no key lost", lost))
    else:
        short = result.share < scenario.checks.reached
        problem = f"broadcasts reached {result.share:.2%} of the live nodes"
        checks.append(_checked("broadcasts reach", [problem] if short else []))
    if result.answered < result.asked:
        problem = f"{result.asked - result.answered} of {result.asked} were never answered"
        checks.append(_checked("everything answered", [problem]))
    return ScenarioOutcome(
        scenario.name,
        seed,
        round(grid.sim.time, 6),
        grid.sim.events,
        (),
        result,
        traffic_of(grid, 0),
        dict(faults.counts),
        tuple(faults.happened),
        tuple(_joined(checks)),
    )
