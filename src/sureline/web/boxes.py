"""What a drawing of a graph shows: boxes and edges, folded when there would be too many to read.

Boxes stand for one task each, or for many. A graph that is too large is folded by the first of
these ways that gives few enough boxes:
1. tasks of one kind on one level;
2. tasks of one kind (kinds that feed each other in turns become one box);
3. all tasks of a run of neighbouring levels.
Every way keeps the drawing free of cycles, so that all edges go forward.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

import rustworkx as rx

from sureline.web.states import LOOKS, ORDER, telling
from sureline.workflow.model import Graph, Task
from sureline.workflow.shapes import critical_path, levels

BOXES_MAX = 300
EDGES_MAX = 2_000
BANDS_MAX = 60


class Box(NamedTuple):
    """`tasks` are indices into the graph. `states` is empty if nothing is known of a run."""

    label: str
    tasks: tuple[int, ...]
    level: int
    states: dict[str, int]
    critical: bool
    kind: str
    """'' if the box holds several kinds."""

    @property
    def mark(self) -> str:
        """The sign of the state that tells most; with how many, if there are others."""
        if not self.states:
            return ""
        state = telling(self.states)
        some = f" {self.states[state]}" if len(self.states) > 1 else ""
        return LOOKS[state].sign + some


class Edge(NamedTuple):
    """From one box to another (indices); `number` dependencies between tasks are in it."""

    parent: int
    child: int
    number: int
    critical: bool


class Drawing(NamedTuple):
    name: str
    boxes: list[Box]
    edges: list[Edge]
    folded: bool
    path: list[int]
    """The tasks of the path that is marked, in order."""
    path_words: str
    """What that path is, for the legend."""


def draw(
    graph: Graph,
    *,
    states: Mapping[int, str] | None = None,
    path: Sequence[int],
    path_words: str,
    fold: bool | None = None,
) -> Drawing:
    """The boxes of a graph. `fold` None folds only what is too large to be read whole."""
    edge_count = sum(len(parents) for parents in graph.parents)
    if fold is None:
        fold = len(graph) > BOXES_MAX or edge_count > EDGES_MAX
    level = levels(graph)
    groups = _fold(graph, level) if fold else list(range(len(graph)))
    marks = _Marks(graph, states, set(path), set(pairwise(path)))
    boxes, edges = _collect(graph, level, groups, marks)
    return Drawing(graph.name, boxes, edges, fold, list(path), path_words)


def expected_path(graph: Graph) -> tuple[list[int], str]:
    """The longest way through a graph that has not run, by estimates if every task has one."""
    if all(task.takes is not None for task in graph.tasks):
        durations_s = [task.takes.likely_s if task.takes else 0.0 for task in graph.tasks]
        return critical_path(graph, durations_s), "the longest way, by the estimates"
    return critical_path(graph, [1.0] * len(graph)), "the longest way, by the number of tasks"


class _Marks(NamedTuple):
    graph: Graph
    states: Mapping[int, str] | None
    on_path: set[int]
    path_edges: set[tuple[int, int]]


def _fold(graph: Graph, level: list[int]) -> list[int]:
    """For every task, the number of its group."""
    ways: tuple[Callable[[], list[int]], ...] = (
        lambda: _number([(task.kind_name, level[i]) for i, task in enumerate(graph.tasks)]),
        lambda: _by_kind(graph),
    )
    for way in ways:
        groups = way()
        if max(groups, default=-1) < BOXES_MAX and _pairs(graph, groups) <= EDGES_MAX:
            return groups
    depth = max(level) + 1
    bands = min(depth, BANDS_MAX)
    return _number([one * bands // depth for one in level])


def _number(keys: Sequence[object]) -> list[int]:
    """Keys as numbers from 0, in order of first appearance."""
    seen: dict[object, int] = {}
    return [seen.setdefault(key, len(seen)) for key in keys]


def _pairs(graph: Graph, groups: list[int]) -> int:
    return len({(groups[p], groups[i]) for i, parents in enumerate(graph.parents) for p in parents})


def _by_kind(graph: Graph) -> list[int]:
    kinds = _number([task.kind_name for task in graph.tasks])
    between: rx.PyDiGraph[int | None, None] = rx.PyDiGraph(multigraph=False)
    between.add_nodes_from(range(max(kinds) + 1))
    between.extend_from_edge_list(
        sorted({(kinds[p], kinds[i]) for i, parents in enumerate(graph.parents) for p in parents})
    )
    component = [0] * (max(kinds) + 1)
    for number, members in enumerate(rx.strongly_connected_components(between)):
        for kind in members:
            component[kind] = number
    return _number([component[kind] for kind in kinds])


def _collect(
    graph: Graph, level: list[int], groups: list[int], marks: _Marks
) -> tuple[list[Box], list[Edge]]:
    members: list[list[int]] = [[] for _ in range(max(groups, default=-1) + 1)]
    for i, group in enumerate(groups):
        members[group].append(i)
    counts: Counter[tuple[int, int]] = Counter()
    critical: set[tuple[int, int]] = set()
    for i, parents in enumerate(graph.parents):
        for p in parents:
            if groups[p] != groups[i]:
                pair = (groups[p], groups[i])
                counts[pair] += 1
                if (p, i) in marks.path_edges:
                    critical.add(pair)
    edges = [Edge(a, b, count, (a, b) in critical) for (a, b), count in counts.items()]
    columns = _columns(len(members), edges)
    boxes = [
        _box(tuple(tasks), columns[k], level, marks) for k, tasks in enumerate(members) if tasks
    ]
    return boxes, edges


def _columns(count: int, edges: Sequence[Edge]) -> list[int]:
    """For every box, the longest way to it from a box without parents."""
    found = [0] * count
    children: defaultdict[int, list[int]] = defaultdict(list)
    missing = [0] * count
    for edge in edges:
        children[edge.parent].append(edge.child)
        missing[edge.child] += 1
    free = [k for k in range(count) if not missing[k]]
    for k in free:
        for child in children[k]:
            found[child] = max(found[child], found[k] + 1)
            missing[child] -= 1
            if not missing[child]:
                free.append(child)
    assert len(free) == count, "a folded graph has a cycle"
    return found


def _box(tasks: tuple[int, ...], column: int, level: list[int], marks: _Marks) -> Box:
    described = [marks.graph.tasks[i] for i in tasks]
    states: dict[str, int] = {}
    if marks.states is not None:
        seen = Counter(marks.states[i] for i in tasks)
        states = {state: seen[state] for state in ORDER if seen[state]}
    kinds = list(dict.fromkeys(task.kind_name for task in described))
    return Box(
        _label(described, kinds, [level[i] for i in tasks]),
        tasks,
        column,
        states,
        any(i in marks.on_path for i in tasks),
        kinds[0] if len(kinds) == 1 else "",
    )


def _label(described: list[Task], kinds: list[str], on: list[int]) -> str:
    if len(described) == 1:
        return described[0].name
    if len(kinds) <= 3:
        return f"{' + '.join(kinds)} \u00d7 {len(described):,}".replace(",", "\u2009")
    first, last = min(on) + 1, max(on) + 1
    levels_ = f"level {first}" if first == last else f"levels {first}\u2013{last}"
    return f"{levels_} \u00d7 {len(described):,}".replace(",", "\u2009")
