from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from journal_histories import new_run, succeeded, take

from sureline.journal import schema
from sureline.journal.errors import JournalError
from sureline.journal.events import TaskEnded, TaskRevoked
from sureline.journal.history import OBSERVED_OF_RUN_MAX, Observed, chosen
from sureline.journal.store import Journal
from sureline.workflow.files import FileRecord


def took(
    task: str, seconds: float, at: float, kind: str = "k", outcome: str = "succeeded"
) -> TaskEnded:
    inputs = (FileRecord("a", "d", 30), FileRecord("b", "d", 12))
    return TaskEnded(at, task, outcome, 1, elapsed_s=seconds, inputs=inputs, kind=kind)  # type: ignore[arg-type] # one of the outcomes


def test_durations_come_back_by_kind_newest_first(journal: Journal) -> None:
    first, second = new_run(journal), new_run(journal)
    for run, at in ((first, 200.0), (second, 300.0)):
        writer = take(journal, run)
        for i in range(3):
            writer.record(took(f"t_{i}", at + i / 8, at + i))
        writer.record(took("other", 7.5, at, kind="rare"))
        writer.flush()
    found = journal.durations(["k", "rare", "unknown"], newest=4)
    assert set(found) == {"k", "rare"}
    assert found["k"] == [
        Observed(300.25, 42, 302.0, second),
        Observed(300.125, 42, 301.0, second),
        Observed(300.0, 42, 300.0, second),
        Observed(200.25, 42, 202.0, first),
    ]
    assert [seen.run for seen in found["rare"]] == [second, first]


def test_only_what_succeeded_and_has_a_kind_is_remembered(journal: Journal) -> None:
    writer = take(journal, new_run(journal))
    for number, outcome in enumerate(("reused", "failed", "timeout", "cancelled", "lost")):
        writer.record(took(f"t{number}", 1.0, 200.0, outcome=outcome))
    writer.record(took("pretended", 1.0, 200.0, kind=""))
    writer.flush()
    assert journal.durations(["k", ""]) == {}


def test_equal_times_of_equal_kinds_are_all_kept(journal: Journal) -> None:
    writer = take(journal, new_run(journal))
    for number in range(5):
        writer.record(took(f"t{number}", 1.0, 200.0))
    writer.flush()
    assert len(journal.durations(["k"])["k"]) == 5


def test_a_revoked_result_still_took_its_time(journal: Journal) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(took("t", 1.0, 200.0))
    writer.flush()
    writer = take(journal, run)
    writer.record(TaskRevoked(300.0, "t", "gone"))
    writer.record(took("t", 2.0, 301.0))
    writer.flush()
    assert [seen.elapsed_s for seen in journal.durations(["k"])["k"]] == [2.0, 1.0]


def test_merged_runs_bring_their_durations_once(journal: Journal, tmp_path: Path) -> None:
    run = new_run(journal)
    writer = take(journal, run)
    writer.record(took("t", 1.5, 200.0))
    writer.flush()
    with Journal.open(tmp_path / "other") as other:
        for _ in range(2):
            other.merge(run, journal.graph(run), list(journal.events(run)))
        assert other.durations(["k"]) == journal.durations(["k"])


def former_layout(directory: Path) -> str:
    """A journal as the first layout had it, with one run in it; returns the run's name."""
    with Journal.open(directory) as journal:
        run = new_run(journal)
        writer = take(journal, run)
        writer.record(succeeded("a", key="k1"))
        writer.close()
    connection = sqlite3.connect(directory / "journal.db")
    connection.execute("DROP TABLE durations")
    connection.execute("PRAGMA user_version=1")
    connection.commit()
    connection.close()
    return run


def test_a_journal_of_the_former_layout_is_brought_up_to_date(tmp_path: Path) -> None:
    run = former_layout(tmp_path)
    with Journal.open(tmp_path, create=False) as journal:
        assert journal.connection.execute("PRAGMA user_version").fetchone() == (3,)
        assert journal.summary(run).succeeded == 1
        assert journal.result("k1") is not None
        assert journal.durations(["k"]) == {}
        writer = take(journal, run)
        writer.record(took("b", 2.0, 400.0))
        writer.close()
    with Journal.open(tmp_path) as journal:
        assert len(journal.durations(["k"])["k"]) == 1


