"""The benchmark against rivals, at a tiny size, with nothing to install: ourselves and the floors.

Figures are not judged here (the machine is shared): only that every workload runs, is verified,
and comes out as a figure; that failures are told; and that nothing is left behind.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "local.py"
PATIENCE_S = 120.0


def bench(where: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    scratch = where / "scratch"
    scratch.mkdir()
    return subprocess.run(
        [sys.executable, str(BENCHMARK), "--rivals", str(where / "rivals"), *arguments],
        check=False,
        env={**os.environ, "TMPDIR": str(scratch)},
        cwd=where,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any], str]:
    where = tmp_path_factory.mktemp("bench")
    options = ["--only", "sureline,ppe,spawn", "--scale", "0.002", "--repeat", "1"]
    done = bench(where, *options, "--json", "found.json")
    assert done.returncode == 0, done.stderr + done.stdout
    return where, json.loads((where / "found.json").read_text()), done.stdout


def test_every_workload_gives_a_figure(played: tuple[Path, dict[str, Any], str]) -> None:
    _, found, _ = played
    rates = ("calls_per_s", "graph_calls_per_s", "commands_per_s", "warm_ms", "cold_s")
    for metric in rates:
        assert found["medians"][metric]["sureline"] > 0
        assert found["medians"][metric]["ppe"] > 0
    assert found["medians"]["commands_per_s"]["spawn"] > 0
    assert not [sample for sample in found["samples"] if sample["reason"]]
    assert found["medians"]["calls_peak_bytes"]["sureline"] > 1_000_000
    assert found["medians"]["command_cpu_ms"]["sureline"] > 0


def test_ratios_and_verdicts_follow_from_the_medians(
    played: tuple[Path, dict[str, Any], str],
) -> None:
    _, found, told = played
    rates = found["medians"]["commands_per_s"]
    assert found["ratios"]["commands_per_s"]["spawn"] == pytest.approx(
        rates["sureline"] / rates["spawn"]
    )
    verdicts = {(v["metric"], v["wanted"]): (v["verdict"], v["found"]) for v in found["targets"]}
    ratio = found["ratios"]["calls_per_s"]["ppe"]
    assert verdicts["calls_per_s", "at least 0.5 of ProcessPoolExecutor's"] == (
        "met" if ratio >= 0.5 else "missed",
        ratio,
    )
    assert verdicts["calls_per_s", "at least 3 times Ray's"] == ("unknown", None)
    assert "UNKNOWN no-op calls/s at least 3 times Ray's: no figure" in told


def test_nothing_is_left_behind(played: tuple[Path, dict[str, Any], str]) -> None:
    where, _, _ = played
    assert os.listdir(where / "scratch") == []
    assert not (where / "rivals").exists()


def test_a_rival_that_cannot_be_installed_is_told(tmp_path: Path) -> None:
    (tmp_path / "rivals").write_text("in the way")
    options = [
        "--only",
        "spawn,ray",
        "--workloads",
        "commands",
        "--scale",
        "0.002",
        "--repeat",
        "1",
    ]
    done = bench(tmp_path, *options)
    assert done.returncode == 0, done.stderr
    assert "FAILED  ray: not installed: " in done.stdout
    assert "| Ray | - |" in done.stdout


def test_an_unknown_contestant_is_refused(tmp_path: Path) -> None:
    done = bench(tmp_path, "--only", "sureline,slurm")
    assert done.returncode == 2
    assert "slurm: not one of sureline, ppe" in done.stderr


STRAY = """\
import os, subprocess, sys, time

class Engine:
    def __enter__(self):
        return self
    def __exit__(self, *_):
        pass
    def commands(self, count):
        stray = "import os, time; os.fork() and os._exit(0); os.setsid(); time.sleep(3600)"
        subprocess.run([sys.executable, "-c", stray], check=True)
        # The kernel counts in ticks: what is to be seen must last for several of them.
        begun = time.process_time()
        while time.process_time() < begun + 0.1:
            pass
        return count
    def graph(self, shape):
        return [0] * shape.width
    def calls(self, count):
        if count > 20:
            time.sleep(3600)
        return list(range(count))
"""
PLAY = """\
import json, os, sys
from dataclasses import asdict
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from rivals import stage
stage.HERE = Path(sys.argv[2])
stage.become_subreaper()
sample = stage.play("stray", Path(sys.executable), sys.argv[3], stage.Setting(0.01, limit_s=3.0), 0)
print(json.dumps({"sample": asdict(sample), "left": stage.tree()}))
"""


def play_stray(where: Path, workload: str) -> dict[str, Any]:
    """A contestant that misbehaves, on the real stage."""
    for name in ("drive.py", "work.py"):
        (where / name).write_text((BENCHMARK.parent / "rivals" / name).read_text())
    (where / "with_stray.py").write_text(STRAY)
    done = subprocess.run(
        [sys.executable, "-c", PLAY, str(BENCHMARK.parent), str(where), workload],
        check=True,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_a_daemon_that_a_contestant_leaves_is_found_and_ended(tmp_path: Path) -> None:
    found = play_stray(tmp_path, "commands")
    assert found["sample"]["reason"] == ""
    # The daemon is gone from the tree, and what the contestant itself used was counted.
    assert found["sample"]["figures"]["cpu_ms_per_task"] > 0
    assert found["left"] == []


def test_a_wrong_answer_is_a_failure(tmp_path: Path) -> None:
    found = play_stray(tmp_path, "graph")
    assert "wrong answer: [0, 0" in found["sample"]["reason"]
    assert found["sample"]["figures"] == {}


def test_a_contestant_that_hangs_is_given_up_and_ended(tmp_path: Path) -> None:
    found = play_stray(tmp_path, "calls")
    assert "no result within 3 s" in found["sample"]["reason"]
    assert found["left"] == []
