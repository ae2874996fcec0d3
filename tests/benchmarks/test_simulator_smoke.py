"""The benchmark of the simulator, at a tiny size. Its figures are not judged here (the machine is
shared): only that all contestants run, that the counters agree, and that it all comes out."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "simulator.py"


def test_every_contestant_gives_a_figure(tmp_path: Path) -> None:
    told = tmp_path / "found.json"
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), "--sizes", "500", "--repeat", "1", "--json", str(told)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    [row] = json.loads(told.read_text())["rows"]
    assert json.loads(done.stdout.splitlines()[-1])["rows"] == [row]
    for contestant in ("sureline", "in_order", "heapq", "simpy"):
        assert row[contestant] > 0
    assert row["against_simpy"] > 0
    assert row["bytes_per_agent"] > 100
    assert "bytes per agent at rest" in done.stdout
