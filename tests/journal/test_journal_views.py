from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from journal_histories import History, histories, new_run, succeeded, take, write

from sureline.journal.errors import AlreadyCommittedError, FencedError
from sureline.journal.events import (
    COMMITS,
    CancelAsked,
    Event,
    Opened,
    PeerJoined,
    RunEnded,
    Submitted,
    TaskBound,
    TaskEnded,
    TaskProgressed,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.journal.store import Journal
from sureline.journal.views import Counts, Failure, RunView, TaskView


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Journal]:
    """One journal for all examples of the properties; each example makes its own run."""
    with Journal.open(tmp_path_factory.mktemp("views"), fsync=lambda _: None) as journal:
        yield journal


@given(history=histories())
@settings(max_examples=60, deadline=None)
def test_the_database_replays_to_the_state_in_memory(shared: Journal, history: History) -> None:
    run, events = write(shared, history)
    assert [entry.event for entry in shared.events(run)] == events
    assert RunView.of(entry.event for entry in shared.events(run)) == RunView.of(events)


@given(history=histories(), cut=st.integers(0, 40))
@settings(max_examples=40, deadline=None)
def test_folding_in_pieces_equals_folding_at_once(
    shared: Journal, history: History, cut: int
) -> None:
    run, events = write(shared, history)
    entries = list(shared.events(run))[:cut]
    view = RunView.of(entry.event for entry in entries)
    after = entries[-1].position if entries else 0
    for entry in shared.events(run, after=after):
        view.apply(entry.event)
    assert view == RunView.of(events)


@given(history=histories())
@settings(max_examples=60, deadline=None)
def test_the_summary_agrees_with_the_view(shared: Journal, history: History) -> None:
    run, events = write(shared, history)
    view, summary = RunView.of(events), shared.summary(run)
    counted = Counts(
        summary.total, summary.succeeded, summary.reused, summary.failed, summary.cancelled
    )
    assert counted == view.counts
    assert summary.ended == view.ended_at
    for alive in (True, False):
        assert summary.seen(alive) == view.state(alive)


@given(history=histories())
@settings(max_examples=40, deadline=None)
def test_a_task_commits_once(shared: Journal, history: History) -> None:
    run, events = write(shared, history)
    standing: dict[str, TaskEnded] = {}
    for event in events:
        if isinstance(event, TaskRevoked):
            standing.pop(event.task, None)
        elif isinstance(event, TaskEnded) and event.outcome in COMMITS:
            standing[event.task] = event
    assert [standing[task] for task in sorted(standing)] == list(shared.commits(run))
    writer = take(shared, run)
    for task in standing:
        with pytest.raises(AlreadyCommittedError):
            writer.record(succeeded(task))


@given(history=histories())
@settings(max_examples=40, deadline=None)
def test_a_second_writer_fences_the_first(shared: Journal, history: History) -> None:
    run, _ = write(shared, history)
    first = take(shared, run)
    second = take(shared, run)
    known = list(shared.events(run))
    first.record(TaskReady(300.0, "a"))
    with pytest.raises(FencedError, match=run):
        first.flush()
    assert list(shared.events(run)) == known
    second.record(TaskReady(301.0, "a"))
    second.flush()
    assert len(list(shared.events(run))) == len(known) + 1


def _view(*events: Event) -> RunView:
    start = (Submitted(10.0, "demo-abc", "demo", 2), Opened(11.0, 1, "h", 1))
    return RunView.of([*start, *events], ["a", "b"])


ENDED = TaskEnded(20.0, "a", "failed", 1, reason="exit code 3", exit_code=3)


