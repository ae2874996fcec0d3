"""The file cache of one home: a store of blobs by content, bounded in size, shared by processes.

What lies in the directory is the index: sizes are those of the files, claims are files (`claims`),
and a log says what was used when (`uses`). So there is nothing to repair after a `kill -9`, and a
command and the serving peer of the same home may use one directory at once. Only eviction and
setting claims exclude each other, by a lock that is never held for long.

The bound counts stored files and files on their way in, at the size they will have. What a task
makes here is never refused, so results may exceed the bound until something can be evicted.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import msgspec

from sureline.peer import tree
from sureline.peer.content import copy_file, write_all
from sureline.peer.files.claims import Claims, FileClaim, Pin
from sureline.peer.files.partial import Leftover, leftovers
from sureline.peer.files.sharing import Sharing
from sureline.peer.files.uses import UseLog
from sureline.peer.files.wire import Buffer
from sureline.peer.store import BlobStore, StoreError
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import SurelineError

LOW_WATER = 0.95
"""An eviction goes on until the cache is this full, so that not every new file needs one."""
RESCAN_S = 30.0
"""What other processes added is noticed after so long, or when room is short."""
FULL_S = 5.0
"""When results exceed the bound and nothing can go, the next look is so much later."""
PUT = "put"
"""Stands for a run in the marks on what the user put here."""
_EVICTED_PER_LOCK = 64


class CacheFullError(SurelineError):
    """There is no room, and nothing that may be evicted; the message says why."""


class CachedFile(NamedTuple):
    """One stored file. `claims` says why it may not be evicted."""

    digest: str
    executable: bool
    size: int
    used_at: float
    claims: tuple[FileClaim, ...] = ()


class FileCache:
    """`size_bytes_max` may be exceeded by nobody but tasks. If a peer serves this cache, or did,
    its bound holds for other processes too."""

    def __init__(self, root: Path, size_bytes_max: int) -> None:
        self.root = os.path.abspath(root)
        self.size_bytes_max = self._bound_given = size_bytes_max
        for name in ("blobs", "incoming", "lists", "work"):
            os.makedirs(f"{self.root}/{name}", mode=0o700, exist_ok=True)
        self.shared = Sharing(self.root)
        self.store = BlobStore(root)
        self.incoming = f"{self.root}/incoming"
        self.on_evicted: Callable[[str], None] = lambda digest: None
        """Hears of each digest that is gone from here; may be called in any thread."""
        self._mutex = threading.RLock()
        self._room = threading.RLock()
        """Held while room is made, which takes long; never asked for under the lock."""
        self._lock = os.open(f"{self.root}/lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._uses = UseLog(f"{self.root}/uses")
        with self._locked():
            self._claims = Claims(self.root, self._parts_of)
        self._used_bytes = 0
        self._promised_bytes = 0
        self._full_until = 0.0
        self._scanned_at = -RESCAN_S
        self.store.sweep()

    def close(self) -> None:
        with self._locked():
            self._claims.close()
        self.shared.close()
        os.close(self._lock)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[None]:
        """Exclude other threads and other processes."""
        with self._mutex:
            fcntl.flock(self._lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.flock(self._lock, fcntl.LOCK_UN)

    # -- what is here -----------------------------------------------------------------------

    def path(self, digest: str) -> str | None:
        """Where this content lies, as a program or not."""
        for executable in (False, True):
            blob = self.store.blob_path(digest, executable)
            if os.path.exists(blob):
                return blob
        return None

    def ready(self, record: FileRecord) -> FileRecord | None:
        """The record of the local copy (with its own time), if all of it is here. Counts as a
        use. Content that is here with another mode is given the wanted one by a copy."""
        if record.directory:
            return self._ready_directory(record)
        status = self._ready_file(record.digest, record.executable)
        if status is None:
            return None
        if 0 <= record.size != status.st_size:
            return None  # this is whole, so the record lies
        self._uses.note([record.digest])
        return msgspec.structs.replace(record, size=status.st_size, ctime_ns=status.st_ctime_ns)

    def _ready_file(self, digest: str, executable: bool) -> os.stat_result | None:
        """What the system says of a copy that is whole; one that is damaged is removed."""
        blob = self.store.blob_path(digest, executable)
        status = self.store.whole(digest, executable, remove=False)
        if status is not None:
            return status
        if os.path.lexists(blob):
            self.discard(digest)
        other = self.store.blob_path(digest, not executable)
        if self.store.whole(digest, not executable, remove=False) is None:
            return None
        temporary = self.temporary()
        try:
            copy_file(other, temporary, 0o600)
            self._used_bytes += os.stat(temporary).st_size
            self.store.admit(temporary, digest, executable)
            return os.stat(blob)
        except FileNotFoundError:
            return None  # evicted meanwhile
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)

    def _ready_directory(self, record: FileRecord) -> FileRecord | None:
        manifest = self._ready_file(record.digest, False)
        entries = None if manifest is None else self.store.manifest(record)
        if manifest is None or entries is None:
            return None
        newest = 0
        digests = [record.digest]
        for entry in entries:
            if entry.kind in ("file", "program"):
                status = self._ready_file(entry.what, entry.kind == "program")
                if status is None:
                    return None
                newest = max(newest, status.st_ctime_ns)
                digests.append(entry.what)
        self._uses.note(digests)
        size = sum(entry.size for entry in entries)
        return msgspec.structs.replace(record, size=size, ctime_ns=newest)

    def missing_parts(self, entries: list[tree.TreeEntry]) -> list[tree.TreeEntry]:
        """Of a directory's files, those that are not here; each content once."""
        wanted = {entry.what: entry for entry in entries if entry.kind in ("file", "program")}
        return [entry for entry in wanted.values() if self.path(entry.what) is None]

    def _parts_of(self, digest: str) -> list[str]:
        try:
            entries = self.store.manifest(FileRecord("", digest, 0, directory=True))
        except StoreError:
            return []  # somebody claims as a directory what is none
        return [e.what for e in entries or () if e.kind in ("file", "program")]

    def held(self) -> list[CachedFile]:
        """All that is here, most recently used first."""
        found = self._scan()
        with self._locked():
            claims: dict[str, list[FileClaim]] = {}
            for claim in self._claims.all():
                for digest in (
                    (claim.digest, *self._parts_of(claim.digest))
                    if claim.directory
                    else (claim.digest,)
                ):
                    claims.setdefault(digest, []).append(claim)
        found.sort(key=lambda one: (-one.used_at, one.digest))
        return [one._replace(claims=tuple(claims.get(one.digest, ()))) for one in found]

    def _scan(self) -> list[CachedFile]:
        """Look at every stored file; also counts what is used."""
        found: list[tuple[str, bool, os.stat_result]] = []
        blobs = f"{self.root}/blobs"
        for prefix in sorted(os.listdir(blobs)):
            with os.scandir(f"{blobs}/{prefix}") as entries:
                for entry in entries:
                    with contextlib.suppress(FileNotFoundError):
                        name, dot_x, _ = entry.name.partition(".x")
                        found.append((prefix + name, bool(dot_x), entry.stat()))
        with self._locked():
            used = self._uses.read({digest for digest, _, _ in found})
        self._used_bytes = sum(status.st_size for _, _, status in found)
        self._used_bytes += sum(left.size for left in leftovers(self.incoming))
        self._scanned_at = time.monotonic()
        return [
            CachedFile(digest, executable, status.st_size, used.get(digest, status.st_ctime))
            for digest, executable, status in found
        ]

    # -- coming in --------------------------------------------------------------------------

    def temporary(self) -> str:
        """A new name on the store's file system."""
        return self.store.temporary()

    def put(self, user_path: str, logical_path: str) -> FileRecord:
        """Copy a file or directory of the user's into the cache. It stays until it is dropped.

        Raises CacheFullError, and as BlobStore.ingest does.
        """
        with self.reserved(_size_of(user_path)):
            record = self.store.ingest(user_path, logical_path)
            self._uses.note([record.digest])
            with self._locked():
                self._claims.mark_only_copy(record, PUT, "put here by the user")
        if record.directory:
            self._scanned_at = -RESCAN_S  # its manifest takes room too
        return record

    def put_bytes(self, data: Buffer, digest: str, executable: bool) -> None:
        """Store verified content. Raises CacheFullError."""
        with self.reserved(len(data)):
            temporary = self.temporary()
            fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                write_all(fd, data)
            except OSError:
                os.unlink(temporary)
                raise
            finally:
                os.close(fd)
            self.admit(temporary, digest, executable)

    def admit(self, path: str, digest: str, executable: bool) -> None:
        """Make the whole, verified file at `path`, for which there is room, a stored one; its old
        name is gone then."""
        self.store.note(digest, executable, self.store.admit(path, digest, executable))
        self._uses.note([digest])

    def adopt(self, record: FileRecord, run: str = "") -> None:
        """A task has put this into the store. With `run`, mark it as the only copy that the run
        needs. Evicts others if the cache is over its bound now."""
        if run:
            self.mark_only_copy(record, run)
        if not record.directory:
            self.store.note(record.digest, record.executable, record.ctime_ns)
        self._used_bytes += record.size
        self._uses.note([record.digest])
        if self._used_bytes > self.size_bytes_max and time.monotonic() > self._full_until:
            try:
                self.make_room(0)
            except CacheFullError:
                self._full_until = time.monotonic() + FULL_S

    # -- claims -----------------------------------------------------------------------------

    def pin(self, record: FileRecord, why: str) -> Pin:
        """Keep this while the process lives, or until the pin is released. What is not here yet
        may be pinned too: whoever needs it first pins, then fetches, then uses it."""
        with self._locked():
            return self._claims.pin(record, why)

    def mark_only_copy(self, record: FileRecord, run: str) -> None:
        """Keep this until `release_only_copy` or `release_run`, whatever happens to this process;
        after the next `sync`, also to the machine."""
        with self._locked():
            self._claims.mark_only_copy(record, run, f"only copy for run {run}")

    @property
    def unsynced(self) -> bool:
        """Whether there is something to `sync`."""
        return self._claims.unsynced

    def sync(self) -> None:
        """Make the marks of only copies survive a power cut. Takes a moment."""
        self._claims.sync()

    def release_only_copy(self, record: FileRecord, run: str) -> None:
        """The run has it elsewhere."""
        self._claims.release_only_copy(record, run)

    def release_run(self, run: str) -> None:
        """The run is over."""
        with self._locked():
            self._claims.release_run(run)

    def marked_runs(self) -> set[str]:
        """The runs for which something is marked, as far as their names are known."""
        with self._locked():
            return self._claims.runs() - {PUT}

    # -- room -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def reserved(self, size: int) -> Iterator[None]:
        """Make room, and keep it while the block creates the file. Raises CacheFullError."""
        with self._room:
            self.make_room(size)
            self._promised_bytes += size
        try:
            yield
        finally:
            with self._room:
                self._promised_bytes -= size
                self._used_bytes += size

    def make_room(self, size: int) -> None:
        """Evict until `size` more bytes fit. Raises CacheFullError if that cannot be."""
        with self._room:
            self.size_bytes_max = min(self._bound_given, self.shared.bound() or self._bound_given)
            if size > self.size_bytes_max:
                raise CacheFullError(
                    f"{_shown(size)} do not fit into the cache of {_shown(self.size_bytes_max)}; "
                    "make the cache larger"
                )
            limit = self.size_bytes_max - size - self._promised_bytes
            recent = time.monotonic() - self._scanned_at < RESCAN_S
            if recent and self._used_bytes <= limit:
                return
            found = self._scan()
            if self._used_bytes <= limit:
                return
            wanted_bytes = min(limit, int(self.size_bytes_max * LOW_WATER))
            self._evict(found, leftovers(self.incoming), wanted_bytes)
            if self._used_bytes > limit:
                raise CacheFullError(self._why_full(size))

    def _evict(self, found: list[CachedFile], left: list[Leftover], wanted_bytes: int) -> None:
        order: list[CachedFile | Leftover] = [*found, *left]
        order.sort(key=lambda one: (one.used_at, one.digest))
        for start in range(0, len(order), _EVICTED_PER_LOCK):
            if self._used_bytes <= wanted_bytes:
                return
            with self._locked():
                protected = self._claims.protected()
                for one in order[start : start + _EVICTED_PER_LOCK]:
                    if self._used_bytes <= wanted_bytes:
                        return
                    if isinstance(one, Leftover):
                        self._used_bytes -= one.remove()
                    elif one.digest not in protected:
                        self._remove(one)

    def _remove(self, one: CachedFile) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.store.blob_path(one.digest, one.executable))
            self.store.forget_note(one.digest, one.executable)
            self._used_bytes -= one.size
        if self.path(one.digest) is None:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self.list_path(one.digest))
            self.shared.forget(one.digest)
            self.on_evicted(one.digest)

    def _why_full(self, size: int) -> str:
        with self._locked():
            protected = self._claims.protected()
        sizes = [(protected.get(one.digest), one.size) for one in self._scan()]
        only = sum(size for claim, size in sizes if claim is not None and claim.run)
        pinned = sum(size for claim, size in sizes if claim is not None and not claim.run)
        coming = sum(left.size for left in leftovers(self.incoming)) + self._promised_bytes
        return (
            f"{_shown(size)} more do not fit: the cache of {_shown(self.size_bytes_max)} holds "
            f"{_shown(pinned)} in use, {_shown(only)} that a run needs and only this peer has, "
            f"and {_shown(coming)} on the way in; make the cache larger, or try again later"
        )

    def drop(self, record: FileRecord) -> str:
        """Remove what the user put here; why that cannot be, or ''. Of a directory, the manifest is
        removed; the files that it names go when room is needed."""
        self._claims.release_only_copy(record, PUT)
        with self._locked():
            protected = record.digest in self._claims.protected()
            if not protected:
                self.discard(record.digest)
                return ""
            reasons = [c.why for c in self._claims.all() if c.digest == record.digest]
        return reasons[0] if reasons else "a directory that is kept holds it"

    def discard(self, digest: str) -> None:
        """Remove a damaged copy."""
        for executable in (False, True):
            blob = self.store.blob_path(digest, executable)
            with contextlib.suppress(FileNotFoundError):
                self._remove(CachedFile(digest, executable, os.stat(blob).st_size, 0.0))

    def list_path(self, digest: str) -> str:
        """Where the list of a stored file's chunks is kept."""
        return f"{self.root}/lists/{digest}"


def _size_of(user_path: str) -> int:
    if not os.path.isdir(user_path):
        return os.stat(user_path).st_size
    return sum(status.st_size for _, status in tree.walk(user_path))


def _shown(size: int) -> str:
    """
    >>> _shown(1234), _shown(2 * 10**9)
    ('1.2 kB', '2.0 GB')
    """
    value = float(size)
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.0f} B" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1000
    return f"{value:.1f} TB"
