"""Putting stored files into the user's directory: atomically, and nothing of the user's is lost.

A file appears by rename, a directory by two (the old one out of the way, the new one in).
What a crash leaves behind begins with PREFIX or OLD_PREFIX, and whoever publishes next into the
same directory clears it up. What stands at the path already is replaced if
it is of the same kind, or a link, or an empty directory; anything else is a StoreError. What is
replaced by something else is never removed but moved aside.
"""

from __future__ import annotations

import itertools
import os
import stat
from typing import Protocol

from sureline.peer.content import NO_LINK, copy_file, hash_file, reflink
from sureline.peer.removing import remove_tree
from sureline.peer.tree import StoreError, TreeEntry, walk
from sureline.workflow.files import FileRecord

PREFIX = ".sureline-tmp-"
"""Half made copies of stored files. Both prefixes are followed by a process id."""
OLD_PREFIX = ".sureline-old-"
"""Directories of the user's on their way out: they may hold the only copy of something."""
_SWEPT_MAX = 10_000
LINK_FROM_BYTES = 32 << 20
"""A file of this size or more is not copied but linked, if it cannot be shared block by block."""

_serial = itertools.count()
_swept: set[str] = set()


class Blobs(Protocol):
    def blob_path(self, digest: str, executable: bool = False) -> str: ...

    def entries(self, record: FileRecord) -> list[TreeEntry]: ...

    def link_out(self, digest: str, executable: bool, dest: str) -> bool: ...


def publish(
    store: Blobs, record: FileRecord, user_path: str, directory: str, replaced: str
) -> None:
    """Make `user_path` (absolute, below `directory`) hold what `record` says.

    `replaced` is where that goes which stood there and is not the same.
    Does nothing if it does already, or if the record is of a file used in place. Published files
    are the user's own (writable), except big ones, which stay linked to the store, read-only.
    """
    if record.in_place:
        return
    parent = os.path.dirname(user_path)
    if parent != directory:
        _make_parent(parent, directory)
    _sweep(parent, replaced)
    try:
        status: os.stat_result | None = os.lstat(user_path)
    except FileNotFoundError:
        status = None
    name = os.path.relpath(user_path, directory)
    if record.directory:
        _publish_directory(store, record, user_path, status, f"{replaced}/{name}")
    else:
        _publish_file(store, record, user_path, status, f"{replaced}/{name}")


