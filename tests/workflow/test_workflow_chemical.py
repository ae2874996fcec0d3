"""Workflows in the chemical notation: read, written, run; and what is wrong with one."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from surely import sureline
from test_workflow_roundtrip import NOWHERE, Anything, graphs

from sureline.workflow.chemical import read_chemical, write_chemical
from sureline.workflow.mistakes import UserError, WorkflowError
from sureline.workflow.model import Graph, Needs, Pause, Task

PAPER = """\
<  // Multiset (Solution)
  TASK:1:<"echo 1 > a" : <OUTPUTS:"a">>:<DEST:2, DEST:3>,   // TASK_1 definition
  TASK:2:<"cat a > b" : <INPUTS:"a", OUTPUTS:"b", NEEDS:<CORES:2, MEMORY:"1MB">>>:<DEST:4>,
  TASK:3:<"true">:<DEST:4>,
  TASK:4:<"cat b" : <INPUTS:"b">>:<>
>
"""


def read(text: str) -> Graph:
    return read_chemical(text.encode(), file="w.chem", directory=NOWHERE).graph


def test_the_paper_s_form_is_understood() -> None:
    graph = read(PAPER)
    assert graph.name == "w"
    assert [task.name for task in graph.tasks] == ["1", "2", "3", "4"]
    assert [sorted(parents) for parents in graph.parents] == [[], [0], [0], [1, 2]]
    assert graph.tasks[1].after == ()  # it reads the file
    assert graph.tasks[2].after == ("1",)
    assert graph.tasks[1].needs == Needs(cores=2, memory_bytes=1_000_000)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(graphs())
def test_a_graph_is_read_as_it_is_written(graph: Graph) -> None:
    text = write_chemical(graph)
    disk = Anything(set(graph.external))
    again = read_chemical(text.encode(), file="w.chem", directory=NOWHERE, disk=disk).graph
    assert again.tasks == graph.tasks
    assert again.name == graph.name
    assert again.parents == graph.parents
    assert write_chemical(again) == text


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("<\nTASK:1:<2>:<>\n>", 2, "TASK:"),
        ("<\n\n  LEVEL:1:<>\n>", 3, "LEVEL:1:<> is no task"),
        ('<TASK:1:<"true">:<DEST:7>>', 1, "task 1 has DEST:7, and there is no such task"),
        ('<\nTASK:1:<"true">:<>,\nTASK:1:<"true">:<>>', 3, "two tasks are named '1'"),
        ('<\nTASK:1:<"true":<COLOUR:3>>:<>>', 2, "unknown key 'colour'"),
        ('<\nTASK:1:<"true":<RETRIES:"x">>:<>>', 2, "retries"),
        ('<\nTASK:1:<"true":<7>>:<>>', 2, "7 describes nothing"),
        ('<TASK:1:<"true">:<DEST:2>,\nTASK:2:<"true">:<DEST:1>>', 1, "wait for each other"),
        ("<\nTASK:1:<true", 2, "column 13: '>' should stand where the text ends"),
        ("<TASK:1:<go>:<>>", 1, "column 10: 'go' is not bound to anything"),
        ("<>", None, "there is no task"),
    ],
)
def test_mistakes_have_lines(text: str, line: int | None, what: str) -> None:
    with pytest.raises(WorkflowError) as found:
        read(text)
    assert any(m.line == line and what in m.what for m in found.value.mistakes), str(found.value)


def test_what_is_no_command_cannot_be_written() -> None:
    with pytest.raises(UserError, match="not a command"):
        write_chemical(Graph("g", [Task("t", Pause(1.0))]))


def test_it_runs(tmp_path: Path) -> None:
    (tmp_path / "x.chem").write_text(PAPER)
    assert sureline(tmp_path, "validate", "x.chem").code == 0
    ran = sureline(tmp_path, "run", "x.chem", "--json")
    assert ran.code == 0 and ran.json["tasks"]["succeeded"] == 4
    assert (tmp_path / "b").read_text() == "1\n"
    assert sureline(tmp_path, "graph", "x.chem", "--json").code == 0
    assert sureline(tmp_path, "run", "x.chem", "--set", "a=1").code == 2
