"""The content-addressed store of one working directory: `blobs/ab/cdef...` by blake3.

A blob appears under its name only when complete (by rename), is read-only, and is never changed;
a `kill -9` at any instant leaves nothing half-written under a blob's name. The mode belongs to the
inode, hence programs are stored apart from plain files, under the suffix `.x`.

Nobody else shares a blob's inode, unless under a lease (see `lending`). So its ctime, which no
program can set, vouches for it: what is used is checked by content if that has changed. A damaged
blob is removed; it can be restored from a copy that has the right content (`restore`).

Nothing is synced file by file. After a crash of the whole machine a blob may hold anything; then
the caller verifies by content (`intact(record, by_content=True)`).
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import stat
from collections.abc import Iterable
from functools import partial
from pathlib import Path

from blake3 import blake3

from sureline.peer import tree
from sureline.peer.content import (
    NO_LINK,
    MadeFile,
    copy_file,
    copy_to,
    hash_bytes,
    hash_file,
    hash_open_file,
    write_all,
)
from sureline.peer.ingest import described, ingest
from sureline.peer.lending import (
    LEASES_MAX,
    LINK_FROM_BYTES,
    LINKS_SHORT_FILES,
    ChangedError,
    Lent,
    Loan,
    Notes,
)
from sureline.peer.publish import PREFIX, lives, publish
from sureline.peer.tree import StoreError, TreeEntry, entry_of
from sureline.workflow.files import FileRecord

__all__ = ["BlobStore", "DamagedError", "StoreError"]

_PLACE_TRIES = 10
_PIECE_BYTES = 16 << 20
"""Hashed and written in turn, while it is in the processor's caches or on its way."""
Buffer = bytes | bytearray | memoryview | mmap.mmap
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_KNOWN_MAX = 100_000


class DamagedError(StoreError):
    """The stored copy of a file is gone, or was found damaged and removed."""

    def __init__(self, shown: str, digest: str, what: str = "is gone") -> None:
        super().__init__(f"the stored copy of {shown} {what}")
        self.digest = digest


