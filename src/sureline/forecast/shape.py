"""What a forecast needs of a graph and that never changes during a run, as arrays by task."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from sureline.workflow.model import Graph, Needs, Pause, Takes, Task
from sureline.workflow.shapes import levels, urgencies

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Flags = NDArray[np.bool_]


class Shape:
    """Made once per graph: 100,000 tasks take about half a second."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        count = len(graph)
        kinds: dict[str, int] = {}
        needs: dict[Needs, int] = {}
        self.kind = _ints([kinds.setdefault(_kind(t), len(kinds)) for t in graph.tasks])
        """Which of `kind_names` each task is. Pretended tasks have a kind of their own, '':
        what they take is known, and nothing is to be learned from it."""
        self.kind_names = list(kinds)
        self.needs_class = _ints([needs.setdefault(t.needs, len(needs)) for t in graph.tasks])
        self.needs = list(needs)
        """The distinct needs; `needs_class` says which each task has."""
        estimates = [_estimate(t) for t in graph.tasks]
        self.takes: Floats = np.array(estimates, dtype=np.float64).reshape(count, 3)
        """Optimistic, likely and pessimistic seconds; not a number where nobody said."""
        pairs = [(p, i) for i, parents in enumerate(graph.parents) for p in parents]
        self.edges: Ints = np.array(pairs, dtype=np.int64).reshape(len(pairs), 2)
        """(parent, child)."""
        self.input_bytes = _input_bytes(graph)
        """What each task reads, as far as the description says how large its files are."""
        self.level, self.urgency = _levels_and_ranks(graph)


def _levels_and_ranks(graph: Graph) -> tuple[Ints, Floats]:
    """The longest way from an entry, and the rank by which the engine orders what is ready."""
    return _ints(levels(graph)), np.array(urgencies(graph), dtype=np.float64)


def _input_bytes(graph: Graph) -> Floats:
    sizes = graph.file_sizes
    if not sizes:
        return np.zeros(len(graph))
    return np.array([float(sum(sizes.get(path, 0) for path in t.inputs)) for t in graph.tasks])


def _kind(task: Task) -> str:
    return "" if isinstance(task.action, Pause) else task.kind_name


def _estimate(task: Task) -> tuple[float, float, float]:
    takes = task.takes
    if isinstance(task.action, Pause):
        takes = Takes(task.action.seconds, task.action.seconds, task.action.seconds)
    if takes is None:
        return (np.nan, np.nan, np.nan)
    return (takes.optimistic_s, takes.likely_s, takes.pessimistic_s)


def _ints(values: Any) -> Ints:
    return np.array(values, dtype=np.int64)
