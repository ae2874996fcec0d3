from __future__ import annotations

import math
import random

import numpy as np
import pytest
from forecast_support import exactly, independent, task
from hypothesis import given
from hypothesis import strategies as st

from sureline.forecast.durations import GUESS, HISTORY, TAKES, Durations, durations_of
from sureline.forecast.finish import finish_times
from sureline.forecast.progress import DONE, OPEN, RUNNING, Progress
from sureline.forecast.repeats import Kind, learn_together
from sureline.forecast.shape import Shape
from sureline.journal.history import Observed
from sureline.peer.capacity import Capacity
from sureline.workflow.model import Graph, Pause, Takes, Task


def seen(seconds: list[float], run: str = "before") -> list[Observed]:
    return [Observed(s, 0, float(i), run) for i, s in enumerate(seconds)]


def drawn(
    model: Durations, task: int = 0, samples: int = 20_000, elapsed_s: float | None = None
) -> np.ndarray:
    """Whole durations, the shifts included; or what is left of a task that runs for so long."""
    graph = independent(len(model.kind), None)
    states = [DONE] * len(graph)
    states[task] = OPEN if elapsed_s is None else RUNNING
    started = {} if elapsed_s is None else {task: 1e8 - elapsed_s}
    progress = Progress(1e8, bytes(states), started)
    return finish_times(Shape(graph), progress, model, Capacity(1, 1), samples, seed=1)


@pytest.mark.parametrize(
    "takes",
    [(1, 3, 10), (0, 0, 5), (2, 8, 8), (0, 1, 1), (1, 1.01, 1000), (4, 5, 6)],
)
def test_an_estimate_is_a_beta_pert_distribution(takes: tuple[float, float, float]) -> None:
    low, likely, high = takes
    model = durations_of(Shape(independent(1, Takes(*takes))), {}, {})
    draws = drawn(model)
    mean = (low + 4 * likely + high) / 6
    mode = (likely - low) / (high - low)
    alpha, beta = 1 + 4 * mode, 5 - 4 * mode
    deviation = (high - low) * math.sqrt(alpha * beta / 252)  # (a + b)^2 (a + b + 1) = 36 * 7
    assert model.source[0] == TAKES
    assert model.means_s[0] == pytest.approx(mean)
    assert draws.mean() == pytest.approx(mean, rel=0.02)
    assert draws.std() == pytest.approx(deviation, rel=0.05)
    slack = (high - low) / 64  # the place of the mode is kept in 32 steps
    assert max(0, low - slack) <= draws.min() and draws.max() <= high + slack


@pytest.mark.parametrize("seconds", [0.0, 3.0])
def test_an_estimate_without_width_is_one_number(seconds: float) -> None:
    draws = drawn(durations_of(Shape(independent(1, exactly(seconds))), {}, {}))
    assert (draws == seconds).all()


def test_without_any_knowledge_it_is_a_wide_guess_and_named_so() -> None:
    model = durations_of(Shape(independent(3, None)), {"other": seen([1, 1, 1])}, {})
    assert (model.source == GUESS).all()
    low, middle, high = np.quantile(drawn(model), (0.05, 0.5, 0.95))
    assert middle == pytest.approx(10, rel=0.1)
    assert low == pytest.approx(1, rel=0.2) and high == pytest.approx(100, rel=0.2)
    assert model.shift[0] > 0.5  # tasks of one kind are wrong together


def test_history_of_the_kind_outweighs_an_estimate_once_there_is_enough_of_it() -> None:
    graph = Graph("g", [task("big_1", takes=exactly(100)), task("small_1", takes=exactly(1))])
    history = {"big": seen([9.0, 10.0, 11.0, 10.0])}
    model = durations_of(Shape(graph), history, {})
    assert model.source.tolist() == [HISTORY, TAKES]
    assert 10 < np.median(drawn(model)) < 14  # one run is known: rather later than that
    assert model.means_s[1] == 1


def test_one_or_two_observations_move_an_estimate_but_do_not_replace_it() -> None:
    shape = Shape(independent(1, Takes(8, 10, 12)))
    means = [float(durations_of(shape, {"t": seen([40.0] * n)}, {}).means_s[0]) for n in range(3)]
    assert means[0] == 10
    assert 10 < means[1] < means[2] < 40
    assert durations_of(shape, {"t": seen([40.0] * 2)}, {}).source[0] == TAKES


def test_one_or_two_observations_alone_are_history_with_a_wide_spread() -> None:
    shape = Shape(independent(1, None))
    widths = []
    for n in (1, 2, 30):
        model = durations_of(shape, {"t": seen([10.0] * n)}, {})
        assert model.source[0] == HISTORY
        low, middle, high = np.quantile(drawn(model), (0.05, 0.5, 0.95))
        assert 10 < middle < 14
        widths.append(high / low)
    assert 8 < widths[0] < 15
    assert widths[0] > widths[1] > widths[2]


