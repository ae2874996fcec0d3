from __future__ import annotations

import multiprocessing
import sqlite3
import threading
from pathlib import Path

import pytest
from journal_histories import GRAPH, new_run, succeeded, take

from sureline.journal import writer as writer_module
from sureline.journal.errors import (
    AlreadyCommittedError,
    FencedError,
    JournalError,
    NoJournalError,
)
from sureline.journal.events import (
    Grown,
    RunEnded,
    Submitted,
    TaskEnded,
    TaskReady,
    TaskRevoked,
)
from sureline.journal.store import Journal, RunRequest, slug
from sureline.journal.views import RunView
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph, Pause, Task

_processes = multiprocessing.get_context("spawn")


def test_a_new_run_can_be_read_back_by_another_process_connection(
    journal: Journal, tmp_path: Path
) -> None:
    run = new_run(journal, "Word Count!", total=5)
    assert run.startswith("word-count-")
    assert len(run) == len("word-count-") + 6
    with Journal.open(tmp_path / ".sureline", create=False) as other:
        summary = other.summary(run)
        assert (summary.run, summary.name, summary.total) == (run, "Word Count!", 5)
        assert (summary.state, summary.epoch, summary.source) == ("submitted", 0, "demo.yaml")
        assert other.graph(run) == GRAPH
        (entry,) = other.events(run)
        assert isinstance(entry.event, Submitted)
        assert (entry.origin, entry.sequence) == ("writer.0", 1)


def test_a_graph_that_grew_is_read_as_it_is_now_here_and_in_a_copy(
    journal: Journal, tmp_path: Path
) -> None:
    before = Graph("g", [Task("a", Pause(1.0))])
    after = Graph("g", [*before.tasks, Task("b", Pause(1.0), after=("a",))])
    run = journal.create_run("g", before.to_bytes(), lambda r: Submitted(1.0, r, "g", 1))
    writer = take(journal, run)
    writer.record(Grown(2.0, 1, after.growth(before)))
    writer.record(succeeded("b"))
    writer.close()
    with Journal.open(tmp_path / "copy") as copy:
        copy.merge(run, journal.graph(run), list(journal.events(run)))
        for one in (journal, copy):
            assert one.workflow(run).tasks == after.tasks
            assert one.graph(run) == before.to_bytes() == one.workflow(run).created
            assert (one.summary(run).total, one.summary(run).succeeded) == (2, 1)
    view = RunView.of((entry.event for entry in journal.events(run)), after.index)
    assert (view.counts.total, view.tasks["a"].state) == (2, "waiting")


def test_runs_are_listed_newest_last(journal: Journal) -> None:
    names = [new_run(journal, f"w{i}") for i in range(3)]
    assert [summary.run for summary in journal.runs()] == names


def test_run_names_are_unique_even_when_chance_repeats(journal: Journal) -> None:
    draws = iter(["aaaaaa", "aaaaaa", "bbbbbb"])
    make = lambda: journal.create_run(  # noqa: E731 - twice the same call
        "w", GRAPH, lambda run: Submitted(1.0, run, "w", 1), suffix=lambda: next(draws)
    )
    assert [make(), make()] == ["w-aaaaaa", "w-bbbbbb"]


def test_a_name_that_can_never_be_free_is_an_error_not_a_loop(journal: Journal) -> None:
    for expected in (None, JournalError):
        if expected is None:
            journal.create_run("w", GRAPH, lambda r: Submitted(1.0, r, "w", 1), lambda: "same")
        else:
            with pytest.raises(expected, match="too many runs"):
                journal.create_run("w", GRAPH, lambda r: Submitted(1.0, r, "w", 1), lambda: "same")
    assert len(journal.runs()) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [("a b", "a-b"), ("..", "run"), ("É", "run"), ("x" * 99, "x" * 40), ("a/../b", "a-b")],
)
def test_slugs_are_safe_in_paths(name: str, expected: str) -> None:
    assert slug(name) == expected


def test_unknown_runs_are_the_users_mistake(journal: Journal) -> None:
    for call in (journal.summary, journal.graph, journal.requests, lambda r: take(journal, r)):
        with pytest.raises(UserError, match="no run nobody"):
            call("nobody")
    with pytest.raises(UserError, match="no run nobody"):
        list(journal.events("nobody"))


def test_recorded_events_appear_with_the_flush(journal: Journal) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(TaskReady(1.0, "a"))
    assert len(list(journal.events(run))) == 2
    writer.flush()
    writer.flush()
    entries = list(journal.events(run))
    assert entries[-1].event == TaskReady(1.0, "a")
    assert (entries[-1].origin, entries[-1].sequence) == ("writer.1", 2)