def _sweep(parent: str, replaced: str) -> None:
    """Once for each directory: clear up what processes that are dead by now left in it."""
    if parent in _swept:
        return
    if len(_swept) >= _SWEPT_MAX:
        _swept.clear()
    _swept.add(parent)
    for name in os.listdir(parent):
        if not name.startswith((PREFIX, OLD_PREFIX)):
            continue
        pid, _, rest = name[len(PREFIX) :].partition("-")
        if not pid.isdigit() or lives(int(pid)):
            continue
        try:
            if name.startswith(OLD_PREFIX):
                _move_aside(f"{parent}/{name}", f"{replaced}/{rest.partition('-')[2]}")
            elif os.path.isdir(f"{parent}/{name}"):
                remove_tree(f"{parent}/{name}")
            else:
                os.unlink(f"{parent}/{name}")
        except OSError:
            pass  # another process has done it, or it has to stay where it is


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def _make_parent(parent: str, directory: str) -> None:
    try:
        os.makedirs(parent, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise StoreError(f"{parent} is in the way: it must be a directory") from None
    top = os.path.realpath(directory)
    if not (os.path.realpath(parent) + "/").startswith(top + "/"):
        raise StoreError(
            f"{parent} lies behind a symbolic link that leaves the working directory; "
            "nothing is written there"
        )


def _publish_file(
    store: Blobs, record: FileRecord, user_path: str, status: os.stat_result | None, aside: str
) -> None:
    blob = store.blob_path(record.digest, record.executable)
    if status is not None:
        if stat.S_ISREG(status.st_mode) and _same_file(status, user_path, blob, record):
            return
        if stat.S_ISDIR(status.st_mode):
            _remove_empty(user_path, "a file")
    temporary = _beside(user_path)
    try:
        _put_file(store, record.digest, temporary, record.size, record.executable)
        if status is not None and not stat.S_ISDIR(status.st_mode):
            _keep_aside(user_path, aside)
        os.rename(temporary, user_path)
    except OSError:
        if os.path.lexists(temporary):
            os.unlink(temporary)
        raise


def _same_file(status: os.stat_result, user_path: str, blob: str, record: FileRecord) -> bool:
    if status.st_size != record.size or bool(status.st_mode & 0o100) != record.executable:
        return False
    try:
        stored = os.stat(blob)
    except FileNotFoundError:
        stored = None
    if stored is not None and os.path.samestat(status, stored):
        return True
    try:
        return hash_file(user_path)[0] == record.digest
    except PermissionError:
        return False


def _put_file(store: Blobs, digest: str, dest: str, size: int, executable: bool) -> None:
    blob = store.blob_path(digest, executable)
    try:
        long = size >= LINK_FROM_BYTES and not _can_reflink(blob, dest)
        if long and store.link_out(digest, executable, dest):
            return
        copy_file(blob, dest, 0o777 if executable else 0o666)
    except FileNotFoundError as error:
        if not os.path.lexists(blob):
            raise StoreError(f"the stored copy of {dest} is gone") from error
        raise


def _can_reflink(blob: str, dest: str) -> bool:
    """Try it on a file that is thrown away: the answer costs two calls, a copy might cost GBs."""
    read = os.open(blob, os.O_RDONLY | os.O_CLOEXEC)
    try:
        write = os.open(dest, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            return reflink(read, write, os.fstat(read).st_dev)
        finally:
            os.close(write)
            os.unlink(dest)
    finally:
        os.close(read)


def _publish_directory(
    store: Blobs,
    record: FileRecord,
    user_path: str,
    status: os.stat_result | None,
    aside: str,
) -> None:
    entries = store.entries(record)
    if status is not None and stat.S_ISDIR(status.st_mode):
        if _same_directory(user_path, entries):
            return
    elif status is not None and not stat.S_ISLNK(status.st_mode):
        raise StoreError(f"{user_path} is a file, where a directory is due; move it away")
    temporary, old = _beside(user_path), _beside(user_path, OLD_PREFIX)
    try:
        _build(store, entries, temporary)
        if status is not None:
            os.rename(user_path, old)
        os.rename(temporary, user_path)
    except OSError:
        if os.path.lexists(old) and not os.path.lexists(user_path):
            os.rename(old, user_path)
        remove_tree(temporary)
        raise
    if status is not None:
        if stat.S_ISDIR(status.st_mode) and not os.listdir(old):
            os.rmdir(old)
        else:
            _move_aside(old, aside)


def _move_aside(path: str, aside: str) -> None:
    """Rename to `ASIDE.N`, which nothing has. A name is taken first, so nothing is overwritten."""
    os.makedirs(os.path.dirname(aside), exist_ok=True)
    is_directory = os.path.isdir(path) and not os.path.islink(path)
    for number in itertools.count(1):
        target = f"{aside}.{number}"
        try:
            if is_directory:
                os.mkdir(target)
            else:
                os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC))
        except FileExistsError:
            continue
        os.rename(path, target)
        return


def _keep_aside(path: str, aside: str) -> None:
    """Give a file that is about to be replaced a second name, `ASIDE.N`."""
    os.makedirs(os.path.dirname(aside), exist_ok=True)
    for number in itertools.count(1):
        try:
            os.link(path, f"{aside}.{number}", follow_symlinks=False)
            return
        except FileExistsError:
            continue
        except OSError as error:
            if error.errno not in NO_LINK:
                raise
            _move_aside(path, aside)
            return


def _build(store: Blobs, entries: list[TreeEntry], top: str) -> None:
    os.mkdir(top)
    for entry in entries:
        path = f"{top}/{entry.path}"
        if entry.kind == "directory":
            os.mkdir(path)
        elif entry.kind == "link":
            os.symlink(entry.what, path)
        else:
            program = entry.kind == "program"
            _put_file(store, entry.what, path, entry.size, program)


def _same_directory(user_path: str, entries: list[TreeEntry]) -> bool:
    wanted = {entry.path: entry for entry in entries}
    seen = 0
    for path, status in walk(user_path):
        entry = wanted.get(path)
        seen += 1
        if entry is None or not _same_entry(f"{user_path}/{path}", status, entry):
            return False
    return seen == len(wanted)


def _same_entry(path: str, status: os.stat_result, entry: TreeEntry) -> bool:
    if entry.kind == "directory":
        return stat.S_ISDIR(status.st_mode)
    if entry.kind == "link":
        return stat.S_ISLNK(status.st_mode) and os.readlink(path) == entry.what
    return (
        stat.S_ISREG(status.st_mode)
        and status.st_size == entry.size
        and bool(status.st_mode & 0o100) == (entry.kind == "program")
        and hash_file(path)[0] == entry.what
    )


def _remove_empty(user_path: str, due: str) -> None:
    try:
        os.rmdir(user_path)
    except OSError:
        raise StoreError(
            f"{user_path} is a directory with files in it, where {due} is due; move it away"
        ) from None


def _beside(user_path: str, prefix: str = PREFIX) -> str:
    parent, name = os.path.split(user_path)
    return f"{parent}/{prefix}{os.getpid()}-{next(_serial)}-{name[:100]}"
