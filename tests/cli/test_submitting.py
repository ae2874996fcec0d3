"""`submit` and `wait`: runs that go on without a terminal, on this machine."""

from __future__ import annotations

import os
import signal

from surely import alive, runs, sureline, until, write

GATED = """
name: gated
tasks:
  wait: {run: "until [ -e GATE ]; do sleep 0.02; done; echo done > out.txt", outputs: [out.txt]}
"""


def gated(where) -> str:
    write(where, "flow.yaml", GATED.replace("GATE", str(where / "gate")))
    said = sureline(where, "submit", "flow.yaml", "--json")
    assert said.code == 0, said
    assert alive(said.json["pid"])
    return said.json["run"]


def test_submit_returns_while_the_run_goes_on_and_wait_tells_its_end(tmp_path):
    run = gated(tmp_path)
    assert runs(tmp_path)[-1]["state"] == "running"
    said = sureline(tmp_path, "wait", run, "--timeout", "0.2s")
    assert said.code == 1
    assert "has not ended within 0.2s; it goes on" in said.err
    (tmp_path / "gate").touch()
    said = sureline(tmp_path, "wait", run, "--json")
    assert said.code == 0
    assert said.json["state"] == "succeeded"
    assert said.json["tasks"]["succeeded"] == 1
    assert (tmp_path / "out.txt").read_text() == "done\n"
    log = tmp_path / ".sureline/logs" / run / "driver.log"
    until(lambda: f"run {run} succeeded" in log.read_text(), "the driver's last words")


def test_a_submitted_run_can_be_cancelled_and_wait_says_so(tmp_path):
    run = gated(tmp_path)
    assert sureline(tmp_path, "cancel", run).code == 0
    assert sureline(tmp_path, "wait", run).code == 130


def test_wait_tells_of_a_driver_that_died(tmp_path):
    run = gated(tmp_path)
    os.kill(sureline(tmp_path, "status", "--json").json["driver"]["pid"], signal.SIGKILL)
    until(lambda: runs(tmp_path)[-1]["state"] == "interrupted")
    said = sureline(tmp_path, "wait", run)
    assert said.code == 1
    assert f"continue with: sureline resume {run}" in said.err
    (tmp_path / "gate").touch()
    assert sureline(tmp_path, "resume", run).code == 0


def test_a_failed_run_is_told_by_wait(tmp_path):
    write(tmp_path, "flow.yaml", "tasks:\n  bad: {run: exit 3}\n")
    assert sureline(tmp_path, "submit", "flow.yaml").code == 0
    said = sureline(tmp_path, "wait")
    assert said.code == 1
    assert "1 failed" in said.out


def test_mistakes_are_told_before_anything_is_submitted(tmp_path):
    write(tmp_path, "flow.yaml", "tasks:\n  bad: {run: x, wrong: 1}\n")
    assert sureline(tmp_path, "submit", "flow.yaml").code == 2
    write(tmp_path, "good.yaml", "tasks:\n  good: {run: 'true'}\n")
    nowhere = {"SURELINE_HOME": str(tmp_path / "nowhere")}
    said = sureline(tmp_path, "submit", "good.yaml", "--grid", "lab", env=nowhere)
    assert said.code == 2
    assert "no grid 'lab'" in said.err
    said = sureline(tmp_path, "run", "good.yaml", "--grid", "lab", "--cores", "2", env=nowhere)
    assert said.code == 2
    assert "--cores limits this machine" in said.err
    assert not (tmp_path / ".sureline").exists()
