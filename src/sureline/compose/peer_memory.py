"""A node's own memory: what its agents `put`, kept in one small SQLite file.

A peer has no journal of its own; what it must not forget (reports that nobody has acknowledged,
the highest term seen of a run) goes here. Values are visible at once and written in groups:
`flush` hands them to the system, `sync` has one thread write them through to the disk. An empty
value takes no room: the key is dropped, and `get` answers b'' only until then.

All methods are called in the loop's thread; all writing is done in order in a thread of its own,
for which `flush` waits and `sync` does not.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from sureline.workflow.mistakes import SurelineError
from sureline.world.protocol import Action, Recordable

_LAYOUT = (
    "CREATE TABLE IF NOT EXISTS kept (key TEXT PRIMARY KEY, value BLOB NOT NULL) WITHOUT ROWID"
)
_BUSY_S = 10.0


class KeepError(SurelineError):
    """The memory of a node cannot be read or written."""


class Keep:
    """`path` is the file, made if it is missing. `on_failed` hears of a disk that fails."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        path: Path,
        on_failed: Callable[[BaseException], None],
    ) -> None:
        self._loop = loop
        self._path = path
        self._on_failed = on_failed
        self._unwritten: dict[str, bytes] = {}
        self._lock = threading.Lock()
        self._writer = ThreadPoolExecutor(1, thread_name_prefix="sureline-keep")
        self._waiting: list[Action] = []
        self._syncing = False
        self._closed = False
        try:
            self._connection = sqlite3.connect(
                path, timeout=_BUSY_S, isolation_level=None, check_same_thread=False
            )
            self._connection.execute("PRAGMA journal_mode = WAL")
            self._connection.execute("PRAGMA synchronous = FULL")
            self._connection.execute(_LAYOUT)
        except sqlite3.Error as error:
            raise KeepError(f"{path} cannot be used: {error}") from error

    def record(self, event: Recordable) -> None:
        """A peer writes no journal: what it has to tell goes to the run's writer."""
        raise AssertionError(f"a peer records nothing, not even {event!r}")

    def put(self, key: str, value: bytes) -> None:
        self._unwritten[key] = value

    def get(self, key: str) -> bytes | None:
        if key in self._unwritten:
            return self._unwritten[key]
        with self._lock:
            row = self._connection.execute(
                "SELECT value FROM kept WHERE key = ?", (key,)
            ).fetchone()
        return None if row is None else bytes(row[0])

    def flush(self) -> None:
        self._writer.submit(self._write, self._unwritten).result()
        self._unwritten = {}

    def _write(self, batch: dict[str, bytes]) -> None:
        if not batch:
            return
        kept = [(key, value) for key, value in batch.items() if value]
        dropped = [(key,) for key, value in batch.items() if not value]
        with self._lock:
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany("INSERT OR REPLACE INTO kept VALUES (?, ?)", kept)
                self._connection.executemany("DELETE FROM kept WHERE key = ?", dropped)
                self._connection.execute("COMMIT")
            except sqlite3.Error as error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise KeepError(f"{self._path} cannot be written: {error}") from error

    def sync(self, on_durable: Action) -> None:
        """One write at a time; all that ask meanwhile share the next one."""
        self._waiting.append(on_durable)
        if not self._syncing:
            self._sync_next()

    def _sync_next(self) -> None:
        if self._closed:
            return
        self._syncing = True
        actions, self._waiting = self._waiting, []
        # The values stay readable in `_unwritten` until they are in the database.
        batch = dict(self._unwritten)
        future = self._loop.run_in_executor(self._writer, self._write, batch)

        def written(done: asyncio.Future[None]) -> None:
            self._syncing = False
            error = done.exception()
            if error is not None:
                self._on_failed(error)
                return
            for key, value in batch.items():
                if self._unwritten.get(key) is value:
                    del self._unwritten[key]
            for action in actions:
                action()
            if self._waiting:
                self._sync_next()

        future.add_done_callback(written)

    def close(self) -> None:
        """Write what is left and let go of the file. Idempotent."""
        if self._closed:
            return
        self._closed = True
        try:
            self.flush()
        finally:
            self._writer.shutdown(wait=True)
            self._connection.close()
