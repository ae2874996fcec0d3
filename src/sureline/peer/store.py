"""The content-addressed store of one working directory: `blobs/ab/cdef...` by blake3.

A blob appears under its name only when complete (by link or rename), is read-only, and is never
changed; so it can be linked into many sandboxes at once, and a `kill -9` at any instant leaves
nothing half-written under a blob's name. The mode belongs to the linked inode, hence programs
are stored apart from plain files, under the suffix `.x`.

Nothing is synced file by file. After a crash of the whole machine a blob may hold anything; then
the caller verifies by content (`intact(record, by_content=True)`).
"""

from __future__ import annotations

import itertools
import mmap
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from blake3 import blake3

from sureline.peer import tree
from sureline.peer.content import (
    NO_LINK,
    copy_file,
    copy_open_file,
    hash_bytes,
    hash_file,
    hash_open_file,
    link,
    write_all,
)
from sureline.peer.publish import publish
from sureline.peer.tree import Entry, StoreError
from sureline.workflow.files import FileRecord

__all__ = ["BlobStore", "StoreError"]

_INGEST_TRIES = 3
_PIECE_BYTES = 16 << 20
"""Hashed and written in turn, while it is in the processor's caches or on its way."""
Buffer = bytes | bytearray | memoryview | mmap.mmap
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


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
        self._serial = itertools.count()

    def blob_path(self, digest: str, executable: bool = False) -> str:
        return f"{self._blobs}/{digest[:2]}/{digest[2:]}" + (".x" if executable else "")

    # -- in ---------------------------------------------------------------------------------

    def take(self, path: str, logical_path: str, *, within: str) -> FileRecord:
        """Store what a task made at `path`, in its sandbox `within`, as `logical_path`.

        The file at `path` becomes read-only and may share its inode with the blob from now on.
        Raises StoreError for what cannot be an output (a link that leaves the sandbox, a special
        file), FileNotFoundError if there is nothing.
        """
        status = os.lstat(path)
        if "/" in logical_path or stat.S_ISLNK(status.st_mode):
            path = _resolved(path, logical_path, within)
            status = os.lstat(path)
        if stat.S_ISREG(status.st_mode):
            return self._take_file(path, logical_path)
        if stat.S_ISDIR(status.st_mode):
            return self._take_directory(path, logical_path)
        raise StoreError(f"{logical_path} is a {tree.special_name(status.st_mode)}, not a file")

    def _take_file(self, path: str, logical_path: str) -> FileRecord:
        try:
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except PermissionError:
            os.chmod(path, 0o600)
            fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            status = os.fstat(fd)
            executable = bool(status.st_mode & 0o111)
            digest, size = hash_open_file(fd, status.st_size)
            os.fchmod(fd, 0o555 if executable else 0o444)
        finally:
            os.close(fd)
        mtime_ns = self._place(path, digest, executable, status.st_mtime_ns)
        return FileRecord(logical_path, digest, size, mtime_ns, executable)

    def _take_directory(self, top: str, logical_path: str) -> FileRecord:
        def store_file(full: str, relative: str) -> Entry:
            return _entry(relative, self._take_file(full, relative))

        def refuse(full: str, relative: str) -> Entry:
            raise StoreError(
                f"{logical_path}/{relative} is a symbolic link that leaves {logical_path}"
            )

        return self._store_manifest(
            tree.entries_of(top, logical_path, store_file, refuse), logical_path
        )

    def _store_manifest(self, entries: list[Entry], logical_path: str) -> FileRecord:
        stored = self.put(tree.to_manifest(entries), logical_path)
        size = sum(entry.size for entry in entries)
        return FileRecord(logical_path, stored.digest, size, stored.mtime_ns, directory=True)

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
            mtime_ns = os.fstat(fd).st_mtime_ns
        except OSError:
            os.unlink(temporary)
            raise
        finally:
            os.close(fd)
        digest = digest or str(hasher.hexdigest() if hasher is not None else "")
        mtime_ns = self._place(temporary, digest, False, mtime_ns)
        os.unlink(temporary)
        return FileRecord(logical_path, digest, size, mtime_ns)

    def admit(self, path: str, digest: str, executable: bool) -> int:
        """Make the file at `path`, whose content has been verified, a blob; its old name is gone
        then. The blob's mtime_ns. `path` must lie on the store's file system."""
        os.chmod(path, 0o555 if executable else 0o444)
        mtime_ns = self._place(path, digest, executable, os.stat(path).st_mtime_ns)
        os.unlink(path)
        return mtime_ns

    def name_file(self, fd: int, digest: str) -> bool:
        """Make an open file without a name, whose content is known, a blob; False if the system
        cannot (it lies on another file system)."""
        temporary = self.temporary()
        try:
            os.link(f"/proc/self/fd/{fd}", temporary, follow_symlinks=True)
        except OSError:
            return False
        self.admit(temporary, digest, False)
        return True

    def _place(self, path: str, digest: str, executable: bool, mtime_ns: int) -> int:
        """Give the finished file at `path` its blob's name too; the blob's mtime_ns."""
        blob = self.blob_path(digest, executable)
        try:
            os.link(path, blob)
        except FileNotFoundError:
            if os.path.isdir(os.path.dirname(blob)):
                raise
            os.makedirs(os.path.dirname(blob), exist_ok=True)
            return self._place(path, digest, executable, mtime_ns)
        except FileExistsError:
            return self._replace(path, blob)
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
            return self._place_copy(path, blob, executable)
        return mtime_ns

    def _replace(self, path: str, blob: str) -> int:
        """The blob exists. The new file takes its place, with its time: if somebody had damaged
        the old blob it is whole again, and records that know the old time still hold."""
        old = os.stat(blob)
        if os.path.samestat(old, os.lstat(path)):
            return old.st_mtime_ns
        if old.st_size > 0:
            temporary = self.temporary()
            os.utime(path, ns=(old.st_atime_ns, old.st_mtime_ns))
            os.link(path, temporary)
            os.replace(temporary, blob)
        return old.st_mtime_ns

    def _place_copy(self, path: str, blob: str, executable: bool) -> int:
        temporary = self.temporary()
        copy_file(path, temporary, 0o600)
        os.chmod(temporary, 0o555 if executable else 0o444)
        os.replace(temporary, blob)
        return os.stat(blob).st_mtime_ns

    def temporary(self) -> str:
        """A new name, on the store's file system, for a file on its way in."""
        return f"{self._scratch}/.sureline-tmp-{os.getpid()}-{next(self._serial)}"

    # -- the user's own files ---------------------------------------------------------------

    def ingest(self, user_path: str, logical_path: str) -> FileRecord:
        """Copy a file or directory of the user's into the store.

        Links to files are followed. Raises FileNotFoundError, or StoreError if it is no file, if
        it kept changing while it was read, or holds a link to a directory elsewhere.
        """
        status = os.stat(user_path)
        if stat.S_ISREG(status.st_mode):
            return self._ingest_file(user_path, logical_path)
        if not stat.S_ISDIR(status.st_mode):
            raise StoreError(f"{logical_path} is a {tree.special_name(status.st_mode)}, not a file")

        def store_file(full: str, relative: str) -> Entry:
            return _entry(relative, self._ingest_file(full, f"{logical_path}/{relative}"))

        def follow(full: str, relative: str) -> Entry:
            if os.path.isfile(full):
                return store_file(full, relative)
            raise StoreError(
                f"{logical_path}/{relative} is a symbolic link that leaves {logical_path} "
                "and does not point to a file"
            )

        return self._store_manifest(
            tree.entries_of(user_path, logical_path, store_file, follow), logical_path
        )

    def _ingest_file(self, user_path: str, logical_path: str) -> FileRecord:
        for _ in range(_INGEST_TRIES):
            temporary = self.temporary()
            try:
                executable = self._copy_in(user_path, temporary)
                if executable is not None:
                    return self._take_file(temporary, logical_path)
            finally:
                if os.path.lexists(temporary):
                    os.unlink(temporary)
        raise StoreError(f"{logical_path} kept changing while it was read; try again when it rests")

    def _copy_in(self, user_path: str, temporary: str) -> bool | None:
        """Whether it is executable; None if it changed while it was copied."""
        source = os.open(user_path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            before = os.fstat(source)
            executable = bool(before.st_mode & 0o111)
            target = os.open(temporary, _NEW, 0o700 if executable else 0o600)
            try:
                copy_open_file(source, target, before.st_size, before.st_dev)
            finally:
                os.close(target)
            after = os.fstat(source)
        finally:
            os.close(source)
        same = (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)
        return executable if same else None

    def in_place(self, logical_path: str) -> FileRecord:
        """Describe a file or directory of the user's by size and time, without reading it."""
        path = os.path.join(self._directory, logical_path)
        status = os.stat(path)
        if not stat.S_ISDIR(status.st_mode):
            digest = f"stat:{status.st_size}:{status.st_mtime_ns}"
            return FileRecord(logical_path, digest, status.st_size, status.st_mtime_ns)
        lines = []
        size = 0
        for relative, found in tree.walk(path):
            if not stat.S_ISDIR(found.st_mode):
                lines.append(f"{relative}\0{found.st_size}\0{found.st_mtime_ns}\n")
                size += found.st_size
        content = hash_bytes("".join(sorted(lines)).encode("utf-8", "surrogateescape"))
        return FileRecord(
            logical_path, f"stat:{size}:{content[:32]}", size, status.st_mtime_ns, directory=True
        )

    # -- whole? -----------------------------------------------------------------------------

    def intact(self, record: FileRecord, *, by_content: bool = False) -> bool:
        """Whether what was recorded is still there, unchanged.

        Size and time decide; if the time differs (or `by_content`), the content does. A damaged
        blob is removed. Of a directory, all parts are looked at.
        """
        if record.in_place:
            try:
                return self.in_place(record.path).digest == record.digest
            except (OSError, StoreError):
                return False
        if not record.directory:
            blob = self.blob_path(record.digest, record.executable)
            return self._blob_intact(blob, record.digest, record.size, record.mtime_ns, by_content)
        entries = self.manifest(record)
        return entries is not None and all(
            self._blob_intact(
                self.blob_path(entry.what, entry.kind == "program"),
                entry.what,
                entry.size,
                None if by_content else record.mtime_ns,
                by_content,
                part=True,
            )
            for entry in entries
            if entry.kind in ("file", "program")
        )

    def _blob_intact(
        self,
        blob: str,
        digest: str,
        size: int,
        mtime_ns: int | None,
        by_content: bool,
        *,
        part: bool = False,
    ) -> bool:
        """A part of a directory has no recorded time; it was stored before the manifest, so it
        is taken as unchanged if it is not younger than `mtime_ns`, the manifest's."""
        try:
            status = os.stat(blob)
        except FileNotFoundError:
            return False
        if status.st_size == size:
            if not by_content and mtime_ns is not None:
                found = status.st_mtime_ns
                if (found <= mtime_ns) if part else (found == mtime_ns):
                    return True
            if hash_file(blob)[0] == digest:
                if mtime_ns is not None and not part and status.st_mtime_ns != mtime_ns:
                    os.utime(blob, ns=(status.st_atime_ns, mtime_ns))
                return True
        os.unlink(blob)
        return False

    def manifest(self, record: FileRecord) -> list[Entry] | None:
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

    def entries(self, record: FileRecord) -> list[Entry]:
        """What a stored directory holds. Raises StoreError if the store has lost it."""
        entries = self.manifest(record)
        if entries is None:
            raise StoreError(f"the stored copy of {record.path} is gone")
        return entries

    def unchanged(self, record: FileRecord) -> bool:
        """Whether nobody has written to a blob that was linked out (its time tells); also makes
        it read-only again."""
        if record.in_place:
            return True
        if not record.directory:
            blob = self.blob_path(record.digest, record.executable)
            return self._written_at(blob, record.size) == record.mtime_ns
        return all(
            self._written_at(self.blob_path(entry.what, entry.kind == "program"), entry.size)
            <= record.mtime_ns
            for entry in self.entries(record)
            if entry.kind in ("file", "program")
        )

    def _written_at(self, blob: str, size: int) -> float:
        """The time of a blob; infinitely late if it is gone or has another size."""
        try:
            status = os.stat(blob)
        except FileNotFoundError:
            return float("inf")
        if status.st_mode & 0o222:
            os.chmod(blob, status.st_mode & ~0o222 & 0o7777)
        return status.st_mtime_ns if status.st_size == size else float("inf")

    # -- out --------------------------------------------------------------------------------

    def materialise(self, record: FileRecord, dest: str) -> None:
        """Put a stored file at `dest`, which must not exist, read-only and without copying.

        A directory is made anew, its files are links; a file used in place is a symbolic link.
        """
        if record.in_place:
            os.symlink(os.path.join(self._directory, record.path), dest)
        elif not record.directory:
            self._link(record.digest, record.executable, dest, record.path)
        else:
            os.mkdir(dest)
            for entry in self.entries(record):
                path = f"{dest}/{entry.path}"
                if entry.kind == "directory":
                    os.mkdir(path)
                elif entry.kind == "link":
                    os.symlink(entry.what, path)
                else:
                    self._link(entry.what, entry.kind == "program", path, record.path)

    def _link(self, digest: str, executable: bool, dest: str, shown: str) -> None:
        blob = self.blob_path(digest, executable)
        try:
            link(blob, dest)
        except OSError as error:
            if error.errno in NO_LINK:
                copy_file(blob, dest, 0o555 if executable else 0o444)
            elif isinstance(error, FileNotFoundError) and not os.path.lexists(blob):
                raise StoreError(f"the stored copy of {shown} is gone") from error
            else:
                raise

    def publish(self, record: FileRecord, user_path: str) -> None:
        """Put a stored file or directory at the user's path, atomically; see `peer.publish`."""
        publish(self, record, user_path, self._directory, self._replaced)

    def read(self, record: FileRecord) -> bytes:
        """The content of a stored file."""
        return Path(self.blob_path(record.digest, record.executable)).read_bytes()


def _entry(relative: str, record: FileRecord) -> Entry:
    kind = "program" if record.executable else "file"
    return Entry(relative, kind, record.digest, record.size)  # type: ignore[arg-type]  # one of two


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
