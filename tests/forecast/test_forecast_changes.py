"""What if: changes that were not made, promises, deadlines, and where the numbers come from."""

from __future__ import annotations

import pytest
from forecast_support import GB, chain, exactly, independent, random_graph, task

from sureline.forecast.change import Change
from sureline.forecast.finish import finish_times
from sureline.forecast.follow import Forecaster
from sureline.forecast.machines import MachinePart, together
from sureline.forecast.progress import DONE, OPEN, RUNNING, HoldingAttempt, Progress, untouched
from sureline.forecast.result import QUANTILE_SHARES
from sureline.journal.history import Observed
from sureline.peer.capacity import Capacity
from sureline.workflow.model import Graph, Takes

TWO = Capacity(2, 8 * GB)


def test_a_deadline_is_answered_with_a_surety_and_its_error() -> None:
    graph = independent(1, Takes(0, 5, 10))
    forecaster = Forecaster(graph, TWO, {})
    assert forecaster.forecast(untouched(graph, 100.0)).surety is None
    forecaster.ask_deadline(105.0)
    asked = forecaster.forecast(untouched(graph, 100.0))
    assert asked.surety == pytest.approx(0.5, abs=4 * asked.surety_error)
    assert 0.01 < asked.surety_error < 0.03
    forecaster.ask_deadline(120.0)
    sure = forecaster.forecast(untouched(graph, 100.0))
    assert sure.surety == 1 and 0 < sure.surety_error < 0.01
    assert len(sure.quantiles_s) == len(QUANTILE_SHARES)
    assert list(sure.quantiles_s) == sorted(sure.quantiles_s)


def test_asking_about_no_change_is_the_forecast_itself_with_the_same_random_numbers() -> None:
    graph = random_graph(3, 40)
    forecaster = Forecaster(graph, TWO, {})
    base, again = (forecaster.what_if(untouched(graph, 0.0), ()) for _ in range(2))
    assert base.quantiles_s == again.quantiles_s
    slower = Change(39, "replace", speed=0.999)
    almost = forecaster.what_if(untouched(graph, 0.0), [slower])
    for one, other in zip(base.quantiles_s, almost.quantiles_s, strict=True):
        assert other == pytest.approx(one, rel=0.002)


def test_a_duplicate_of_a_task_that_hangs_saves_the_deadline() -> None:
    """It usually takes 2 s and has run for 100: a copy ends 2 s from now."""
    graph = Graph("g", [task("a", takes=Takes(1, 2, 3)), task("b", ["a"], exactly(5))])
    progress = Progress(100.0, bytes([RUNNING, OPEN]), {0: 0.0})
    forecaster = Forecaster(graph, TWO, {})
    forecaster.ask_deadline(110.0)
    late = forecaster.what_if(progress, ())
    twice = forecaster.what_if(progress, [Change(0, "duplicate")])
    assert late.surety is not None and late.surety < 0.2
    assert twice.surety == 1
    assert twice.p90_s == pytest.approx(2.5 + 5, rel=0.1)
    later = forecaster.what_if(progress, [Change(0, "duplicate", delay_s=6.0)])
    assert later.surety is not None and later.surety < 0.3


def test_a_duplicate_needs_room_and_the_first_to_end_counts() -> None:
    graph = independent(2, exactly(10))
    progress = Progress(4.0, bytes([RUNNING, OPEN]), {0: 0.0})
    one_slot = Forecaster(graph, Capacity(1, GB), {})
    assert one_slot.what_if(progress, ()).p50_s == pytest.approx(16)
    copied = one_slot.what_if(progress, [Change(0, "duplicate", takes=exactly(1))])
    assert copied.p50_s == pytest.approx(16), "the only slot is taken"
    free = Forecaster(graph, Capacity(4, GB), {})
    first = free.what_if(progress, [Change(0, "duplicate", takes=exactly(1)),
                                    Change(1, "duplicate", takes=exactly(2))])  # fmt: skip
    assert first.p50_s == pytest.approx(2)


def test_the_loser_of_a_duplicate_gives_its_room_back() -> None:
    """Two slots: the original, its copy, and a task that waits for either slot."""
    graph = independent(2, exactly(10))
    progress = Progress(0.0, bytes([RUNNING, OPEN]), {0: 0.0})
    copy = Change(0, "duplicate", takes=exactly(1))
    other_first = Change(1, "replace", delay_s=0.5)
    found = Forecaster(graph, TWO, {}).what_if(progress, [copy, other_first])
    assert found.p50_s == pytest.approx(1 + 10)


