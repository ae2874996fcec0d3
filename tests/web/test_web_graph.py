"""Drawings: what is folded, where boxes lie, and that the files are well formed."""

from __future__ import annotations

import re
import shutil
import subprocess
import xml.etree.ElementTree as ET
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_histories import graph_of, graphs

from sureline.web.boxes import BOXES_MAX, Drawing, draw, expected_path
from sureline.web.dot import dot, quoted
from sureline.web.layout import lay_out, monotone, shortened
from sureline.web.svg import NAMESPACE, part, standalone
from sureline.workflow.model import Command, Graph, Task
from sureline.workflow.shapes import levels


def drawing_of(graph: Graph, fold: bool | None = None) -> Drawing:
    path, words = expected_path(graph)
    return draw(graph, path=path, path_words=words, fold=fold)


@given(graphs(), st.booleans())
def test_boxes_do_not_overlap_and_edges_go_forward(graph: Graph, fold: bool) -> None:
    drawing = drawing_of(graph, fold)
    layout = lay_out(drawing)
    for level in {box.level for box in drawing.boxes}:
        column = [p for b, p in zip(drawing.boxes, layout.places, strict=True) if b.level == level]
        column.sort(key=lambda place: place.y)
        for above, below in pairwise(column):
            assert above.y + above.height <= below.y + 1e-6
            assert above.x == below.x
    for edge, route in zip(drawing.edges, layout.routes, strict=True):
        parent, child = layout.places[edge.parent], layout.places[edge.child]
        xs = [x for x, _ in route.points]
        assert xs == sorted(xs)
        assert xs[0] == parent.x + parent.width
        assert xs[-1] == child.x
        assert drawing.boxes[edge.parent].level < drawing.boxes[edge.child].level
    for place in layout.places:
        assert 0 <= place.x <= place.x + place.width <= layout.width
        assert 0 <= place.y <= place.y + place.height <= layout.height


@given(graphs(), st.booleans())
def test_a_drawing_holds_every_task_once_and_every_dependency(graph: Graph, fold: bool) -> None:
    drawing = drawing_of(graph, fold)
    assert sorted(i for box in drawing.boxes for i in box.tasks) == list(range(len(graph)))
    home = {i: k for k, box in enumerate(drawing.boxes) for i in box.tasks}
    between = {(e.parent, e.child): e.number for e in drawing.edges}
    counted: dict[tuple[int, int], int] = {}
    for i, parents in enumerate(graph.parents):
        for p in parents:
            if home[p] != home[i]:
                counted[home[p], home[i]] = counted.get((home[p], home[i]), 0) + 1
    assert between == counted
    assert {k for k, box in enumerate(drawing.boxes) if box.critical} == {
        home[i] for i in drawing.path
    }


def test_an_unfolded_column_is_the_level() -> None:
    graph = graph_of([[], [0], [0, 1], [0], [3, 2]])
    assert [box.level for box in drawing_of(graph).boxes] == levels(graph)


def test_many_alike_tasks_become_one_box_per_kind_and_level() -> None:
    wide = Graph(
        "wide",
        [Task("split", Command("x"))]
        + [Task(f"count:{k}", Command("x"), after=("split",)) for k in range(1000)]
        + [Task("total", Command("x"), after=tuple(f"count:{k}" for k in range(1000)))],
    )
    drawing = drawing_of(wide)
    assert drawing.folded
    assert [box.label for box in drawing.boxes] == ["split", "count \u00d7 1\u2009000", "total"]
    assert [(e.parent, e.child, e.number) for e in drawing.edges] == [(0, 1, 1000), (1, 2, 1000)]
    assert len(drawing_of(wide, fold=False).boxes) == 1002


@pytest.mark.parametrize(
    "kinds",
    [1, 2, 2000],
    ids=["one kind", "two kinds in turns", "all kinds different"],
)
def test_even_the_deepest_graph_is_folded_into_few_boxes(kinds: int) -> None:
    names = [f"k{chr(97 + k % kinds % 26)}{'x' * (k % kinds // 26)}" for k in range(2000)]
    chain = Graph(
        "chain",
        [
            Task(f"t{k}", Command("x"), after=(f"t{k - 1}",) if k else (), kind=names[k])
            for k in range(2000)
        ],
    )
    drawing = drawing_of(chain)
    assert len(drawing.boxes) <= BOXES_MAX
    assert sum(len(box.tasks) for box in drawing.boxes) == 2000
    lay_out(drawing)


@given(st.lists(st.floats(-100, 100), max_size=12))
def test_monotone_is_the_nearest_sequence_that_never_falls(wishes: list[float]) -> None:
    found = monotone(wishes)
    assert all(a <= b + 1e-9 for a, b in pairwise(found))
    assert monotone(found) == pytest.approx(found)
    if wishes == sorted(wishes):
        assert found == pytest.approx(wishes)
    assert sum(found) == pytest.approx(sum(wishes), abs=1e-6)


def test_shortened_keeps_both_ends() -> None:
    assert shortened("short") == "short"
    long = shortened("a_very_long_name_ID0000017", 12)
    assert len(long) == 12
    assert long.startswith("a_very")
    assert long.endswith("00017")


def test_svg_is_well_formed_whatever_tasks_are_called() -> None:
    evil = [
        "<script>alert(1)</script>",
        'a"b&c',
        "]]>",
        "\x01\x00",
        "tab\tnew\nline",
        "\u00fc\u8a9e",
    ]
    graph = Graph("<&>", [Task(name, Command("x")) for name in evil])
    states = dict.fromkeys(range(len(evil)), "failed")
    drawing = draw(graph, states=states, path=[], path_words="")
    root = ET.fromstring(standalone(drawing))
    texts = [e.text for e in root.iter(f"{{{NAMESPACE}}}text")]
    assert "<script>alert(1)</script>" in texts
    assert not list(root.iter(f"{{{NAMESPACE}}}script"))
    assert "http" not in part(drawing)
    ET.fromstring(part(drawing))


_DOT_LINE = re.compile(
    r"""digraph\ STRING\ \{ | \} | \s*(rankdir=LR; | (node|edge|b\d+|b\d+\ ->\ b\d+)
    (\ \[ATTRIBUTE(,\ ATTRIBUTE)*\])?;)""".replace("ATTRIBUTE", r"\w+=(STRING|\w+|[\d.]+)").replace(
        "STRING", r'"(?:[^"\\]|\\.)*"'
    ),
    re.VERBOSE,
)


@given(st.lists(st.text(max_size=12), min_size=1, max_size=6, unique=True), st.text(max_size=8))
def test_dot_is_one_statement_a_line(names: list[str], title: str) -> None:
    tasks = [
        Task(name, Command("x"), after=(names[k - 1],) if k else ()) for k, name in enumerate(names)
    ]
    graph = Graph(title, tasks)
    text = dot(
        draw(graph, states=dict.fromkeys(range(len(names)), "reused"), path=[], path_words="")
    )
    lines = text.removesuffix("\n").split("\n")
    assert len(lines) == 4 + len(names) + (len(names) - 1) + 1
    for line in lines:
        assert _DOT_LINE.fullmatch(line), line


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_graphviz_reads_it() -> None:
    graph = Graph('q"uo\\te', [Task('a"\\', Command("x")), Task("b\nc", Command("x"))])
    done = subprocess.run(
        ["dot", "-Tsvg"], input=dot(drawing_of(graph)), text=True, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_quoted() -> None:
    assert quoted('a"b') == '"a\\"b"'
    assert quoted("a\\") == '"a\\\\"'
    assert quoted("a\nb") == '"a\\nb"'
