"""Calibration: its yardstick is the engine's rule, its truth is drawn as said; what it finds."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from surely import sureline

from sureline.experiments.calibration import Settings, never_seen, same_distribution
from sureline.experiments.calibration_agents import run_agents
from sureline.experiments.calibration_cases import (
    generated_cases,
    learned_from,
    recorded_s,
    small_cases,
    unseen_cases,
)
from sureline.experiments.calibration_kernel import KernelGraph, run_times
from sureline.experiments.calibration_result import PROMISES, Agents, Point, brier, gathered
from sureline.experiments.calibration_truth import Shifts, Truth
from sureline.experiments.scenario_reader import find_scenario
from sureline.web.calibration import calibration_page
from sureline.workflow.model import Command, Graph, Task
from sureline.workflow.shapes import urgencies


def _graph(parents: list[list[int]]) -> Graph:
    return Graph(
        "random",
        [
            Task(f"t{i}", Command("true"), after=tuple(f"t{p}" for p in above))
            for i, above in enumerate(parents)
        ],
    )


@st.composite
def _graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 9))
    return _graph(
        [draw(st.lists(st.integers(0, i - 1), unique=True)) if i else [] for i in range(count)]
    )


def _by_hand(graph: Graph, took_s: list[float], slots: int) -> float:
    """List scheduling as one would do it on paper."""
    urgency = urgencies(graph)
    ends: dict[int, float] = {}
    running: dict[int, float] = {}
    now = 0.0
    while len(ends) < len(graph):
        ready = [
            task
            for task in range(len(graph))
            if task not in ends
            and task not in running
            and all(parent in ends for parent in graph.parents[task])
        ]
        for task in sorted(ready, key=lambda t: (-urgency[t], t))[: slots - len(running)]:
            running[task] = now + took_s[task]
        now = min(running.values())
        for task in [task for task, end in running.items() if end <= now]:
            ends[task] = running.pop(task)
    return now


@settings(max_examples=60, deadline=None)
@given(_graphs(), st.integers(1, 4), st.integers(0, 1000))
def test_the_yardstick_is_list_scheduling(graph: Graph, slots: int, seed: int) -> None:
    took_s = np.random.default_rng(seed).integers(0, 5, size=(3, len(graph))).astype(np.float64)
    found = run_times(KernelGraph(graph), took_s, slots)
    assert found.tolist() == [_by_hand(graph, row, slots) for row in took_s.tolist()]


def test_the_real_agents_take_what_the_yardstick_says() -> None:
    scenario = find_scenario("one-machine")  # four cores
    for case in small_cases(3)[:2]:
        took_s = case.truth.draw(1, np.random.default_rng(1))
        told_s = float(run_times(KernelGraph(case.graph), took_s, 4)[0])
        assert run_agents(scenario, case.graph, took_s[0], {}, 1).took_s == pytest.approx(
            told_s, rel=0.01
        )


def test_runs_of_a_truth_differ_by_their_shifts() -> None:
    graph = _graph([[] for _ in range(400)])
    kinds = {task.kind_name for task in graph.tasks}
    assert len(kinds) == 1
    truth = Truth(graph, dict.fromkeys(kinds, np.array([10.0])), Shifts(0.2, 0.1, 0.05))
    means = np.log(truth.draw(2000, np.random.default_rng(0))).mean(axis=1)
    assert float(means.std()) == pytest.approx(np.hypot(0.2, 0.1), rel=0.1)


def test_promises_from_the_same_distribution_are_kept() -> None:
    """Few runs, so a wide margin: too narrow or too late a forecast is far outside it."""
    case = next(c for c in generated_cases(0) if c.name == "wrong-estimates")
    points = same_distribution(case, Settings(runs=300, slots=(4,)))
    assert [point.promised for point in points] == list(PROMISES)
    for point in points:
        margin = 4 * np.sqrt(2 * point.promised * (1 - point.promised) / 300) + 0.02
        assert abs(point.off) < margin, point
    assert points[2].pert < 0.5  # slots and parallel paths: PERT promises far too much
    before = same_distribution(case, Settings(runs=20, slots=(4,)), learn=False)
    assert before[2].achieved < 0.5  # the estimates alone were wrong


def _trace(path: Path, name: str, factor: float, seed: int) -> None:
    """Repeats read the same data: a task's share of the work stays, and varies a little."""
    random, noise = np.random.default_rng(1), np.random.default_rng(seed)
    ids = [f"split_ID{0:07}", *(f"work_ID{n:07}" for n in range(1, 13)), f"join_ID{13:07}"]
    took = [3.0, *(20 * np.exp(0.2 * random.standard_normal(12))), 8.0]
    took = [s * float(np.exp(0.05 * noise.standard_normal())) for s in took]
    tasks = [
        {
            "name": ids[n].partition("_")[0],
            "id": ids[n],
            "parents": [] if n == 0 else ids[:1] if n < 13 else ids[1:13],
            "children": ids[1:13] if n == 0 else ids[13:] if n < 13 else [],
        }
        for n in range(14)
    ]
    done = [{"id": i, "runtimeInSeconds": factor * s} for i, s in zip(ids, took, strict=True)]
    path.joinpath(f"{name}.json").write_text(
        json.dumps(
            {
                "name": name,
                "schemaVersion": "1.5",
                "workflow": {
                    "specification": {"tasks": tasks, "files": []},
                    "execution": {"makespanInSeconds": 1.0, "executedAt": "", "tasks": done},
                },
            }
        )
    )


