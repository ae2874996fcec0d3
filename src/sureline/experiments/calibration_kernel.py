"""What a machine would really do with a graph, many times over: the yardstick of forecasts.

It is the engine's rule and nothing else: whenever a slot is free, the most urgent ready task
starts; ties go to the task described first. It is written apart from the forecasts' own kernel, so
that a mistake in one shows against the other.
"""

from __future__ import annotations

import numpy as np

from sureline.compiled import compiled
from sureline.forecast.shape import Floats, Ints
from sureline.workflow.model import Graph
from sureline.workflow.shapes import urgencies


class KernelGraph:
    """A graph for `run_times`: its tasks are numbered by urgency, so that a number is a rank."""

    def __init__(self, graph: Graph) -> None:
        urgency = urgencies(graph)
        order = sorted(range(len(graph)), key=lambda task: (-urgency[task], task))
        rank = {task: number for number, task in enumerate(order)}
        children = [[rank[child] for child in graph.children[task]] for task in order]
        self.order: Ints = np.array(order, dtype=np.int64)
        """The task that has each rank."""
        self.first_child: Ints = np.cumsum([0, *map(len, children)], dtype=np.int64)
        self.children: Ints = np.array([c for of_one in children for c in of_one], dtype=np.int64)
        self.parents: Ints = np.array([len(graph.parents[t]) for t in order], dtype=np.int64)
        """How many each has."""


def run_times(layout: KernelGraph, durations_s: Floats, slots: int) -> Floats:
    """How long each run takes. A row of `durations_s` is a run, a column a task of the graph."""
    ranked = np.ascontiguousarray(durations_s[:, layout.order])
    return _run_times(ranked, layout.first_child, layout.children, layout.parents, slots)


@compiled
def _run_times(
    durations_s: Floats, first_child: Ints, children: Ints, parents: Ints, slots: int
) -> Floats:
    runs, tasks = durations_s.shape
    took_s = np.zeros(runs)
    ready = np.zeros(tasks, dtype=np.float64)
    """A heap of ranks. Ranks are kept as floats so that one pair of heap functions serves both."""
    nothing = np.zeros(tasks, dtype=np.int64)
    ends_s = np.zeros(tasks, dtype=np.float64)
    running = np.zeros(tasks, dtype=np.int64)
    missing = np.zeros(tasks, dtype=np.int64)
    for run in range(runs):
        ready_count, busy, now_s = 0, 0, 0.0
        for task in range(tasks):
            missing[task] = parents[task]
            if parents[task] == 0:
                _push(ready, nothing, ready_count, float(task), 0)
                ready_count += 1
        while ready_count > 0 or busy > 0:
            while ready_count > 0 and busy < slots:
                task = int(ready[0])
                ready_count -= 1
                _drop_first(ready, nothing, ready_count)
                _push(ends_s, running, busy, now_s + durations_s[run, task], task)
                busy += 1
            now_s = ends_s[0]
            while busy > 0 and ends_s[0] <= now_s:
                task = running[0]
                busy -= 1
                _drop_first(ends_s, running, busy)
                for place in range(first_child[task], first_child[task + 1]):
                    child = children[place]
                    missing[child] -= 1
                    if missing[child] == 0:
                        _push(ready, nothing, ready_count, float(child), 0)
                        ready_count += 1
        took_s[run] = now_s
    return took_s


@compiled
def _push(keys: Floats, values: Ints, count: int, key: float, value: int) -> None:
    """Into a heap of `count` keys."""
    place = count
    while place > 0:
        above = (place - 1) // 2
        if keys[above] <= key:
            break
        keys[place], values[place] = keys[above], values[above]
        place = above
    keys[place], values[place] = key, value


@compiled
def _drop_first(keys: Floats, values: Ints, left: int) -> None:
    """Remove the smallest key of a heap that keeps `left` of them."""
    key, value = keys[left], values[left]
    place = 0
    while True:
        below = 2 * place + 1
        if below >= left:
            break
        if below + 1 < left and keys[below + 1] < keys[below]:
            below += 1
        if keys[below] >= key:
            break
        keys[place], values[place] = keys[below], values[below]
        place = below
    keys[place], values[place] = key, value
