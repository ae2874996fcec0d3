"""Files of the user's that are not in her directory, by her replica catalog.

Which content a name stands for is known from the catalog alone; the content itself is taken from
wherever it is whole: a path that this machine reads, or else a site, by way of this machine. It is
believed only if its hash is the registered one.
"""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

from sureline.catalog.entries import HERE
from sureline.catalog.replicas import Replica, Replicas
from sureline.compose.catalogued import catalogued, open_site
from sureline.peer.content import hash_file
from sureline.peer.store import BlobStore
from sureline.peer.tree import StoreError
from sureline.run.past import PastFound, PastUnknown
from sureline.sites.port import Site, SiteError
from sureline.workflow.files import FileRecord
from sureline.workflow.globs import RealDisk
from sureline.workflow.mistakes import UserError
from sureline.world.protocol import Fetched


class CataloguedDisk(RealDisk):
    """The user's directory, and what her replica catalog has in place of what is not there; only
    by whole names, not by wildcards."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._replicas = Replicas()
        self.used: dict[str, Replica] = {}

    def exists(self, path: str) -> bool:
        if super().exists(path):
            return True
        found = meant_by(path, self._replicas.of(path))
        if found is not None:
            self.used[path] = found
        return found is not None


def meant_by(logical: str, rows: Sequence[Replica]) -> Replica | None:
    """A copy of what a name stands for. Raises UserError if that is not one content."""
    if len({row.digest for row in rows}) > 1:
        raise UserError(
            f"{logical} is not in this directory, and several contents of that name are registered "
            f"(at {', '.join(f'{row.site}:{row.path}' for row in rows[:4])}); put the one that you "
            "mean here, or take out the others with: sureline catalog replicas rm"
        )
    return rows[0] if rows else None


class NowhereError(Exception):
    """Of a file that the user gave no whole copy is left."""


class CatalogElsewhere:
    """What a run at sites asks of the catalog (`parts.Elsewhere`); `store` is its own."""

    def __init__(self, store: BlobStore, tell: Callable[[str], None]) -> None:
        self._replicas = Replicas()
        self._given: set[str] = set()
        """Contents that nothing but the catalog has."""
        self._store = store
        self._tell = tell

    def result(self, key: str) -> Fetched:
        return result_of(self._replicas.with_key(key), self._store)

    def file(self, path: str) -> FileRecord | None:
        try:
            found = meant_by(path, self._replicas.of(path))
        except UserError as error:
            self._tell(str(error))
            return None
        if found is None:
            return None
        self._given.add(found.digest)
        return FileRecord(path, found.digest, found.size, executable=found.executable)

    def whole(self, record: FileRecord, directory: Path) -> Path | None:
        """A copy of this content: where it lies, if this machine reads it there, or else in
        `directory`; None if there is none. Raises NowhereError if it cannot be made, either."""
        rows = self._replicas.with_digest(record.digest)
        for row in sorted(rows, key=lambda row: row.site != HERE):
            try:
                found = _copy_of(row, directory)
            except (OSError, SiteError, UserError) as error:
                self._tell(f"the copy of {row.logical} at {row.site} cannot be had: {error}")
                continue
            if hash_file(str(found))[0] == record.digest:
                return found
            self._tell(
                f"the copy of {row.logical} at {row.site}:{row.path} is not what it was; see: "
                f"sureline catalog replicas check {row.logical}"
            )
        if record.digest in self._given:
            raise NowhereError(f"no copy of {record.path} is what was registered")
        return None


def _copy_of(row: Replica, directory: Path) -> Path:
    if row.site == HERE:
        os.stat(row.path)
        return Path(row.path)
    site: Site = open_site(catalogued((row.site,))[0])
    if site.shares_files and os.path.isabs(row.path):
        os.stat(row.path)
        return Path(row.path)
    copy = directory / "fetched"
    site.get(row.path, copy)
    copy.chmod(0o755 if row.executable else 0o644)
    return copy


def result_of(rows: Sequence[Replica], store: BlobStore) -> Fetched:
    """A registered result, its files copied into the store; only if all of them are on this machine
    and are what they were. Called in a thread."""
    here = {row.logical: row for row in rows if row.site == HERE}
    if not here or any(row.parts != len(here) for row in here.values()):
        return PastUnknown()
    outputs = []
    for row in here.values():
        copy = store.temporary()
        try:
            shutil.copyfile(row.path, copy)
            os.chmod(copy, 0o755 if row.executable else 0o644)
            record = store.take(copy, row.logical, within=os.path.dirname(copy), move=True)
        except (OSError, StoreError):
            return PastUnknown()
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(copy)
        if record.digest != row.digest:
            return PastUnknown()
        outputs.append(record)
    return PastFound(next(iter(here.values())).run, tuple(outputs))
