"""Summaries of free time: Table I, and the laws of merging and of what is promised."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.compiled import hasten
from sureline.overlay.tree.points import FIRST, bounds_of, reference_points, slot_of
from sureline.overlay.tree.search import best_fit
from sureline.overlay.tree.summary import (
    EMPTY,
    Amounts,
    Summary,
    limits_needed,
    limits_offered,
    merged,
    renewed,
    summary_of,
    unpacked,
    usable,
)

DAY = 86_400
law = settings(deadline=None)  # the first call may wait for the compiler
hasten()


def clock(text: str) -> int:
    day, _, rest = text.rpartition("d:")
    parts = [int(part) for part in rest.split(":")]
    return int(day or 0) * DAY + parts[0] * 3600 + parts[1] * 60


@pytest.mark.parametrize(
    ("made", "points"),
    [
        ("4:33", "4:40 4:50 5:00 5:30 6:00 8:00 12:00 16:00 1d:00:00 2d:00:00"),
        ("5:48", "5:55 6:00 6:15 6:30 7:00 8:00 12:00 16:00 1d:00:00 2d:00:00"),
        ("17:17", "17:25 17:30 17:45 18:00 19:00 20:00 1d:00:00 1d:08:00 1d:16:00 2d:00:00"),
    ],
)
def test_all_thirty_entries_of_table_one(made: str, points: str) -> None:
    assert reference_points(clock(made)) == [clock(point) for point in points.split()]


def test_points_that_coincide_are_one() -> None:
    found = reference_points(clock("4:12"))  # 10 and 15 minutes later both round up to 4:30
    assert len(found) == 9 and found == sorted(set(found))


@law
@given(st.floats(0, 3 * DAY))
def test_points_are_those_of_the_slot(time_s: float) -> None:
    bounds = bounds_of(slot_of(time_s))
    assert bounds[1] <= time_s < bounds[1] + 300
    if time_s % 300 > 0.01:
        assert bounds[FIRST:].tolist() == reference_points(time_s)


# Holes, as (begin, length, power) from a moment on.

NOW = 100_000.0
SLOT = slot_of(NOW)
a_hole = st.tuples(st.floats(0, 30_000), st.floats(1, 90_000), st.sampled_from([1000, 1600, 3000]))


def made_of(holes: list[tuple[float, float, float]]) -> Summary:
    found = EMPTY._replace(slot=SLOT)
    for begin, length, power in holes:
        rows = np.array([[NOW + begin, NOW + begin + length]])
        found = merged(found, summary_of(SLOT, rows, power, Amounts(), NOW))
    return found


def same(a: Summary, b: Summary) -> bool:
    return (
        a.slot == b.slot
        and bool(np.array_equal(a.keys, b.keys))
        and bool(np.array_equal(a.counts, b.counts))
    )


summaries = st.lists(a_hole, max_size=12).map(made_of)


@law
@given(summaries, summaries, summaries)
def test_merging_is_associative_and_commutative(a: Summary, b: Summary, c: Summary) -> None:
    assert same(merged(a, b), merged(b, a))
    assert same(merged(merged(a, b), c), merged(a, merged(b, c)))
    assert merged(a, b).holes == a.holes + b.holes
    assert same(merged(a, EMPTY._replace(slot=SLOT)), a)


@law
@given(a_hole, st.floats(0, 40_000), st.floats(0, 90_000))
def test_what_a_cell_promises_its_hole_can_do(
    hole: tuple[float, float, float], from_s: float, length_s: float
) -> None:
    begin_s, end_s = NOW + hole[0], NOW + hole[0] + hole[1]
    summary = made_of([hole])
    for key in summary.keys:
        sure = usable(key, bounds_of(SLOT), NOW, NOW + from_s, NOW + from_s + length_s)
        free_s = min(end_s, NOW + from_s + length_s) - max(begin_s, NOW + from_s)
        assert sure <= max(0.0, free_s) * hole[2] * (1 + 1e-9)


@law
@given(a_hole, st.integers(0, 100), st.floats(0, 40_000), st.floats(0, 90_000))
def test_later_reference_points_never_promise_more(
    hole: tuple[float, float, float], slots: int, from_s: float, length_s: float
) -> None:
    begin_s, end_s = NOW + hole[0], NOW + hole[0] + hole[1]
    later = renewed(made_of([hole]), SLOT + slots)
    now_s = max(NOW, bounds_of(later.slot)[1])
    for key in later.keys:
        sure = usable(key, bounds_of(later.slot), now_s, now_s + from_s, now_s + from_s + length_s)
        free_s = min(end_s, now_s + from_s + length_s) - max(begin_s, now_s + from_s)
        assert sure <= max(0.0, free_s) * hole[2] * (1 + 1e-9)
        for before_s, after_s in ((now_s, begin_s), (end_s, end_s + length_s)):
            assert usable(key, bounds_of(later.slot), now_s, before_s, after_s) == 0


@law
@given(summaries, st.floats(1, 1e8))
def test_the_best_fit_is_the_smallest_that_holds_the_work(summary: Summary, work: float) -> None:
    bounds = bounds_of(SLOT)
    to_s = NOW + 20_000
    times_s = (NOW, to_s, to_s)
    cells = (summary.keys, summary.counts, 0, len(summary.keys))
    at = best_fit(cells, bounds, NOW, times_s, work, 0.0, (0, 0, 0), False)
    fitting = [i for i, k in enumerate(summary.keys) if usable(k, bounds, NOW, NOW, to_s) >= work]
    assert at == min(fitting, default=-1)


def test_an_idle_machine_is_seen_by_a_request_of_minutes() -> None:
    summary = made_of([(0.0, 10 * DAY, 2000)])
    bounds = bounds_of(SLOT)
    sure = usable(summary.keys[0], bounds, NOW, NOW + 240, NOW + 900)
    assert sure >= 0.5 * 660 * 2000


@law
@given(st.floats(0, 1e12), st.floats(0, 200), st.floats(0, 1e13))
def test_what_is_needed_is_offered_by_whoever_has_it(
    memory: float, cores: float, disk: float
) -> None:
    for offered, needed in zip(
        limits_offered(2 * memory, 2 * cores, 2 * disk),
        limits_needed(memory, cores, disk),
        strict=True,
    ):
        assert offered >= needed or needed == 1 or offered == 30


@law
@given(st.integers(1, 1 << 20), st.integers(1, 1 << 20))
def test_limits_never_overstate(has: int, needs: int) -> None:
    if limits_offered(0, has, 0).cores >= limits_needed(0, needs, 0).cores:
        assert has >= needs


def test_memory_is_a_limit_like_time() -> None:
    rows = np.array([[NOW, NOW + 3000.0]])
    small = summary_of(SLOT, rows, 1000, limits_offered(1 << 30, 1, 1 << 40), NOW)
    bounds = bounds_of(SLOT)

    def fits(memory: int) -> bool:
        times_s = (NOW, NOW + 9000, NOW + 9000)
        need = tuple(limits_needed(memory, 1, 0))
        cells = (small.keys, small.counts, 0, 1)
        return best_fit(cells, bounds, NOW, times_s, 1e5, 0.0, need, False) == 0

    assert fits(1 << 29) and fits(1 << 30) and not fits((1 << 30) + 1)


@law
@given(summaries)
def test_packing_keeps_a_summary(summary: Summary) -> None:
    assert same(unpacked(SLOT, summary.packed()), summary)


@law
@given(st.binary(max_size=64))
def test_bytes_of_strangers_are_a_summary_or_refused(data: bytes) -> None:
    try:
        found = unpacked(SLOT, data)
    except ValueError:
        return
    assert found.packed() == data
