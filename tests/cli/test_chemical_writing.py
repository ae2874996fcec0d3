"""`graph --chem`: any workflow in the chemical notation, which is a workflow again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sureline.cli.main import run_command
from sureline.workflow.read import read_workflow

FLOW = """
name: count
tasks:
  part:
    for: {i: [1, 2]}
    run: echo {{i}} > p.{{i}}
    outputs: ["p.{{i}}"]
    needs: {cores: 1, memory: 10MB}
  all:
    run: cat p.* > all.txt
    inputs: ["p.*"]
    outputs: [all.txt]
"""


@pytest.fixture
def flow(tmp_path: Path) -> Path:
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path / "flow.yaml"


def test_what_is_written_is_read_again_as_the_same(flow, capsys):
    written = flow.with_suffix(".chem")
    assert run_command(["graph", str(flow), "--chem", "-o", str(written)]) == 0
    one, other = (read_workflow(file, directory=flow.parent).graph for file in (flow, written))
    assert one.name == other.name and one.tasks == other.tasks
    capsys.readouterr()
    assert run_command(["graph", str(written), "--chem"]) == 0
    assert capsys.readouterr().out == written.read_text()


def test_as_data(flow, capsys):
    assert run_command(["graph", str(flow), "--chem", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["name"] == "count" and told["tasks"] == 3 and told["output"] is None
    assert told["chemical"].startswith("<\n")


def test_it_does_not_draw(flow, capsys):
    assert run_command(["graph", str(flow), "--chem", "--by-kind"]) == 2
    assert "draws nothing" in capsys.readouterr().err
