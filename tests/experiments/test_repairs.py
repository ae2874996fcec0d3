"""The comparison of ways to be in time: the same run, with a machine that nearly stops."""

from __future__ import annotations

from pathlib import Path

import pytest
from surely import sureline

from sureline.experiments.repairs import SCENARIOS, Repairs, Row, run_once
from sureline.experiments.repairs_words import repairs_lines
from sureline.experiments.scenario import Scenario
from sureline.experiments.scenario_reader import find_scenario
from sureline.web.repairs import repairs_page

SLOW = """
name = "slow"
duration = "1h"
[grid]
cores = 1
[[grid.site]]
name = "cheap"
machines = 2
price = 1
[[grid.site]]
name = "dear"
machines = 2
price = 4
[workload]
kind = "fork-join"
width = 2
stages = 1
work = "lognormal(60s, 0.1)"
strategy = "surety"
within = "4min"
budget = 2
surety = 0.9
[[faults.script]]
at = "40s"
what = "slow"
whom = "cheap1"
factor = 0.05
for = "20min"
"""


@pytest.fixture
def slow(tmp_path: Path) -> Scenario:
    (tmp_path / "slow.toml").write_text(SLOW)
    return find_scenario(str(tmp_path / "slow.toml"))


def test_repair_saves_what_hope_loses(slow: Scenario) -> None:
    ways = {way: run_once(slow, 1, way) for way in ("repair", "no repair", "duplicate all")}
    assert ways["repair"].on_time and ways["repair"].repairs >= 1
    assert not ways["no repair"].on_time and not ways["no repair"].repairs
    assert ways["duplicate all"].on_time and ways["duplicate all"].paid > ways["no repair"].paid
    assert all(once.paid <= 2 for once in ways.values())


def test_shipped_scenarios_have_terms() -> None:
    for name in SCENARIOS:
        workload = find_scenario(name).workload
        assert workload.strategy == "surety" and workload.within_s and workload.budget


def test_a_scenario_without_terms_is_refused(tmp_path: Path) -> None:
    told = sureline(tmp_path, "experiment", "repair", "quiet-lab", "--runs", "1")
    assert told.code == 2 and "deadline" in told.err


def test_words_and_page() -> None:
    rows = (Row("<s>", "repair", 5, 1.0, 2.0, 60.0, 1.2), Row("<s>", "no repair", 5, 0, 1.0, 90, 0))
    lines = list(repairs_lines(Repairs(rows, pays=True)))
    assert lines[-1] == "repair pays" and any("no repair" in line for line in lines)
    page = repairs_page(Repairs(rows, pays=True))
    assert "&lt;s&gt;" in page and page.count("<circle") == 2
