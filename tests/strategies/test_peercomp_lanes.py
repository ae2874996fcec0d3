"""The lanes of a machine: what is promised is there, and what is not used returns."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_world import ToyWorld

from sureline.compiled import hasten
from sureline.overlay.tree.agent import Tree
from sureline.overlay.tree.leaf import HoleSought
from sureline.overlay.tree.messages import Nowhere, TreeAnswer
from sureline.overlay.tree.points import bounds_of, slot_of
from sureline.overlay.tree.shelf import cut
from sureline.overlay.tree.summary import EMPTY, Amounts, Summary, usable
from sureline.peer.capacity import Capacity
from sureline.strategies.peercomp.lanes import LEASE_S, SKEW_S, STALE_S, Lanes, limits_of
from sureline.strategies.peercomp.queues import DUE, LATEST, LENGTH, UNIT, latest_starts
from sureline.workflow.model import Needs
from sureline.world.protocol import AgentId

GIB = 1 << 30
hasten()
ONE = Needs()
MACHINE = Capacity(4.0, 8 * GIB, 64 * GIB)


def ask(
    number: int, works: tuple[float, ...], needs: Needs = ONE, start: float = 0.0,
    due: float = 1e6,
) -> HoleSought:  # fmt: skip
    """All tasks early, due together."""
    count = len(works)
    return HoleSought(number, 0, works, (due,) * count, count, start, due, limits_of(needs))


def same(a: Summary, b: Summary) -> bool:
    return bool(np.array_equal(a.keys, b.keys) and np.array_equal(a.counts, b.counts))


def test_a_task_that_needs_two_cores_has_two_lanes_at_the_same_time() -> None:
    lanes = Lanes(MACHINE)
    (slot,) = lanes.reserve(ask(1, (10.0,), Needs(cores=2)), 0.0)
    held = [row for row in range(4) if lanes.queues.sizes[row]]
    assert len(held) == 2
    assert {(lanes.queues.queue[row, 0, DUE]) for row in held} == {slot.due_s}
    assert lanes.commit(1, 0, (0.0,), 1.0) == (slot,)
    assert lanes.startable({(1, 0)}, 1.0) == [((1, 0), 10.0)]
    lanes.begin("one", (1, 0), 10.0, 1.0)
    assert lanes.idle() == 2 and not lanes.room(limits_of(Needs(cores=4)), 1.0, 2.0)
    lanes.end("one", 5.0)
    assert lanes.idle() == 4 and len(lanes.room(limits_of(Needs(cores=2)), 1.0, 6.0)) == 2


def test_what_is_larger_than_the_machine_is_refused() -> None:
    lanes = Lanes(MACHINE)
    for needs in (Needs(cores=5), Needs(memory_bytes=9 * GIB), Needs(disk_bytes=65 * GIB)):
        assert lanes.reserve(ask(1, (1.0,), needs), 0.0) == ()
    assert lanes.reserve(ask(1, (1.0,), Needs(4, 8 * GIB, 64 * GIB)), 0.0)


@pytest.mark.parametrize("clock_s", [-SKEW_S - 1, STALE_S + 1])
def test_nothing_is_promised_across_clocks_that_differ(clock_s: float) -> None:
    lanes, now = Lanes(MACHINE), 1000.0
    wish = ask(1, (1.0,), start=now, due=2000.0)
    assert lanes.reserve(wish._replace(asked_s=now - clock_s), now) == ()
    assert lanes.reserve(wish._replace(asked_s=now), now)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, -1.0])
@pytest.mark.parametrize("where", ["works", "dues_s", "startline_s", "middle_s"])
def test_absurd_numbers_are_refused_and_spoil_nothing(where: str, bad: float) -> None:
    """They would make others' promises look late, and void."""
    lanes = Lanes(Capacity(1.0, GIB))
    assert lanes.reserve(ask(1, (5.0,), due=90.0), 0.0) and lanes.commit(1, 0, (50.0,), 0.0)
    wish = ask(2, (5.0, 5.0), start=20.0, due=99.0)
    lanes.reserve(
        wish._replace(**{where: (5.0, bad) if where in ("works", "dues_s") else bad}), 1.0
    )
    lanes.summary(2.0)
    assert (1, 0) in promised(lanes)
    if bad != -1.0 or where == "works":
        assert (2, 0) not in promised(lanes)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_commitment_with_absurd_times_is_none(bad: float) -> None:
    lanes = Lanes(Capacity(1.0, GIB))
    for number in (1, 2):
        assert lanes.reserve(ask(number, (5.0,), due=90.0), 0.0)
    assert lanes.commit(1, 0, (50.0,), 0.0)
    assert lanes.commit(2, 0, (bad,), 0.0) == ()
    lanes.summary(1.0)
    assert (1, 0) in promised(lanes)