def test_a_replaced_attempt_starts_anew_and_other_terms_count() -> None:
    graph = chain([10.0, 10.0])
    progress = Progress(9.0, bytes([RUNNING, OPEN]), {0: 0.0})
    forecaster = Forecaster(graph, TWO, {})
    assert forecaster.what_if(progress, ()).p50_s == pytest.approx(11)
    anew = forecaster.what_if(progress, [Change(0, "replace", delay_s=2.0)])
    assert anew.p50_s == pytest.approx(22)
    faster = forecaster.what_if(progress, [Change(1, "replace", speed=2.0)])
    assert faster.p50_s == pytest.approx(6)
    promised = forecaster.what_if(progress, [Change(1, "replace", takes=exactly(3))])
    assert promised.p50_s == pytest.approx(4)
    done = Progress(9.0, bytes([DONE, OPEN]))
    gone = forecaster.what_if(done, [Change(0, "duplicate"), Change(0, "replace")])
    assert gone.p50_s == pytest.approx(10), "a change of what is done changes nothing"


def test_a_promise_replaces_what_is_known_and_may_be_taken_back() -> None:
    graph = independent(1, None)
    history = {"t": [Observed(50.0, 0, float(i), str(i)) for i in range(20)]}
    forecaster = Forecaster(graph, TWO, history)
    begin = untouched(graph, 0.0)
    forecaster.promise(0, Takes(1, 2, 3))
    assert forecaster.what_if(begin, ()).p50_s == pytest.approx(2, rel=0.05)
    assert [one.source for one in forecaster.sources()] == ["bid"]
    forecaster.promise(0, None)
    assert forecaster.what_if(begin, ()).p50_s == pytest.approx(50, rel=0.05)


def test_every_kind_says_where_its_numbers_come_from() -> None:
    graph = Graph("g", [task("a_1", takes=exactly(4)), task("b_1"), task("b_2"), task("c")])
    history = {"b": [Observed(2.0, 0, float(i), f"run{i % 2}") for i in range(6)]}
    by_kind = {one.kind: one for one in Forecaster(graph, TWO, history).sources()}
    assert {kind: one.source for kind, one in by_kind.items()} == {
        "a": "takes",
        "b": "history",
        "c": "guess",
    }
    assert (by_kind["b"].tasks, by_kind["b"].observations, by_kind["b"].runs) == (2, 6, 2)
    assert by_kind["a"].middle_s == 4
    assert by_kind["b"].words.endswith("from 6 observations in 2 earlier runs")
    assert by_kind["c"].words.endswith("from a guess")
    now = Progress(0.0, bytes(4), observed_s={"c": (1.0, 1.1, 0.9)})
    told = {one.kind: one for one in Forecaster(graph, TWO, {}).sources(now)}
    assert told["c"].source == "this run" and told["c"].observations == 3


def test_reported_progress_moves_the_remaining_time() -> None:
    """It usually takes about 10 s. Half done after 20 s: about 20 s are left, not a surprise."""
    graph = independent(1, Takes(5, 10, 20))
    silent = Progress(120.0, bytes([RUNNING]), {0: 100.0})
    half = Progress(120.0, bytes([RUNNING]), {0: 100.0}, fractions={0: 0.5})
    nearly = Progress(120.0, bytes([RUNNING]), {0: 100.0}, fractions={0: 0.95})
    forecaster = Forecaster(graph, TWO, {})
    quiet, middle, end = (forecaster.what_if(p, ()) for p in (silent, half, nearly))
    assert 5 < middle.p50_s < 20
    assert end.p50_s == pytest.approx(20 / 0.95 - 20, rel=0.3)
    assert end.p90_s - end.p50_s < (middle.p90_s - middle.p50_s) / 5
    assert quiet.p90_s > middle.p90_s
    careful = Forecaster(graph, TWO, {}, projection="restart").what_if(nearly, ())
    assert careful.p50_s == pytest.approx(10.8, rel=0.1)


def test_a_copy_that_runs_already_counts() -> None:
    graph = independent(1, exactly(10))
    alone = Progress(50.0, bytes([RUNNING]), {0: 0.0})
    both = Progress(50.0, bytes([RUNNING]), {0: 0.0}, copies={0: (HoldingAttempt(44.0, "other"),)})
    forecaster = Forecaster(graph, TWO, {})
    assert forecaster.what_if(alone, ()).p50_s > 10
    assert forecaster.what_if(both, ()).latest_s == pytest.approx(4)


