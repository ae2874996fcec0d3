"""The comparison of ways to be in time: the same run, with a machine that nearly stops."""

from __future__ import annotations

from pathlib import Path

import pytest
from surely import sureline

from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.repairs import (
    SCENARIOS,
    Once,
    Repairs,
    Row,
    as_estimated,
    rows_of,
    run_once,
)
from sureline.experiments.repairs_hindsight import least_in_hindsight
from sureline.experiments.repairs_words import repairs_lines
from sureline.experiments.scenario import Scenario
from sureline.experiments.scenario_reader import find_scenario
from sureline.experiments.workloads import workload_graph
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
    # What a knowing schedule costs does not depend on the way.
    assert len({once.least for once in ways.values()}) == 1
    assert ways["repair"].least is not None and ways["repair"].least > 0


def test_hindsight_is_the_least_that_any_way_needed_or_a_knowing_schedule() -> None:
    late, cheap, dear = (
        Once(False, 90.0, 0.1, 0, None),
        Once(True, 50.0, 1.0, 0, None),
        Once(True, 50.0, 3.0, 0, 2.0),
    )
    rows = rows_of("s", {"repair": [late, cheap, dear], "no repair": [late, late, dear]})
    assert [row.least for row in rows] == [1.5, 1.5]
    assert all(row.makeable == pytest.approx(2 / 3, abs=1e-5) for row in rows)
    assert [row.on_time for row in rows] == pytest.approx([2 / 3, 1 / 3], abs=1e-5)


def test_hindsight_uses_the_cheapest_sound_machines_that_are_in_time(slow: Scenario) -> None:
    graph = as_estimated(workload_graph(slow.workload, 1), slow.workload)
    boxes = SimulatedGrid(slow, 1, None).boxes
    assert len(graph) == 3, "two beside each other, and a join"
    # The one sound cheap machine does all of it one after another, if there is time for that.
    short = least_in_hindsight(slow, graph, [10.0] * len(graph), boxes)
    longer = least_in_hindsight(slow, graph, [100.0] * len(graph), boxes)
    assert short is not None and longer is not None and short < longer
    assert least_in_hindsight(slow, graph, [300.0] * len(graph), boxes) is None


def test_shipped_scenarios_have_terms() -> None:
    for name in SCENARIOS:
        workload = find_scenario(name).workload
        assert workload.strategy == "surety" and workload.within_s and workload.budget


def test_a_scenario_without_terms_is_refused(tmp_path: Path) -> None:
    told = sureline(tmp_path, "experiment", "repair", "quiet-lab", "--runs", "1")
    assert told.code == 2 and "deadline" in told.err


def test_words_and_page() -> None:
    rows = (
        Row("<s>", "repair", 5, 1.0, 2.0, 60.0, 1.2, 0.8, 1.5),
        Row("<s>", "no repair", 5, 0, 1.0, 90, 0, 0.8, 1.5),
    )
    lines = list(repairs_lines(Repairs(rows, pays=True)))
    assert lines[-1] == "repair pays" and any("no repair" in line for line in lines)
    assert "80%" in lines[0] and "1.50" in lines[0]
    page = repairs_page(Repairs(rows, pays=True))
    assert "&lt;s&gt;" in page and page.count("<circle") == 2
