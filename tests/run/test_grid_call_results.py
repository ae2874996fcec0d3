"""Calls over a toy grid: results that stay where they were made, machines that do not fit."""

from __future__ import annotations

import pytest
from grid_scenario import HOME, RUN, GridRun
from toy_grid import ToyGrid

from sureline.journal.events import TaskBound, TaskEnded, TaskRetried, TaskRevoked
from sureline.peer.jobs import JobEnded
from sureline.peer.travelling import data_of
from sureline.run.port import Seat
from sureline.run.report_checks import fault_of
from sureline.strategies import known
from sureline.workflow.files import FileRecord, result_path
from sureline.workflow.model import Call, Carried, Command, Graph, Task
from sureline.world.address import name_of

REACHED = {"python": "3.11", "package numpy": "2.0"}


def calls(*uses: tuple[str, ...]) -> Graph:
    """Calls c0, c1, ...; each uses the results of those named."""
    tasks = [
        Task(f"c{k}", Call("f", b"arguments %d" % k, used, "code")) for k, used in enumerate(uses)
    ]
    return Graph(
        "calls", tasks, functions={"f": b"code"}, reached={"code": REACHED}, carried=Carried()
    )


@pytest.fixture
def grid():
    return ToyGrid()


def made(grid: ToyGrid, graph: Graph, **more) -> GridRun:
    """A run whose calls' data is in the store at home."""
    run = GridRun(grid, graph, **more)
    for task in graph.tasks:
        grid.machine(HOME).files.update(file.digest for file in data_of(graph, task.action))
    return run


def result_of(run: GridRun, task: str) -> str:
    (ended,) = [e for e in run.of(TaskEnded) if e.task == task and e.outcome == "succeeded"]
    return ended.outputs[0].digest


def test_only_the_results_that_nobody_reads_come_home(grid):
    run = made(grid, calls((), ("c0",), ("c1",)))
    run.submit()
    assert run.drive().state == "succeeded"
    at_home = [
        task for task in ("c0", "c1", "c2") if result_of(run, task) in grid.machine(HOME).files
    ]
    assert at_home == ["c2"]
    assert not grid.machine(HOME).published, "results are not for the user's directory"
    assert all(ended.foreign for ended in run.of(TaskEnded))


def test_a_result_that_is_lost_where_it_stayed_is_made_again(grid):
    run = made(grid, calls((), ("c0",), ("c1",)), peers=2)
    run.submit()
    grid.run(lambda: any(e.task == "c1" for e in run.of(TaskEnded)))
    (ended,) = [e for e in run.of(TaskEnded) if e.task == "c1"]
    node = next(node for node in run.peers if name_of(node) == ended.peer)
    run.crash_peer(node, wipe=True)
    assert run.drive().state == "succeeded"
    assert "c1" in [e.task for e in run.of(TaskRevoked)]


STRATEGIES = ["spread", "random", "heft"]
"""`surety` deals with providers, which a toy grid has not; see `test_surety_grid`."""


def deciding(grid: ToyGrid, name: str):
    strategy = known()[name]
    seat = Seat(f"{HOME}/{name}", grid.place(f"{HOME}/{name}"), RUN, strategy.settings(), dict)
    return lambda: strategy.deciding(seat)


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_machine_that_does_not_fit_is_asked_once(grid, name):
    run = made(grid, calls(*[()] * 12), peers=3)
    run.deciding = deciding(grid, name)
    bad = next(iter(run.peers))
    grid.unfit = lambda node, job: node == bad
    run.submit()
    assert run.drive().state == "succeeded"
    told = [e for e in run.of(TaskRetried) if "another Python" in e.reason]
    on_bad = [e for e in run.of(TaskBound) if e.peer == name_of(bad)]
    assert 1 <= len(told) == len(on_bad)
    # those that were bound before the first answer came may be refused too, and none after it
    assert len(on_bad) <= run.capacity.cores


@pytest.mark.parametrize("name", STRATEGIES)
def test_if_nobody_fits_the_call_fails_saying_why(grid, name):
    run = made(grid, calls(()), peers=2)
    run.deciding = deciding(grid, name)
    grid.unfit = lambda node, job: True
    run.submit()
    assert run.drive().state == "failed"
    (ended,) = run.of(TaskEnded)
    assert ended.reason.count("has another Python") == 2


def test_a_machine_that_comes_back_is_asked_again(grid):
    run = made(grid, calls((), ("c0",)), peers=1)
    (bad,) = run.peers
    mended = []
    grid.unfit = lambda node, job: not mended
    run.submit()
    grid.run(lambda: run.of(TaskRetried))
    mended.append(True)
    run.left(bad)
    run.joined(bad)
    assert run.drive().state == "succeeded"


RESULT = FileRecord(result_path("c"), "d", 1)
ABSURD = {
    "another file": (Call("f", b""), JobEnded("succeeded", outputs=(FileRecord("home", "d", 1),))),
    "no result": (Call("f", b""), JobEnded("succeeded")),
    "both": (Call("f", b""), JobEnded("succeeded", result=b"N.", outputs=(RESULT,))),
    "a long one": (Call("f", b""), JobEnded("succeeded", result=b"x" * (1 << 20))),
    "a long error": (Call("f", b""), JobEnded("failed", error=b"x" * (2 << 20))),
    "of a command": (Command("true"), JobEnded("succeeded", result=b"N.")),
}


@pytest.mark.parametrize("case", ABSURD)
def test_a_report_of_a_result_that_makes_no_sense_is_noticed(case):
    action, ended = ABSURD[case]
    assert fault_of(ended, Task("c", action))
