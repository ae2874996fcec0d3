"""The tables of a journal, and opening the database that holds them.

Events are identified and ordered by `position` = epoch * POSITIONS_PER_EPOCH + sequence. The
writer of one epoch numbers its events; a later epoch's events come after. What identifies an
event also orders it, so merging journals in any order gives the same sequence.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from sureline.journal.durable import Fsync, fsync_path
from sureline.journal.errors import BUSY_TIMEOUT_S, JournalError, NoJournalError, explained
from sureline.journal.places import file_system_type, is_network

DATABASE = "journal.db"
APPLICATION_ID = 0x53757265  # "Sure"
POSITIONS_PER_EPOCH = 1 << 32
_IDLE_LOG_BYTES_MAX = 64 * 1024 * 1024
"""A log that had to grow longer gives the room back when it restarts."""

_TABLES = """
CREATE TABLE runs (
    id INTEGER PRIMARY KEY,
    run TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL,
    source TEXT,
    state TEXT NOT NULL,
    epoch INTEGER NOT NULL,
    sequence INTEGER NOT NULL,
    created REAL NOT NULL,
    ended REAL,
    total INTEGER NOT NULL,
    succeeded INTEGER NOT NULL DEFAULT 0,
    reused INTEGER NOT NULL DEFAULT 0,
    failed INTEGER NOT NULL DEFAULT 0,
    cancelled INTEGER NOT NULL DEFAULT 0
);
CREATE TABLE graphs (run INTEGER PRIMARY KEY REFERENCES runs, body BLOB NOT NULL);
CREATE TABLE events (
    run INTEGER NOT NULL REFERENCES runs,
    position INTEGER NOT NULL,
    task TEXT,
    body BLOB NOT NULL,
    PRIMARY KEY (run, position)
) WITHOUT ROWID;
CREATE TABLE commits (
    run INTEGER NOT NULL REFERENCES runs,
    task TEXT NOT NULL,
    position INTEGER NOT NULL,
    PRIMARY KEY (run, task)
) WITHOUT ROWID;
CREATE TABLE results (
    key TEXT PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    position INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE files (
    path TEXT PRIMARY KEY,
    size INTEGER NOT NULL,
    mtime_ns INTEGER NOT NULL,
    inode INTEGER NOT NULL,
    body BLOB NOT NULL
) WITHOUT ROWID;
CREATE TABLE requests (
    id INTEGER PRIMARY KEY,
    run INTEGER NOT NULL REFERENCES runs,
    what TEXT NOT NULL,
    at REAL NOT NULL
);
CREATE TABLE kept (
    run INTEGER NOT NULL REFERENCES runs,
    key TEXT NOT NULL,
    value BLOB NOT NULL,
    PRIMARY KEY (run, key)
) WITHOUT ROWID;
CREATE TABLE checkpoints (number INTEGER NOT NULL);
INSERT INTO checkpoints VALUES (0);
"""
# No index by task: a scan of 400,000 events for one task takes 40 ms, and the index would cost
# every writer a quarter of its speed.

# Clustered by kind and time: the newest of a kind lie side by side, and an insert touches one
# tree. A journal of the first layout starts with an empty table: its events do not tell pretended
# tasks, whose durations mean nothing, from real ones.
_DURATIONS = """
CREATE TABLE durations (
    kind TEXT NOT NULL,
    at REAL NOT NULL,
    run INTEGER NOT NULL REFERENCES runs,
    position INTEGER NOT NULL,
    elapsed_s REAL NOT NULL,
    input_bytes INTEGER NOT NULL,
    PRIMARY KEY (kind, at, run, position)
) WITHOUT ROWID
"""
# Who took so long; '' of what was written down before.
_PEERS = "ALTER TABLE durations ADD COLUMN peer TEXT NOT NULL DEFAULT ''"
_LAYOUTS = (_TABLES, _DURATIONS, _PEERS)
"""What each version of the layout adds to the one before it."""
VERSION = len(_LAYOUTS)


class OpenedDatabase(NamedTuple):
    connection: sqlite3.Connection
    log: bool
    """Whether the database uses a write-ahead log, and so needs a `Syncer`."""
    notice: str | None


def open_database(
    directory: Path, *, create: bool, mountinfo: Path, fsync: Fsync
) -> OpenedDatabase:
    """Open the journal of a directory for writing, made first if `create`. Raises JournalError."""
    path = directory / DATABASE
    try:
        if create:
            _make_directory(directory, fsync)
        elif not path.exists():
            raise no_journal(directory)
        connection = _connect(path, "rwc" if create else "rw")
    except (sqlite3.Error, OSError) as error:
        raise explained(path, error) from error
    try:
        _bring_up_to_date(connection, path, fsync)
        log, notice = choose_journal_mode(connection, directory, mountinfo)
    except (sqlite3.Error, OSError) as error:
        connection.close()
        raise explained(path, error) from error
    except BaseException:
        connection.close()
        raise
    return OpenedDatabase(connection, log, notice)


def open_read_only(directory: Path) -> OpenedDatabase:
    """Open a journal without any right to write, also on read-only media."""
    path = directory / DATABASE
    try:
        if not path.exists():
            raise no_journal(directory)
        try:
            return OpenedDatabase(_connect_checked(path, "ro"), False, None)
        except sqlite3.OperationalError:
            # Without its log's index, and no right to make one, SQLite reads only the database.
            connection = _connect_checked(path, "ro&immutable=1")
    except (sqlite3.Error, OSError) as error:
        raise explained(path, error) from error
    log = Path(f"{path}-wal")
    if not log.exists() or log.stat().st_size == 0:
        return OpenedDatabase(connection, False, None)
    return OpenedDatabase(
        connection, False, f"{directory} is read-only: the newest events are not shown"
    )


def no_journal(directory: Path) -> NoJournalError:
    return NoJournalError(f"there is no journal in {directory}; start a run there first")


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All or nothing, with the write lock from the start. SQLite's errors come out explained."""
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        connection.execute("COMMIT")
    except BaseException as error:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        if isinstance(error, sqlite3.Error):
            raise explained(path, error) from error
        raise


def choose_journal_mode(
    connection: sqlite3.Connection, directory: Path, mountinfo: Path
) -> tuple[bool, str | None]:
    """Use a write-ahead log if the place allows it; else say in one sentence why not."""
    file_system = file_system_type(directory, mountinfo)
    if is_network(file_system):
        notice = f"{directory} is on a network file system ({file_system}): the journal is slower"
    elif _use_log(connection):
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint=0")  # the Syncer does it, off the loop
        connection.execute(f"PRAGMA journal_size_limit={_IDLE_LOG_BYTES_MAX}")
        return True, None
    else:
        notice = f"{directory} does not support a write-ahead log: the journal is slower"
    _set_journal_mode(connection, "delete")
    connection.execute("PRAGMA synchronous=EXTRA")  # FULL would not sync the commit's own unlink
    return False, notice


def _use_log(connection: sqlite3.Connection) -> bool:
    try:
        return _set_journal_mode(connection, "wal") == "wal"
    except sqlite3.OperationalError as error:
        if _is_busy(error):
            raise
        return False


def _set_journal_mode(connection: sqlite3.Connection, mode: str) -> str:
    """Changing the mode does not wait for other processes as other statements do: we do."""
    give_up = time.monotonic() + BUSY_TIMEOUT_S
    while True:
        try:
            return str(connection.execute(f"PRAGMA journal_mode={mode}").fetchone()[0])
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > give_up:
                raise
            time.sleep(0.01)


def _is_busy(error: sqlite3.OperationalError) -> bool:
    return (error.sqlite_errorcode & 0xFF) in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)


