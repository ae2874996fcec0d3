"""The local scheduler: holes, admission, what starts when; laws over random histories."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.compiled import hasten
from sureline.experiments.peercomp_lane import Lane, SimulatedQueues
from sureline.overlay.tree.leaf import HoleSought
from sureline.overlay.tree.points import bounds_of, slot_of
from sureline.overlay.tree.summary import limits_needed, limits_offered, usable
from sureline.strategies.peercomp.lanes import LEASE_S
from sureline.strategies.peercomp.queues import (
    DUE,
    FIELDS,
    LATEST,
    LEASE,
    LENGTH,
    STARTLINE,
    holes_of,
    pick,
)

law = settings(deadline=None)
hasten()


def queue_of(
    *tasks: tuple[float, float, float],
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Committed tasks as (startline, due, length)."""
    queue = np.zeros((8, FIELDS))
    for i, (startline, due, length) in enumerate(tasks):
        queue[i, [STARTLINE, DUE, LENGTH, LEASE]] = startline, due, length, math.inf
    return queue


def test_the_queue_of_figure_three_has_no_hole_between_its_last_two_tasks() -> None:
    # T1 runs until 10; T2, T3 and T4 are pushed to their deadlines. T4 must begin at 52, before
    # d3 = 55: it pushes T3 back, and nothing lies between them.
    queue = queue_of((0, 30, 8), (0, 55, 10), (0, 60, 8))
    found = np.empty((4, 2))
    count = holes_of(queue, 3, 10.0, 100.0, found)
    assert found[:count].tolist() == [[10.0, 22.0], [30.0, 42.0], [60.0, 100.0]]


@pytest.mark.parametrize(
    ("tasks", "now", "expected"),
    [
        ([(0, 20, 5), (0, 30, 5)], 0.0, 0),  # the earlier deadline first
        ([(10, 20, 9), (0, 100, 15)], 0.0, -1),  # the second would make the first late
        ([(10, 20, 9), (0, 100, 5)], 0.0, 1),  # there is time for it before
        ([(10, 40, 9), (0, 100, 15)], 0.0, 1),  # the first can wait
        ([(10, 20, 9), (10, 30, 5)], 5.0, -1),  # nothing may begin yet
    ],
)
def test_what_starts_next(
    tasks: list[tuple[float, float, float]], now: float, expected: int
) -> None:
    ids = np.arange(1, 9)
    assert pick(queue_of(*tasks), ids, len(tasks), now) == expected


def test_tasks_of_a_sequence_keep_their_order() -> None:
    queue = queue_of((10, 20, 9), (0, 100, 5))
    assert pick(queue, np.ones(8, np.int64), 2, 0.0) == -1


def lane_of(power: float = 1.0, **more: object) -> Lane:
    return Lane(SimulatedQueues(np.array([power]), 24), 0, **more)  # type: ignore[arg-type]  # passed on


def ask(
    number: int, works: tuple[float, ...], start: float, due: float, early: int | None = None,
    middle: float | None = None,
) -> HoleSought:  # fmt: skip
    """All tasks early, if nothing else is said; all due together at the end."""
    soon = len(works) if early is None else early
    if middle is None:
        middle = due if soon == len(works) else start
        if 0 < soon < len(works):
            middle = (start + due) / 2
    return HoleSought(number, 0, works, (due,) * len(works), soon, start, middle)


def test_early_tasks_are_due_soon_and_late_ones_late_with_room_between() -> None:
    lane = lane_of(power=2.0)
    placed = lane.reserve(ask(1, (10, 20, 30), 0.0, 100.0, early=2), 0.0)
    assert placed == ((5, 10), (10, 20), (85, 100))
    other = lane.reserve(ask(2, (130,), 0.0, 85.0), 1.0)
    assert other == ((20, 85),)


def test_the_smallest_hole_that_is_large_enough_is_taken() -> None:
    lane = lane_of()
    lane.reserve(ask(1, (10,), 50.0, 60.0), 0.0)
    assert lane.reserve(ask(2, (20,), 0.0, 1000.0), 0.0) == ((5, 25),)
    assert lane.reserve(ask(3, (26,), 0.0, 1000.0), 0.0) == ((60, 86),)


def test_a_lease_frees_itself_and_a_commitment_does_not() -> None:
    lane = lane_of()
    lane.reserve(ask(1, (10,), 100.0, 200.0), 0.0)
    lane.reserve(ask(2, (10,), 100.0, 200.0), 0.0)
    assert lane.commit(1, 0, (100.0,), 1.0)
    lane.summary(LEASE_S + 1)
    assert lane.queues.ids[0, : lane.queues.sizes[0]].tolist() == [1]
    assert lane.commit(2, 0, (100.0,), LEASE_S + 1) == ()