def test_a_full_buffer_flushes_itself(journal: Journal) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    for number in range(writer_module.BUFFERED_EVENTS_MAX):
        writer.record(TaskReady(1.0, f"t{number}"))
    assert len(list(journal.events(run))) == 2 + writer_module.BUFFERED_EVENTS_MAX
    for number in range(8):
        writer.record(TaskEnded(1.0, f"t{number}", "failed", stdout="x" * 600_000))
    assert len(list(journal.events(run))) > 2 + writer_module.BUFFERED_EVENTS_MAX


def test_many_events_are_read_in_order_across_pages(journal: Journal) -> None:
    run, other = new_run(journal), new_run(journal)
    writer, noise = take(journal, run), take(journal, other)
    for number in range(2500):
        writer.record(TaskReady(float(number), f"t{number % 7}"))
        noise.record(TaskReady(-1.0, "noise"))
    writer.flush()
    noise.flush()
    ats = [entry.event.at for entry in journal.events(run)][2:]
    assert ats == [float(number) for number in range(2500)]
    of_one = [entry.event.at for entry in journal.events(run, task="t3")]
    assert of_one == [float(number) for number in range(3, 2500, 7)]


def test_a_writer_may_go_on_while_a_reader_is_half_way(journal: Journal, tmp_path: Path) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(TaskReady(1.0, "a"))
    writer.flush()
    with Journal.open(tmp_path / ".sureline", read_only=True) as reader:
        events = reader.events(run)
        next(events)
        journal.connection.execute("PRAGMA busy_timeout=0")
        writer.record(TaskReady(2.0, "b"))
        writer.flush()
        assert not reader.connection.in_transaction


def test_a_second_result_is_refused_at_once_and_nothing_else_is_lost(journal: Journal) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(succeeded("a"))
    with pytest.raises(AlreadyCommittedError, match=f"task a of run {run}"):
        writer.record(TaskEnded(2.0, "a", "reused"))
    writer.record(TaskEnded(2.0, "a", "cancelled", 2))
    writer.record(succeeded("b"))
    writer.flush()
    assert [ended.task for ended in journal.commits(run)] == ["a", "b"]
    sequences = [entry.sequence for entry in journal.events(run)]
    assert sequences == [1, 1, 2, 3, 4]
    assert journal.summary(run).succeeded == 2


@pytest.mark.parametrize("same_flush", [True, False])
def test_a_revoked_result_makes_room_for_another(journal: Journal, same_flush: bool) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(succeeded("a", at=1.0))
    writer.record(TaskEnded(1.0, "b", "reused"))
    if not same_flush:
        writer.flush()
        writer = take(journal, run)
    writer.record(TaskRevoked(2.0, "a", "its files are gone"))
    writer.record(TaskRevoked(2.0, "b", "its files are gone"))
    writer.record(TaskRevoked(2.0, "c", "never had any"))
    if not same_flush:
        writer.flush()
        summary = journal.summary(run)
        assert (summary.succeeded, summary.reused) == (0, 0)
        assert list(journal.commits(run)) == []
    writer.record(succeeded("a", at=3.0))
    with pytest.raises(AlreadyCommittedError):
        writer.record(succeeded("a", at=4.0))
    writer.flush()
    assert list(journal.commits(run)) == [succeeded("a", at=3.0)]
    assert (journal.summary(run).succeeded, journal.summary(run).reused) == (1, 0)


def test_the_database_itself_refuses_a_second_commit(journal: Journal) -> None:
    """The guard of last resort, reached here by damaging the writer's own memory."""
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(succeeded("a"))
    writer.flush()
    before = list(journal.events(run))
    writer._committed.clear()
    writer.record(succeeded("b"))
    writer.record(succeeded("a"))
    with pytest.raises(AlreadyCommittedError, match=f"task a of run {run}"):
        writer.flush()
    assert list(journal.events(run)) == before
    assert [ended.task for ended in journal.commits(run)] == ["a"]


def test_a_flush_that_was_written_after_all_is_not_written_twice(journal: Journal) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(succeeded("a", key="k"))
    kept = (list(writer._events), list(writer._commits), list(writer._results))
    writer.flush()
    writer._events, writer._commits, writer._results = kept
    writer.flush()
    assert [entry.sequence for entry in journal.events(run)] == [1, 1, 2]
    assert journal.summary(run).succeeded == 1


def test_taking_over_fences_the_old_writer_in_another_process(
    journal: Journal, tmp_path: Path
) -> None:
    run = new_run(journal)
    old = take(journal, run)
    old.put("k", b"old")
    with Journal.open(tmp_path / ".sureline") as elsewhere:
        new = take(elsewhere, run)
        assert new.epoch == old.epoch + 1
        with pytest.raises(FencedError, match="epoch 2, ours was 1"):
            old.flush()
        assert new.get("k") is None
        new.record(RunEnded(9.0, "failed"))
        new.close()
    assert (journal.summary(run).state, journal.summary(run).ended) == ("failed", 9.0)
    take(journal, run)
    assert (journal.summary(run).state, journal.summary(run).ended) == ("running", None)


