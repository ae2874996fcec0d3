from __future__ import annotations

import subprocess
import sys
import threading
import time

import msgspec
import pytest
from forecast_support import GB, chain, exactly, independent
from hypothesis import given
from hypothesis import strategies as st

from sureline.forecast.follow import EVERY_S_MIN, SHARE_OF_CORE, Forecaster, kinds_of
from sureline.forecast.progress import (
    DONE,
    FAILED,
    OPEN,
    RUNNING,
    Progress,
    Tracker,
    untouched,
)
from sureline.forecast.result import Basis, Forecast, describe, interval
from sureline.journal.events import (
    CancelAsked,
    Opened,
    Outcome,
    RunEnded,
    TaskBound,
    TaskEnded,
    TaskProgressed,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.journal.history import Observed
from sureline.peer.capacity import Capacity
from sureline.workflow.model import Graph, Pause, Task

MACHINE = Capacity(2, 8 * GB)


def ended(task: str, at: float, outcome: Outcome = "succeeded", attempt: int = 1) -> TaskEnded:
    return TaskEnded(at, task, outcome, attempt, elapsed_s=2.0, kind="t")


def test_the_tracker_follows_a_task_through_its_states() -> None:
    tracker = Tracker(independent(2, None))

    def after(*events: object) -> Progress:
        for event in events:
            tracker.apply(event)  # type: ignore[arg-type] # all of them events
        return tracker.snapshot(99.0)

    assert after(TaskReady(1.0, "t_0"), TaskReady(1.0, "stranger")).states == bytes([OPEN, OPEN])
    running = after(TaskBound(2.0, "t_0", 1, "here"), TaskStarted(2.5, "t_0", 1, "here"))
    assert (running.states[0], dict(running.started), running.at) == (RUNNING, {0: 2.0}, 99.0)
    failed = after(ended("t_0", 5.0, "failed"))
    assert (failed.states[0], dict(failed.started)) == (FAILED, {})
    retried = after(TaskRetried(5.0, "t_0", 1, 3.0))
    assert (retried.states[0], dict(retried.retrying)) == (OPEN, {0: 8.0})
    again = after(TaskBound(9.0, "t_0", 2, "here"))
    assert (again.states[0], dict(again.retrying)) == (RUNNING, {})
    done = after(ended("t_0", 13.0, attempt=2), TaskReady(13.0, "t_0"))
    assert (done.states[0], dict(done.started)) == (DONE, {})
    assert done.observed_s == {"t": (4.0,)}  # it held its slot for longer than it ran
    assert after(TaskRevoked(14.0, "t_0", "gone")).states[0] == OPEN
    assert after(CancelAsked(15.0, True)).draining
    assert running.states[0] == RUNNING, "a snapshot never changes"


def test_the_tracker_keeps_several_attempts_of_a_task_apart() -> None:
    tracker = Tracker(independent(1, None))
    for event in (
        TaskBound(1.0, "t_0", 1, "a"),
        TaskStarted(1.0, "t_0", 1, "a"),
        TaskProgressed(2.0, "t_0", 1, 0.25),
        TaskBound(5.0, "t_0", 2, "b"),
        TaskProgressed(6.0, "t_0", 2, 0.5),
        TaskProgressed(6.0, "t_0", 7, 0.9),
    ):
        tracker.apply(event)
    both = tracker.snapshot(9.0)
    assert (dict(both.started), dict(both.peers)) == ({0: 1.0}, {0: "a"})
    assert both.fractions == {0: 0.25}
    assert [(one.at, one.peer, one.fraction) for one in both.copies[0]] == [(5.0, "b", 0.5)]
    tracker.apply(ended("t_0", 10.0, "lost"))
    left = tracker.snapshot(10.0)
    assert (left.states[0], dict(left.started), dict(left.copies)) == (RUNNING, {0: 5.0}, {})
    tracker.apply(ended("t_0", 12.0, attempt=2))
    assert tracker.snapshot(12.0).observed_s == {"t": (7.0,)}


def test_an_attempt_that_never_started_does_not_run_on() -> None:
    tracker = Tracker(independent(1, None))
    tracker.apply(TaskBound(1.0, "t_0", 1, "a"))
    tracker.apply(TaskBound(5.0, "t_0", 2, "b"))
    found = tracker.snapshot(9.0)
    assert (dict(found.started), dict(found.copies)) == ({0: 5.0}, {})


def test_reused_and_pretended_tasks_teach_nothing() -> None:
    tracker = Tracker(independent(2, None))
    tracker.apply(TaskEnded(1.0, "t_0", "reused", kind="t"))
    tracker.apply(TaskEnded(1.0, "t_1", "succeeded", 1, elapsed_s=3.0, kind=""))
    found = tracker.snapshot(2.0)
    assert found.states == bytes([DONE, DONE]) and found.observed_s == {}


def test_another_process_starts_over_with_what_is_not_done() -> None:
    tracker = Tracker(independent(3, None))
    for event in (
        ended("t_0", 1.0),
        TaskBound(1.0, "t_1", 1, "here"),
        ended("t_2", 1.0, "failed"),
        CancelAsked(2.0),
        RunEnded(3.0, "cancelled"),
        Opened(9.0, 2, "host", 1),
    ):
        tracker.apply(event)
    found = tracker.snapshot(9.0)
    assert found.states == bytes([DONE, OPEN, OPEN])
    assert not found.started and not found.retrying and not found.draining


def test_snapshots_may_be_taken_while_another_thread_applies_events() -> None:
    graph = independent(3000, None)
    tracker = Tracker(graph)
    stop = threading.Event()
    wrong: list[Progress] = []

    def look() -> None:
        while not stop.is_set():
            seen = tracker.snapshot(0.0)
            if seen.states.count(RUNNING) != len(seen.started):
                wrong.append(seen)

    thread = threading.Thread(target=look)
    thread.start()
    for task in graph.tasks:
        tracker.apply(TaskBound(1.0, task.name, 1, "here"))
        tracker.apply(ended(task.name, 2.0))
    stop.set()
    thread.join()
    assert not wrong
    assert tracker.snapshot(3.0).states == bytes([DONE]) * 3000


def test_a_forecast_before_the_run_and_during_it() -> None:
    graph = chain([2.0, 3.0, 5.0])
    forecaster, tracker = Forecaster(graph, MACHINE, {}), Tracker(graph)
    before = forecaster.forecast(untouched(graph, 100.0))
    assert (before.p50_s, before.at) == (pytest.approx(10), 100.0)
    tracker.apply(TaskBound(1000.0, "t_0", 1, "here"))
    tracker.apply(TaskEnded(1002.0, "t_0", "succeeded", 1, elapsed_s=2.0, kind=""))
    tracker.apply(TaskBound(1002.0, "t_1", 1, "here"))
    during = forecaster.forecast(tracker.snapshot(1004.0))
    assert during.p50_s == pytest.approx(1 + 5)


def test_forecasts_come_no_sooner_than_their_cost_allows() -> None:
    graph = independent(50, exactly(1))
    forecaster = Forecaster(graph, MACHINE, {})
    first = forecaster.forecast(untouched(graph, 100.0))
    due_at = forecaster.due_at(first)
    assert due_at == 100.0 + max(EVERY_S_MIN, first.cost_s / SHARE_OF_CORE)
    dear = msgspec.structs.replace(first, cost_s=1.0)
    assert forecaster.due_at(dear) == 100.0 + 1.0 / SHARE_OF_CORE
    assert forecaster.forecast(untouched(graph, due_at - 0.01)) is first
    assert forecaster.forecast(untouched(graph, 50.0)) is first, "an older snapshot"
    assert forecaster.forecast(untouched(graph, due_at)) is not first


def test_many_threads_may_ask_at_once() -> None:
    graph = independent(200, exactly(1))
    forecaster = Forecaster(graph, MACHINE, {})
    found: list[Forecast] = []
    threads = [
        threading.Thread(target=lambda: found.append(forecaster.forecast(untouched(graph, 1.0))))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and len({id(f) for f in found}) == 1


def test_the_history_of_the_run_itself_is_not_an_earlier_run() -> None:
    graph = independent(3, None)
    history = {"t": [Observed(2.0, 0, 1.0, "mine")] * 3 + [Observed(2.0, 0, 1.0, "other")] * 3}
    found = Forecaster(graph, MACHINE, history, run="mine").forecast(untouched(graph, 9.0))
    assert found.basis == Basis(history=3, earlier_runs=1, kinds=1)


def test_kinds_of_pretended_tasks_are_not_looked_up() -> None:
    tasks = [*independent(3, None).tasks, Task("p_1", Pause(1.0))]
    assert kinds_of(Graph("g", tasks)) == {"t"}


def made(
    p50_s: float, p90_s: float, basis: Basis, at: float = 0.0, open_tasks: int = 5
) -> Forecast:
    return Forecast(at, p50_s, p90_s, p50_s, p90_s, 0.0, 0.0, open_tasks, basis, 200, 0.0)


NOON = time.mktime((2026, 3, 4, 12, 0, 0, 0, 0, -1))
HISTORY = Basis(history=5, earlier_runs=12, kinds=3)
WORDS = [
    (
        made(200, 280, HISTORY),
        "done in 3 to 5 min (50 % by 12:03:20, 90 % by 12:04:40; from 12 earlier runs of 3 kinds)",
    ),
    (made(0.2, 0.9, HISTORY), "done within a second (from 12 earlier runs of 3 kinds)"),
    (
        made(4000, 9000, Basis(takes=5)),
        "done in 1 to 3 h (50 % by 13:06, 90 % by 14:30; from 'takes' of 5 tasks)",
    ),
    (
        made(30, 800, Basis(guess=5)),
        "done in 0 to 14 min (50 % by 12:00, 90 % by 12:13; "
        "a guess: nothing is known of these tasks)",
    ),
    (
        made(60000, 61000, Basis(takes=1, history=3, guess=1200, earlier_runs=1, kinds=1)),
        "done in 16 to 17 h (50 % by Thu 05 Mar 04:40, 90 % by Thu 05 Mar 04:56; "
        "from 1 earlier run of 1 kind, from 'takes' of 1 task, a guess for 1,200 tasks)",
    ),
    (made(0, 0, Basis(), open_tasks=0), "nothing left to do"),
    (
        made(5, 5, Basis(history=2, kinds=2)),
        "done in 5 to 6 s (50 % by 12:00:05, 90 % by 12:00:05; from this run of 2 kinds)",
    ),
]


@pytest.mark.parametrize(("forecast", "words"), WORDS)
def test_words(forecast: Forecast, words: str) -> None:
    assert describe(msgspec.structs.replace(forecast, at=NOON), NOON) == words


def test_an_older_forecast_is_told_from_now() -> None:
    old = made(60, 80, HISTORY, at=NOON)
    assert describe(old, NOON + 50).startswith("done in 10 to 30 s (50 % by 12:01:00")
    assert describe(old, NOON + 100).startswith("later than foreseen")


@given(st.floats(0, 1e8), st.floats(0, 1e8))
def test_an_interval_never_collapses_and_holds_both_ends(one: float, other: float) -> None:
    low_s, high_s = sorted((one, other))
    low, _, high, unit = interval(low_s, high_s).split()
    seconds = {"s": 1, "min": 60, "h": 3600, "d": 86400}[unit]
    assert int(low) < int(high)
    assert int(low) * seconds <= low_s and high_s <= int(high) * seconds


def test_looking_at_forecasts_does_not_load_numpy() -> None:
    code = (
        "import sys, sureline.forecast.follow, sureline.forecast.result, sureline.cli.main;"
        "sys.exit('numpy' in sys.modules or 'numba' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
