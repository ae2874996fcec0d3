"""Composition text: what it means, and that every mistake is told with its line."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureline.workflow.composition import is_composition, read_composition
from sureline.workflow.mistakes import UserError, WorkflowError
from sureline.workflow.read import read_text

PAPER = b"""\
// begin program
A = service1();
B = service2();
C = service3(A,B);
D = service4(C);
E = service5(C);
// end of program
"""


def mistakes(text: str) -> list[tuple[int | None, str]]:
    with pytest.raises(WorkflowError) as told:
        read_composition(text.encode(), file="c.txt")
    return [(m.line, m.what) for m in told.value.mistakes]


def test_the_program_of_the_paper() -> None:
    reading = read_composition(PAPER, file="some/paper.txt")
    graph = reading.graph
    assert graph.name == "paper"
    assert [t.name for t in graph.tasks] == ["A", "B", "C", "D", "E"]
    assert [t.kind_name for t in graph.tasks] == [f"service{n}" for n in range(1, 6)]
    assert graph.parents == [(), (), (0, 1), (2,), (2,)]
    assert reading.lines == {"A": 2, "B": 3, "C": 4, "D": 5, "E": 6}


def test_layout_does_not_matter() -> None:
    text = b"A=s();B=s()  // two\r\n\r\n  C = t (A ,\n // inside\n B)\nD = u(A, A)"
    graph = read_composition(text, file="c.txt").graph
    assert graph.parents == [(), (), (0, 1), (0,)]


def test_all_mistakes_are_told_with_their_lines() -> None:
    text = (
        "A = s(;\nB = t(Q)\nB = t()\nC = u(A) D = w();\nfoo(B);\nX, Y = z();\n"
        "E = v(B,\n B); F = g(5)\nG = h(G);\nH = k(I); I = k();\nJ ="
    )
    told = mistakes(text)
    assert [line for line, _ in told] == [1, 2, 3, 4, 5, 6, 8, 9, 10, 11]
    assert "nothing makes Q" in told[1][1]
    assert "line 2" in told[2][1]
    assert "several results" in told[5][1]
    assert "made of itself" in told[7][1]
    assert "before it is made" in told[8][1]


@pytest.mark.parametrize("text", ["", "// nothing\n", ";;\n"])
def test_a_program_without_statements_is_a_mistake(text: str) -> None:
    assert mistakes(text) == [(None, "there is no statement")]


def test_not_text_is_a_mistake() -> None:
    with pytest.raises(WorkflowError, match="UTF-8"):
        read_composition(b"A = s();\n\xff", file="c.txt")


@pytest.mark.parametrize(
    ("file", "data", "meant"),
    [
        ("a.txt", PAPER, True),
        ("a.flow", b"", True),
        ("-", b"\n  A = s()", True),
        ("a.txt", b"tasks:\n  a: {run: echo}\n", False),
        ("a.txt", b"{}", False),
        ("-", b"# name = x\n", False),
    ],
)
def test_the_content_tells(file: str, data: bytes, meant: bool) -> None:
    assert is_composition(file, data) is meant


def test_running_one_says_what_is_missing(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="need providers"):
        read_text(PAPER, file="paper.txt", directory=tmp_path)
    read = read_text(PAPER, file="paper.txt", directory=tmp_path, to_run=False)
    assert len(read.graph) == 5


@given(st.text(alphabet='AB =();,/\n1é"', max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        graph = read_composition(text.encode(), file="c.flow").graph
    except WorkflowError:
        return
    assert all(parent < i for i, parents in enumerate(graph.parents) for parent in parents)
