"""The benchmarks of forecasts and of the monitor, small: they end, and give their figures."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
PATIENCE_S = 120


def figures(where: Path, name: str, *arguments: str) -> Any:
    file = where / "figures.json"
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / name), *arguments, "--json", str(file)],
        check=False,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )
    assert file.exists(), done.stderr
    return json.loads(file.read_text())


def test_forecasts_are_measured_against_numpy(tmp_path: Path) -> None:
    found = figures(tmp_path, "forecast.py", "--tasks", "60", "--samples", "200", "--repeat", "1")
    assert found["without_contention"]["ratio"] > 0
    assert found["with_contention"]["kernel_s"] > 0


def test_the_monitor_is_measured_against_a_plain_run(tmp_path: Path) -> None:
    options = ["--tasks", "40", "--repeat", "1", "--workloads", "commands"]
    found = figures(tmp_path, "monitor.py", *options)
    assert found["workloads"]["commands"]["throughput_ratio"] > 0