def test_asked_twice_it_reserves_once() -> None:
    lane = lane_of()
    first = lane.reserve(ask(7, (10, 5), 0.0, 100.0), 0.0)
    assert lane.reserve(ask(7, (10, 5), 0.0, 100.0), 1.0) == first
    assert lane.queues.sizes[0] == 2


def test_a_commitment_moves_late_tasks_forward_and_gives_the_time_back() -> None:
    lane = lane_of()
    assert lane.reserve(ask(1, (10, 10), 0.0, 100.0, early=1), 0.0) == ((5, 15), (90, 100))
    assert lane.commit(1, 0, (0.0, 30.0), 0.0) == ((0, 10), (30, 40))
    assert lane.reserve(ask(2, (55,), 40.0, 100.0), 0.0) == ((40, 95),)


def test_a_task_that_ends_early_lets_the_next_begin_early() -> None:
    lane = lane_of(shortfall=0.5)
    lane.reserve(ask(1, (10, 10), 0.0, 100.0), 0.0)
    lane.commit(1, 0, (0.0, 0.0), 0.0)
    lane.summary(11.0)
    assert lane.queues.busy[0, 0] == 10.0 and lane.queues.busy[0, 2] == 2


def test_needs_beyond_the_lane_are_refused() -> None:
    lane = lane_of(limits=limits_offered(1 << 30, 2, 1 << 30))
    small = ask(1, (1,), 0.0, 9.0)
    assert lane.reserve(small._replace(limits=limits_needed(1 << 30, 2, 1 << 30)), 0.0)
    for needs in ((1 << 31, 1, 0), (0, 3, 0), (0, 1, 1 << 31)):
        assert not lane.reserve(small._replace(number=2, limits=limits_needed(*needs)), 0.0)


steps = st.lists(
    st.tuples(
        st.floats(0, 60),  # time that passes first
        st.lists(st.floats(1, 60), min_size=1, max_size=4),
        st.floats(0, 100),  # startline from now
        st.floats(1, 400),  # deadline from there
        st.integers(0, 4),  # how many early
        st.sampled_from(["commit", "release", "leave"]),
    ),
    max_size=20,
)


@law
@given(steps, st.sampled_from([0.3, 1.0]))
def test_an_accepted_sequence_never_makes_another_late(
    history: list[tuple[float, list[float], float, float, int, str]], shortfall: float
) -> None:
    lane = lane_of(shortfall=shortfall)
    q, now, kept = lane.queues, 0.0, 0
    for number, (passed, works, start, window, early, then) in enumerate(history, 1):
        now += passed
        promised = ask(
            number, tuple(works), now + start, now + start + window, min(early, len(works))
        )
        slots = lane.reserve(promised, now)
        for (begins, due), work in zip(slots, works, strict=False):
            assert begins >= now + start - 1e-6 and due <= now + start + window + 1e-6
            assert due - begins == pytest.approx(work)
        if slots and then == "commit":
            kept += len(slots)
            assert lane.commit(number, 0, (now + start,) * len(slots), now)
        elif then == "release":
            lane.release(number, 0, 99, now)
            assert number not in q.ids[0, : q.sizes[0]]
        rows = q.queue[0, : q.sizes[0]]
        lane.summary(now)
        ends = max(now, q.busy[0, 0])
        for row in q.queue[0, : q.sizes[0]]:
            assert row[LATEST] >= ends - 1e-5 and row[LATEST] >= row[STARTLINE] - 1e-5
            ends = row[LATEST] + row[LENGTH]
        assert np.all(np.diff(rows[:, DUE]) >= 0)
    lane.summary(now + 10_000)
    assert q.sizes[0] == 0 and q.busy[0, 2] == kept, "all that was committed ran, nothing else did"
    assert q.busy[0, 3] == 0, "and nothing was late"


@law
@given(steps, st.floats(0, 300), st.floats(1, 2000))
def test_a_hole_that_is_reported_can_be_used(
    history: list[tuple[float, list[float], float, float, int, str]], start: float, window: float
) -> None:
    lane = lane_of(power=1000.0)
    now = 0.0
    for number, (passed, works, begin, length, early, _) in enumerate(history, 1):
        now += passed
        many = tuple(1000 * w for w in works)
        if lane.reserve(
            ask(number, many, now + begin, now + begin + length, min(early, len(many))), now
        ):
            lane.commit(number, 0, (now + begin,) * len(many), now)
    summary = lane.summary(now)
    for key in summary.keys:
        work = usable(key, bounds_of(slot_of(now)), now, now + start, now + start + window)
        if work > 0:
            before = lane.queues.sizes[0]
            assert lane.reserve(ask(99, (work,), now + start, now + start + window), now)
            lane.release(99, 0, 99, now)
            assert lane.queues.sizes[0] == before
