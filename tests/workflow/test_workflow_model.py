"""The model: kinds, makers, and what a graph is asked for."""

from __future__ import annotations

import pytest

from sureline.workflow.model import Call, Command, Graph, Task, kind_of


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("blastall_ID000012", "blastall"),
        ("count:00", "count"),
        ("count:a:b", "count"),
        ("step2:a", "step"),
        ("merge", "merge"),
        ("a_1_2.3", "a"),
        ("x12", "x"),
        ("42", "42"),
        ("ID7", "ID7"),
        ("GUNZIP_BED_6", "GUNZIP_BED"),
        ("a_ID" + "9" * 900, "a"),
        ("a_ID" + "9" * 900 + "x", "a_ID" + "9" * 900 + "x"),
    ],
)
def test_kinds(name: str, kind: str) -> None:
    assert kind_of(name) == kind


def test_a_file_in_a_made_directory_is_made_by_its_maker() -> None:
    graph = Graph(
        "g",
        [
            Task("a", Command("x"), inputs=("in/1", "in/1"), outputs=("d/e",)),
            Task("b", Command("x"), inputs=("d/e/f/g", "d/other")),
            Task("c", Call("f", b"", uses=("a", "b")), after=("b",)),
        ],
    )
    assert graph.maker("d/e/f/g") == graph.maker("d/e") == 0
    assert graph.maker("d") is None
    assert graph.parents == [(), (0,), (1, 0)]
    assert graph.children == [[1, 2], [2], []]
    assert graph.external == ("in/1", "d/other")
