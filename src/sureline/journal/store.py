"""The journal of a directory: its runs, their graphs and events, and results to be reused.

Many processes may have one journal open. Readers never wait and never make a writer wait: they
read in short steps. A `Journal` and its writers belong to one thread; the disk is waited for in
another (see `durable`).
"""

from __future__ import annotations

import base64
import os
import re
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from sureline.journal import durable, schema
from sureline.journal.durable import Action, CallSoon, Fsync, Syncer
from sureline.journal.errors import JournalError, explained
from sureline.journal.events import (
    AnyEvent,
    Opened,
    Submitted,
    TaskEnded,
    decode,
    encode,
    with_growth,
)
from sureline.journal.history import (
    DURATIONS_SINCE,
    OBSERVED_MAX,
    SELECT_KINDS,
    KindSummary,
    Observed,
    select_durations,
    summarise,
)
from sureline.journal.merge import adopt_run, merge_run
from sureline.journal.places import MOUNTINFO
from sureline.journal.schema import POSITIONS_PER_EPOCH, transaction
from sureline.journal.writer import RunWriter, Tally
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph

_PAGE_ROWS = 1000
_NAME_TRIES = 10
_SLUG_LENGTH_MAX = 40
_SUMMARY = (
    "SELECT run, name, source, state, epoch, created, ended, total,"
    " succeeded, reused, failed, cancelled FROM runs"
)

_decode_file = msgspec.msgpack.Decoder(FileRecord).decode
_decode_ended = msgspec.msgpack.Decoder(TaskEnded).decode


class RunSummary(msgspec.Struct, frozen=True):
    """One line about a run. `state` is as recorded: 'submitted', 'running' or a RunState.

    A run that is recorded as running may have been killed: see `seen`.
    """

    run: str
    name: str
    source: str | None
    state: str
    epoch: int
    created: float
    ended: float | None
    total: int
    succeeded: int
    reused: int
    failed: int
    cancelled: int

    def seen(self, alive: bool) -> str:
        """The state, given whether a process holds the run's lock."""
        if self.state in ("submitted", "running"):
            return "running" if alive else "interrupted"
        return self.state


class Entry(NamedTuple):
    """An event in its place. `position` orders a run's events; (origin, sequence) name one."""

    position: int
    event: AnyEvent

    @property
    def origin(self) -> str:
        return f"writer.{self.position // POSITIONS_PER_EPOCH}"

    @property
    def sequence(self) -> int:
        return self.position % POSITIONS_PER_EPOCH


class RunRequest(NamedTuple):
    """What another process asks of the one that runs a run."""

    what: str
    at: float


def random_suffix() -> str:
    return base64.b32encode(os.urandom(4)).decode().lower()[:6]


def slug(name: str) -> str:
    """The name as part of a run's name and of a path.

    >>> slug("Word count (v2)"), slug("???")
    ('word-count-v2', 'run')
    """
    words = re.sub(r"[^a-z0-9]+", "-", name.lower())[:_SLUG_LENGTH_MAX]
    return words.strip("-") or "run"


