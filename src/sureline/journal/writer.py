"""The one writer of a run: numbers its events, and writes them in transactions.

Each `take` of a run raises its epoch; a writer whose epoch is no longer the run's is refused
inside its next transaction. Events wait in a bounded buffer for `flush`, which writes all of it
or nothing. A task commits once: `record` refuses a second result at once, and the key of the
table of commits makes one impossible.

A writer belongs to one thread, like its journal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from sureline.journal.durable import Action, CallSoon
from sureline.journal.errors import AlreadyCommittedError, FencedError, JournalError
from sureline.journal.events import (
    COMMITS,
    Event,
    Grown,
    RunEnded,
    TaskEnded,
    TaskEvent,
    TaskProgressed,
    TaskRevoked,
    task_of,
)
from sureline.journal.history import INSERT_DURATION, DurationRow, duration_row
from sureline.journal.schema import POSITIONS_PER_EPOCH, transaction
from sureline.workflow.files import FileRecord

if TYPE_CHECKING:
    from sureline.journal.store import Journal

BUFFERED_EVENTS_MAX = 512
BUFFERED_BYTES_MAX = 4 * 1024 * 1024
_PAGE_BYTES = 4096
_FLUSH_COST_BYTES = 24 * 1024
"""About what a transaction adds to the log for its first row: half a dozen pages."""

_encode = msgspec.msgpack.Encoder().encode


class Tally:
    """How many tasks of a run ended how; agrees with the counts of `views.RunView`."""

    def __init__(self, total: int = 0, succeeded: int = 0, reused: int = 0) -> None:
        self.total = total
        self.succeeded = succeeded
        self.reused = reused
        self.over = False
        """The run has ended: tasks that never got to run count as cancelled."""
        self._failed: set[str] = set()
        self._cancelled: set[str] = set()

    def ended(self, event: TaskEnded) -> None:
        """An attempt of a task that had no result has ended."""
        task, outcome = event.task, event.outcome
        self.going(task)
        if outcome == "succeeded":
            self.succeeded += 1
        elif outcome == "reused":
            self.reused += 1
        elif outcome == "cancelled":
            self._cancelled.add(task)
        else:
            self._failed.add(task)

    def going(self, task: str) -> None:
        """The task is being tried (again)."""
        self._failed.discard(task)
        self._cancelled.discard(task)

    def revoked(self, outcome: str) -> None:
        """A result that counted as `outcome` does not count any more."""
        if outcome == "reused":
            self.reused -= 1
        else:
            self.succeeded -= 1

    def numbers(self) -> tuple[int, int, int, int]:
        """succeeded, reused, failed, cancelled."""
        failed, cancelled = len(self._failed), len(self._cancelled)
        if self.over:
            cancelled = self.total - self.succeeded - self.reused - failed
        return self.succeeded, self.reused, failed, cancelled


class RunWriter:
    """Made by `Journal.take`. `run` is the run's name, `epoch` this writer's term."""

    def __init__(
        self, journal: Journal, run: str, run_id: int, epoch: int, committed: set[str], tally: Tally
    ) -> None:
        self.run = run
        self.epoch = epoch
        self._journal = journal
        self._run_id = run_id
        self._committed = committed
        self._tally = tally
        self._state: str = "running"
        self._ended: float | None = None
        self._sequence = 0
        self._clear()

    def _clear(self) -> None:
        self._events: list[tuple[int, int, str | None, bytes]] = []
        self._commits: list[tuple[int, str, int]] = []
        self._revoked: list[tuple[int, str]] = []
        self._results: list[tuple[str, int, int]] = []
        self._durations: list[DurationRow] = []
        self._files: list[tuple[str, int, int, int, bytes]] = []
        self._puts: dict[str, bytes] = {}
        self._bytes = 0

    def record(self, event: Event) -> None:
        """Give the event its number and keep it for the next flush, which a full buffer causes.

        Raises AlreadyCommittedError for a second result of a task, and then keeps nothing of it;
        what a flush raises, and then the event is in the buffer.
        """
        body = _encode(event)
        position = self.epoch * POSITIONS_PER_EPOCH + self._sequence + 1
        task = task_of(event)
        if isinstance(event, TaskEvent):
            self._note_task(event, position)
        elif isinstance(event, RunEnded):
            self._state, self._ended = event.state, event.at
            self._tally.over = True
        elif isinstance(event, Grown):
            self._tally.total += event.tasks
        self._sequence += 1
        self._events.append((self._run_id, position, task, body))
        self._bytes += len(body)
        self._flush_if_full()

    def _note_task(self, event: TaskEvent, position: int) -> None:
        task = event.task
        if not isinstance(event, TaskEnded):
            if isinstance(event, TaskRevoked):
                self._note_revoked(task)
            if not isinstance(event, TaskProgressed):
                self._tally.going(task)
            return
        commits = event.outcome in COMMITS
        known = task in self._committed
        if known and commits:
            raise AlreadyCommittedError(self.run, task)
        if not known:
            self._tally.ended(event)
        if commits:
            self._committed.add(task)
            self._commits.append((self._run_id, task, position))
            if event.key and event.outcome == "succeeded":
                self._results.append((event.key, self._run_id, position))
            if event.kind and event.outcome == "succeeded":
                self._durations.append(duration_row(event, self._run_id, position))

    def _note_revoked(self, task: str) -> None:
        """Undo a commit. Rare, and of an earlier session: its outcome is read from the journal."""
        if task not in self._committed:
            return
        self.flush()
        self._tally.revoked(self._journal.committed_outcome(self._run_id, task))
        self._committed.discard(task)
        self._revoked.append((self._run_id, task))

    def remember_file(self, size: int, mtime_ns: int, inode: int, record: FileRecord) -> None:
        """Remember the digest of a user's file as it was hashed, for `Journal.known_file`.

        The caller must not offer a file whose time is so recent that it may change again without
        its time or size changing.
        """
        self._files.append((record.path, size, mtime_ns, inode, _encode(record)))
        self._flush_if_full()

    def put(self, key: str, value: bytes) -> None:
        """Keep a value for this run: visible to `get` at once, durable after the next sync."""
        self._puts[key] = value
        self._bytes += len(value)
        self._flush_if_full()

    def get(self, key: str) -> bytes | None:
        """What this or an earlier writer of the run put."""
        if key in self._puts:
            return self._puts[key]
        return self._journal.kept(self.run, key)

    def flush(self) -> None:
        """Write all that is buffered in one transaction, visible to every process afterwards.

        On any error nothing was written and the buffer is whole: it may be tried
        again after DiskFullError, and never after FencedError.
        """
        if not (self._events or self._puts or self._files):
            return
        self._journal.check_durable()
        with transaction(self._journal.connection, self._journal.path):
            if self._claim():
                self._write()
        kinds = {row[0] for row in self._durations}
        rows_elsewhere = len(self._results) + len(self._files) + len(kinds)
        bytes_written = _FLUSH_COST_BYTES + 2 * self._bytes + _PAGE_BYTES * rows_elsewhere
        self._clear()
        self._journal.note_written(bytes_written)

    def sync(
        self,
        on_durable: Action,
        call_soon: CallSoon,
        on_failed: Callable[[JournalError], None] | None = None,
    ) -> None:
        """Flush, then have `call_soon` run `on_durable` once all that was recorded is on disk.

        Never waits for the disk itself. If the disk fails, `on_failed` is run instead, and every
        later flush raises the same error.
        """
        self.flush()
        self._journal.sync(on_durable, on_failed or _unheard, call_soon)

    def close(self) -> None:
        """Flush what is left and make it durable."""
        self.flush()
        self._journal.sync_now()

    def _flush_if_full(self) -> None:
        if (
            len(self._events) >= BUFFERED_EVENTS_MAX
            or self._bytes >= BUFFERED_BYTES_MAX
            or len(self._files) + len(self._puts) >= BUFFERED_EVENTS_MAX
        ):
            self.flush()

    def _claim(self) -> bool:
        """Whether the buffer is still to be written. Raises FencedError for an old writer.

        False if an earlier flush reported an error after it had in fact been written.
        """
        epoch, sequence = self._journal.connection.execute(
            "SELECT epoch, sequence FROM runs WHERE id = ?", (self._run_id,)
        ).fetchone()
        if epoch != self.epoch:
            raise FencedError(self.run, self.epoch, epoch)
        return not self._events or bool(sequence < self._sequence)

    def _write(self) -> None:
        connection = self._journal.connection
        connection.executemany("INSERT INTO events VALUES (?, ?, ?, ?)", self._events)
        if self._revoked:
            connection.executemany("DELETE FROM commits WHERE run = ? AND task = ?", self._revoked)
        try:
            connection.executemany("INSERT INTO commits VALUES (?, ?, ?)", self._commits)
        except sqlite3.IntegrityError as error:
            raise AlreadyCommittedError(self.run, self._first_conflict()) from error
        for statement, rows in (
            ("INSERT OR REPLACE INTO results VALUES (?, ?, ?)", self._results),
            (INSERT_DURATION, self._durations),
            ("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?, ?)", self._files),
        ):
            if rows:  # a statement costs the same whether it has rows or not
                connection.executemany(statement, rows)
        if self._puts:
            connection.executemany(
                "INSERT OR REPLACE INTO kept VALUES (?, ?, ?)",
                [(self._run_id, key, value) for key, value in self._puts.items()],
            )
        connection.execute(
            "UPDATE runs SET sequence = ?, state = ?, ended = ?, total = ?, succeeded = ?,"
            " reused = ?, failed = ?, cancelled = ? WHERE id = ?",
            (
                self._sequence,
                self._state,
                self._ended,
                self._tally.total,
                *self._tally.numbers(),
                self._run_id,
            ),
        )

    def _first_conflict(self) -> str:
        known = "SELECT 1 FROM commits WHERE run = ? AND task = ? AND position <> ?"
        for commit in self._commits:
            if self._journal.connection.execute(known, commit).fetchone():
                return commit[1]
        return "?"


def _unheard(failure: JournalError) -> None:
    """The next flush raises it."""