def test_results_are_found_by_key_over_all_runs(journal: Journal) -> None:
    first, second = new_run(journal), new_run(journal)
    for run, at in ((first, 1.0), (second, 2.0)):
        writer = take(journal, run)
        writer.record(succeeded("a", key="k", at=at))
        writer.record(TaskEnded(3.0, "b", "reused", key="reused key"))
        writer.record(TaskEnded(3.0, "c", "failed", key="failed key"))
        writer.record(succeeded("d"))
        writer.flush()
    assert journal.result("k") == (second, succeeded("a", key="k", at=2.0))
    for key in ("reused key", "failed key", ""):
        assert journal.result(key) is None


def test_files_are_known_while_they_look_unchanged(journal: Journal) -> None:
    writer = take(journal, new_run(journal))
    record = FileRecord("in/big", "d" * 64, 10, 5, executable=True)
    writer.remember_file(10, 77, 3, record)
    writer.flush()
    assert journal.known_file("in/big", 10, 77, 3) == record
    assert journal.known_file("in/big", 11, 77, 3) is None
    assert journal.known_file("in/big", 10, 78, 3) is None
    assert journal.known_file("in/big", 10, 77, 4) is None
    newer = FileRecord("in/big", "e" * 64, 11, 6)
    writer.remember_file(11, 80, 3, newer)
    writer.flush()
    assert journal.known_file("in/big", 10, 77, 3) is None
    assert journal.known_file("in/big", 11, 80, 3) == newer


def test_put_is_visible_at_once_and_to_the_next_writer(journal: Journal) -> None:
    run, other = new_run(journal), new_run(journal)
    writer = take(journal, run)
    writer.put("plan", b"1")
    assert writer.get("plan") == b"1"
    writer.put("plan", b"2")
    writer.close()
    assert take(journal, run).get("plan") == b"2"
    assert take(journal, other).get("plan") is None


def test_requests_reach_the_runner_and_end_with_a_new_one(journal: Journal, tmp_path: Path) -> None:
    run, other = new_run(journal), new_run(journal)
    take(journal, run)
    with Journal.open(tmp_path / ".sureline") as elsewhere:
        elsewhere.ask(run, "drain", 5.0)
        elsewhere.ask(run, "cancel", 6.0)
    assert journal.requests(run) == [RunRequest("drain", 5.0), RunRequest("cancel", 6.0)]
    assert journal.requests(other) == []
    take(journal, run)
    assert journal.requests(run) == []


def _create(directory: Path, number: int, barrier: threading.Barrier) -> None:
    barrier.wait()
    with Journal.open(directory) as journal:
        run = new_run(journal, f"p{number}")
        writer = take(journal, run)
        for task in range(20):
            writer.record(succeeded(f"t{task}", key=f"{number}.{task}"))
            writer.flush()


@pytest.mark.parametrize("count", [4, pytest.param(16, marks=pytest.mark.soak)])
def test_several_processes_create_and_write_one_journal_at_once(tmp_path: Path, count: int) -> None:
    directory, barrier = tmp_path / "new" / ".sureline", _processes.Barrier(count)
    children = [
        _processes.Process(target=_create, args=(directory, number, barrier))
        for number in range(count)
    ]
    for child in children:
        child.start()
    for child in children:
        child.join()
    assert [child.exitcode for child in children] == [0] * count
    with Journal.open(directory, create=False) as journal:
        assert {one.name for one in journal.runs()} == {f"p{number}" for number in range(count)}
        assert all(summary.succeeded == 20 for summary in journal.runs())
        assert journal.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert journal.connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_opening_without_creating_leaves_nothing_behind(tmp_path: Path) -> None:
    directory = tmp_path / ".sureline"
    for read_only in (True, False):
        with pytest.raises(NoJournalError, match="no journal in"):
            Journal.open(directory, create=False, read_only=read_only)
    assert not directory.exists()


def test_a_read_only_journal_cannot_be_written(journal: Journal, tmp_path: Path) -> None:
    run = new_run(journal)
    with Journal.open(tmp_path / ".sureline", read_only=True) as reader:
        assert reader.summary(run).run == run
        with pytest.raises(JournalError, match="cannot be written"):
            reader.ask(run, "cancel", 1.0)


def test_the_journal_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    Journal.open(tmp_path).close()
    connection = sqlite3.connect(tmp_path / "journal.db")
    connection.execute("PRAGMA user_version=99")
    connection.close()
    for read_only in (True, False):
        with pytest.raises(JournalError, match=r"newer Sureline \(journal version 99"):
            Journal.open(tmp_path, read_only=read_only)
