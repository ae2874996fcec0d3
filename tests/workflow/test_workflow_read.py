"""Reading files: which reader, what if there is none to read, needs against a machine, growth."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path

import msgspec
import pytest

from sureline.workflow.check import Draft, check, check_needs
from sureline.workflow.mistakes import UserError, WorkflowError
from sureline.workflow.model import Command, Graph, Needs, Task
from sureline.workflow.read import read_workflow
from sureline.workflow.yaml_reader import read_yaml


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("w.yaml", "tasks: {a: {run: x}}"),
        ("w.yml", '{"tasks": {"a": {"run": "x"}}}'),
        ("Workflow", "tasks: {a: {run: x}}"),
    ],
)
def test_yaml_by_suffix_or_content(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    graph = read_workflow(tmp_path / name, directory=tmp_path).graph
    assert [task.name for task in graph.tasks] == ["a"]
    assert graph.source == str(tmp_path / name)
    assert gc.isenabled()


@pytest.mark.parametrize("name", ["t.json", "trace"])
def test_json_by_suffix_or_content(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"name": "x"}')
    with pytest.raises(WorkflowError, match="missing required field `schemaVersion`"):
        read_workflow(tmp_path / name, directory=tmp_path)


def test_what_cannot_be_read_is_said_in_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"there is no file .*gone\.yaml; `sureline init`"):
        read_workflow(tmp_path / "gone.yaml", directory=tmp_path)
    with pytest.raises(UserError, match="is a directory; name the workflow file"):
        read_workflow(tmp_path, directory=tmp_path)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(UserError, match="cannot be read: "):
        read_workflow(tmp_path / "loop", directory=tmp_path)
    with open(tmp_path / "huge.yaml", "wb") as stream:
        os.truncate(stream.fileno(), 513 * 2**20)
    with pytest.raises(UserError, match="larger than 512 MiB"):
        read_workflow(tmp_path / "huge.yaml", directory=tmp_path)


def test_options_that_do_not_suit(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text("tasks: {a: {run: x}}")
    with pytest.raises(UserError, match="is not a WfFormat trace"):
        read_workflow(tmp_path / "w.yaml", directory=tmp_path, pretend=True)
    for speed in (0, -1, float("nan"), float("inf")):
        with pytest.raises(UserError, match="give a positive number"):
            read_workflow(tmp_path / "w.yaml", directory=tmp_path, speed=speed)


def test_inputs_beside_the_workflow_file(tmp_path: Path) -> None:
    project, elsewhere = tmp_path / "project", tmp_path / "elsewhere"
    project.mkdir()
    elsewhere.mkdir()
    (project / "in.txt").touch()
    (project / "w.yaml").write_text("tasks: {a: {run: x, inputs: in.txt}}")
    with pytest.raises(WorkflowError) as error:
        read_workflow(project / "w.yaml", directory=elsewhere)
    assert f"it exists beside the workflow file: run with `-C {project}`" in str(error.value)
    assert read_workflow(project / "w.yaml", directory=project).graph.external == ("in.txt",)


class Machine(msgspec.Struct):
    cores: float = 2
    memory_bytes: int = 4 * 10**9
    disk_bytes: int = 10**10
    gpus: int = 0
    tags: dict[str, int | None] = {}


def test_needs_that_cannot_be_met_are_told_once_for_each_kind(tmp_path: Path) -> None:
    many = [Task(f"sim:{i}", Command("x"), needs=Needs(cores=64), kind="sim") for i in range(1000)]
    other = Needs(memory_bytes=8 * 10**9, gpus=1, tags=(("matlb", 1), ("ssd", 3), ("free", 99)))
    fine = Needs(cores=2, memory_bytes=4 * 10**9, tags=(("matlab", 1),))
    tasks = [*many, Task("t", Command("x"), needs=other), Task("u", Command("x"), needs=fine)]
    draft = Draft("g", tasks, lines=[*[3] * 1000, 9, 12], file="w.yaml")
    machine = Machine(tags={"matlab": 1, "ssd": 2, "free": None})
    with pytest.raises(WorkflowError) as raised:
        check(draft, directory=tmp_path, capacity=machine)
    assert [str(mistake) for mistake in raised.value.mistakes] == [
        "w.yaml:3: task 'sim:0' (and 999 more alike) needs 64 cores; "
        "this machine has 2; lower `needs: cores`",
        "w.yaml:9: task 't' needs 8GB of memory; this machine has 4GB; lower `needs: memory`",
        "w.yaml:9: task 't' needs 1 GPU; this machine has 0; lower `needs: gpus`",
        "w.yaml:9: task 't' needs 1 of the tag 'matlb'; this machine has 0; did you mean 'matlab'?",
        "w.yaml:9: task 't' needs 3 of the tag 'ssd'; this machine has 2; lower the need",
    ]


def test_needs_are_told_together_with_other_mistakes(tmp_path: Path) -> None:
    (tmp_path / "w.yaml").write_text(
        "tasks:\n  a: {run: x, inputs: gone.txt}\n  b: {run: x, needs: {cores: 64}}\n"
    )
    with pytest.raises(WorkflowError) as raised:
        read_workflow(tmp_path / "w.yaml", directory=tmp_path, capacity=Machine())
    assert [mistake.line for mistake in raised.value.mistakes] == [2, 3]


def test_a_graph_can_be_checked_against_another_machine() -> None:
    graph = Graph("g", [Task("t", Command("x"), needs=Needs(cores=3))])
    check_needs(graph, Machine(cores=3))
    with pytest.raises(WorkflowError, match="needs 3 cores"):
        check_needs(graph, Machine(cores=2))


GROWING = """\
tasks:
  make: {run: 'x {{i}}', for: {i: 1..COUNT}, outputs: 'd/o.{{i}}'}
  use: {run: x, for: {i: 1..COUNT}, inputs: 'd/*.{{i}}', after: 'make:{{i}}'}
  all: {run: x, inputs: 'd/o.*', after: use}
"""


def _cpu_per_task_s(count: int) -> float:
    text = GROWING.replace("COUNT", str(count))
    best = float("inf")
    for _ in range(3):
        before = time.process_time()
        graph = read_yaml(text, file="w.yaml", directory=Path("nowhere")).graph
        assert len(graph.children[0]) == 2
        best = min(best, time.process_time() - before)
    return best / (2 * count)


def test_the_cost_of_a_task_does_not_grow_with_their_number() -> None:
    # twenty times the tasks: a quadratic step would make each twenty times as dear
    assert _cpu_per_task_s(6_000) < 5 * _cpu_per_task_s(300)