class BlobStore:
    """`root` is the `.sureline` directory, `directory` the user's (by default its parent), and
    `scratch` a directory on the same file system for files on their way in (by default
    `root/work`)."""

    def __init__(
        self, root: Path, directory: Path | None = None, scratch: Path | None = None
    ) -> None:
        self._blobs = os.path.abspath(root / "blobs")
        self._directory = os.path.abspath(directory if directory is not None else root.parent)
        self._scratch = os.path.abspath(scratch if scratch is not None else root / "work")
        self._replaced = os.path.abspath(root / "replaced")
        self._notes = Notes(os.path.abspath(root / "vouched"))
        self._known: dict[str, int] = {}
        """The ctimes at which this process found blobs whole."""
        self._serial = itertools.count()

    def blob_path(self, digest: str, executable: bool = False) -> str:
        return f"{self._blobs}/{digest[:2]}/{digest[2:]}" + (".x" if executable else "")

    # -- in ---------------------------------------------------------------------------------

    def take(self, path: str, logical_path: str, *, within: str, move: bool = False) -> FileRecord:
        """Store what a task made at `path`, in its sandbox `within`, as `logical_path`.

        With `move` it is gone from there, unless it has other names: then, and without, it is
        copied. Raises StoreError for what cannot be an output (a link that leaves the sandbox, a
        special file), FileNotFoundError if there is nothing.
        """
        status = os.lstat(path)
        if "/" in logical_path or stat.S_ISLNK(status.st_mode):
            path = _resolved(path, logical_path, within)
            status = os.lstat(path)
        if stat.S_ISREG(status.st_mode):
            return self.take_file(path, logical_path, move)
        if stat.S_ISDIR(status.st_mode):
            return self._take_directory(path, logical_path, move)
        raise StoreError(f"{logical_path} is a {tree.special_name(status.st_mode)}, not a file")

    def take_file(self, path: str, logical_path: str, move: bool) -> FileRecord:
        """Store one file, moved or copied."""
        fd = _open_made(path, logical_path)
        try:
            status = os.fstat(fd)
            executable = bool(status.st_mode & 0o111)
            if not move or status.st_nlink > 1:
                return self._take_copy(fd, status, logical_path, executable)
            digest, size = hash_open_file(fd, status.st_size)
            os.fchmod(fd, 0o555 if executable else 0o444)
        finally:
            os.close(fd)
        return self._placed(path, digest, size, executable, logical_path)

    def _take_copy(
        self, source: int, status: os.stat_result, logical_path: str, executable: bool
    ) -> FileRecord:
        """Others may have the file open, or under another name."""
        temporary = self.temporary()
        try:
            copy_to(source, status, temporary, 0o700 if executable else 0o600)
            return self.take_file(temporary, logical_path, move=True)
        except OSError:
            if os.path.lexists(temporary):
                os.unlink(temporary)
            raise

    def _placed(
        self, path: str, digest: str, size: int, executable: bool, logical_path: str
    ) -> FileRecord:
        ctime_ns = self._place(path, digest, size, executable)
        return FileRecord(logical_path, digest, size, ctime_ns, executable)

    def _take_directory(self, top: str, logical_path: str, move: bool) -> FileRecord:
        newest = 0

        def store_file(full: str, relative: str) -> TreeEntry:
            nonlocal newest
            record = self.take_file(full, relative, move)
            newest = max(newest, record.ctime_ns)
            return entry_of(relative, record)

        def refuse(full: str, relative: str) -> TreeEntry:
            raise StoreError(
                f"{logical_path}/{relative} is a symbolic link that leaves {logical_path}"
            )

        entries = tree.entries_of(top, logical_path, store_file, refuse)
        return self.store_manifest(entries, logical_path, newest)

    def store_manifest(
        self, entries: list[TreeEntry], logical_path: str, newest: int
    ) -> FileRecord:
        """Store what a directory is made of; `newest` is the ctime of the youngest part: no part
        that is younger is vouched for."""
        stored = self.put(tree.to_manifest(entries), logical_path)
        size = sum(entry.size for entry in entries)
        return FileRecord(logical_path, stored.digest, size, newest, directory=True)

    def put(self, data: bytes, logical_path: str) -> FileRecord:
        """Store bytes."""
        return self.put_pieces([data], logical_path, hash_bytes(data))

    def put_pieces(
        self, pieces: Iterable[Buffer], logical_path: str, digest: str = ""
    ) -> FileRecord:
        """Store one file of several pieces of memory, none of which is copied; `digest`, if it is
        known already."""
        temporary = self.temporary()
        fd = os.open(temporary, _NEW, 0o600)
        hasher = None if digest else blake3(max_threads=blake3.AUTO)
        size = 0
        try:
            for piece in pieces:
                view = memoryview(piece).cast("B")
                for start in range(0, view.nbytes, _PIECE_BYTES):
                    part = view[start : start + _PIECE_BYTES]
                    if hasher is not None:
                        hasher.update(part)
                    write_all(fd, part)
                size += view.nbytes
            os.fchmod(fd, 0o444)
        except OSError:
            os.unlink(temporary)
            raise
        finally:
            os.close(fd)
        digest = digest or str(hasher.hexdigest() if hasher is not None else "")
        return self._placed(temporary, digest, size, False, logical_path)

    def admit(self, path: str, digest: str, executable: bool) -> int:
        """Make the file at `path`, whose content has been verified, a blob; its old name is gone
        then. The blob's ctime_ns. `path` must lie on the store's file system."""
        os.chmod(path, 0o555 if executable else 0o444)
        return self._place(path, digest, os.stat(path).st_size, executable)

    def name_file(self, fd: int, digest: str) -> bool:
        """Make an open file without a name, whose content is known, a blob; False if the system
        cannot (it lies on another file system)."""
        temporary = self.temporary()
        try:
            # without a directory, Python calls link(), which does not follow the link in /proc
            root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.link(f"/proc/self/fd/{fd}", temporary, src_dir_fd=root, follow_symlinks=True)
            finally:
                os.close(root)
        except OSError:
            return False
        self.admit(temporary, digest, False)
        return True

    def _place(self, path: str, digest: str, size: int, executable: bool) -> int:
        """Give the finished file at `path` its blob's name instead; the blob's ctime_ns. If there
        is such a blob, and it is whole, that stays: records know its ctime.

        Others do so in the same moment, and evict: what was missed or found just now may be there
        or gone at the next look.
        """
        name = _name(digest, executable)
        blob = self.blob_path(digest, executable)
        for _ in range(_PLACE_TRIES):
            old = self.whole(digest, executable, size, remove=False)
            if old is not None:
                os.unlink(path)
                return old.st_ctime_ns
            try:
                os.rename(path, blob)
            except FileNotFoundError:
                os.lstat(path)  # if this is what is gone, there is nothing to be done
                os.makedirs(os.path.dirname(blob), exist_ok=True)
                continue
            except OSError as error:
                if error.errno not in NO_LINK:
                    raise
                self._place_copy(path, blob, executable)
            with contextlib.suppress(FileNotFoundError):
                return self._know(name, os.stat(blob).st_ctime_ns)
        raise StoreError(f"{blob} cannot be stored: others remove it as often as it is made")

    def _place_copy(self, path: str, blob: str, executable: bool) -> None:
        temporary = self.temporary()
        copy_file(path, temporary, 0o600)
        os.chmod(temporary, 0o555 if executable else 0o444)
        os.replace(temporary, blob)
        os.unlink(path)

    def _know(self, name: str, ctime_ns: int) -> int:
        if len(self._known) >= _KNOWN_MAX:
            self._known.clear()
        self._known[name] = ctime_ns
        return ctime_ns

    def note(self, digest: str, executable: bool, ctime_ns: int) -> None:
        """This is whole as of `ctime_ns`; remember that, also for other processes."""
        self._know(_name(digest, executable), ctime_ns)
        self._notes.write(_name(digest, executable), ctime_ns)

    def forget_note(self, digest: str, executable: bool) -> None:
        """The blob is gone."""
        self._known.pop(_name(digest, executable), None)
        self._notes.forget(_name(digest, executable))

    def restore(self, record: FileRecord, path: str) -> bool:
        """Store the content of `path` again, if it is what was recorded; whether it was."""
        try:
            found = self.ingest(path, record.path)
        except (OSError, StoreError):
            return False
        return found.digest == record.digest

    def temporary(self) -> str:
        """A new name, on the store's file system, for a file on its way in."""
        return f"{self._scratch}/{PREFIX}{os.getpid()}-{next(self._serial)}"

    def sweep(self) -> None:
        """Remove half-made files of processes that are dead."""
        for name in os.listdir(self._scratch):
            pid = name.removeprefix(PREFIX).partition("-")[0]
            if name.startswith(PREFIX) and pid.isdigit() and not lives(int(pid)):
                with contextlib.suppress(OSError):
                    os.unlink(f"{self._scratch}/{name}")

    # -- the user's own files ---------------------------------------------------------------

    def ingest(self, user_path: str, logical_path: str) -> FileRecord:
        """Copy a file or directory of the user's into the store; see `peer.ingest`."""
        return ingest(self, user_path, logical_path)

    def in_place(self, logical_path: str) -> FileRecord:
        """Describe a file or directory of the user's by size and time, without reading it."""
        return described(os.path.join(self._directory, logical_path), logical_path)

    # -- whole? -----------------------------------------------------------------------------

    def whole(
        self,
        digest: str,
        executable: bool,
        size: int | None = None,
        ctime_ns: int | None = None,
        *,
        part: bool = False,
        by_content: bool = False,
        remove: bool = True,
    ) -> os.stat_result | None:
        """What the system says of a blob, if it is what was stored: the kernel vouches for it if
        its ctime is one at which it was known to be whole (`ctime_ns`; of a part of a directory, no
        later), else its content decides. None, and with `remove` no blob any more, if it is not.
        """
        blob, name = self.blob_path(digest, executable), _name(digest, executable)
        try:
            status = os.stat(blob, follow_symlinks=False)
        except FileNotFoundError:
            return None
        found = status.st_ctime_ns
        if size is None or status.st_size == size:
            if not by_content and (
                found == ctime_ns
                or found == self._known.get(name)
                or (part and ctime_ns is not None and found <= ctime_ns)
                or found == self._notes.read(name)
            ):
                self._know(name, found)
                return status
            if stat.S_ISREG(status.st_mode) and hash_file(blob)[0] == digest:
                other = ctime_ns is None or (found > ctime_ns if part else found != ctime_ns)
                if other and (status.st_size >= LINK_FROM_BYTES or not LINKS_SHORT_FILES):
                    self._notes.write(name, found)
                self._know(name, found)
                return status
        if remove:
            self._notes.forget(name)
            os.unlink(blob)
        return None

    def intact(self, record: FileRecord, *, by_content: bool = False) -> bool:
        """Whether what was recorded is still there, unchanged. A damaged blob is removed. Of a
        directory, all parts are looked at."""
        if record.in_place:
            try:
                return self.in_place(record.path).digest == record.digest
            except (OSError, StoreError):
                return False
        if not record.directory:
            found = self.whole(
                record.digest,
                record.executable,
                record.size,
                record.ctime_ns,
                by_content=by_content,
            )
            return found is not None
        entries = self.manifest(record)
        if entries is None:
            return False
        parts = [entry for entry in entries if entry.kind in ("file", "program")]
        found_whole = [self._part(e, record.ctime_ns, by_content) is not None for e in parts]
        return all(found_whole)

    def _part(
        self, entry: TreeEntry, ctime_ns: int | None, by_content: bool = False
    ) -> os.stat_result | None:
        program = entry.kind == "program"
        return self.whole(
            entry.what, program, entry.size, ctime_ns, part=True, by_content=by_content
        )

    def manifest(self, record: FileRecord) -> list[TreeEntry] | None:
        """What a stored directory holds; None (and no blob any more) if its manifest is gone or
        damaged."""
        blob = self.blob_path(record.digest)
        try:
            data = Path(blob).read_bytes()
        except FileNotFoundError:
            return None
        if hash_bytes(data) != record.digest:
            os.unlink(blob)
            return None
        return tree.from_manifest(data)

    def entries(self, record: FileRecord) -> list[TreeEntry]:
        """What a stored directory holds. Raises DamagedError if the store has lost it."""
        entries = self.manifest(record)
        if entries is None:
            raise DamagedError(record.path, record.digest)
        return entries

    # -- out --------------------------------------------------------------------------------

    def materialise(self, record: FileRecord, dest: str, lent: Lent | None = None) -> None:
        """Put a stored file at `dest`, which must not exist, read-only; what was put there is noted
        in `lent`. Raises DamagedError if it is not whole.

        A short file is a copy; a long one a link that nobody can write to until it is given back,
        or a copy. A directory is made anew. A file used in place is a symbolic link.
        """
        if record.in_place:
            os.symlink(os.path.join(self._directory, record.path), dest)
        elif not record.directory:
            one = entry_of(record.path, record)
            self._lend(one, record.ctime_ns, dest, record.path, lent, part=False)
        else:
            os.mkdir(dest)
            for entry in self.entries(record):
                path = f"{dest}/{entry.path}"
                if entry.kind == "directory":
                    os.mkdir(path)
                elif entry.kind == "link":
                    os.symlink(entry.what, path)
                else:
                    self._lend(entry, record.ctime_ns, path, record.path, lent, part=True)

    def _lend(
        self,
        entry: TreeEntry,
        ctime_ns: int,
        dest: str,
        shown: str,
        lent: Lent | None,
        *,
        part: bool,
    ) -> None:
        program = entry.kind == "program"
        blob, name = self.blob_path(entry.what, program), _name(entry.what, program)
        status = self.whole(entry.what, program, entry.size, ctime_ns, part=part)
        if status is None:
            raise DamagedError(shown, entry.what, "is gone, or was damaged and is gone now")
        try:
            long = entry.size >= LINK_FROM_BYTES
            if lent is not None and (long or LINKS_SHORT_FILES) and len(lent.loans) < LEASES_MAX:
                notes, known = self._notes if long else None, status.st_ctime_ns
                loan = Loan.make(notes, blob, name, entry.what, known, dest)
                if loan is not None:
                    lent.add(shown, loan, partial(self._know, name))
                    return
            made = self._copy_out(entry, blob, status, dest)
        except (ChangedError, FileNotFoundError) as error:
            if isinstance(error, FileNotFoundError) and os.path.lexists(blob):
                raise
            raise DamagedError(shown, entry.what) from error
        if lent is not None:
            lent.copies.append((shown, dest, entry.what, made))

    def _copy_out(
        self, entry: TreeEntry, blob: str, vouched: os.stat_result, dest: str
    ) -> MadeFile:
        """Raises ChangedError if what is read is not what was vouched for."""
        fd = os.open(blob, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            made = copy_to(fd, vouched, dest, 0o555 if entry.kind == "program" else 0o444)
            if os.fstat(fd).st_ctime_ns != vouched.st_ctime_ns and hash_file(dest)[0] != entry.what:
                os.unlink(dest)
                raise ChangedError(blob)
            return made
        finally:
            os.close(fd)

    def link_out(self, digest: str, executable: bool, dest: str) -> bool:
        """Link a blob that is whole to `dest`, for good; False if it must be copied."""
        blob, name = self.blob_path(digest, executable), _name(digest, executable)
        try:
            loan = Loan.make(self._notes, blob, name, digest, self._known.get(name), dest)
        except ChangedError:
            raise DamagedError(dest, digest) from None
        if loan is not None:
            loan.give_back(keep=True)
        return loan is not None

    def publish(self, record: FileRecord, user_path: str) -> None:
        """Put a stored file or directory at the user's path, atomically; see `peer.publish`. Raises
        DamagedError if it is not whole."""
        if not record.in_place and not self.intact(record):
            raise DamagedError(
                record.path, record.digest, "is gone, or was damaged and is gone now"
            )
        publish(self, record, user_path, self._directory, self._replaced)

    def read(self, record: FileRecord) -> bytes:
        """The content of a stored file. Raises DamagedError."""
        data = b""
        if self.intact(record):
            data = Path(self.blob_path(record.digest, record.executable)).read_bytes()
        if len(data) != record.size:
            raise DamagedError(record.path, record.digest)
        return data


def _name(digest: str, executable: bool) -> str:
    return f"{digest}.x" if executable else digest


def _open_made(path: str, shown: str) -> int:
    """What a task made may forbid reading it; what has another name is not ours to allow."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except PermissionError:
        if os.lstat(path).st_nlink > 1:
            raise StoreError(f"{shown} cannot be read, and has another name elsewhere") from None
        os.chmod(path, 0o600)
        return os.open(path, flags)


def _resolved(path: str, shown: str, within: str) -> str:
    """Where `path` really lies. Raises StoreError if that is outside the sandbox."""
    real = os.path.realpath(path)
    top = os.path.realpath(within)
    if not real.startswith(top + "/"):
        raise StoreError(
            f"{shown} is a symbolic link (or lies behind one) that leaves the task's directory"
        )
    if not os.path.lexists(real):
        raise StoreError(f"{shown} is a symbolic link to {os.readlink(path)}, which does not exist")
    return real
