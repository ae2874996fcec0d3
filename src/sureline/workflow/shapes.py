"""Shapes of a graph: order, levels, ranks, the critical path. Tasks are given by index.

All take one pass over the edges, so 100,000 tasks take a fraction of a second.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Sequence

import rustworkx as rx

from sureline.workflow.model import Graph


def digraph(graph: Graph) -> rx.PyDiGraph[int | None, None]:
    """The graph for rustworkx: nodes are task indices, edges go from a parent to its child."""
    directed: rx.PyDiGraph[int | None, None] = rx.PyDiGraph(multigraph=False)
    directed.add_nodes_from(range(len(graph)))
    directed.extend_from_edge_list([(p, i) for i, ps in enumerate(graph.parents) for p in ps])
    return directed


def topological_order(graph: Graph) -> list[int]:
    """Every task after all its parents."""
    return list(rx.topological_sort(digraph(graph)))


def levels(graph: Graph) -> list[int]:
    """For every task, the longest way from an entry task: 0 for tasks that wait for nobody."""
    found = [0] * len(graph)
    parents = graph.parents
    for i in topological_order(graph):
        if parents[i]:
            found[i] = 1 + max([found[p] for p in parents[i]])
    return found


def levels_from_exit(graph: Graph) -> list[int]:
    """For every task, the longest way to an exit task: 0 for tasks nobody waits for."""
    found = [0] * len(graph)
    children = graph.children
    for i in reversed(topological_order(graph)):
        if children[i]:
            found[i] = 1 + max([found[c] for c in children[i]])
    return found


def upward_ranks(
    graph: Graph,
    durations_s: Sequence[float],
    between_s: Callable[[int, int], float] = lambda parent, child: 0.0,
) -> list[float]:
    """For every task, its duration plus the longest way from its end to the end of the workflow.
    `between_s` is what lies between a task's end and the start of one that follows it."""
    found = [0.0] * len(graph)
    children = graph.children
    for i in reversed(topological_order(graph)):
        rest = max([between_s(i, c) + found[c] for c in children[i]]) if children[i] else 0.0
        found[i] = durations_s[i] + rest
    return found


def longest_s(
    graph: Graph, lengths_s: Sequence[float], order: Sequence[int], among: Container[int]
) -> float:
    """Of the chains of these tasks alone; `order` is a topological one."""
    ends_s = [0.0] * len(graph)
    for i in order:
        if i in among:
            ends_s[i] = lengths_s[i] + max([ends_s[p] for p in graph.parents[i]], default=0.0)
    return max(ends_s, default=0.0)


def urgencies(graph: Graph) -> list[float]:
    """The upward ranks by the user's estimates, a second where there is none: who starts first."""
    return upward_ranks(
        graph, [task.takes.likely_s if task.takes is not None else 1.0 for task in graph.tasks]
    )


def critical_path(graph: Graph, durations_s: Sequence[float]) -> list[int]:
    """The chain of tasks that takes longest, in order; of equals, the one described first."""
    if not len(graph):
        return []
    ranks = upward_ranks(graph, durations_s)
    children = graph.children

    def longest(candidates: Sequence[int]) -> int:
        return min(candidates, key=lambda i: (-ranks[i], i))

    path = [longest([i for i, parents in enumerate(graph.parents) if not parents])]
    while children[path[-1]]:
        path.append(longest(children[path[-1]]))
    return path