def test_heavy_tails_and_two_humps_are_kept() -> None:
    many = [Observed(100.0 if i % 10 == 0 else 1.0, 0, 0.0, str(i // 20)) for i in range(200)]
    two = durations_of(Shape(independent(1, None)), {"t": many}, {})
    draws = drawn(two)
    assert (draws < 5).mean() == pytest.approx(0.9, abs=0.02)
    assert (draws > 30).mean() == pytest.approx(0.1, abs=0.02)


def learned(history: list[Observed], this_run_s: list[float], run: str = "now") -> Kind:
    return learn_together({"k": history}, {"k": this_run_s}, run).kinds["k"]


def shift(kind: Kind) -> float:
    return math.sqrt(float(kind.common @ kind.common) + kind.alone**2)


def several_runs(shift: float, own: float, runs: int = 10) -> list[Observed]:
    draw = random.Random(4)
    found = []
    for run in range(runs):
        middle = 10 * math.exp(draw.gauss(0, shift))
        found += [
            Observed(middle * math.exp(draw.gauss(0, own)), 0, 0.0, str(run)) for _ in range(25)
        ]
    return found


def test_what_this_run_took_soon_outweighs_what_earlier_runs_took() -> None:
    history = several_runs(0.2, 0.1)
    before, after = learned(history, []), learned(history, [30.0, 31.0, 29.0] * 3)
    assert math.exp(before.centre) == pytest.approx(10, rel=0.2)
    assert shift(before) == pytest.approx(0.2, rel=0.6)
    assert 25 < math.exp(after.centre) < 31
    assert shift(after) < shift(before) / 2


def test_a_resumed_run_is_not_counted_twice() -> None:
    once = learned([], [3.0, 4.0, 5.0])
    again = learned(seen([3.0, 4.0, 5.0], run="now"), [3.0, 4.0, 5.0])
    assert again.centre == once.centre and again.number == once.number == 3


def test_runs_that_differ_give_a_shift_and_tasks_that_differ_do_not() -> None:
    of_runs = learned(several_runs(0.5, 0.05), [])
    of_tasks = learned(several_runs(0.0, 0.5), [])
    assert shift(of_runs) > 0.25 and of_runs.own.std() < 0.1
    assert shift(of_tasks) < 0.2 and of_tasks.own.std() > 0.4


def test_a_kind_learns_from_others_how_the_run_is_off() -> None:
    """Ten runs, all kinds off together: what one kind shows now is expected of the other."""
    draw = random.Random(5)
    history: dict[str, list[Observed]] = {"a": [], "b": []}
    for run in range(10):
        middle = 10 * math.exp(draw.gauss(0, 0.3))
        for kind in history:
            history[kind] += [
                Observed(middle * math.exp(draw.gauss(0, 0.05)), 0, 0.0, str(run))
                for _ in range(10)
            ]
    usual = learn_together(history, {}).kinds["b"]
    slow = learn_together(history, {"a": [16.0, 16.5, 15.5, 16.0]}, "now").kinds["b"]
    assert math.exp(slow.centre - usual.centre) == pytest.approx(1.6, rel=0.15)
    assert shift(slow) < shift(usual) / 2


def test_few_runs_promise_at_least_and_many_about() -> None:
    """A next run drawn like the earlier ones is later than the forecast's middle less often than
    half of the time if three runs are known, and about half of the time if thirty are."""
    shape = Shape(independent(1, None))
    few = durations_of(shape, {"t": several_runs(0.1, 0.1, runs=3)}, {})
    many = durations_of(shape, {"t": several_runs(0.1, 0.1, runs=30)}, {})
    assert np.median(drawn(few)) > 1.05 * np.median(drawn(many))
    assert few.shift[0] > 1.3 * many.shift[0]


def test_pretended_tasks_take_what_they_say_whatever_the_history() -> None:
    graph = Graph("g", [Task("t_1", Pause(2.5), kind="t")])
    model = durations_of(Shape(graph), {"t": seen([9.0] * 5)}, {"t": [9.0] * 5})
    assert model.source[0] == TAKES and model.means_s[0] == 2.5


def test_a_running_task_is_conditioned_on_how_long_it_runs() -> None:
    model = durations_of(Shape(independent(1, Takes(0, 10, 20))), {}, {})
    fresh = drawn(model, elapsed_s=0.0)
    assert fresh.mean() == pytest.approx(10, rel=0.02)
    half = drawn(model, elapsed_s=10.0)
    expected = drawn(model)
    assert half.mean() == pytest.approx((expected[expected > 10] - 10).mean(), rel=0.05)
    overdue = drawn(model, elapsed_s=50.0)
    assert np.median(overdue) == pytest.approx(50 * (math.sqrt(2) - 1), rel=0.05)
    assert overdue.min() >= 0


@given(
    st.lists(st.floats(0, 1e6), max_size=30),
    st.lists(st.floats(0, 1e6), max_size=10),
    st.floats(0, 1e7),
)
def test_any_observations_give_a_usable_model(
    earlier: list[float], current: list[float], elapsed_s: float
) -> None:
    history = {"t": [Observed(s, 0, 0.0, str(i % 4)) for i, s in enumerate(earlier)]}
    model = durations_of(Shape(independent(1, None)), history, {"t": current})
    draws = drawn(model, samples=50)
    rest = drawn(model, samples=50, elapsed_s=elapsed_s)
    assert np.isfinite(draws).all() and (draws >= 0).all()
    assert np.isfinite(rest).all() and (rest >= 0).all()