def machines(*speeds_of_peers: str) -> tuple[MachinePart, ...]:
    return tuple(MachinePart(peer, 1, 8 * GB, 0, {}) for peer in speeds_of_peers)


def history_on(slow: str, fast: str) -> dict[str, list[Observed]]:
    """The one takes four times as long."""
    return {
        "t": [
            Observed(8.0 if i % 2 else 2.0, 0, float(i), f"r{i // 20}", slow if i % 2 else fast)
            for i in range(200)
        ]
    }


def test_tasks_take_longer_on_machines_that_were_slower() -> None:
    graph = independent(1, None)
    speeds: dict[str, float] = {}
    for peer in ("fast", "slow"):
        progress = Progress(0.0, bytes([RUNNING]), {0: 0.0}, peers={0: peer})
        forecaster = Forecaster(
            graph, together(machines("fast", "slow")), history_on("slow", "fast")
        )
        speeds[peer] = forecaster.what_if(progress, ()).p50_s
    assert speeds["slow"] > 2 * speeds["fast"]


def test_a_grid_of_unequal_machines_ends_when_the_slower_ones_do() -> None:
    """Two tasks of 4 s, one goes to each machine: one of speed 2, one of speed 1/2."""
    from sureline.forecast.durations import durations_of
    from sureline.forecast.finish import Outside
    from sureline.forecast.shape import Shape

    graph = independent(2, exactly(4))
    shape = Shape(graph)
    durations, begin = durations_of(shape, {}, {}), untouched(graph, 0.0)
    outside = Outside({"fast": 2.0, "slow": 0.5})
    unequal = together(machines("fast", "slow"))
    times = finish_times(shape, begin, durations, unequal, 4, outside=outside)
    assert times == pytest.approx([8.0] * 4, rel=0.15)
    alone = finish_times(shape, begin, durations, together(machines("fast")), 4, outside=outside)
    assert alone == pytest.approx([4.0] * 4, rel=0.15)


def test_files_travel_between_machines_and_not_on_one() -> None:
    from sureline.forecast.finish import BYTES_PER_S
    from sureline.workflow.model import Command, Task

    size = int(3 * BYTES_PER_S)
    reader = Task("t", Command("true"), inputs=("in",), takes=exactly(4))
    graph = Graph("g", [reader], file_sizes={"in": size})
    begin = untouched(graph, 0.0)
    assert Forecaster(graph, TWO, {}).what_if(begin, ()).p50_s == pytest.approx(4)
    grid = Forecaster(graph, together(machines("a", "b")), {})
    assert grid.what_if(begin, ()).p50_s == pytest.approx(4 + 3)


def test_larger_inputs_take_longer_where_history_shows_it() -> None:
    from sureline.workflow.model import Command, Task

    sizes = {"small": 1_000, "large": 1_000_000}
    graph = Graph(
        "g",
        [Task(f"t_{i}", Command("true"), inputs=(name,)) for i, name in enumerate(sizes)],
        file_sizes=sizes,
    )
    linear = {
        "t": [
            Observed(size / 1000 * (1 + i % 3 / 50), size, float(i), f"r{i % 10}")
            for i in range(40)
            for size in (1_000 * (1 + i % 20),)
        ]
    }
    unclear = {"t": [one._replace(elapsed_s=5.0 + one.at % 3) for one in linear["t"]]}
    small = Progress(0.0, bytes([OPEN, DONE]))
    large = Progress(0.0, bytes([DONE, OPEN]))
    grows = Forecaster(graph, TWO, linear)
    assert grows.what_if(small, ()).p50_s == pytest.approx(1, rel=0.2)
    assert grows.what_if(large, ()).p50_s == pytest.approx(1000, rel=0.2)
    same = Forecaster(graph, TWO, unclear)
    small_s, large_s = (same.what_if(p, ()).p50_s for p in (small, large))
    assert small_s == pytest.approx(large_s, rel=0.05)


def test_the_tasks_that_decide_the_end_are_named() -> None:
    graph = Graph("g", [task("long", takes=exactly(9)), task("short", takes=exactly(1)),
                        task("last", ["long", "short"], exactly(1))])  # fmt: skip
    for machine in (Capacity(8, GB), TWO):
        critical = dict(Forecaster(graph, machine, {}).what_if(untouched(graph, 0.0), ()).critical)
        assert critical == {"long": 1.0, "last": 1.0}
    one_slot = Forecaster(graph, Capacity(1, GB), {}).what_if(untouched(graph, 0.0), ())
    assert dict(one_slot.critical) == {"long": 1.0, "short": 1.0, "last": 1.0}
