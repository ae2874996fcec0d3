"""What earlier runs say about the next one: shifts and what they share, few runs, done tasks."""

from __future__ import annotations

import numpy as np
import pytest

from sureline.forecast.own import own_quantiles, sharpened
from sureline.forecast.repeats import NextRun, learn_together, located_in_runs
from sureline.forecast.shape import Floats
from sureline.journal.history import Observed


def _history(
    runs: int, tasks: int, kinds: int, *, run: float, kind: float, own: float, seed: int = 0
) -> dict[str, list[Observed]]:
    random = np.random.default_rng(seed)
    of_run = run * random.standard_normal(runs)
    found = {}
    for number in range(kinds):
        logs = of_run[:, None] + kind * random.standard_normal((runs, 1))
        logs = np.log(100.0) + logs + own * random.standard_normal((runs, tasks))
        found[f"k{number}"] = [
            Observed(float(np.exp(logs[r, t])), 0, float(r), f"r{r}")
            for r in range(runs)
            for t in range(tasks)
        ]
    return found


def _covariance(found: NextRun) -> Floats:
    common = np.array([kind.common for kind in found.kinds.values()])
    covariance: Floats = common @ common.T + np.diag([k.alone**2 for k in found.kinds.values()])
    return covariance


def test_shifts_of_whole_runs_are_common_to_kinds() -> None:
    together = _covariance(learn_together(_history(60, 20, 4, run=0.2, kind=0.02, own=0.1), {}))
    apart = _covariance(learn_together(_history(60, 20, 4, run=0.0, kind=0.2, own=0.1), {}))
    assert together[0, 0] == pytest.approx(0.04, rel=0.4)
    assert together[0, 1] > 0.8 * together[0, 0]
    assert apart[0, 0] == pytest.approx(0.04, rel=0.4) and abs(apart[0, 1]) < 0.015


def test_chance_is_not_taken_for_a_shift() -> None:
    found = learn_together(_history(30, 5, 3, run=0.0, kind=0.0, own=0.5), {})
    assert np.sqrt(np.diag(_covariance(found)).max()) < 0.15  # means of five differ by 0.22


def test_the_mean_of_what_is_drawn_is_that_of_what_was_seen() -> None:
    history = _history(20, 10, 2, run=0.1, kind=0.1, own=0.8)
    found = learn_together(history, {})
    for name, kind in found.kinds.items():
        spread = float(kind.common @ kind.common)
        mean = np.exp(kind.centre + spread / 2) * np.exp(kind.own).mean()
        assert mean == pytest.approx(np.mean([seen.elapsed_s for seen in history[name]]), rel=0.02)


def test_few_runs_lean_late_and_eight_do_not() -> None:
    def centre(runs: int) -> float:
        history = _history(runs, 50, 1, run=0.0, kind=0.0, own=0.1)
        return learn_together(history, {}).kinds["k0"].centre - np.log(100.0)

    assert centre(1) > 0.12 and centre(2) > 0.12 > centre(5) > 0.03
    assert abs(centre(8)) < 0.03 and abs(centre(20)) < 0.03


def test_done_tasks_tell_of_their_kind_and_of_the_others() -> None:
    history = _history(30, 10, 2, run=0.3, kind=0.02, own=0.05)
    before = learn_together(history, {})
    after = learn_together(history, {"k0": [200.0] * 5})
    for name in ("k0", "k1"):  # twice as long as usual: the whole run is slow
        assert after.kinds[name].centre == pytest.approx(np.log(200.0), abs=0.15)
    assert _covariance(after)[1, 1] < 0.3 * _covariance(before)[1, 1]


def test_a_sharp_edge_shows_where_a_run_lies() -> None:
    """The steadiest mean is the one near the edge, not the mean of logarithms."""
    random = np.random.default_rng(1)
    logs = np.log(random.uniform(0.02, 1.0, (20, 50)) ** 0.5).ravel()
    found = located_in_runs(logs, np.repeat(np.arange(20), 50), 20)
    assert found.power > 0 and found.variance < logs.var() / 2


def test_shifts_of_tasks_of_two_sorts_are_seen() -> None:
    """How many are of each sort moves the mean of a run far more than its shift does."""
    random = np.random.default_rng(3)
    found = []
    for _ in range(20):
        shift = 0.1 * random.standard_normal((20, 1))
        logs = np.where(random.random((20, 16)) < 0.3, np.log(6.0), 0.0)
        logs = logs + shift + 0.1 * random.standard_normal((20, 16))
        seen = [
            Observed(float(np.exp(logs[n // 16, n % 16])), 0, 0.0, f"r{n // 16}")
            for n in range(320)
        ]
        kind = learn_together({"k": seen}, {}).kinds["k"]
        found.append(float(kind.common @ kind.common))
    assert np.mean(found) == pytest.approx(0.0105, rel=0.25)


def test_shifts_that_are_hard_to_see_are_as_much_alike_as_they_are() -> None:
    """Best guesses of them would be all the same."""
    alike = []
    for seed in range(10):
        history = _history(30, 10, 4, run=0.08, kind=0.08, own=0.3, seed=seed)
        common = np.array([kind.common for kind in learn_together(history, {}).kinds.values()])
        alike += [np.corrcoef(common)[0, 1], np.corrcoef(common)[2, 3]]
    assert 0.3 < np.mean(alike) < 0.7  # a half


def test_what_was_blurred_is_sharpened() -> None:
    random = np.random.default_rng(4)
    for wide in (0.0, 1.0):
        sharp = wide * random.uniform(size=(20, 800)) + 0.1 * random.standard_normal((20, 800))
        blurred = sharp + 0.08 * random.standard_normal(sharp.shape)
        found = np.array([sharpened(row, 0.08**2) for row in blurred])
        for share in (0.02, 0.98):
            true, off, now = (np.quantile(values, share) for values in (sharp, blurred, found))
            assert abs(now - true) < 0.3 * abs(off - true)
        assert found.std() == pytest.approx(sharp.std(), rel=0.03)
    assert (sharpened(sharp[0], 0.0) == sharp[0]).all()


def test_a_heavy_tail_goes_on_beyond_what_was_seen() -> None:
    random = np.random.default_rng(2)
    shares = (np.arange(4096) + 0.5) / 4096
    heavy = own_quantiles(np.log1p(random.pareto(2.0, 300)), shares)
    uniform = own_quantiles(np.log(random.uniform(1.0, 2.0, 300)), shares)
    assert (np.diff(heavy) >= 0).all() and (np.diff(uniform) >= 0).all()
    assert heavy[-1] == pytest.approx(np.log(8192) / 2, rel=0.5)
    assert uniform[-1] < np.log(2.2)


def test_zeros_and_single_tasks_do_no_harm() -> None:
    history = {
        "zero": [Observed(0.0, 0, float(r), f"r{r}") for r in range(10)],
        "one": [Observed(5.0, 0, 0.0, "r0")],
    }
    found = learn_together(history, {"new": [3.0, 3.1, 2.9]})
    assert np.exp(found.kinds["zero"].centre) < 0.01
    assert found.kinds["one"].number == 1 and found.kinds["one"].alone > 0.4
    assert np.exp(found.kinds["new"].centre) == pytest.approx(3.0, rel=0.02)