class Journal:
    """Made by `open`. `notice` is one sentence for the user, or None."""

    def __init__(
        self, directory: Path, opened: schema.OpenedDatabase, syncer: Syncer | None
    ) -> None:
        self.directory = directory
        self.path = directory / schema.DATABASE
        self.notice = opened.notice
        self.connection = opened.connection
        self._syncer = syncer

    @classmethod
    def open(
        cls,
        directory: Path,
        *,
        create: bool = True,
        read_only: bool = False,
        mountinfo: Path = MOUNTINFO,
        fsync: Fsync = durable.fsync,
    ) -> Journal:
        """Open the journal in `directory` (a `.sureline`), made first if missing and `create`.

        Raises NoJournalError if there is none, JournalError if the place cannot hold one.
        """
        if read_only:
            return cls(directory, schema.open_read_only(directory), None)
        opened = schema.open_database(directory, create=create, mountinfo=mountinfo, fsync=fsync)
        syncer = Syncer(directory / schema.DATABASE, fsync) if opened.log else None
        return cls(directory, opened, syncer)

    def __enter__(self) -> Journal:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Finish the syncs under way and let go of the database. Idempotent."""
        if self._syncer is not None:
            self._syncer.close()
        self.connection.close()

    # Runs

    def create_run(
        self,
        name: str,
        graph: bytes,
        submitted: Callable[[str], Submitted],
        suffix: Callable[[], str] = random_suffix,
    ) -> str:
        """Record a new run, durably, and return its name. `submitted` is given that name."""
        body = zlib.compress(graph, 1)
        with transaction(self.connection, self.path):
            run = self._free_name(name, suffix)
            event = submitted(run)
            cursor = self.connection.execute(
                "INSERT INTO runs (run, name, source, state, epoch, sequence, created, total)"
                " VALUES (?, ?, ?, 'submitted', 0, 1, ?, ?)",
                (run, event.name, event.source, event.at, event.total),
            )
            run_id = cursor.lastrowid
            self.connection.execute("INSERT INTO graphs VALUES (?, ?)", (run_id, body))
            self.connection.execute(
                "INSERT INTO events VALUES (?, 1, NULL, ?)", (run_id, encode(event))
            )
        self.sync_now()
        return run

    def forget(self, run: str) -> None:
        """Remove a run, durably, as if it had never been."""
        with transaction(self.connection, self.path):
            run_id = self._id(run)
            for table in (
                "graphs",
                "events",
                "commits",
                "results",
                "requests",
                "kept",
                "durations",
            ):
                self.connection.execute(f"DELETE FROM {table} WHERE run = ?", (run_id,))
            self.connection.execute("DELETE FROM runs WHERE id = ?", (run_id,))
        self.sync_now()

    def take(
        self,
        run: str,
        opened: Callable[[int], Opened],
        next_epoch: Callable[[int], int] = lambda last: last + 1,
    ) -> RunWriter:
        """Become the run's only writer, durably; `opened` is given the new epoch.

        Requests to the previous writer are dropped, and its next flush raises FencedError.
        """
        with transaction(self.connection, self.path):
            run_id = self._id(run)
            last = "SELECT epoch FROM runs WHERE id = ?"
            epoch = next_epoch(self.connection.execute(last, (run_id,)).fetchone()[0])
            self.connection.execute(
                "UPDATE runs SET epoch = ?, sequence = 0, state = 'running', ended = NULL,"
                " failed = 0, cancelled = 0 WHERE id = ?",
                (epoch, run_id),
            )
            self.connection.execute("DELETE FROM requests WHERE run = ?", (run_id,))
            counts = self.connection.execute(
                "SELECT total, succeeded, reused FROM runs WHERE id = ?", (run_id,)
            ).fetchone()
            tasks = self.connection.execute("SELECT task FROM commits WHERE run = ?", (run_id,))
            committed = {task for (task,) in tasks}
        writer = RunWriter(self, run, run_id, epoch, committed, Tally(*counts))
        writer.record(opened(epoch))
        writer.close()
        return writer

    def runs(self) -> list[RunSummary]:
        """All runs, the newest last."""
        return [RunSummary(*row) for row in self._rows(f"{_SUMMARY} ORDER BY id")]

    def summary(self, run: str) -> RunSummary:
        for row in self._rows(f"{_SUMMARY} WHERE run = ?", run):
            return RunSummary(*row)
        raise self._unknown(run)

    def graph(self, run: str) -> bytes:
        """The snapshot of the graph that the run was created with."""
        ((body,),) = self._rows("SELECT body FROM graphs WHERE run = ?", self._id(run))
        return zlib.decompress(body)

    def workflow(self, run: str) -> Graph:
        """The run's graph as it is now, with what it has grown by."""
        graph = Graph.from_bytes(self.graph(run))
        if self.summary(run).total > len(graph):
            graph = with_growth(graph, (entry.event for entry in self.events(run)))
        return graph

    def work_directory(self, run: str) -> Path:
        """Where the run's lock and passing files lie; not made here."""
        return self.directory / "work" / run

    # Events

    def events(self, run: str, after: int = 0, task: str | None = None) -> Iterator[Entry]:
        """The run's events in order, from the first past position `after`; of one task, if given.

        Includes what is written while reading. No lock is held between two events.
        """
        run_id = self._id(run)
        of_task = "" if task is None else " AND task = ?"
        query = (
            f"SELECT position, body FROM events WHERE run = ? AND position > ?{of_task}"
            f" ORDER BY position LIMIT {_PAGE_ROWS}"
        )
        rest = () if task is None else (task,)
        while rows := self._rows(query, run_id, after, *rest):
            for position, body in rows:
                yield Entry(position, decode(body))
            after = rows[-1][0]
            if len(rows) < _PAGE_ROWS:
                return

    def last_position(self, run: str) -> int:
        """Of the run's last event that was flushed."""
        query = "SELECT max(position) FROM events WHERE run = ?"
        ((last,),) = self._rows(query, self._id(run))
        return int(last)

    def bodies(self, run: str, after: int, limit: int) -> list[tuple[int, bytes]]:
        """The next events past position `after` as they were written, with their positions."""
        return self._rows(
            "SELECT position, body FROM events WHERE run = ? AND position > ?"
            " ORDER BY position LIMIT ?",
            self._id(run),
            after,
            limit,
        )

    def committed(self, run: str) -> list[str]:
        """The names of the tasks that have a result."""
        rows = self._rows("SELECT task FROM commits WHERE run = ?", self._id(run))
        return [task for (task,) in rows]

    def commits(self, run: str) -> Iterator[TaskEnded]:
        """The results of the run, one per task that has one, by the name of the task."""
        run_id, after = self._id(run), ""
        query = (
            "SELECT c.task, e.body FROM commits c JOIN events e USING (run, position)"
            f" WHERE c.run = ? AND c.task > ? ORDER BY c.task LIMIT {_PAGE_ROWS}"
        )
        while rows := self._rows(query, run_id, after):
            for _, body in rows:
                yield _decode_ended(body)
            after = rows[-1][0]

    def committed_outcome(self, run_id: int, task: str) -> str:
        """How the task's committed result came about: 'succeeded' or 'reused'."""
        ((body,),) = self._rows(
            "SELECT e.body FROM commits c JOIN events e USING (run, position)"
            " WHERE c.run = ? AND c.task = ?",
            run_id,
            task,
        )
        return _decode_ended(body).outcome

    def result(self, key: str) -> tuple[str, TaskEnded] | None:
        """The newest result that any run committed under this key, and the run's name."""
        for run, body in self._rows(
            "SELECT r.run, e.body FROM results k JOIN events e USING (run, position)"
            " JOIN runs r ON r.id = k.run WHERE k.key = ?",
            key,
        ):
            return run, _decode_ended(body)
        return None

    def known_file(self, path: str, size: int, mtime_ns: int, inode: int) -> FileRecord | None:
        """The record of a user's file that was hashed before and looks unchanged."""
        for (body,) in self._rows(
            "SELECT body FROM files WHERE path = ? AND size = ? AND mtime_ns = ? AND inode = ?",
            path,
            size,
            mtime_ns,
            inode,
        ):
            return _decode_file(body)
        return None

    def durations(
        self, kinds: Iterable[str], newest: int = OBSERVED_MAX
    ) -> dict[str, list[Observed]]:
        """What succeeded tasks of these kinds took, per kind: the newest first, and of each run
        not so many that others are crowded out.

        Kinds of which nothing is known are left out."""
        ((version,),) = self._rows("PRAGMA user_version")
        if version < DURATIONS_SINCE:
            return {}  # opened read-only, so the table could not be added
        found: dict[str, list[Observed]] = {}
        for kind in kinds:
            rows = self._rows(select_durations(version), kind, newest)
            if rows:
                found[kind] = [Observed(*row) for row in rows]
        return found

    def kinds(self) -> list[KindSummary]:
        """What is remembered of every kind, by name."""
        ((version,),) = self._rows("PRAGMA user_version")
        if version < DURATIONS_SINCE:
            return []
        return [
            summarise(kind, n, runs, newest, self.durations([kind])[kind])
            for kind, n, runs, newest in self._rows(SELECT_KINDS)
        ]

    def merge(self, run: str, graph: bytes, entries: Iterable[Entry]) -> None:
        """Add events that were recorded elsewhere, all or nothing. See `merge.merge_run`."""
        with transaction(self.connection, self.path):
            merge_run(self.connection, run, graph, entries)
        self.sync_now()

    def adopt(self, run: str, graph: bytes, entries: Sequence[Entry]) -> None:
        """Have the run as it went on elsewhere, all or nothing. See `merge.adopt_run`."""
        with transaction(self.connection, self.path):
            adopt_run(self.connection, run, graph, entries)
        self.sync_now()

    # Requests between processes

    def ask(self, run: str, what: str, at: float) -> None:
        """Ask something (such as 'cancel') of the process that runs the run."""
        with transaction(self.connection, self.path):
            self.connection.execute(
                "INSERT INTO requests (run, what, at) VALUES (?, ?, ?)", (self._id(run), what, at)
            )

    def requests(self, run: str) -> list[RunRequest]:
        """What has been asked since the run was last taken, in order."""
        query = "SELECT what, at FROM requests WHERE run = ? ORDER BY id"
        return [RunRequest(*row) for row in self._rows(query, self._id(run))]

    # For writers

    def keep(self, run: str, key: str, value: bytes) -> None:
        """Keep a value for this run, durably."""
        with transaction(self.connection, self.path):
            self.connection.execute(
                "INSERT OR REPLACE INTO kept VALUES (?, ?, ?)", (self._id(run), key, value)
            )
        self.sync_now()

    def kept(self, run: str, key: str) -> bytes | None:
        for (value,) in self._rows(
            "SELECT value FROM kept WHERE run = ? AND key = ?", self._id(run), key
        ):
            return bytes(value)
        return None

    def sync(
        self, on_durable: Action, on_failed: Callable[[JournalError], None], call_soon: CallSoon
    ) -> None:
        """Without a log, a commit is durable when it returns."""
        if self._syncer is None:
            call_soon(on_durable)
        else:
            self._syncer.request(on_durable, on_failed, call_soon)

    def sync_now(self) -> None:
        if self._syncer is not None:
            self._syncer.now()

    def check_durable(self) -> None:
        """Raise the error of an fsync that failed."""
        if self._syncer is not None and self._syncer.failure is not None:
            raise self._syncer.failure

    def note_written(self, size_bytes: int) -> None:
        """Tell how much a flush added to the log, about."""
        if self._syncer is not None:
            self._syncer.note_written(size_bytes)

    def _free_name(self, name: str, suffix: Callable[[], str]) -> str:
        base = slug(name)
        for _ in range(_NAME_TRIES):
            run = f"{base}-{suffix()}"
            if not self._rows("SELECT 1 FROM runs WHERE run = ?", run):
                return run
        raise JournalError(f"{self.path} has too many runs of {name}; work in another directory")

    def _id(self, run: str) -> int:
        for (run_id,) in self._rows("SELECT id FROM runs WHERE run = ?", run):
            return int(run_id)
        raise self._unknown(run)

    def _unknown(self, run: str) -> UserError:
        return UserError(f"there is no run {run} in {self.directory}; list them: sureline runs")

    def _rows(self, query: str, *values: object) -> list[Any]:
        try:
            return self.connection.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise explained(self.path, error) from error