def _make_directory(directory: Path, fsync: Fsync) -> None:
    if not directory.is_dir():
        directory.mkdir(parents=True, exist_ok=True)
        fsync_path(directory.parent, fsync)


def _connect(path: Path, mode: str) -> sqlite3.Connection:
    connection = sqlite3.connect(
        f"file:{quote(str(path))}?mode={mode}",
        timeout=BUSY_TIMEOUT_S,
        isolation_level=None,
        uri=True,
    )
    connection.execute("PRAGMA cache_size=-16384")
    return connection


def _connect_checked(path: Path, mode: str) -> sqlite3.Connection:
    connection = _connect(path, mode)
    try:
        if not _layout_version(connection, path):
            raise no_journal(path.parent)
    except BaseException:
        connection.close()
        raise
    return connection


def _bring_up_to_date(connection: sqlite3.Connection, path: Path, fsync: Fsync) -> None:
    """Make the tables, or add what an older layout lacks: all of it or nothing."""
    if _layout_version(connection, path) == VERSION:
        return
    with transaction(connection, path):
        # Asked again: another process may have done it meanwhile.
        for statements in _LAYOUTS[_layout_version(connection, path) :]:
            for statement in statements.split(";"):
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id={APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version={VERSION}")
    fsync_path(path.parent, fsync)


def _layout_version(connection: sqlite3.Connection, path: Path) -> int:
    """The version of the tables; 0 for an empty database. Raises for what is not a journal."""
    # One statement, so one snapshot: another process may be making the tables just now.
    application, version, tables = connection.execute(
        "SELECT application_id, user_version, (SELECT count(*) FROM sqlite_master)"
        " FROM pragma_application_id, pragma_user_version"
    ).fetchone()
    if application == 0 and version == 0 and tables == 0:
        return 0
    if application != APPLICATION_ID:
        raise JournalError(
            f"{path} is a database of another program; move it away, and a journal will be made"
        )
    if version > VERSION:
        raise JournalError(
            f"{path} was written by a newer Sureline (journal version {version}, this one reads "
            f"{VERSION}); upgrade Sureline, or work in another directory"
        )
    return int(version)
