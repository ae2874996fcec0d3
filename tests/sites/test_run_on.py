"""`sureline run --on`: one command, on pilots of the run's own, from a clean home."""

from __future__ import annotations

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_lab import SlurmLab

from sureline.cli.main import run_command
from sureline.sites.book import PilotBook
from sureline.testing.sites import assert_soon

pytestmark = pytest.mark.limit_s(400)  # they start processes that start processes
LOOPBACK = ("--base-listen", "127.0.0.1:0", "--pilot-option=--listen=127.0.0.1:0")
FLOW = """\
name: gated
tasks:
  part:
    for: {i: 1..3}
    run: "until [ -e GATE ]; do sleep 0.1; done; echo {{i}} > part{{i}}"
    outputs: ["part{{i}}"]
    takes: 1s
  all: {run: "cat part* > all", inputs: ["part*"], outputs: [all], takes: 1s}
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "home"))
    gate = tmp_path / "gate"
    gate.mkdir()
    (tmp_path / "flow.yaml").write_text(FLOW.replace("GATE", str(gate / "open")))
    yield tmp_path
    assert run_command(["pilots", "stop", "--all"]) == 0


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "sureline", *argv]


def shared(place: Path) -> str:
    """Tasks see the gate."""
    return f"--pilot-option=--share={place / 'gate'}"


def book(place: Path) -> list[Any]:
    return [b for b in PilotBook(place / "home" / "pilots").batches() if not b.base]


def test_a_killed_submitter_finds_its_pilots(place: Path, slurm: SlurmLab):
    """From a clean home, in one command; killed while tasks run; resumed: the pilots and the tasks
    that were there are there, and in the end nothing is."""
    on = ("--on", "slurm", "--pilots", "2", *LOOPBACK, shared(place))
    running = subprocess.Popen(command("run", "flow.yaml", *on), cwd=place)
    try:
        assert_soon(lambda: sum(b.count for b in book(place)) > 0 and started(place) > 0)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    before = {job for batch in book(place) for job in batch.jobs}
    run = book(place)[0].run
    (place / "gate" / "open").touch()
    done = subprocess.run(
        command("resume", "--json"), cwd=place, check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["state"] == "succeeded"
    assert (place / "all").read_text() == "1\n2\n3\n"
    shown = subprocess.run(
        command("show", "--tasks", "--json"), cwd=place, check=True, capture_output=True, text=True
    )
    tasks = json.loads(shown.stdout)["listed"]
    assert [task["attempts"] for task in tasks] == [1] * 4, "none was lost by it"
    assert before, "there were pilots to find"
    assert run not in slurm.run("squeue", "-h", "-o", "%j"), "no job is left"
    assert not PilotBook(place / "home" / "pilots").batches()
    assert not list((place / "home" / "pilots" / "private" / "grids").iterdir())


def started(place: Path) -> int:
    shown = subprocess.run(
        command("show", "--json"), cwd=place, check=False, capture_output=True, text=True
    )
    if shown.returncode != 0:
        return 0
    return int(json.loads(shown.stdout)["by_state"].get("running", 0))


def test_what_cannot_start_says_why_and_leaves_nothing(place: Path, slurm: SlurmLab):
    done = subprocess.run(
        command("run", "flow.yaml", "--on", "slurm", "--partition", "none", *LOOPBACK),
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "partition" in done.stderr.splitlines()[-1] and "resume" in done.stderr
    assert not PilotBook(place / "home" / "pilots").batches()


@pytest.mark.soak
def test_pilots_that_do_not_come_up_are_given_up(place: Path):
    """Three in a row; the run says what the last one said, and can go on later."""
    done = subprocess.run(
        command("run", "flow.yaml", "--on", "local", "--python", "/bin/false", *LOOPBACK),
        cwd=place,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "3 pilots ended before they served" in done.stderr.splitlines()[-1]
    assert done.stderr.count("did not come up") == 3
    assert not PilotBook(place / "home" / "pilots").batches()


def test_a_plan_says_number_walltime_and_surety(place: Path, slurm: SlurmLab):
    def plan(*more: str, code: int = 0) -> dict[str, Any]:
        argv = ["plan", str(place / "flow.yaml"), "--on", "slurm", "-C", str(place), "--json"]
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert run_command([*argv, *more]) == code
        return json.loads(out.getvalue())

    easy, hard = plan("--within", "60s"), plan("--within", "13s")
    assert (easy["number"], easy["surety"], easy["once_started"]) == (1, 1.0, True)
    assert hard["number"] == 3 and hard["lifetime_s"] >= 60
    cannot = plan("--within", "3s", code=3)
    assert cannot["refused"] and cannot["within_s"] >= 12
    waits = place / "home" / "pilots" / "waits.jsonl"
    waits.parent.mkdir(parents=True)
    line = {"at": 1.0, "site": "slurm", "partition": "", "cores": 1, "limit_s": 600}
    waits.write_text("".join(json.dumps(line | {"wait_s": 40 + k}) + "\n" for k in range(9)))
    queued = plan("--within", "60s", code=3)
    assert not queued["once_started"] and queued["wait_p50_s"] == 44
    assert plan("--within", "120s")["surety"] == 1.0


def test_options_for_pilots_need_pilots(place: Path):
    for argv in (("--partition", "x"), ("--pilots", "3"), ("--on", "local", "--grid", "x")):
        assert run_command(["run", str(place / "flow.yaml"), "-C", str(place), *argv]) == 2
    assert not os.path.exists(place / ".sureline")
