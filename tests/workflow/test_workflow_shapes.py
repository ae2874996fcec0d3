"""Shapes: by hand on a small graph, and against obvious recursions on random ones."""

from __future__ import annotations

from functools import cache
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from sureline.workflow.model import Command, Graph, Takes, Task
from sureline.workflow.shapes import (
    critical_path,
    levels,
    levels_from_exit,
    topological_order,
    upward_ranks,
    urgencies,
)


def graph_of(*parents: tuple[int, ...]) -> Graph:
    return Graph(
        "g",
        [
            Task(f"t{i}", Command("x"), after=tuple(f"t{p}" for p in ps))
            for i, ps in enumerate(parents)
        ],
    )


DIAMOND = graph_of((), (0,), (0,), (1, 2), ())


def test_a_diamond_and_a_loner() -> None:
    assert levels(DIAMOND) == [0, 1, 1, 2, 0]
    assert levels_from_exit(DIAMOND) == [2, 1, 1, 0, 0]
    assert upward_ranks(DIAMOND, [1, 5, 2, 1, 3]) == [7, 6, 3, 1, 3]
    assert critical_path(DIAMOND, [1, 5, 2, 1, 3]) == [0, 1, 3]
    assert critical_path(DIAMOND, [1, 1, 1, 1, 9]) == [4]
    assert critical_path(Graph("empty", []), []) == []


@st.composite
def weighted_graphs(draw: st.DrawFn) -> tuple[Graph, list[float]]:
    size = draw(st.integers(1, 12))
    parents = [
        tuple(draw(st.sets(st.integers(0, i - 1), max_size=3))) if i else () for i in range(size)
    ]
    durations_s = draw(st.lists(st.integers(0, 9).map(float), min_size=size, max_size=size))
    return graph_of(*parents), durations_s


@given(weighted_graphs())
def test_laws(case: tuple[Graph, list[float]]) -> None:
    graph, durations_s = case
    place = {task: n for n, task in enumerate(topological_order(graph))}
    assert all(place[p] < place[i] for i, ps in enumerate(graph.parents) for p in ps)

    @cache
    def rank(i: int) -> float:
        return durations_s[i] + max((rank(c) for c in graph.children[i]), default=0)

    ranks = upward_ranks(graph, durations_s)
    assert ranks == [rank(i) for i in range(len(graph))]
    path = critical_path(graph, durations_s)
    assert sum(durations_s[i] for i in path) == max(ranks)
    assert all(a in graph.parents[b] for a, b in pairwise(path))
    from_entry, from_exit = levels(graph), levels_from_exit(graph)
    for i, parents in enumerate(graph.parents):
        assert from_entry[i] == max((from_entry[p] + 1 for p in parents), default=0)
        assert from_exit[i] == max((from_exit[c] + 1 for c in graph.children[i]), default=0)


def test_urgencies_are_ranks_by_the_users_estimates_or_a_second() -> None:
    first = Task("a", Command("x"), takes=Takes(1.0, 5.0, 9.0))
    second = Task("b", Command("x"), after=("a",))
    assert urgencies(Graph("g", [first, second])) == [6.0, 1.0]
