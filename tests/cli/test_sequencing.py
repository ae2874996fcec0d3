"""`sureline graph FLOW --sequences` as a user meets it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from sureline.cli.main import run_command

FLOW = """\
tasks:
  head: {run: "true", takes: 1s}
  long: {run: "true", after: head, takes: 4s}
  short: {run: "true", after: head, takes: 2s}
  tail: {run: "true", after: [long, short], takes: 1s}
"""


@pytest.fixture
def flow(tmp_path: Path) -> str:
    (tmp_path / "flow.yaml").write_text(FLOW)
    return str(tmp_path / "flow.yaml")


def test_sequences_as_data(flow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["graph", flow, "--sequences", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sequences"] == [["head", "long", "tail"], ["short"]]
    assert found["stages"] == [[0], [1]] and found["width"] == 2
    assert (found["minimum_length"], found["total_length"]) == (6.0, 8.0)
    limits = {limit["task"]: limit for limit in found["limits"]}
    assert (limits["short"]["startline_s"], limits["short"]["deadline_s"]) == (1.0, 5.0)


def test_sequences_in_words(flow: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["graph", flow, "--sequences"]) == 0
    out = capsys.readouterr().out
    assert "head > long > tail" in out and "1 to 5 s: short" in out and "stage 2" in out


def test_sequences_and_drawing_exclude_each_other(flow: str) -> None:
    assert run_command(["graph", flow, "--sequences", "-o", "x.svg"]) == 2