def test_bringing_up_to_date_is_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = former_layout(tmp_path)
    half = (*schema._LAYOUTS[:1], schema._LAYOUTS[1] + "; CREATE TABLE runs (again TEXT)")
    with monkeypatch.context() as broken:
        broken.setattr(schema, "_LAYOUTS", half)
        with pytest.raises(JournalError):
            Journal.open(tmp_path)
    connection = sqlite3.connect(tmp_path / "journal.db")
    assert connection.execute("PRAGMA user_version").fetchone() == (1,)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master")}
    connection.close()
    assert "durations" not in tables
    with Journal.open(tmp_path) as journal:
        assert journal.summary(run).succeeded == 1


def test_two_processes_may_bring_it_up_to_date_at_once(tmp_path: Path) -> None:
    """The second finds the old layout, waits for the first, and then has nothing to do."""
    former_layout(tmp_path)
    one = sqlite3.connect(tmp_path / "journal.db", isolation_level=None)
    seen: list[str] = []

    def trace(statement: str) -> None:
        if statement.startswith("BEGIN") and not seen:
            seen.append(statement)
            Journal.open(tmp_path).close()

    one.set_trace_callback(trace)
    schema._bring_up_to_date(one, tmp_path / "journal.db", lambda _: None)
    one.close()
    assert seen
    with Journal.open(tmp_path) as journal:
        assert journal.durations(["k"]) == {}


def test_reading_a_journal_of_the_former_layout_changes_nothing(tmp_path: Path) -> None:
    run = former_layout(tmp_path)
    with Journal.open(tmp_path, read_only=True) as journal:
        assert journal.durations(["k"]) == {}
        assert journal.summary(run).succeeded == 1
        assert journal.connection.execute("PRAGMA user_version").fetchone() == (1,)


def test_a_large_run_does_not_crowd_the_others_out(journal: Journal) -> None:
    """Of each run some, whether they ended first or last in it."""
    for run_number in range(3):
        writer = take(journal, new_run(journal))
        for i in range(200):
            writer.record(took(f"t_{i}", float(i), 1000.0 * run_number + i))
        writer.flush()
    found = journal.durations(["k"])["k"]
    by_run: dict[str, list[float]] = {}
    for one in found:
        by_run.setdefault(one.run, []).append(one.elapsed_s)
    assert [len(seconds) for seconds in by_run.values()] == [OBSERVED_OF_RUN_MAX] * 3
    for seconds in by_run.values():
        assert 70 < sum(seconds) / len(seconds) < 130, "neither the first nor the last"
    assert [one.at for one in found] == sorted((one.at for one in found), reverse=True)


def test_a_full_list_is_thinned_alike() -> None:
    everything = [Observed(float(i), 0, float(i), str(i // 500)) for i in range(1000)]
    found = chosen(everything)
    assert [sum(one.run == run for one in found) for run in ("0", "1")] == [OBSERVED_OF_RUN_MAX] * 2
    assert 200 < sum(one.elapsed_s for one in found if one.run == "0") / OBSERVED_OF_RUN_MAX < 300


def test_what_is_remembered_is_summed_up_by_kind(journal: Journal) -> None:
    for run_number, seconds in enumerate((10.0, 10.0, 20.0, 20.0)):
        writer = take(journal, new_run(journal))
        for i in range(3):
            writer.record(took(f"t_{i}", seconds + i, 1000.0 * run_number + i))
        writer.flush()
    (kind,) = journal.kinds()
    assert (kind.kind, kind.n, kind.runs, kind.newest) == ("k", 12, 4, 3002.0)
    assert kind.median_s == 16.0 and kind.drift == pytest.approx(21 / 11)
    assert 10 <= kind.p10_s <= 11 and 21 <= kind.p90_s <= 22


def test_the_machine_is_remembered_and_older_layouts_are_read_without_it(tmp_path: Path) -> None:
    with Journal.open(tmp_path) as journal:
        writer = take(journal, new_run(journal))
        writer.record(TaskEnded(1.0, "t", "succeeded", 1, "here", elapsed_s=2.0, kind="k"))
        writer.close()
        assert [one.peer for one in journal.durations(["k"])["k"]] == ["here"]
    connection = sqlite3.connect(tmp_path / "journal.db")
    connection.execute("ALTER TABLE durations DROP COLUMN peer")
    connection.execute("PRAGMA user_version=2")
    connection.commit()
    connection.close()
    with Journal.open(tmp_path, read_only=True) as journal:
        assert [one.peer for one in journal.durations(["k"])["k"]] == [""]
    with Journal.open(tmp_path) as journal:
        assert [one.elapsed_s for one in journal.durations(["k"])["k"]] == [2.0]
