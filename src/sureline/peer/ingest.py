"""Taking files of the user's into the store: they may change while they are read."""

from __future__ import annotations

import os
import stat
from typing import Protocol

from sureline.peer import tree
from sureline.peer.content import copy_open_file, hash_bytes
from sureline.peer.tree import StoreError, TreeEntry, entry_of
from sureline.workflow.files import FileRecord

_TRIES = 3
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class Taking(Protocol):
    """What takes them: the store."""

    def temporary(self) -> str:
        """A new name, on the store's file system, for a file on its way in."""

    def take_file(self, path: str, logical_path: str, move: bool) -> FileRecord:
        """Store one file, moved or copied."""

    def store_manifest(
        self, entries: list[TreeEntry], logical_path: str, newest: int
    ) -> FileRecord:
        """Store what a directory is made of; `newest` is the ctime of the youngest part."""


def ingest(store: Taking, user_path: str, logical_path: str) -> FileRecord:
    """Copy a file or directory of the user's into the store.

    Links to files are followed. Raises FileNotFoundError, or StoreError if it is no file, if
    it kept changing while it was read, or holds a link to a directory elsewhere.
    """
    status = os.stat(user_path)
    if stat.S_ISREG(status.st_mode):
        return _ingest_file(store, user_path, logical_path)
    if not stat.S_ISDIR(status.st_mode):
        raise StoreError(f"{logical_path} is a {tree.special_name(status.st_mode)}, not a file")

    newest = 0

    def store_file(full: str, relative: str) -> TreeEntry:
        nonlocal newest
        record = _ingest_file(store, full, f"{logical_path}/{relative}")
        newest = max(newest, record.ctime_ns)
        return entry_of(relative, record)

    def follow(full: str, relative: str) -> TreeEntry:
        if os.path.isfile(full):
            return store_file(full, relative)
        raise StoreError(
            f"{logical_path}/{relative} is a symbolic link that leaves {logical_path} "
            "and does not point to a file"
        )

    entries = tree.entries_of(user_path, logical_path, store_file, follow)
    return store.store_manifest(entries, logical_path, newest)


def _ingest_file(store: Taking, user_path: str, logical_path: str) -> FileRecord:
    for _ in range(_TRIES):
        temporary = store.temporary()
        try:
            if _copy_in(user_path, temporary):
                return store.take_file(temporary, logical_path, move=True)
        finally:
            if os.path.lexists(temporary):
                os.unlink(temporary)
    raise StoreError(f"{logical_path} kept changing while it was read; try again when it rests")


def _copy_in(user_path: str, temporary: str) -> bool:
    """Whether it stayed the same while it was copied."""
    source = os.open(user_path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        before = os.fstat(source)
        target = os.open(temporary, _NEW, 0o700 if before.st_mode & 0o111 else 0o600)
        try:
            copy_open_file(source, target, before.st_size, before.st_dev)
        finally:
            os.close(target)
        after = os.fstat(source)
    finally:
        os.close(source)
    return (before.st_size, before.st_mtime_ns) == (after.st_size, after.st_mtime_ns)


def described(path: str, logical_path: str) -> FileRecord:
    """A file or directory of the user's by size and time, without reading it."""
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
