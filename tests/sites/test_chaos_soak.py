"""A workflow on pilots in a real Slurm, and all that befalls such jobs, during one run."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from slurm_lab import SlurmLab, unavailable

from sureline.sites.book import PilotBatch, PilotBook

LOOPBACK = ("--base-listen", "127.0.0.1:0", "--pilot-option=--listen=127.0.0.1:0")
STEP_S_MAX = 600.0
"""Slurm lets a requeued job wait for two minutes."""
PARTS = int(os.environ.get("SURELINE_PARTS", "240"))
FLOW = f"""\
name: chaos
tasks:
  part:
    for: {{i: 1..{PARTS}}}
    run: "sleep 2; echo {{{{i}}}} > part{{{{i}}}}"
    outputs: ["part{{{{i}}}}"]
    takes: 2s
  square:
    for: {{i: 1..{PARTS}}}
    run: "n=$(cat part{{{{i}}}}); echo $((n * n)) > square{{{{i}}}}"
    inputs: ["part{{{{i}}}}"]
    outputs: ["square{{{{i}}}}"]
    takes: 1s
  all: {{run: "cat square* | sort -n > all", inputs: ["square*"], outputs: [all], takes: 1s}}
"""


def command(*argv: str) -> list[str]:
    return [sys.executable, "-m", "sureline", *argv]


class Chaos:
    def __init__(self, place: Path, lab: SlurmLab) -> None:
        self.place = place
        self.lab = lab
        self.log: list[str] = []
        self.driver: subprocess.Popen[bytes] | None = None

    def start(self, *argv: str) -> None:
        with (self.place / "driver.log").open("ab") as log:
            self.driver = subprocess.Popen(
                command(*argv, "--progress=lines"), cwd=self.place, stdout=log, stderr=log
            )

    def close(self) -> None:
        """Whatever happened, leave nothing to the machine that runs the tests."""
        if not self.driver_is_gone():
            self.kill_driver()
        own = {"SURELINE_HOME": str(self.place / "home"), "SLURM_CONF": str(self.lab.conf)}
        subprocess.run(command("pilots", "stop", "--all"), check=False, env={**os.environ, **own})

    def batches(self) -> list[PilotBatch]:
        found = PilotBook(self.place / "home" / "pilots").batches()
        return [batch for batch in found if not batch.base]

    def running(self) -> list[str]:
        said = self.lab.run("squeue", "-h", "-r", "-t", "R", "-o", "%F_%K|%j")
        return [line.partition("|")[0] for line in said.splitlines() if "sureline." in line]

    def done(self) -> int:
        shown = subprocess.run(
            command("show", "--json"), cwd=self.place, check=False, capture_output=True, text=True
        )
        if shown.returncode:
            return 0
        return int(json.loads(shown.stdout)["by_state"].get("succeeded", 0))

    def until_done(self, tasks: int) -> None:
        give_up_at = time.monotonic() + STEP_S_MAX
        while self.done() < tasks and not self.driver_is_gone():
            assert time.monotonic() < give_up_at, (self.place / "driver.log").read_text()[-3000:]
            time.sleep(1.0)

    def driver_is_gone(self) -> bool:
        return self.driver is None or self.driver.poll() is not None

    def befalls(self, what: str, action: Callable[[], object]) -> None:
        self.log.append(f"{self.done()} tasks done: {what}")
        action()

    # -- what befalls ----------------------------------------------------------------------------

    def cancel_half(self) -> None:
        jobs = self.running()
        self.lab.run("scancel", *jobs[: max(1, len(jobs) // 2)])

    def requeue_one(self) -> None:
        self.lab.run("scontrol", "requeue", random.Random(1).choice(self.running()))

    def preempt(self) -> None:
        """More important jobs take both nodes for a while."""
        job = self.lab.submit("sleep 8", "--exclusive", "-N2", "-p", "main")
        self.lab.wait_for(lambda: "RUNNING" in self.lab.run("squeue", "-h", "-j", job, "-o", "%T"))

    def shorten(self) -> None:
        """Their walltime ends: an administrator's limit, in a minute from now."""
        for job in self.running()[:2]:
            self.lab.run("scontrol", "update", f"jobid={job}", "timelimit=1")

    def restart_controller(self) -> None:
        self.lab.stop("slurmctld", signal.SIGKILL)
        time.sleep(20)  # nobody answers for that long: that is the case
        self.lab.start_controller()

    def kill_driver(self) -> None:
        assert self.driver is not None
        self.driver.kill()
        self.driver.wait()


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["spread", "latebinding"])
def test_all_that_befalls_pilots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, strategy: str):
    """Finishes right; no task's retries are used up by it; no job is left behind."""
    if why := unavailable():
        pytest.skip(why)
    monkeypatch.setenv("SURELINE_HOME", str(tmp_path / "home"))
    (tmp_path / "flow.yaml").write_text(FLOW)
    with (
        SlurmLab(tmp_path / "slurm", nodes=2, cores=4) as lab,
        contextlib.closing(Chaos(tmp_path, lab)) as chaos,
    ):
        monkeypatch.setenv("SLURM_CONF", str(lab.conf))
        on = ("--on", "slurm", "--pilots", "6", "--partition", "scavenge", "--lifetime", "4min")
        chaos.start("run", "flow.yaml", *on, "--strategy", strategy, *LOOPBACK)
        step = PARTS // 6
        chaos.until_done(step)
        chaos.befalls("half of the pilots cancelled", chaos.cancel_half)
        chaos.until_done(2 * step)
        chaos.befalls("one requeued", chaos.requeue_one)
        chaos.until_done(3 * step)
        chaos.befalls("preempted, and requeued by Slurm", chaos.preempt)
        chaos.until_done(4 * step)
        chaos.befalls("walltime of two ends", chaos.shorten)
        chaos.befalls("the submitter killed", chaos.kill_driver)
        chaos.start("resume")
        chaos.until_done(5 * step)
        chaos.befalls("slurmctld killed, and back after 20 s", chaos.restart_controller)
        assert chaos.driver is not None
        code = chaos.driver.wait(900)
        figures = summary(chaos, code)
        print(json.dumps(figures, indent=1))
        assert code == 0, (tmp_path / "driver.log").read_text()[-3000:]
        squares = [n * n for n in range(1, PARTS + 1)]
        assert [int(line) for line in (tmp_path / "all").read_text().split()] == squares
        assert not figures["failed_attempts"] and not figures["left_behind"]
        assert not PilotBook(tmp_path / "home" / "pilots").batches()


def summary(chaos: Chaos, code: int) -> dict[str, Any]:
    exported = subprocess.run(
        command("show", "--tasks", "--json"),
        cwd=chaos.place,
        check=True,
        capture_output=True,
        text=True,
    )
    listed = json.loads(exported.stdout)["listed"]
    attempts = [task["attempts"] for task in listed]
    return {
        "befell": chaos.log,
        "exit_code": code,
        "tasks": len(listed),
        "begun_more_than_once": sum(number > 1 for number in attempts),
        "most_attempts": max(attempts),
        "failed_attempts": [t["task"] for t in listed if t.get("failure")],
        "left_behind": [
            line
            for line in chaos.lab.run("squeue", "-h", "-o", "%j %T").splitlines()
            if "sureline." in line
        ],
    }
