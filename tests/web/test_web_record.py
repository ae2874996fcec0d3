"""What the pictures make of a journal: attempts, slots, the path that happened, time lost."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from web_histories import ZERO, graph_of, graphs, record_of, worked

from sureline.journal.events import (
    AnyEvent,
    Noted,
    Opened,
    PeerJoined,
    RunEnded,
    Submitted,
    TaskBound,
    TaskEnded,
    TaskProgressed,
    TaskReady,
    TaskStarted,
)
from sureline.web.data import page_data
from sureline.web.happened import longest_path, losses, path_that_happened
from sureline.web.kinds import POINTS_MAX, durations_by_kind
from sureline.web.record import Attempt, Record
from sureline.web.slots import pack
from sureline.workflow.model import Graph

DURATIONS = st.lists(st.sampled_from([0.0, 0.25, 1.0, 3.0]), min_size=1, max_size=5)


@st.composite
def histories(draw: st.DrawFn) -> Record:
    graph = draw(graphs(15))
    flaky = draw(st.sets(st.integers(0, len(graph) - 1), max_size=3))
    return record_of(graph, worked(graph, draw(st.integers(1, 4)), draw(DURATIONS), flaky))


@st.composite
def attempts(draw: st.DrawFn) -> list[Attempt]:
    found = []
    for k in range(draw(st.integers(0, 30))):
        began = draw(st.floats(0, 100))
        peer = draw(st.sampled_from(["a", "b"]))
        found.append(
            Attempt(k, 1, peer, 0, began, began + draw(st.sampled_from([0.0, 1.0, 20.0])), began)
        )
    return sorted(found, key=lambda one: one.began_at)


@given(attempts())
def test_packed_attempts_never_overlap_and_no_slot_is_wasted(found: list[Attempt]) -> None:
    slots, rows = pack(found)
    assert len(rows) == len(found)
    for row, slot in enumerate(slots):
        mine = [one for one, r in zip(found, rows, strict=True) if r == row]
        assert mine
        assert all(one.peer == slot.peer for one in mine)
        assert all(a.ended_at <= b.began_at for a, b in pairwise(mine))
    for peer in {slot.peer for slot in slots}:
        mine = [one for one in found if one.peer == peer]
        at_once = max(
            sum(one.began_at <= other.began_at < one.ended_at or one is other for one in mine)
            for other in mine
        )
        assert sum(slot.peer == peer for slot in slots) <= at_once


@given(histories())
def test_the_path_that_happened_explains_all_of_the_time(record: Record) -> None:
    path = path_that_happened(record)
    assert path[-1].ended_at == max(record.finished_at.values())
    assert not record.graph.parents[path[0].task]
    for before, step in pairwise(path):
        assert before.task in record.graph.parents[step.task]
        latest = max(record.finished_at[p] for p in record.graph.parents[step.task])
        assert before.ended_at == latest
    spent_s = sum(s.ended_at - s.began_at + s.waited_s + s.retried_s + s.paused_s for s in path)
    assert spent_s == pytest.approx(path[-1].ended_at - record.began_at, abs=1e-3)
    assert all(min(s.waited_s, s.retried_s, s.paused_s) >= -1e-6 for s in path)


@given(histories())
def test_core_time_adds_up(record: Record) -> None:
    found = losses(record)
    accounted_s = found.busy_core_s + found.idle_ready_core_s + found.idle_starved_core_s
    assert accounted_s == pytest.approx(found.core_s, abs=1e-3)
    assert found.busy_core_s == pytest.approx(
        sum(a.ended_at - a.began_at for a in record.attempts), abs=1e-3
    )
    assert found.fruitless == sum(a.outcome == "failed" for a in record.attempts)


def test_the_path_names_waiting_and_repetition() -> None:
    graph = graph_of([[], [0], [0]])
    record = record_of(graph, worked(graph, slots=1, durations_s=(1.0, 2.0, 4.0), flaky={2}))
    path = path_that_happened(record)
    # One slot: 0, then 1, then 2, which fails and is repeated after half a second.
    assert [step.task for step in path] == [0, 2]
    assert path[1].waited_s == pytest.approx(0.1 + 2.0 + 0.1, abs=1e-3)
    assert path[1].retried_s == pytest.approx(4.0 + 0.5 + 0.1, abs=1e-3)


def test_an_attempt_has_the_time_that_its_task_was_promised() -> None:
    graph = graph_of([[], [0]])
    events = worked(graph)
    name, window = graph.tasks[1].name, (ZERO + 5.0, ZERO + 9.0)
    events.insert(2, Noted(ZERO, "some", "reserved", task=name, window=window))
    record = Record.of(graph, events, alive=False, now=ZERO + 100)
    assert [attempt.window for attempt in record.attempts] == [None, window]
    shown = page_data(record)["bars"]["window"]
    assert shown[0] is None and shown[1][1] - shown[1][0] == 4.0


def test_time_lost_is_counted_by_cause() -> None:
    graph = graph_of([[], []])
    record = record_of(graph, worked(graph, slots=1, durations_s=(1.0,), flaky={0}))
    found = losses(record)
    assert found.fruitless == 1
    assert found.fruitless_s == pytest.approx(1.0, abs=1e-3)
    assert found.delays_s == 0.5
    assert found.waited_longest == 1
    assert found.waited_longest_s == pytest.approx(1.2, abs=1e-3)
    assert found.idle_ready_core_s == pytest.approx(0.3, abs=1e-3)
    assert found.idle_starved_core_s == pytest.approx(0.0, abs=1e-3)


def _killed(graph: Graph) -> list[AnyEvent]:
    """Task 0 done, task 1 running, then the process is killed."""
    first, second = (task.name for task in graph.tasks[:2])
    return [
        Submitted(ZERO, "r-aaaaaa", graph.name, len(graph)),
        Opened(ZERO, 1, "here", 1),
        PeerJoined(ZERO, "here", 2.0, 2**33),
        TaskReady(ZERO + 1, first),
        TaskBound(ZERO + 1, first, 1, "here"),
        TaskStarted(ZERO + 1, first, 1, "here"),
        TaskEnded(ZERO + 2, first, "succeeded", 1, "here", elapsed_s=1.0),
        TaskReady(ZERO + 2, second),
        TaskBound(ZERO + 2, second, 1, "here"),
        TaskStarted(ZERO + 3, second, 1, "here"),
        TaskProgressed(ZERO + 4, second, 1, 0.4),
        TaskProgressed(ZERO + 5, second, 1, 0.5),
    ]


def test_a_killed_run_has_lost_what_was_under_way() -> None:
    graph = graph_of([[], [0], [1]])
    record = record_of(graph, _killed(graph))
    assert record.state == "interrupted"
    assert [a.outcome for a in record.attempts] == ["succeeded", "lost"]
    assert record.attempts[1].ended_at == ZERO + 5
    assert record.states == ["succeeded", "waiting", "waiting"]
    assert [s.ended for s in record.sessions] == ["killed"]
    assert sum(isinstance(e, TaskProgressed) for e in record.events[1]) == 1


def test_a_running_run_runs_until_now() -> None:
    graph = graph_of([[], [0], [1]])
    record = record_of(graph, _killed(graph), alive=True)
    assert record.state == "running"
    assert record.states == ["succeeded", "running", "waiting"]
    assert record.attempts[1].outcome == "running"
    assert record.attempts[1].ended_at == record.now == record.sessions[0].ended_at
    assert losses(record).fruitless == 0


def test_a_resumed_run_shows_its_pause() -> None:
    graph = graph_of([[], [0]])
    second = graph.tasks[1].name
    events = [
        *_killed(graph),
        Opened(ZERO + 105, 2, "here", 2),
        PeerJoined(ZERO + 105, "here", 2.0, 2**33),
        TaskReady(ZERO + 105, second),
        TaskBound(ZERO + 105, second, 2, "here"),
        TaskStarted(ZERO + 106, second, 2, "here"),
        TaskEnded(ZERO + 108, second, "succeeded", 2, "here", elapsed_s=2.0),
        RunEnded(ZERO + 108, "succeeded"),
    ]
    record = record_of(graph, events)
    assert [(s.began_at - ZERO, s.ended_at - ZERO, s.ended) for s in record.sessions] == [
        (0, 5, "killed"),
        (105, 108, "properly"),
    ]
    found = losses(record)
    assert found.paused_s == 100
    assert found.core_s == pytest.approx(2 * (5 + 3))
    last = path_that_happened(record)[-1]
    assert (last.paused_s, last.retried_s, last.waited_s) == (100, 3, 1)


def test_what_never_ran_in_a_run_that_is_over_is_not_finished() -> None:
    graph = graph_of([[], [0]])
    first = graph.tasks[0].name
    events: list[AnyEvent] = [
        Submitted(ZERO, "r-aaaaaa", graph.name, 2),
        Opened(ZERO, 1, "here", 1),
        TaskReady(ZERO, first),
        TaskEnded(ZERO + 1, first, "failed", reason="an input is gone"),
        RunEnded(ZERO + 1, "failed"),
    ]
    record = record_of(graph, events)
    assert record.states == ["failed", "cancelled"]
    assert record.attempts == []
    assert [step.task for step in path_that_happened(record)] == [0]


def test_durations_by_kind() -> None:
    graph = graph_of([[]] * 400, kinds=2)
    record = record_of(graph, worked(graph, slots=4, durations_s=(1.0, 3.0, 2.0, 3.0)))
    longer, shorter = durations_by_kind(record)
    assert (longer.kind, longer.ran, longer.total_s) == ("kind-b", 200, 600.0)
    assert longer.spread_s == (3.0,) * 5
    assert shorter.spread_s == (1.0, 1.0, 1.5, 2.0, 2.0)
    assert len(shorter.durations_s) == POINTS_MAX
    assert (shorter.durations_s[0], shorter.durations_s[-1]) == (1.0, 2.0)
    assert shorter.takes == (0.5, 1.0, 2.0)


def test_the_longest_path_goes_by_what_tasks_took() -> None:
    graph = graph_of([[], [0], [0], [1, 2]])
    record = record_of(graph, worked(graph, durations_s=(1.0, 5.0, 2.0, 1.0)))
    assert longest_path(record)[0] == [0, 1, 3]
    record = record_of(graph, worked(graph, durations_s=(1.0, 2.0, 5.0, 1.0)))
    assert longest_path(record)[0] == [0, 2, 3]
