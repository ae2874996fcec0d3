"""`requires` and `rank` in workflow files, and from Python."""

from __future__ import annotations

import pytest

from sureline.flow import Workflow
from sureline.workflow.mistakes import UserError, WorkflowError
from sureline.workflow.read import read_workflow
from sureline.workflow.yaml_writer import write_yaml

FLOW = """name: wishes
params: {least: 8GB}
defaults: {rank: cores}
tasks:
  a:
    run: "true"
    requires: memory >= {{least}} and site != "attic"
  b:
    for: {i: 1..2}
    run: "true"
    inputs: "f{{i}}"
    rank: held("f{{i}}") / 2
"""


def read(tmp_path, text):
    path = tmp_path / "flow.yaml"
    path.write_text(text)
    for name in ("f1", "f2"):
        (tmp_path / name).touch()
    return read_workflow(path, directory=tmp_path)


def test_they_are_read_and_written(tmp_path):
    graph = read(tmp_path, FLOW).graph
    assert graph.task("a").requires == 'memory >= 8GB and site != "attic"'
    assert graph.task("a").rank == "cores"
    assert graph.task("b:2").rank == 'held("f2") / 2'
    again = read(tmp_path, write_yaml(graph)).graph
    assert again.tasks == graph.tasks


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("requires: memry > 1", "'memry > 1', column 1: 'memry' is not bound to anything"),
        ("requires: memory + 1", "'memory + 1' is no condition"),
        ("requires: site > 3", "column 6: only numbers can be calculated with"),
        ("rank: cores > 1", "'cores > 1' is no number"),
        ('rank: "site"', "'site' is no number"),
        ("rank: 2 *", "column 4: a value should stand where the text ends"),
        ("rank: [1, 2]", "is a list"),
        (f"rank: cores + {'9' * 400}", "column 9: this number is too large"),
    ],
)
def test_a_bad_one_is_a_mistake_with_line_and_column(tmp_path, line, said):
    with pytest.raises(WorkflowError) as caught:
        read(tmp_path, f'name: x\ntasks:\n  a:\n    run: "true"\n    {line}\n')
    (mistake,) = caught.value.mistakes
    assert said in str(mistake)
    assert "5" in str(mistake).partition(said)[0]


def test_only_inputs_can_be_held(tmp_path):
    flow = 'name: x\ntasks:\n  a:\n    run: "true"\n    inputs: f1\n    rank: {}\n'
    for formula in ("held(f1) + held()", "held(inputs) / held(f1, f1)"):
        assert read(tmp_path, flow.format(formula)).graph.task("a").rank == formula
    with pytest.raises(WorkflowError, match="add it to `inputs`") as caught:
        read(tmp_path, flow.format('held("f3") + held(f1)'))
    (mistake,) = caught.value.mistakes
    assert mistake.line == 3 and "`held('f3')` of task 'a' names none" in str(mistake)


def test_from_python():
    flow = Workflow("w")
    flow.task("a", run="true", requires=" cores > 1 ", rank="held()")
    task = flow.graph().task("a")
    assert (task.requires, task.rank) == ("cores > 1", "held()")
    with pytest.raises(UserError, match="b: 'cores >', column 8: a value should stand"):
        flow.task("b", run="true", requires="cores >")