def test_a_promise_that_is_not_used_is_void_and_pushes_nobody() -> None:
    lanes = Lanes(Capacity(1.0, GIB))
    lanes.reserve(ask(1, (10.0,), due=30.0), 0.0)
    lanes.commit(1, 0, (0.0,), 0.0)
    lanes.reserve(ask(2, (10.0,), due=40.0), 0.0)
    lanes.commit(2, 0, (0.0,), 0.0)
    assert lanes.startable({(2, 0)}, 0.5) == [], "the first is to begin before"
    assert lanes.startable({(2, 0)}, 3.0) == [((2, 0), 10.0)]
    assert (2, 0) in promised(lanes) and (1, 0) not in promised(lanes)


def test_a_machine_that_is_slower_than_promised_promises_less() -> None:
    lanes = Lanes(Capacity(1.0, GIB))
    lanes.reserve(ask(1, (10.0,)), 0.0)
    lanes.commit(1, 0, (0.0,), 0.0)
    lanes.begin("one", (1, 0), 10.0, 0.0)
    lanes.end("one", 40.0)
    (slot,) = lanes.reserve(ask(2, (10.0,), start=40.0), 40.0)
    assert slot.due_s - slot.latest_start_s == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("wish", "reason"),
    [
        (ask(1, (10.0,), due=5.0), "no machine has the time"),
        (ask(1, (10.0,), Needs(cores=5)), "no machine that is large enough has time"),
        (ask(1, (10.0,), Needs(memory_bytes=9 * GIB)), "no machine that is large enough has time"),
    ],
)
def test_an_owner_is_told_why_there_is_no_time(wish: HoleSought, reason: str) -> None:
    told: list[TreeAnswer] = []
    world = ToyWorld()
    tree = Tree(AgentId("a/tree"), world.place("a/tree"), Lanes(MACHINE))
    tree.client = SimpleNamespace(told=lambda sender, message: told.append(message))
    world.join(tree)
    tree.request(wish)
    world.run()
    assert told == [Nowhere(1, 0, reason)]


def test_lanes_that_others_use_are_not_promised() -> None:
    lanes = Lanes(MACHINE)
    free = lanes.summary(0.0).holes
    lanes.guests_now = lambda: 3
    assert 0 < lanes.summary(0.0).holes < free
    assert lanes.reserve(ask(1, (1.0,), Needs(cores=2)), 0.0) == ()
    lanes.guests_now = lambda: 4
    assert same(lanes.summary(0.0), EMPTY) and lanes.reserve(ask(2, (1.0,)), 0.0) == ()


needs = st.builds(
    Needs, st.sampled_from([0.5, 1, 2, 3, 4]), st.sampled_from([0, GIB, 3 * GIB, 8 * GIB]),
    st.sampled_from([0, 10 * GIB, 40 * GIB]),
)  # fmt: skip
steps = st.lists(
    st.tuples(
        st.floats(0, 50), st.lists(st.floats(1, 40), min_size=1, max_size=3), needs,
        st.floats(0, 60), st.floats(1, 300), st.sampled_from(["commit", "release", "leave"]),
    ),
    max_size=14,
)  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(steps)
def test_nothing_is_over_committed_and_all_that_is_not_kept_returns(history) -> None:
    """Whatever is promised: at every moment, what is to run then fits the machine."""
    lanes, now = Lanes(MACHINE), 0.0
    needs_of: dict[int, Needs] = {}
    for number, (passed, works, need, start, window, then) in enumerate(history, 1):
        now += passed
        before = lanes.summary(now)
        wish = ask(number, tuple(works), need, now + start, now + start + window)
        slots = lanes.reserve(wish, now)
        needs_of[number] = need
        if slots and then == "commit":
            lanes.commit(number, 0, (now + start,) * len(works), now)
        elif then == "release":
            lanes.release(number, 0, 99, now)
            assert same(lanes.summary(now), before), "reserved time returns"
        windows = promised(lanes)
        for begin, _, _ in windows.values():
            together = [needs_of[n] for a, b, n in windows.values() if a <= begin + 1e-6 < b]
            assert sum(need.cores for need in together) <= MACHINE.cores
            assert sum(need.memory_bytes for need in together) <= MACHINE.memory_bytes
            assert sum(need.disk_bytes for need in together) <= MACHINE.disk_bytes
    lanes.summary(now + LEASE_S + 1000.0)
    assert not lanes.promised, "leases and promises that nobody uses end by themselves"


