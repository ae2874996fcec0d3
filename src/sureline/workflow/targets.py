"""A part of a graph: some tasks, and all that they need."""

from __future__ import annotations

from collections.abc import Iterable

from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph


def needed_for(graph: Graph, names: Iterable[str]) -> Graph:
    """The graph of these tasks and of those that they wait for, at any remove."""
    waiting: list[int] = []
    for name in names:
        if name not in graph.index:
            raise UserError(f"there is no task called {name!r} to aim at; see the graph's tasks")
        waiting.append(graph.index[name])
    found: set[int] = set()
    while waiting:
        task = waiting.pop()
        if task not in found:
            found.add(task)
            waiting += graph.parents[task]
    return graph.with_tasks(task for k, task in enumerate(graph.tasks) if k in found)
