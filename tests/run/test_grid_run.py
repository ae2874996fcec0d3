"""A run over a grid of peers, in the toy grid."""

from __future__ import annotations

from collections import Counter

from grid_scenario import GridRun
from toy_grid import ToyGrid

from sureline.journal.events import TaskEnded
from sureline.workflow.model import Command, Graph, Task


def diamond(width: int = 6) -> Graph:
    """One task reads a user's file, `width` tasks read what it made, one joins them."""
    tasks = [Task("first", Command("first"), inputs=("source",), outputs=("f0",))]
    for i in range(width):
        tasks.append(Task(f"mid{i}", Command(f"mid {i}"), inputs=("f0",), outputs=(f"m{i}",)))
    tasks.append(
        Task("last", Command("last"), inputs=tuple(f"m{i}" for i in range(width)), outputs=("z",))
    )
    return Graph("diamond", tasks)


def test_a_run_over_three_peers_ends_with_all_outputs_at_home():
    grid = ToyGrid()
    run = GridRun(grid, diamond())
    run.submit()
    run.drive()
    run.check()
    assert Counter(e.outcome for e in run.of(TaskEnded)) == {"succeeded": 8}
    assert len({node for _, node, job in grid.started if job.task.startswith("mid")}) == 3