@settings(deadline=None, max_examples=60)
@given(steps, st.integers(0, 3), st.floats(0, 300), st.floats(1, 2000))
def test_a_hole_that_lanes_report_can_be_used(history, guests, start, window) -> None:
    """By whoever needs what its cell says, in one lane or in several, beside others or not."""
    lanes, now = Lanes(MACHINE), 0.0
    for number, (passed, works, need, begin, length, _) in enumerate(history, 1):
        now += passed
        due = now + begin + length
        if lanes.reserve(ask(number, tuple(works), need, now + begin, due), now):
            lanes.commit(number, 0, (now + begin,) * len(works), now)
    lanes.guests_now = lambda: guests
    from_s, to_s = now + start, now + start + window
    for key in lanes.summary(now).keys.tolist():
        work = usable(np.uint32(key), bounds_of(slot_of(now)), now, from_s, to_s)
        if work > 0:
            limits = Amounts((key >> 10) & 31, (key >> 5) & 31, key & 31)
            wish = ask(99, (work,), start=from_s, due=to_s)._replace(limits=limits)
            assert lanes.reserve(wish, now)
            lanes.release(99, 0, 99, now)


def promised(lanes: Lanes) -> dict[tuple[int, int], tuple[float, float, int]]:
    """When each task is to run at the latest, and the number of its sequence; the same on all lanes
    that it has, and never two on one lane."""
    found: dict[tuple[int, int], tuple[float, float, int]] = {}
    q = lanes.queues
    for lane in range(lanes.count):
        size, end = int(q.sizes[lane]), -1.0
        latest_starts(q.queue[lane], size)
        for row, number in zip(q.queue[lane, :size], q.ids[lane, :size], strict=True):
            key = (int(number), int(row[UNIT]))
            window = (float(row[LATEST]), float(row[LATEST] + row[LENGTH]), int(number))
            assert found.setdefault(key, window) == pytest.approx(window)
            assert window[0] >= end - 1e-5
            end = window[1]
    return found


@given(
    st.lists(st.floats(1, 9), min_size=2, max_size=8).flatmap(
        lambda works: st.tuples(
            st.just(works), st.integers(1, len(works) - 1), st.integers(0, len(works))
        )
    )
)
def test_pieces_are_in_order_and_complete(case) -> None:
    works, count, early = case
    dues = tuple(10.0 * (k + 1) for k in range(len(works)))
    whole = HoleSought(7, 0, tuple(works), dues, early, 0.0, dues[max(0, early - 1)], Amounts())
    first, rest = cut(whole, count, 10.0 * count)
    assert first.works + rest.works == whole.works and rest.first == len(first.works) == count
    assert first.early + rest.early == early and first.number == rest.number == 7
    assert first.deadline_s <= rest.startline_s and rest.deadline_s == whole.deadline_s


def test_plain_and_compiled_arithmetic_promise_the_same() -> None:
    """In this order: there is no way back from machine code. Another process is the plain one."""
    import subprocess
    import sys

    told = subprocess.run(
        [sys.executable, "-c", _PROMISES], capture_output=True, text=True, check=True
    ).stdout.split("|")
    assert told[0] == told[1] and len(told[0]) > 500


_PROMISES = """
from random import Random
from sureline.compiled import hasten
from sureline.compiled import hasten
from sureline.overlay.tree.leaf import HoleSought
from sureline.overlay.tree.shelf import OwnShelf
from sureline.peer.capacity import Capacity
from sureline.strategies.peercomp.lanes import Lanes

def told():
    draw, lanes, shelf, said = Random(3), Lanes(Capacity(3.0, 1 << 30)), OwnShelf(), []
    for number in range(1, 60):
        now = 7.0 * number
        works = tuple(draw.uniform(1, 90) for _ in range(draw.randint(1, 9)))
        due = now + draw.uniform(10, 900)
        ask = HoleSought(number, 0, works, (due,) * len(works), len(works), now, due)
        for side in (0, 1):
            shelf.put(0, side, lanes.summary(now))
        said.append(repr(shelf.fit(0, ask, now, -1, False)))
        said.append(repr(shelf.fit(0, ask, now, -1, True)))
        said.append(repr(lanes.reserve(ask, now)))
        if number % 3:
            said.append(repr(lanes.commit(number, 0, (now,) * len(works), now)))
    return repr(said)

plain = told()
hasten()
print(plain, told(), sep="|", end="")
"""
