"""The benchmark of the chemical engine, at a tiny size: both matchers come to the same solution."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "chemistry.py"


def test_both_matchers_come_to_the_same(tmp_path: Path) -> None:
    found = tmp_path / "found.json"
    command = [sys.executable, str(BENCHMARK), "--sizes", "40", "--json", str(found)]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    rows = json.loads(found.read_text())["rows"]
    assert {row["program"] for row in rows} == {"max", "primes", "pairs"}
    for row in rows:
        assert row["engine"]["reactions"] == row["naive"]["reactions"] > 0
