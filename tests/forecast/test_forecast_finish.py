from __future__ import annotations

import math
import random

import msgspec
import numpy as np
import pytest
from forecast_support import (
    GB,
    chain,
    exactly,
    forecast,
    independent,
    layered,
    random_graph,
    simulate,
    simulated_times,
    task,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.forecast import folding
from sureline.forecast.durations import durations_of
from sureline.forecast.finish import standard_error
from sureline.forecast.pools import pools_for
from sureline.forecast.progress import DONE, FAILED, OPEN, RUNNING, Progress
from sureline.forecast.result import Basis, Forecast
from sureline.forecast.shape import Shape
from sureline.journal.history import Observed
from sureline.peer.capacity import Capacity
from sureline.workflow.model import Graph, Needs, Takes, Task


def fork_join(width: int, seconds: float) -> Graph:
    middle = [task(f"m_{i}", ["fork"], exactly(seconds)) for i in range(width)]
    ends = [task("fork", takes=exactly(1)), task("join", [t.name for t in middle], exactly(2))]
    return Graph("fork-join", [ends[0], *middle, ends[1]])


EXACT = {
    "nothing": (Graph("empty", []), 2, 0.0),
    "a chain is a sum": (chain([1, 2, 3, 4.5]), 8, 10.5),
    "one wave": (independent(4, exactly(3)), 4, 3.0),
    "two waves and a bit": (independent(9, exactly(3)), 4, 9.0),
    "one slot": (independent(5, exactly(2)), 1, 10.0),
    "fork and join": (fork_join(10, 3), 4, 1 + 3 * 3 + 2),
    "two cores each": (independent(4, exactly(3), Needs(cores=2)), 4, 6.0),
    "three of four cores": (independent(4, exactly(3), Needs(cores=3)), 4, 12.0),
    "half a core each": (independent(8, exactly(3), Needs(cores=0.5)), 2, 6.0),
    "one core and a half": (independent(4, exactly(3), Needs(cores=1.5)), 4, 6.0),
    "more than there is": (independent(2, exactly(3), Needs(cores=64)), 4, 6.0),
    "no core at all": (independent(9, exactly(3), Needs(cores=0)), 2, 3.0),
    "memory for two": (independent(6, exactly(3), Needs(memory_bytes=3 * GB)), 8, 9.0),
    "memory for all": (independent(6, exactly(3), Needs(memory_bytes=GB)), 8, 3.0),
}


@pytest.mark.parametrize("case", EXACT)
def test_exact_cases(case: str) -> None:
    graph, cores, expected = EXACT[case]
    found = forecast(graph, cores, samples=20)
    assert found.p50_s == found.p90_s == pytest.approx(expected)
    assert found.earliest_s == found.latest_s == pytest.approx(expected)
    assert found.p50_error_s == found.p90_error_s == 0
    assert found.open_tasks == len(graph)


def test_the_urgent_task_goes_first_and_the_hole_before_it_is_used() -> None:
    """A chain of 10 x 1 s and 10 s of short work on two slots fit side by side."""
    long = [task(f"a_{i}", [f"a_{i - 1}"] if i else [], exactly(1)) for i in range(10)]
    short = [task(f"b_{i}", takes=exactly(0.5)) for i in range(20)]
    assert forecast(Graph("g", short + long), 2, samples=20).p90_s == pytest.approx(10)


NEEDS = {
    "plain": (Needs(),),
    "cores": (Needs(), Needs(cores=2)),
    "memory": (Needs(), Needs(memory_bytes=3 * GB)),
    "mixed": (Needs(), Needs(2, GB), Needs(1, 3 * GB), Needs(0.5)),
}


@pytest.mark.parametrize("needs", NEEDS)
@pytest.mark.parametrize(("seed", "cores"), [(1, 2), (2, 4), (3, 8)])
def test_close_to_an_event_driven_simulation(needs: str, seed: int, cores: int) -> None:
    graph = random_graph(seed, 60, NEEDS[needs])
    times = simulated_times(graph, cores, 8 * GB, 300)
    found = forecast(graph, cores, samples=600)
    assert found.p50_s == pytest.approx(times[150], rel=0.05)
    assert found.p90_s == pytest.approx(times[270], rel=0.05)


@pytest.mark.parametrize("cores", [2, 16])
def test_folding_a_large_graph_hardly_changes_the_forecast(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = layered(6, 400)
    whole = forecast(graph, cores)
    monkeypatch.setattr(folding, "UNITS_MAX", 700)
    folded = forecast(graph, cores)
    assert folded.open_tasks == whole.open_tasks == 2400
    assert folded.p50_s == pytest.approx(whole.p50_s, rel=0.02)
    assert folded.p90_s == pytest.approx(whole.p90_s, rel=0.02)
    assert (folded.p90_s - folded.p50_s) == pytest.approx(whole.p90_s - whole.p50_s, rel=0.6)


def test_forty_thousand_tasks_are_simulated_as_few_units() -> None:
    graph = layered(10, 4_000)
    shape, count = Shape(graph), len(graph)
    durations = durations_of(shape, {}, {})
    for cores, most in ((2, 2_000), (64, folding.UNITS_MAX)):
        pools = pools_for(shape.needs, Capacity(cores, 8 * GB))
        everything, running = np.ones(count, dtype=bool), np.array([5, 77])
        units = folding.units_of(shape, durations, pools, everything, running, np.zeros(count))
        assert len(units) < most
        assert units.size.sum() == count
        assert units.task[:2].tolist() == [5, 77] and units.size[:2].tolist() == [1, 1]
        assert units.mean_s.sum() == pytest.approx(durations.means_s.sum())


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(0, 3))
@settings(max_examples=30, deadline=None)
def test_laws_of_every_forecast(seed: int, cores: int, seed_of_samples: int) -> None:
    graph = random_graph(seed, 15)
    found = forecast(graph, cores, samples=40, seed=seed_of_samples)
    assert 0 <= found.earliest_s <= found.p50_s <= found.p90_s <= found.latest_s
    assert found.p50_error_s >= 0 and found.p90_error_s >= 0
    again = forecast(graph, cores, samples=40, seed=seed_of_samples)
    assert msgspec.structs.replace(again, cost_s=0) == msgspec.structs.replace(found, cost_s=0)


@given(st.lists(st.floats(0.1, 100), min_size=1, max_size=25), st.integers(1, 8))
@settings(max_examples=40, deadline=None)
def test_more_slots_are_never_later_for_independent_tasks(seconds: list[float], cores: int) -> None:
    graph = Graph("g", [task(f"t_{i}", takes=exactly(s)) for i, s in enumerate(seconds)])
    fewer, more = (forecast(graph, c, samples=5).p50_s for c in (cores, cores + 1))
    assert more <= fewer * (1 + 1e-9)
    assert sum(seconds) / cores <= fewer * (1 + 1e-9)


@given(st.integers(0, 1000), st.integers(1, 14))
@settings(max_examples=30, deadline=None)
def test_what_is_done_shrinks_the_forecast(seed: int, done: int) -> None:
    """The first tasks described wait for nobody who comes later: doing them is a legal past."""
    graph = random_graph(seed, 15)
    states = bytes([DONE] * done + [OPEN] * (15 - done))
    rest = forecast(graph, 15, Progress(50.0, states), samples=100)
    whole = forecast(graph, 15, samples=100)
    assert rest.open_tasks == 15 - done
    assert rest.p90_s <= whole.p90_s * 1.05
    assert rest.at == 50


def test_nothing_open_is_done_now() -> None:
    found = forecast(chain([3, 3]), 2, Progress(7.0, bytes([DONE, DONE])))
    assert (found.p50_s, found.p90_s, found.open_tasks, found.basis) == (0, 0, 0, Basis())


def test_what_waits_for_a_failed_task_is_not_waited_for() -> None:
    graph = Graph("g", [task("a", takes=exactly(1)), task("b", ["a"], exactly(100)),
                        task("c", ["b"], exactly(100)), task("d", takes=exactly(5))])  # fmt: skip
    found = forecast(graph, 2, Progress(0.0, bytes([FAILED, OPEN, OPEN, OPEN])))
    assert found.p90_s == 5 and found.open_tasks == 1


def test_a_running_task_holds_its_slot_for_the_rest_of_its_time() -> None:
    graph = independent(3, exactly(10))
    progress = Progress(104.0, bytes([RUNNING, OPEN, OPEN]), {0: 100.0})
    assert forecast(graph, 1, progress).p50_s == pytest.approx(6 + 20)
    draining = msgspec.structs.replace(progress, draining=True)
    found = forecast(graph, 1, draining)
    assert found.p50_s == pytest.approx(6) and found.open_tasks == 1


def test_a_retrying_task_waits_until_it_is_tried_again() -> None:
    progress = Progress(100.0, bytes([OPEN]), retrying={0: 130.0})
    assert forecast(independent(1, exactly(10)), 1, progress).p50_s == pytest.approx(40)


def test_this_runs_own_durations_mend_a_wrong_estimate() -> None:
    graph = independent(20, exactly(1))
    states = bytes([DONE] * 4 + [OPEN] * 16)
    naive = forecast(graph, 2, Progress(0.0, states))
    learned = forecast(graph, 2, Progress(0.0, states, observed_s={"t": (5.0, 5.1, 4.9, 5.0)}))
    assert naive.p50_s == 8
    assert learned.p50_s == pytest.approx(40, rel=0.1)
    assert learned.basis == Basis(history=16, kinds=1)


def test_the_basis_is_counted_by_source() -> None:
    graph = Graph("g", [task("a_1", takes=exactly(1)), task("b_1"), task("b_2"), task("c")])
    history = {"b": [Observed(2.0, 0, float(i), f"run{i % 2}") for i in range(6)]}
    basis = forecast(graph, history=history).basis
    assert basis == Basis(takes=1, history=2, guess=1, earlier_runs=2, kinds=1)


def test_the_standard_error_is_what_other_seeds_change() -> None:
    graph = independent(12, Takes(1, 2, 9))
    forecasts = [forecast(graph, 3, seed=seed) for seed in range(60)]
    for quantile, error in (("p50_s", "p50_error_s"), ("p90_s", "p90_error_s")):
        real = np.std([getattr(f, quantile) for f in forecasts])
        told = np.mean([getattr(f, error) for f in forecasts])
        assert told == pytest.approx(real, rel=0.35)
    assert standard_error(np.full(10, 3.0), 0.9) == 0


def test_counted_tags_and_gpus_limit_too() -> None:
    machine = Capacity(8, 8 * GB, gpus=1, tags={"licence": 2, "fast": None})
    needs = [
        Needs(),
        Needs(gpus=1),
        Needs(tags=(("licence", 1), ("fast", 1))),
    ]
    pools = pools_for(needs, machine)
    at_once = [min(pools.lanes[pool] // lanes for pool, lanes in t) for t in pools.taking]
    assert at_once == [8, 1, 2]


def test_the_promise_of_ninety_percent_is_kept() -> None:
    """300 small runs, each forecast from a history of its own: ten earlier runs of the same
    workflow, with durations from the same distribution and a shift per run."""
    draw = random.Random(11)
    graphs = []
    for seed in range(10):
        tasks = random_graph(seed, 10, kinds=2).tasks
        graphs.append(Graph("g", [Task(t.name, t.action, after=t.after) for t in tasks]))

    def middles() -> dict[str, float]:
        return {kind: 5 * math.exp(draw.gauss(0, 0.15)) for kind in "ab"}

    def duration_s(middle: float) -> float:
        return middle * math.exp(draw.gauss(0, 0.5))

    kept = {0.5: 0, 0.9: 0}
    for number in range(300):
        history: dict[str, list[Observed]] = {"a": [], "b": []}
        for run in range(10):
            for kind, middle in middles().items():
                history[kind] += [
                    Observed(duration_s(middle), 0, float(run), str(run)) for _ in range(5)
                ]
        now = middles()
        graph = graphs[number % len(graphs)]
        really = simulate(graph, 2, 8 * GB, lambda t, now=now: duration_s(now[t.name[0]]))
        found = forecast(graph, 2, history=history, samples=100, seed=number)
        kept[0.5] += really <= found.p50_s
        kept[0.9] += really <= found.p90_s
    assert 0.85 <= kept[0.9] / 300 <= 0.95
    assert 0.42 <= kept[0.5] / 300 <= 0.62


def test_a_forecast_is_json() -> None:
    found = forecast(chain([1, 2]))
    assert msgspec.json.decode(msgspec.json.encode(found), type=Forecast) == found
