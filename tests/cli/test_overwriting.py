"""Nobody's file is overwritten silently, and whatever a result replaces is kept."""

from __future__ import annotations

import os

import pytest
from cli_bench import Bench

from sureline import Workflow
from sureline.workflow.mistakes import UserError

FLOW = "tasks:\n  a: {{run: 'echo {0} > out.txt', outputs: [out.txt]}}\n"
TREE = "tasks:\n  a: {{run: 'mkdir -p d; echo {0} > d/x', outputs: [d]}}\n"


def test_a_file_that_no_run_made_is_refused_before_anything_runs(bench: Bench) -> None:
    bench.flow(FLOW.format("new"), **{"out.txt": "mine"})
    answer = bench("run", "w.yaml")
    assert answer.code == 2
    assert "out.txt would be overwritten" in answer.err
    assert "--overwrite" in answer.err
    assert bench.text("out.txt") == "mine"
    assert not (bench.directory / ".sureline").exists()
    assert bench("submit", "w.yaml").code == 2


def test_with_overwrite_it_is_kept_aside_and_told(bench: Bench) -> None:
    bench.flow(FLOW.format("new"), **{"out.txt": "mine"})
    answer = bench("run", "w.yaml", "--overwrite")
    assert answer.code == 0
    assert bench.text("out.txt") == "new\n"
    assert bench.text(".sureline/replaced/out.txt.1") == "mine"
    assert "kept in .sureline/replaced/: out.txt.1" in answer.err


def test_what_a_changed_workflow_replaces_is_kept(bench: Bench) -> None:
    for number, word in enumerate(("one", "two", "three")):
        bench.flow(FLOW.format(word))
        answer = bench("run", "w.yaml")
        assert answer.code == 0, answer.err
        assert ("kept in" in answer.err) is bool(number)
    assert bench.text("out.txt") == "three\n"
    assert bench.text(".sureline/replaced/out.txt.1") == "one\n"
    assert bench.text(".sureline/replaced/out.txt.2") == "two\n"


def test_directories_are_kept_as_well(bench: Bench) -> None:
    bench.flow(TREE.format("one"))
    assert bench("run", "w.yaml").code == 0
    bench.write({"d/mine": "hand-made"})
    bench.flow(TREE.format("two"))
    answer = bench("run", "w.yaml")
    assert answer.code == 0, answer.err
    assert bench.text("d/x") == "two\n"
    assert bench.text(".sureline/replaced/d.1/x") == "one\n"
    assert bench.text(".sureline/replaced/d.1/mine") == "hand-made"
    assert "d.1" in answer.err


def test_an_edited_result_is_kept(bench: Bench) -> None:
    bench.flow(FLOW.format("new"))
    assert bench("run", "w.yaml").code == 0
    bench.write({"out.txt": "edited"})
    assert bench("run", "w.yaml").code == 0
    assert bench.text("out.txt") == "new\n"
    assert bench.text(".sureline/replaced/out.txt.1") == "edited"


def test_an_unchanged_result_leaves_nothing_aside(bench: Bench) -> None:
    bench.flow(FLOW.format("new"))
    for options in ([], [], ["--fresh"]):
        assert bench("run", "w.yaml", *options).code == 0
    assert not (bench.directory / ".sureline/replaced").exists()


def test_a_file_of_a_task_that_failed_is_somebodys(bench: Bench) -> None:
    bench.flow("tasks:\n  a: {run: 'exit 1', outputs: [out.txt]}\n")
    assert bench("run", "w.yaml").code == 1
    bench.write({"out.txt": "mine"})
    assert bench("run", "w.yaml").code == 2


def test_from_python(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.write({"out.txt": "mine"})
    flow = Workflow("w")
    flow.task("a", run="echo new > out.txt", outputs="out.txt")
    with pytest.raises(UserError, match=r"out\.txt would be overwritten"):
        flow.run()
    assert os.listdir(".") == ["out.txt"]
    flow.run(overwrite=True)
    assert bench.text(".sureline/replaced/out.txt.1") == "mine"
    assert "kept in .sureline/replaced/" in caplog.text