@pytest.fixture
def folders(tmp_path: Path) -> Path:
    for folder in ("earlier", "later", "empty"):
        (tmp_path / folder).mkdir()
    _trace(tmp_path / "earlier", "flow-001", 1.0, 1)
    _trace(tmp_path / "earlier", "flow-002", 1.04, 2)
    _trace(tmp_path / "later", "flow-003", 1.08, 3)
    return tmp_path


def test_a_slower_run_than_any_seen_still_keeps_its_promises(folders: Path) -> None:
    history = learned_from(folders / "earlier")
    assert {seen.run for seen in history["work"]} == {"flow-001-0", "flow-002-0"}
    [case] = unseen_cases(folders / "later")
    recorded = recorded_s(folders / "later")[case.name]
    points = never_seen(case, history, recorded, Settings(runs=500, slots=(2, 16)))
    assert len(points) == 2 * len(PROMISES)
    for point in points:
        assert point.achieved >= point.promised - 0.05, point
        assert point.as_recorded is not None
    of_nothing = never_seen(case, {}, recorded, Settings(runs=50, slots=(2,)))
    assert of_nothing[-1].achieved == 1.0  # a guess is wide


def test_the_command(folders: Path) -> None:
    where = ["--learn", "earlier", "--traces", "later", "--slots", "2,4", "--runs", "100"]
    told = sureline(folders, "experiment", "calibration", *where, "--json", "--html", "page.html")
    assert told.code == 0, told.err
    point = told.json["points"][0]
    assert {"trace", "slots", "promised", "achieved", "runs", "pert"} <= set(point)
    assert (point["trace"], point["slots"], point["runs"]) == ("flow-003", 2, 100)
    assert 0 < told.json["brier"] < 0.2 and told.json["unseen"] is True
    page = (folders / "page.html").read_text()
    assert page.count('<circle class="ours"') == 2 * len(told.json["points"])
    assert "<script" not in page
    said = sureline(folders, "experiment", "calibration", *where)
    assert "runs never seen" in said.out and "kept" in said.out


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--learn", "earlier"], "--traces"),
        (["--traces", "empty"], "holds no traces"),
        (["--traces", "nowhere"], "is not a folder"),
        (["--slots", "2,many"], "--slots"),
        (["--runs", "0"], "--runs"),
    ],
)
def test_mistakes_are_told(folders: Path, arguments: list[str], word: str) -> None:
    told = sureline(folders, "experiment", "calibration", *arguments)
    assert told.code == 2 and word in told.err


def test_what_is_gathered() -> None:
    points = [Point("a", 2, 0.9, 0.93, 100, 0.4), Point("a", 2, 0.5, 0.45, 100, 0.0)]
    found = gathered(points, unseen=False, earlier_runs=20)
    assert found.worst == pytest.approx(0.05) and not found.held
    assert gathered(points, unseen=True, earlier_runs=2).held
    true = gathered([Point("a", 2, p, p, 9, p) for p in PROMISES], unseen=False, earlier_runs=1)
    assert true.brier == true.brier_true and true.held
    assert brier(0.9, 0.0) == pytest.approx(0.81)


def test_the_page_shows_the_agents_and_escapes_names() -> None:
    points = [Point("<b>", 2, 0.9, 0.93, 100, 0.4)]
    kept = [Agents("here", 0.9, 10, 0.9, 1.0, 3)]
    page = calibration_page(gathered(points, unseen=False, earlier_runs=20, agents=kept))
    assert "<b>," not in page and "&lt;b&gt;" in page and "The real agents" in page
