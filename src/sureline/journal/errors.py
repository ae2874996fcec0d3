"""What can go wrong with a journal, each explained in one sentence that says what to do."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

from sureline.workflow.mistakes import SurelineError, UserError

BUSY_TIMEOUT_S = 30.0
"""How long a statement waits for another process's transaction before it gives up."""

_NO_SPACE_BYTES = 64 * 1024
"""Below this much free space, an I/O error is taken for a full disk."""


class JournalError(UserError):
    """The journal cannot be used where it lies."""


class NoJournalError(JournalError):
    """There is no journal in the directory."""


class DiskFullError(JournalError):
    """Nothing of the failed transaction was written; it may be tried again when there is room."""


class FencedError(SurelineError):
    """Another process has taken the run over; this one must stop without writing anything."""

    def __init__(self, run: str, epoch: int, newer: int) -> None:
        self.run = run
        super().__init__(
            f"run {run} was taken over by another process (epoch {newer}, ours was {epoch}); "
            f"follow it with: sureline show {run}"
        )


class AlreadyCommittedError(SurelineError):
    """A second result for a task that has one: the first complete result wins."""

    def __init__(self, run: str, task: str) -> None:
        self.run = run
        self.task = task
        super().__init__(f"task {task} of run {run} already has a result; the first one is kept")


_PRIMARY = 0xFF  # the low byte of an extended result code


def explained(path: Path, error: sqlite3.Error | OSError) -> JournalError:
    """The error in the user's words. `path` is the database file."""
    if isinstance(error, OSError):
        return _explained_os(path, error)
    code = (getattr(error, "sqlite_errorcode", None) or 0) & _PRIMARY
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
        return _disk_full(path)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_CANTOPEN):
        return _not_writable(path)
    if code == sqlite3.SQLITE_NOTADB:
        return JournalError(
            f"{path} is not a database; move it away, and a new journal will be made"
        )
    if code == sqlite3.SQLITE_CORRUPT:
        return JournalError(
            f"{path} is damaged ({error}); move it away to start a new journal, or restore a copy"
        )
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        return JournalError(
            f"{path} has been locked by another process for {BUSY_TIMEOUT_S:.0f} s; "
            f"stop that process and try again"
        )
    return JournalError(f"{path} could not be read or written ({error}); check the disk and quota")


def _explained_os(path: Path, error: OSError) -> JournalError:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return _disk_full(path)
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return _not_writable(path)
    if error.errno in (errno.ENOTDIR, errno.EEXIST):
        return JournalError(f"{path.parent} is not a directory; move the file of that name away")
    why = error.strerror or str(error)
    return JournalError(f"{path} could not be read or written ({why}); check the disk and quota")


def _disk_full(path: Path) -> DiskFullError:
    return DiskFullError(
        f"the disk that holds {path} is full; free some space, then resume the run"
    )


def _not_writable(path: Path) -> JournalError:
    return JournalError(
        f"{path} cannot be written; make {path.parent} writable, or work in another directory"
    )


def _is_full(path: Path) -> bool:
    try:
        place = os.statvfs(path.parent)
    except OSError:
        return False
    return place.f_bavail * place.f_frsize < _NO_SPACE_BYTES
