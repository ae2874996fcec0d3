"""`status`, `explain` and `story` of real runs."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from gates import HELD, Marks, note, write_flow
from surely import newest_run, started, state, sureline, until, write

from sureline.cli.main import run_command


class Here:
    """A working directory; commands are given in this process."""

    def __init__(self, where: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.where = where
        self._capsys = capsys

    def __call__(self, *tokens: str, code: int = 0) -> str:
        """What it printed on stdout, or on stderr if it was to fail."""
        self._capsys.readouterr()
        got = run_command([*tokens, "-C", str(self.where)])
        out, err = self._capsys.readouterr()
        assert got == code, err
        return err if code == 2 else out

    def data(self, *tokens: str) -> Any:
        return json.loads(self(*tokens, "--json"))

    def run(self, *tokens: str, code: int = 0) -> None:
        self("run", str(self.where / "flow.yaml"), "--quiet", *tokens, code=code)


@pytest.fixture
def here(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Here:
    (tmp_path / "place").mkdir()
    return Here(tmp_path / "place", capsys)


@pytest.fixture
def marks(tmp_path: Path) -> Marks:
    return Marks(tmp_path / "marks")


def chain(where: Path, **sort: Any) -> None:
    first = {"run": "sort in > a", "inputs": ["in"], "outputs": ["a"], **sort}
    second = {"run": "cat a > b", "inputs": ["a"], "outputs": ["b"]}
    write_flow(where, {"first": first, "second": second})
    if not (where / "in").exists():
        write(where, "in", "text\n")


def test_reused(here: Here) -> None:
    chain(here.where)
    here.run()
    earlier = newest_run(here.where)
    assert "and started" in here("explain", "second")
    here.run()
    assert f"its result of run {earlier} was reused" in here("explain", "first")
    found = here.data("explain", "last", "first")
    assert (found["state"], found["from_run"], found["attempts"]) == ("reused", earlier, [])


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"run": "sort -r in > a"}, "the command changed: 'sort -r in > a' (was 'sort in > a')"),
        ({"env": {"LC_ALL": "C"}}, "env LC_ALL is 'C' (was not set)"),
        ({"outputs": ["a", "c"], "run": "sort in > a; cp a c"}, "its outputs changed: c is new"),
        ({"inputs": ["in", "flow.yaml"]}, "it reads flow.yaml now and did not before"),
    ],
    ids=["command", "env", "outputs", "inputs"],
)
def test_not_reused_after_a_change(here: Here, change: dict[str, Any], told: str) -> None:
    chain(here.where)
    here.run()
    earlier = newest_run(here.where)
    chain(here.where, **change)
    here.run()
    said = here("explain", "first")
    assert f"Its result of run {earlier} was not reused" in said and told in said


def test_not_reused_because_an_input_changed(here: Here) -> None:
    chain(here.where)
    here.run()
    here.run()  # reuses everything: what it was made of is found all the same
    write(here.where, "in", "another text\n")
    here.run()
    assert "was not reused: the input in has another content." in here("explain", "first")
    found = here.data("explain", "second")["not_reused"]
    assert [(c["what"], c["name"]) for c in found["changes"]] == [("input", "a")]


def test_retried_and_failed_and_never_ran(here: Here) -> None:
    flaky = {"run": 'test "$SURELINE_ATTEMPT" -gt 1; echo x > f', "outputs": ["f"], "retries": 2}
    write_flow(
        here.where,
        {
            "flaky": flaky,
            "bad": {"run": "cat f; exit 7", "inputs": ["f"], "outputs": ["g"]},
            "after": {"run": "cat g > h", "inputs": ["g"], "outputs": ["h"]},
            "end": {"run": "cat h", "inputs": ["h"]},
        },
    )
    here.run("--retry-delay", "0.05s", code=1)
    assert "Attempt 1 failed: exit code 1; tried again" in here("explain", "flaky")
    assert "it has no 'retries:'" in here("explain", "bad")
    said = here("explain", "end")
    assert "end waited for h, which after makes; after did not run." in said
    assert "which waits for bad, which failed." in said
    assert "It did not run, because bad failed: exit code 7." in said
    found = here.data("explain", "end")
    assert found["blocked_by"][0]["chain"] == ["end", "after", "bad"]
    words = here("story", "flaky").splitlines()
    order = ["became ready", "given to", "started on", "failed", "tried again in", "given to"]
    assert all(part in line for part, line in zip(order, words[1:], strict=False))
    assert "made f (2 B)" in words[-1]
    events = here.data("story", "last", "flaky")["events"]
    assert [e["event"] for e in events][:5] == [
        "task ready", "task bound", "task started", "task ended", "task retried",
    ]  # fmt: skip
    assert "nothing was recorded of it" in here("story", "end")
    (site,) = here.data("sites")["sites"]
    assert (site["submitted"], site["ended"], site["failed"], site["waiting"]) == (3, 1, 2, 0)
    assert site["score"] == 0.5 and site["site"] in here("sites")


def test_names_that_mean_nothing(here: Here) -> None:
    chain(here.where)
    here.run()
    assert "has no task 'frist'; is it first?" in here("explain", "frist", code=2)
    assert "no run is called 'nope'" in here("story", "nope", "first", code=2)
    assert "needs" in here("explain", code=2)


def waiting_flow(where: Path) -> None:
    """`held` takes the only core until the gate opens."""
    write_flow(
        where,
        {
            "held": {
                "run": f"{note('held')}; {HELD}; echo x > a",
                "outputs": ["a"],
                "takes": "60s",
            },
            "other": {"run": "true", "needs": {"cores": 1}},
            "child": {"run": "cat a", "inputs": ["a"]},
        },
    )


def test_looking_from_another_terminal(here: Here, marks: Marks) -> None:
    waiting_flow(here.where)
    with started(here.where, "run", "flow.yaml", "--cores", "1", env=marks.env) as run:
        marks.wait("held")
        until(lambda: here.data("status")["running"])
        said = here("status")
        assert f"running by process {run.pid} on {os.uname().nodename}; last event" in said
        assert "0/3 (0 %)" in said and "1 running" in said and "held" in said
        assert "of about 60 s" in said or "of about 1 min 00 s" in said
        assert "done in" in said and "50 %" in said and "90 %" in said
        found = here.data("status")
        assert found["driver"]["pid"] == run.pid
        assert (found["state"], found["tasks"]["total"]) == ("running", 3)
        (held,) = found["running"]
        assert (held["task"], held["attempt"], held["expected_s"]) == ("held", 1, 60)
        forecast = found["forecast"]
        assert 0 < forecast["p50_s"] < forecast["p90_s"] and forecast["basis"]["takes"] == 1
        short = here("explain", "other")
        assert "It needs 1 core, and 0 of 1 are free (held holds the rest)." in short
        assert "child waits for a, which held makes; held is running." in here("explain", "child")
        assert "held has been running on" in here("explain", "held")
        with started(here.where, "status", "--watch", "--json") as watching:
            until(lambda: '"running"' in watching.out)
            marks.open_gate()
            assert watching.end().code == 0
        assert run.end().code == 0
    lines = [json.loads(line) for line in watching.out.splitlines()]
    assert lines[0]["state"] == "running" and lines[-1]["state"] == "succeeded"
    last = here("status")
    assert "succeeded, ended" in last and "3/3 (100 %)" in last and "waiting" not in last
    assert here.data("status")["forecast"] is None


def test_a_run_whose_process_is_gone(here: Here, marks: Marks) -> None:
    waiting_flow(here.where)
    with started(here.where, "run", "flow.yaml", "--cores", "1", env=marks.env) as run:
        marks.wait("held")
        until(lambda: here.data("status")["running"])
        run.signal(signal.SIGKILL)
        until(run.over)
        until(lambda: state(here.where) == "interrupted")
        assert "its process is gone; continue: sureline resume" in here("status")
        assert here.data("status")["driver"] is None
        assert "no process drives the run any more" in here("explain", "held")


def test_cancelled(here: Here, marks: Marks) -> None:
    waiting_flow(here.where)
    with started(here.where, "run", "flow.yaml", "--cores", "1", env=marks.env) as run:
        marks.wait("held")
        run.signal(signal.SIGTERM)
        assert run.end().code == 130
    assert "because the run was stopped (interrupted)" in here("explain", "held")
    assert "was ready but did not start, because the run ended" in here("explain", "other")
    assert "child waited for a, which held makes; held did not run." in here("explain", "child")


def test_status_of_many_failures_is_one_screen(here: Here) -> None:
    write_flow(here.where, {f"bad{k}": {"run": f"exit {k + 1}"} for k in range(30)})
    here.run(code=1)
    said = here("status")
    assert "30 tasks failed: (the last 5; all: sureline show" in said
    assert len(said.splitlines()) <= 12
    assert len(here.data("status")["failed"]) == 30


def test_help_says_how_status_and_show_differ(tmp_path: Path) -> None:
    said = sureline(tmp_path, "status", "--help")
    assert said.code == 0
    assert "'status' is the moment" in " ".join(said.out.replace("│", " ").split())
