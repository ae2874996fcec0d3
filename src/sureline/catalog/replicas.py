"""The replica catalog: where the files are that a name stands for, and what made them.

A row is one copy of one content: its logical name, the site, the path there, size and digest, and,
for what a run made, the key of the result it belongs to (`run.keys`). So a result can be found by
its key, in whichever directory it was made, and an input by its content at a site.

One SQLite file in the user's home, in rollback mode, since homes often lie on network file systems.
Rows are durable when a method returns.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path

import msgspec

from sureline.catalog.entries import catalog_directory
from sureline.workflow.mistakes import UserError
from sureline.world.identity import disk

VERSION = 2
LOCK_WAIT_S = 30.0
_TABLE = """
CREATE TABLE IF NOT EXISTS replicas (
    logical TEXT NOT NULL, site TEXT NOT NULL, path TEXT NOT NULL,
    digest TEXT NOT NULL, size INTEGER NOT NULL, executable INTEGER NOT NULL,
    key TEXT NOT NULL, parts INTEGER NOT NULL, run TEXT NOT NULL, task TEXT NOT NULL,
    at REAL NOT NULL, sha256 TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (logical, site, path)
);
CREATE INDEX IF NOT EXISTS by_key ON replicas (key) WHERE key != '';
CREATE INDEX IF NOT EXISTS by_digest ON replicas (digest);
"""
_FROM_1 = "ALTER TABLE replicas ADD COLUMN sha256 TEXT NOT NULL DEFAULT ''"


class Replica(msgspec.Struct, frozen=True):
    """`path` is absolute at its site; `site` is `here` for this machine."""

    logical: str
    site: str
    path: str
    digest: str
    size: int
    executable: bool = False
    key: str = ""
    parts: int = 0
    """How many files belong to that result."""
    run: str = ""
    task: str = ""
    at: float = 0.0
    sha256: str = ""
    """Of a copy at a site: what the site can compute, so that it is checked where it is used."""


class Replicas:
    """Raises UserError if the file cannot be used."""

    def __init__(self, directory: Path | None = None) -> None:
        self.path = (directory or catalog_directory()) / "replicas.db"

    def add(self, rows: Iterable[Replica]) -> None:
        """A row of the same name, site and path is replaced."""
        disk.ensure_directory(self.path.parent)
        now = time.time()
        values = [
            (
                *(row.logical, row.site, row.path, row.digest, row.size, row.executable),
                *(row.key, row.parts, row.run, row.task, row.at or now, row.sha256),
            )
            for row in rows
        ]
        with self._open() as database, database:
            database.executemany(
                "INSERT OR REPLACE INTO replicas VALUES (?,?,?,?,?,?,?,?,?,?,?,?)", values
            )

    def remove(self, logical: str, site: str | None = None, path: str | None = None) -> int:
        """How many rows are gone."""
        with self._open() as database, database:
            return database.execute(
                "DELETE FROM replicas WHERE logical = ? AND (? IS NULL OR site = ?) "
                "AND (? IS NULL OR path = ?)",
                (logical, site, site, path, path),
            ).rowcount

    def of(self, logical: str) -> list[Replica]:
        return self._select("logical = ? ORDER BY site, path", logical)

    def with_key(self, key: str) -> list[Replica]:
        return self._select("key = ? ORDER BY logical, site, path", key)

    def with_digest(self, digest: str) -> list[Replica]:
        return self._select("digest = ? ORDER BY site, path", digest)

    def at_site(self, site: str) -> list[Replica]:
        return self._select("site = ? ORDER BY logical, path", site)

    def all(self) -> list[Replica]:
        return self._select("1 ORDER BY logical, site, path")

    def _select(self, where: str, *values: object) -> list[Replica]:
        if not self.path.exists():
            return []
        with self._open() as database:
            rows = database.execute(f"SELECT * FROM replicas WHERE {where}", values).fetchall()
        names = Replica.__struct_fields__
        return [
            msgspec.convert(dict(zip(names, row, strict=True)), Replica, strict=False)
            for row in rows
        ]

    def _open(self) -> closing[sqlite3.Connection]:
        try:
            database = sqlite3.connect(self.path, timeout=LOCK_WAIT_S)
            database.execute("PRAGMA synchronous = EXTRA")
            (version,) = database.execute("PRAGMA user_version").fetchone()
            if version not in (0, 1, VERSION):
                database.close()
                raise UserError(
                    f"{self.path} is of another version of sureline; use that one, or move it away"
                )
            if version != VERSION:
                self._bring_up_to_date(database)
        except sqlite3.Error as error:
            raise UserError(f"{self.path} cannot be used ({error}); move it away") from None
        return closing(database)

    @staticmethod
    def _bring_up_to_date(database: sqlite3.Connection) -> None:
        """Others may do the same at this moment."""
        database.execute("BEGIN IMMEDIATE")
        (version,) = database.execute("PRAGMA user_version").fetchone()
        if version == 1:
            database.execute(_FROM_1)
        elif not version:
            for statement in _TABLE.split(";"):
                database.execute(statement)
        database.execute(f"PRAGMA user_version = {VERSION}")
        database.commit()
