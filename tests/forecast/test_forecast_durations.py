from __future__ import annotations

import math
import random

import numpy as np
import pytest
from forecast_support import exactly, independent, task
from hypothesis import given
from hypothesis import strategies as st

from sureline.forecast.durations import GUESS, HISTORY, TAKES, Durations, durations_of
from sureline.forecast.learning import learn
from sureline.forecast.shape import Shape
from sureline.journal.history import Observed
from sureline.workflow.model import Graph, Pause, Takes, Task


def seen(seconds: list[float], run: str = "before") -> list[Observed]:
    return [Observed(s, 0, float(i), run) for i, s in enumerate(seconds)]


def drawn(durations: Durations, task: int = 0, samples: int = 20_000) -> np.ndarray:
    """Whole durations, the shift of the kind included."""
    random_ = np.random.default_rng(1)
    own = durations.draw(np.array([task]), samples, random_)[0]
    return own * np.exp(durations.shift[task] * random_.standard_normal(samples))


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
    assert np.median(drawn(model)) == pytest.approx(10, rel=0.05)
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
        assert middle == pytest.approx(10, rel=0.05)
        widths.append(high / low)
    assert widths[0] == pytest.approx(9, rel=0.1)
    assert widths[0] > widths[1] > widths[2]


def test_heavy_tails_and_two_humps_are_kept() -> None:
    two = durations_of(Shape(independent(1, None)), {"t": seen([1.0] * 90 + [100.0] * 10)}, {})
    draws = two.draw(np.array([0]), 20_000, np.random.default_rng(1))[0]
    assert (draws < 5).mean() == pytest.approx(0.9, abs=0.02)
    assert (draws > 30).mean() == pytest.approx(0.1, abs=0.02)


def test_what_this_run_took_soon_outweighs_what_earlier_runs_took() -> None:
    draw = random.Random(2)
    history = [
        Observed(10 * shift * math.exp(draw.gauss(0, 0.1)), 0, 0.0, f"run{shift}")
        for shift in (0.8, 1.0, 1.25)
        for _ in range(20)
    ]
    before = learn(history, [], "now")
    after = learn(history, [30.0, 31.0, 29.0], "now")
    assert before is not None and after is not None
    assert before.middle_s == pytest.approx(10, rel=0.1)
    assert before.shift == pytest.approx(0.22, rel=0.6)  # how much the runs differ
    assert 25 < after.middle_s < 31
    assert after.shift < before.shift / 2


def test_a_resumed_run_is_not_counted_twice() -> None:
    once = learn([], [3.0, 4.0, 5.0], "now")
    again = learn(seen([3.0, 4.0, 5.0], run="now"), [3.0, 4.0, 5.0], "now")
    assert once is not None and again is not None
    assert again[:3] == once[:3]


def test_runs_that_differ_give_a_shift_and_tasks_that_differ_do_not() -> None:
    draw = random.Random(4)

    def history(shift: float, own: float) -> list[Observed]:
        found = []
        for run in range(8):
            middle = 10 * math.exp(draw.gauss(0, shift))
            found += [
                Observed(middle * math.exp(draw.gauss(0, own)), 0, 0.0, str(run)) for _ in range(25)
            ]
        return found

    of_runs, of_tasks = learn(history(0.5, 0.05), [], ""), learn(history(0.0, 0.5), [], "")
    assert of_runs is not None and of_tasks is not None
    assert of_runs.shift > 0.25 and of_runs.spread < 0.1
    assert of_tasks.shift < 0.2 and of_tasks.spread > 0.4


def test_pretended_tasks_take_what_they_say_whatever_the_history() -> None:
    graph = Graph("g", [Task("t_1", Pause(2.5), kind="t")])
    model = durations_of(Shape(graph), {"t": seen([9.0] * 5)}, {"t": [9.0] * 5})
    assert model.source[0] == TAKES and model.means_s[0] == 2.5


def test_a_running_task_is_conditioned_on_how_long_it_runs() -> None:
    model = durations_of(Shape(independent(1, Takes(0, 10, 20))), {}, {})
    shifts, random_ = np.ones(20_000), np.random.default_rng(3)
    fresh = model.draw_remaining(0, 0.0, shifts, random_)
    assert fresh.mean() == pytest.approx(10, rel=0.02)
    half = model.draw_remaining(0, 10.0, shifts, random_)
    expected = drawn(model)
    assert half.mean() == pytest.approx((expected[expected > 10] - 10).mean(), rel=0.05)
    overdue = model.draw_remaining(0, 50.0, shifts, random_)
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
    rest = model.draw_remaining(0, elapsed_s, np.ones(50), np.random.default_rng(0))
    assert np.isfinite(draws).all() and (draws >= 0).all()
    assert np.isfinite(rest).all() and (rest >= 0).all()
