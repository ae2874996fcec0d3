"""The paper's PERT and the plain critical path, and NumPy level by level as an oracle."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from statistics import NormalDist
from types import ModuleType

import numpy as np
import pytest
from forecast_support import GB, chain, exactly, independent, random_graph, task

from sureline.forecast.durations import durations_of
from sureline.forecast.finish import finish_times
from sureline.forecast.methods import finish_by
from sureline.forecast.progress import OPEN, RUNNING, Progress, untouched
from sureline.forecast.result import Forecast, Method
from sureline.forecast.shape import Shape
from sureline.peer.capacity import Capacity
from sureline.workflow.model import Graph, Takes

BENCHMARK = Path(__file__).parents[2] / "benchmarks" / "forecast.py"


def by(
    method: Method, graph: Graph, deadline_s: float, progress: Progress | None = None
) -> Forecast:
    shape = Shape(graph)
    progress = progress or untouched(graph, 0.0)
    durations = durations_of(shape, {}, progress.observed_s)
    return finish_by(method, shape, progress, durations, Capacity(64, 8 * GB), deadline_s)


def papers_example() -> Graph:
    """A and B, then C after both, then D: the plan that the paper chooses."""
    return Graph(
        "paper",
        [
            task("A", takes=Takes(4, 5, 6)),
            task("B", takes=Takes(6, 8, 10)),
            task("C", ["A", "B"], Takes(5, 5, 5)),
            task("D", ["C"], Takes(3, 5, 7)),
        ],
    )


def test_pert_is_the_papers_equations_on_the_critical_path() -> None:
    found = by("pert", papers_example(), 20.0)
    expected = NormalDist(18, math.sqrt((4 / 6) ** 2 + 0 + (4 / 6) ** 2))
    assert found.p50_s == pytest.approx(18)
    assert found.surety == pytest.approx(expected.cdf(20))
    assert [name for name, _ in found.critical] == ["B", "C", "D"]
    assert found.method == "pert" and found.surety_error == 0


@pytest.mark.parametrize(("deadline_s", "surety"), [(9.99, 0.0), (10.0, 1.0), (11.0, 1.0)])
@pytest.mark.parametrize("method", ["pert", "cpm"])
def test_without_variance_it_is_in_time_or_not(
    method: Method, deadline_s: float, surety: float
) -> None:
    found = by(method, chain([4.0, 6.0]), deadline_s)
    assert (found.surety, found.p50_s, found.p90_s) == (surety, 10.0, 10.0)


def test_what_runs_already_has_less_to_go() -> None:
    progress = Progress(3.0, bytes([RUNNING, OPEN]), {0: 0.0})
    assert by("cpm", chain([4.0, 6.0]), 7.0, progress).p50_s == pytest.approx(7)


def test_pert_is_too_hopeful_where_paths_run_side_by_side() -> None:
    graph = independent(40, Takes(1, 5, 9))
    hopeful, honest = (by(method, graph, 7.0) for method in ("pert", "montecarlo"))
    assert hopeful.surety is not None and honest.surety is not None
    assert hopeful.surety > 0.9 and honest.surety < 0.4


def test_nothing_open_is_done() -> None:
    assert by("pert", Graph("empty", []), 0.0).surety == 1


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("benchmark_of_forecasts", BENCHMARK)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_kernel_finds_what_numpy_finds_level_by_level(benchmark: ModuleType, seed: int) -> None:
    graph = random_graph(seed, 60)
    shape = Shape(graph)
    durations = durations_of(shape, {}, {})
    machine = Capacity(100, 8 * GB)
    ours = finish_times(shape, untouched(graph, 0.0), durations, machine, 4000, seed)
    theirs = benchmark.ByLevel(shape, durations).finish_times(4000, seed, 500)
    for share in (0.05, 0.5, 0.95):
        assert np.quantile(ours, share) == pytest.approx(np.quantile(theirs, share), rel=0.01)


def test_room_for_all_and_room_to_spare_are_the_same_forecast() -> None:
    """The one takes the quick way, the other, with a copy that never starts, the list's."""
    from sureline.forecast.change import Change

    graph = random_graph(5, 40)
    shape = Shape(graph)
    durations, begin = durations_of(shape, {}, {}), untouched(graph, 0.0)
    machine = Capacity(100, 8 * GB)
    quick = finish_times(shape, begin, durations, machine, 50)
    never = Change(0, "duplicate", takes=exactly(1), delay_s=1e9)
    listed = finish_times(shape, begin, durations, machine, 50, changes=[never])
    assert listed == pytest.approx(quick)


def test_the_benchmark_runs_and_tells_its_figures(
    benchmark: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written = tmp_path / "found.json"
    benchmark.main(["--tasks", "60", "--samples", "200", "--repeat", "1", "--json", str(written)])
    import json

    found = json.loads(written.read_text())
    assert found["without_contention"]["ratio"] > 0
    assert found["with_contention"]["kernel_s"] > 0
    assert "NumPy by level" in capsys.readouterr().out