@pytest.mark.parametrize(
    ("events", "state"),
    [
        ([], "waiting"),
        ([TaskReady(12.0, "a")], "ready"),
        ([TaskReady(12.0, "a"), TaskBound(12.0, "a", 1, "p")], "bound"),
        ([TaskStarted(12.0, "a", 1, "p")], "running"),
        ([TaskStarted(12.0, "a", 1, "p"), TaskProgressed(13.0, "a", 1, 0.5)], "running"),
        ([ENDED], "failed"),
        ([ENDED, TaskRetried(20.0, "a", 2, 1.0)], "retrying"),
        ([TaskEnded(20.0, "a", "timeout", 1)], "failed"),
        ([TaskEnded(20.0, "a", "lost", 1)], "failed"),
        ([TaskEnded(20.0, "a", "cancelled")], "cancelled"),
        ([TaskEnded(20.0, "a", "reused", from_run="r")], "reused"),
        ([succeeded("a"), ENDED], "succeeded"),
        ([succeeded("a"), TaskRevoked(30.0, "a")], "waiting"),
        ([succeeded("a"), TaskRevoked(30.0, "a"), succeeded("a")], "succeeded"),
        ([ENDED, Opened(30.0, 2, "h", 2)], "waiting"),
        ([TaskStarted(12.0, "a", 1, "p"), Opened(30.0, 2, "h", 2)], "waiting"),
        ([succeeded("a"), Opened(30.0, 2, "h", 2)], "succeeded"),
    ],
)
def test_the_state_of_a_task(events: list[Event], state: str) -> None:
    view = _view(*events)
    assert view.tasks["a"].state == state
    number = 2 if state == "waiting" else 1
    assert view.by_state[state] == number
    assert sum(view.by_state.values()) == 2


def test_what_a_task_view_tells() -> None:
    end = succeeded("a")
    view = _view(
        TaskReady(12.0, "a"),
        TaskStarted(13.0, "a", 1, "here"),
        ENDED,
        TaskRetried(20.0, "a", 2, 1.0),
        TaskBound(21.0, "a", 2, "there"),
        TaskStarted(22.0, "a", 2, "there"),
        TaskEnded(25.0, "a", "succeeded", 2, "there", elapsed_s=3.0, outputs=end.outputs),
    )
    assert view.tasks["a"] == TaskView(
        state="succeeded",
        attempts=2,
        peer="there",
        ready_at=12.0,
        started_at=22.0,
        ended_at=25.0,
        elapsed_s=3.0,
        outputs=end.outputs,
        failures=[Failure(20.0, 1, "failed", "exit code 3", 3)],
    )


def test_elapsed_time_leaves_out_the_time_between_processes() -> None:
    view = _view(TaskReady(15.0, "a"))
    assert view.elapsed_s == 4.0  # killed at 15
    view.apply(Opened(115.0, 2, "h", 2))
    assert view.elapsed_s == 4.0
    view.apply(RunEnded(118.0, "cancelled"))
    assert view.elapsed_s == 7.0
    view.apply(Opened(200.0, 3, "h", 3))
    view.apply(succeeded("a", at=201.0))
    assert view.elapsed_s == 8.0


def test_the_state_of_a_run() -> None:
    view = _view(PeerJoined(11.0, "here", 4, 10), CancelAsked(12.0, reason="told so"))
    assert (view.state(alive=True), view.state(alive=False)) == ("running", "interrupted")
    assert view.cancelling and view.peers == {"here": 4}
    view.apply(RunEnded(13.0, "cancelled"))
    assert (view.state(alive=False), view.reason) == ("cancelled", "told so")
    view.apply(Opened(14.0, 2, "h", 2))
    assert view.state(alive=True) == "running"
    assert not view.cancelling and view.reason == "" and view.peers == {}


def test_tasks_that_never_ran_count_as_cancelled_once_the_run_is_over() -> None:
    view = _view(ENDED)
    assert view.counts == Counts(2, 0, 0, 1, 0)
    view.apply(RunEnded(21.0, "failed"))
    assert view.counts == Counts(2, 0, 0, 1, 1)
    view.apply(Opened(30.0, 2, "h", 2))
    assert view.counts == Counts(2, 0, 0, 0, 0)


def test_tasks_unknown_to_the_graph_still_count(tmp_path: Path) -> None:
    view = RunView.of([TaskReady(1.0, "x"), succeeded("y")])
    assert view.counts == Counts(2, 1, 0, 0, 0)


def test_a_view_follows_a_live_run(journal: Journal, tmp_path: Path) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    with Journal.open(tmp_path / ".sureline", read_only=True) as reader:
        view, after = RunView(), 0
        for step in (TaskReady(1.0, "a"), TaskStarted(2.0, "a", 1, "p"), succeeded("a")):
            writer.record(step)
            writer.flush()
            for entry in reader.events(run, after=after):
                view.apply(entry.event)
                after = entry.position
        assert view == RunView.of(entry.event for entry in journal.events(run))
        assert view.counts.succeeded == 1
