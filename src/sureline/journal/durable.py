"""Making what was committed survive a power failure, without stopping the event loop for it.

In WAL mode with synchronous=NORMAL, a commit appends to the log and does not wait for the disk.
An fsync of the log afterwards gives what synchronous=FULL gives, for all commits so far at once.
One thread does it, through a descriptor of its own (SQLite keeps its locks on the other two
files: closing a descriptor of *those* would drop them). While one fsync is under way, further
requests gather and share the next.

The same thread copies the log back into the database (a checkpoint), since that waits for the
disk too. SQLite before 3.51.3 can lose commits when a checkpoint begins on a log that is already
copied whole while another connection restarts the log. So a checkpoint here excludes all others
(a lock file) and first writes a frame itself: the log is then not copied whole until we have done
it, and nobody can restart it meanwhile.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

from sureline.journal.errors import BUSY_TIMEOUT_S, JournalError, explained

Action = Callable[[], None]
CallSoon = Callable[[Action], object]
"""Runs an action in the loop's thread, callable from any: `loop.call_soon_threadsafe`."""
Fsync = Callable[[int], None]

CHECKPOINT_AFTER_BYTES = 16 * 1024 * 1024
WAIT_AFTER_BYTES = 4 * CHECKPOINT_AFTER_BYTES
_LOG_FRAMES_MAX = 8 * 1024
"""A log of more pages than this (32 MB) is restarted even if writers must wait for it."""


def fsync(descriptor: int) -> None:
    """Wait until the file is on the medium, not only in the drive's cache."""
    full = getattr(fcntl, "F_FULLFSYNC", None)
    if full is None:
        os.fsync(descriptor)
    else:
        fcntl.fcntl(descriptor, full)


def fsync_path(path: Path, fsync: Fsync) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fsync(descriptor)
    finally:
        os.close(descriptor)


class Syncer:
    """The disk's side of one open journal. After a failed fsync nothing is ever durable again:
    the system may have dropped the pages, and a later fsync would not notice."""

    def __init__(self, database: Path, fsync: Fsync) -> None:
        self._database = database
        self._log = Path(f"{database}-wal")
        self._fsync = fsync
        self._one_fsync = threading.Lock()
        self._log_is_new = True
        self._lock = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._requests: list[tuple[Action, Callable[[JournalError], None], CallSoon]] = []
        self._copied = threading.Condition(self._lock)
        self._uncopied_bytes = 0
        self._checkpoint_due = False
        self._checkpointing = False
        self._closing = False
        self._thread: threading.Thread | None = None
        self.failure: JournalError | None = None

    def request(
        self, on_durable: Action, on_failed: Callable[[JournalError], None], call_soon: CallSoon
    ) -> None:
        """After the next fsync that begins from now on, hand one of the two to `call_soon`."""
        with self._wake:
            self._requests.append((on_durable, on_failed, call_soon))
            self._wake_thread()

    def note_written(self, size_bytes: int) -> None:
        """Count what a commit added to the log, and have the log copied back when it is long.

        Waits only for a thread that is far behind: else a writer without pause would outrun it.
        """
        self._uncopied_bytes += size_bytes
        if self._uncopied_bytes < CHECKPOINT_AFTER_BYTES:
            return
        with self._wake:
            if not self._checkpointing:
                self._uncopied_bytes = 0
                self._checkpointing = self._checkpoint_due = True
                self._wake_thread()
            elif self._uncopied_bytes >= WAIT_AFTER_BYTES:
                self._copied.wait_for(lambda: not self._checkpointing, BUSY_TIMEOUT_S)

    def now(self) -> None:
        """Return when all that is committed is durable. Raises JournalError."""
        self._sync()
        if self.failure is not None:
            raise self.failure

    def close(self) -> None:
        """Serve what was requested, then end the thread."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        if self._thread is not None:
            self._thread.join()

    def _wake_thread(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="journal-sync", daemon=True)
            self._thread.start()
        self._wake.notify()

    def _work(self) -> None:
        while True:
            with self._wake:
                while not (self._requests or self._checkpoint_due or self._closing):
                    self._wake.wait()
                requests, self._requests = self._requests, []
                checkpoint, self._checkpoint_due = self._checkpoint_due, False
                if not requests and not checkpoint:
                    return
            if requests:
                self._serve(requests)
            if checkpoint:
                self._checkpoint()
                with self._copied:
                    self._checkpointing = False
                    self._copied.notify()

    def _serve(
        self, requests: list[tuple[Action, Callable[[JournalError], None], CallSoon]]
    ) -> None:
        self._sync()
        failure = self.failure
        for on_durable, on_failed, call_soon in requests:
            action = on_durable if failure is None else _telling(on_failed, failure)
            try:
                call_soon(action)
            except RuntimeError:
                pass  # the loop is closed: nobody waits for the answer any more

    def _sync(self) -> None:
        with self._one_fsync:
            try:
                fsync_path(self._log, self._fsync)
                if self._log_is_new:
                    fsync_path(self._log.parent, self._fsync)
                    self._log_is_new = False
            except OSError as error:
                self.failure = explained(self._database, error)

    def _checkpoint(self) -> None:
        """Copy the log back. Failing is harmless: the log stays whole, and grows until the next."""
        lock = os.open(
            self._database.with_suffix(".checkpoint"),
            os.O_RDWR | os.O_CREAT | os.O_CLOEXEC,
            0o666,
        )
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._copy_back()
        except (OSError, sqlite3.Error):
            pass  # another process is at it, or the disk is full
        finally:
            os.close(lock)

    def _copy_back(self) -> None:
        connection = sqlite3.connect(self._database, timeout=BUSY_TIMEOUT_S, isolation_level=None)
        try:
            connection.execute("PRAGMA wal_autocheckpoint=0")
            connection.execute("PRAGMA synchronous=NORMAL")
            # If writers were too busy for the log to restart by itself, make them wait, once it is
            # long; little is left to copy by then.
            for mode in ("PASSIVE", "RESTART"):
                connection.execute("UPDATE checkpoints SET number = number + 1")
                _, frames, _ = connection.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()
                if frames < _LOG_FRAMES_MAX:
                    break
        finally:
            connection.close()


def _telling(on_failed: Callable[[JournalError], None], failure: JournalError) -> Action:
    return lambda: on_failed(failure)
