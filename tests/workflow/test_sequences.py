"""Sequences: the paper's two rules hold for every graph; its two models come out as it says."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureline.workflow.model import Graph, Pause, Task
from sureline.workflow.sequences import sequences, windows
from sureline.workflow.shapes import critical_path


def graph_of(parents: list[set[int]]) -> Graph:
    return Graph(
        "g",
        [
            Task(f"t{i}", Pause(1.0), after=tuple(f"t{p}" for p in sorted(ps)))
            for i, ps in enumerate(parents)
        ],
    )


def fork_join(middle: int) -> Graph:
    return graph_of([set(), *({0} for _ in range(middle)), set(range(1, middle + 1))])


def laplace(side: int) -> Graph:
    def above(row: int, column: int) -> set[int]:
        return {row * side + column - 1 for _ in range(column > 0)} | {
            (row - 1) * side + column for _ in range(row > 0)
        }

    return graph_of([above(row, column) for row in range(side) for column in range(side)])


@st.composite
def weighted_graphs(draw: st.DrawFn) -> tuple[Graph, list[float]]:
    size = draw(st.integers(1, 24))
    parents = [
        draw(st.sets(st.integers(0, i - 1), max_size=4)) if i else set() for i in range(size)
    ]
    names = draw(st.permutations(range(size)))
    moved: list[set[int]] = [set() for _ in range(size)]
    for i, ps in enumerate(parents):
        moved[names[i]] = {names[p] for p in ps}
    lengths = [float(draw(st.integers(1, 9))) for _ in range(size)]
    return graph_of(moved), lengths


@given(weighted_graphs())
def test_every_graph_decomposes_by_the_two_rules(case: tuple[Graph, list[float]]) -> None:
    graph, lengths = case
    found = sequences(graph, lengths)
    assert sorted(t for tasks in found.tasks for t in tasks) == list(range(len(graph)))
    assert found.tasks[0] == critical_path(graph, lengths)
    extracted: set[int] = set()
    for tasks in found.tasks:
        for before, after in pairwise(tasks):
            assert before in graph.parents[after]
        for place, task in enumerate(tasks):
            if place > 0:
                assert not extracted & set(graph.parents[task])
            if place < len(tasks) - 1:
                assert not extracted & set(graph.children[task])
        extracted.update(tasks)


@given(weighted_graphs())
def test_each_sequence_is_the_longest_that_the_rules_allow(case: tuple[Graph, list[float]]) -> None:
    graph, lengths = case
    found = sequences(graph, lengths)
    extracted: set[int] = set()

    def longest_from(task: int) -> float:
        rest = 0.0
        if not extracted & set(graph.children[task]):
            for child in graph.children[task]:
                if child not in extracted and not extracted & set(graph.parents[child]):
                    rest = max(rest, longest_from(child))
        return lengths[task] + rest

    for tasks in found.tasks:
        left = [t for t in range(len(graph)) if t not in extracted]
        assert sum(lengths[t] for t in tasks) == max(longest_from(t) for t in left)
        extracted.update(tasks)


@given(weighted_graphs())
def test_stages_come_after_all_that_they_touch(case: tuple[Graph, list[float]]) -> None:
    graph, lengths = case
    found = sequences(graph, lengths)
    for number, tasks in enumerate(found.tasks):
        for other in {found.of[t] for t in (*graph.parents[tasks[0]], *graph.children[tasks[-1]])}:
            if other != number:
                assert found.stage[other] != found.stage[number]
    assert sorted(s for stage in found.stages for s in stage) == list(range(len(found.tasks)))


@given(weighted_graphs())
def test_windows_without_anything_placed_hold_every_task_if_the_deadline_can_be_met(
    case: tuple[Graph, list[float]],
) -> None:
    graph, lengths = case
    found = sequences(graph, lengths)
    for task, window in enumerate(windows(graph, lengths, 10.0, 10.0 + found.minimum_length_s, {})):
        assert window.deadline_s - window.startline_s >= lengths[task] - 1e-9


@pytest.mark.parametrize(
    ("graph", "tasks", "width", "speedup"),
    [
        (fork_join(8), [[0, 1, 9], *[[i] for i in range(2, 9)]], 2, 10 / 3),
        (fork_join(64), [[0, 1, 65], *[[i] for i in range(2, 65)]], 2, 66 / 3),
        (laplace(3), [[0, 1, 2, 5, 8], [3, 6, 7], [4]], 3, 9 / 5),
    ],
)
def test_the_models_of_the_paper(
    graph: Graph, tasks: list[list[int]], width: int, speedup: float
) -> None:
    found = sequences(graph, [1.0] * len(graph))
    assert (found.tasks, found.width) == (tasks, width)
    assert found.total_length_s / found.minimum_length_s == speedup


def test_the_width_of_a_laplace_graph_grows_with_its_side() -> None:
    widths = [sequences(laplace(side), [1.0] * side**2).width for side in range(3, 9)]
    assert widths == sorted(set(widths))


def test_windows_follow_what_is_placed() -> None:
    graph = fork_join(2)
    found = windows(
        graph, [1.0, 2.0, 1.0, 1.0], 0.0, 10.0, {0: (0.5, 1.5), 1: (1.5, 3.5), 3: (9.0, 10.0)}
    )
    assert found[2] == (1.5, 9.0)


def test_a_large_graph_is_near_linear() -> None:
    def cost(tasks: int) -> float:
        graph = fork_join(tasks)
        assert len(graph.children) == tasks + 2
        began = time.process_time()
        assert len(sequences(graph, [1.0] * len(graph)).tasks) == tasks
        return time.process_time() - began

    assert cost(16_000) < 40 * cost(4_000)
