"""The benchmark of large data, at a tiny size, with nothing to install."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "data.py"


SMALL = ("--size-mb", "1", "--calls", "2", "--items", "2000", "--rounds", "1", "--only")
SMALL += ("sureline workflow,sureline executor,process pool",)


def test_it_verifies_its_results_and_says_what_it_left_out(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, str(BENCHMARK), *SMALL],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env={**os.environ, "TMPDIR": str(tmp_path)},
    )
    found = json.loads(done.stdout)
    tools = ["sureline workflow", "sureline executor", "process pool"]
    assert list(found["shared_s"]) == tools
    assert found["left_out"] == ["dask", "ray", "joblib"]
    sizes = found["again"]["journal_bytes"]
    assert len(sizes) == 10
    assert sizes[-1] - sizes[0] < 1 << 20, "the journal holds no data"
    assert list(tmp_path.iterdir()) == [], "nothing is left behind"
