from __future__ import annotations

import fcntl
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from journal_histories import new_run, succeeded, take

from sureline.journal import durable
from sureline.journal.durable import Action
from sureline.journal.errors import DiskFullError, JournalError
from sureline.journal.events import TaskEnded, TaskReady
from sureline.journal.store import Journal


class Disk:
    """An fsync that counts, can be held up, and can fail."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.threads: set[int] = set()
        self.under_way = self.under_way_max = 0
        self.error: OSError | None = None
        self.free = threading.Event()
        self.free.set()
        self._lock = threading.Lock()

    def fsync(self, descriptor: int) -> None:
        with self._lock:
            self.under_way += 1
            self.under_way_max = max(self.under_way, self.under_way_max)
            self.files.append(os.path.basename(os.readlink(f"/proc/self/fd/{descriptor}")))
            self.threads.add(threading.get_ident())
        assert self.free.wait(60)
        with self._lock:
            self.under_way -= 1
        if self.error is not None:
            raise self.error


class Loop:
    """Where actions hop back to: gathers them, runs them in the thread that waits."""

    def __init__(self) -> None:
        self._came = threading.Semaphore(0)
        self._actions: list[Action] = []

    def call_soon(self, action: Action) -> None:
        self._actions.append(action)
        self._came.release()

    def run(self, number: int) -> None:
        for _ in range(number):
            assert self._came.acquire(timeout=60)
            self._actions.pop(0)()


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def slow(tmp_path: Path, disk: Disk) -> Iterator[Journal]:
    with Journal.open(tmp_path / ".sureline", fsync=disk.fsync) as journal:
        yield journal
        disk.free.set()


def test_creating_syncs_the_directory_and_submitting_syncs_the_log(
    slow: Journal, disk: Disk
) -> None:
    assert ".sureline" in disk.files
    disk.files.clear()
    run = new_run(slow)
    assert disk.files == ["journal.db-wal", ".sureline"]  # the log is a new file
    disk.files.clear()
    take(slow, run)
    assert disk.files == ["journal.db-wal"]


def test_recording_and_flushing_do_not_sync(slow: Journal, disk: Disk) -> None:
    writer = take(slow, new_run(slow))
    disk.files.clear()
    writer.record(TaskReady(1.0, "a"))
    writer.flush()
    assert disk.files == []


def test_a_sync_never_waits_and_syncs_are_grouped(slow: Journal, disk: Disk) -> None:
    run = new_run(slow)
    writer, loop, done = take(slow, run), Loop(), list[int]()
    disk.files.clear()
    disk.threads.clear()
    disk.free.clear()
    for number in range(50):
        writer.record(succeeded(f"t{number}"))
        writer.sync(lambda n=number: done.append(n), loop.call_soon)
    assert slow.summary(run).succeeded == 50  # visible, though nothing is durable
    assert done == []
    disk.free.set()
    loop.run(50)
    assert done == list(range(50))
    # The first took some; all that gathered behind it shared the second.
    assert 1 <= len(disk.files) <= 2
    assert disk.under_way_max == 1
    assert threading.get_ident() not in disk.threads


def test_what_is_recorded_during_an_fsync_waits_for_the_next(slow: Journal, disk: Disk) -> None:
    writer, loop, done = take(slow, new_run(slow)), Loop(), list[str]()
    disk.free.clear()
    disk.files.clear()
    writer.sync(lambda: done.append("first"), loop.call_soon)
    while not disk.files:
        os.sched_yield()
    writer.record(succeeded("a"))
    writer.sync(lambda: done.append("second"), loop.call_soon)
    disk.free.set()
    loop.run(2)
    assert done == ["first", "second"]
    assert disk.files == ["journal.db-wal", "journal.db-wal"]


def test_after_a_failed_fsync_nothing_is_called_durable(slow: Journal, disk: Disk) -> None:
    writer, loop, said = take(slow, new_run(slow)), Loop(), list[object]()
    disk.error = OSError(28, "No space left on device")
    writer.record(succeeded("a"))
    writer.sync(lambda: said.append("durable"), loop.call_soon, said.append)
    loop.run(1)
    assert isinstance(said[0], DiskFullError)
    disk.error = None  # the disk seems well again; the lost pages are still lost
    writer.record(succeeded("b"))
    with pytest.raises(JournalError, match="is full"):
        writer.flush()
    with pytest.raises(JournalError, match="is full"):
        new_run(slow)


def test_a_loop_that_is_gone_does_not_stop_the_others(slow: Journal) -> None:
    writer, loop, done = take(slow, new_run(slow)), Loop(), list[str]()

    def closed(action: Action) -> None:
        raise RuntimeError("Event loop is closed")

    writer.sync(lambda: done.append("never"), closed)
    writer.sync(lambda: done.append("told"), loop.call_soon)
    loop.run(1)
    assert done == ["told"]


def test_closing_serves_what_was_asked(tmp_path: Path, disk: Disk) -> None:
    loop, done = Loop(), list[str]()
    with Journal.open(tmp_path, fsync=disk.fsync) as journal:
        writer = take(journal, new_run(journal))
        writer.record(succeeded("a"))
        writer.sync(lambda: done.append("durable"), loop.call_soon)
    loop.run(1)
    assert done == ["durable"]


def test_the_log_stays_short_under_a_writer_without_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(durable, "CHECKPOINT_AFTER_BYTES", 200_000)
    monkeypatch.setattr(durable, "WAIT_AFTER_BYTES", 400_000)
    monkeypatch.setattr(durable, "_LOG_FRAMES_MAX", 100)
    with Journal.open(tmp_path, fsync=lambda _: None) as journal:
        run = new_run(journal)
        writer = take(journal, run)
        for number in range(600):
            writer.record(TaskEnded(1.0, f"t{number}", "succeeded", stdout="x" * 10_000))
            writer.flush()
        assert os.path.getsize(f"{journal.path}-wal") < 3_000_000
        assert sum(1 for _ in journal.commits(run)) == 600
        assert journal.connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@pytest.mark.parametrize(("frames_max", "modes"), [(10**6, ["PASSIVE"]), (1, None)])
def test_only_a_long_log_makes_writers_wait(
    slow: Journal, monkeypatch: pytest.MonkeyPatch, frames_max: int, modes: list[str] | None
) -> None:
    statements: list[str] = []
    connect = sqlite3.connect

    def traced(*args: Any, **options: Any) -> sqlite3.Connection:
        connection = connect(*args, **options)
        connection.set_trace_callback(statements.append)
        return connection

    new_run(slow)
    monkeypatch.setattr(durable.sqlite3, "connect", traced)
    monkeypatch.setattr(durable, "_LOG_FRAMES_MAX", frames_max)
    syncer = durable.Syncer(slow.path, os.fsync)
    syncer.note_written(durable.CHECKPOINT_AFTER_BYTES)
    syncer.close()
    called = [text[len("PRAGMA wal_checkpoint(") : -1] for text in statements if "(" in text]
    assert called == (modes or ["PASSIVE", "RESTART"])
    # Each checkpoint comes right after a write of its own.
    for number, text in enumerate(statements):
        if "wal_checkpoint(" in text:
            assert "UPDATE checkpoints" in "".join(statements[max(0, number - 3) : number])


def test_checkpoints_exclude_each_other(slow: Journal, tmp_path: Path) -> None:
    new_run(slow)

    def checkpoints() -> int:
        syncer = durable.Syncer(slow.path, os.fsync)
        syncer.note_written(durable.CHECKPOINT_AFTER_BYTES)
        syncer.close()
        return int(slow.connection.execute("SELECT number FROM checkpoints").fetchone()[0])

    assert checkpoints() == 1
    with open(tmp_path / ".sureline" / "journal.checkpoint") as elsewhere:
        fcntl.flock(elsewhere, fcntl.LOCK_EX)
        assert checkpoints() == 1
    assert checkpoints() == 2


_CHILD = """
import sys
from pathlib import Path
from sureline.journal.events import Opened, Submitted, TaskEnded
from sureline.journal.store import Journal

journal = Journal.open(Path(sys.argv[1]))
run = journal.create_run("w", b"", lambda run: Submitted(1.0, run, "w", 10**6))
writer = journal.take(run, lambda epoch: Opened(2.0, epoch, "h", 1))
for number in range(10**6):
    writer.record(TaskEnded(3.0, f"t{number}", "succeeded", stdout="x" * (number % 3000)))
    told = lambda number=number: print(number, flush=True)
    writer.sync(told, lambda action: action())
"""


def test_what_was_called_durable_survives_kill_9(tmp_path: Path) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", _CHILD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    told = [int(child.stdout.readline()) for _ in range(100)]
    child.send_signal(signal.SIGKILL)
    rest, _ = child.communicate()
    told += [int(line) for line in rest.splitlines(keepends=True) if line.endswith("\n")]
    with Journal.open(tmp_path, create=False) as journal:
        (summary,) = journal.runs()
        committed = {ended.task for ended in journal.commits(summary.run)}
        assert {f"t{number}" for number in told} <= committed
        assert summary.succeeded == len(committed)
        assert len(list(journal.events(summary.run))) == 2 + len(committed)
        assert summary.seen(alive=False) == "interrupted"
        assert take(journal, summary.run).epoch == 2
