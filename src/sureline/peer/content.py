"""The content of files: hashing it, copying it, comparing it. Nothing here knows of the store."""

from __future__ import annotations

import errno
import fcntl
import os
from typing import NamedTuple

from blake3 import blake3

_CHUNK_BYTES = 1 << 20
_THREADS_FROM_BYTES = 8 << 20
"""Below this, starting threads costs more than they save."""
_FICLONE = 0x40049409
_FS_IOC_GETVERSION = 0x80087601
_LINK_TRIES = 100

NO_LINK = frozenset({errno.EMLINK, errno.EXDEV, errno.EPERM, errno.EACCES, errno.EOPNOTSUPP})
"""What `link` may answer where a copy still works."""

_no_reflinks: set[int] = set()
"""Devices that have refused a reflink; asking again for every file would cost a call each."""


def link(source: str, dest: str) -> None:
    """As os.link, also while others rename equal files over `source`: link() then finds a file
    that has just lost its name and says ENOENT, although the name never was without a file."""
    for _ in range(_LINK_TRIES):
        try:
            os.link(source, dest)
            return
        except FileNotFoundError:
            if not os.path.lexists(source) or not os.path.isdir(os.path.dirname(dest)):
                raise
    os.link(source, dest)


def hash_bytes(data: bytes) -> str:
    digest: str = blake3(data).hexdigest()
    return digest


def hash_open_file(fd: int, size: int) -> tuple[str, int]:
    """The digest of what can be read from `fd`, and how many bytes that was.

    `size` is only a hint of what to expect: the file is read to its end.
    """
    if size <= _CHUNK_BYTES:
        data = os.read(fd, size + 1)
        if len(data) == size and (size == 0 or not os.read(fd, 1)):
            return hash_bytes(data), size
        os.lseek(fd, 0, os.SEEK_SET)
    threads = blake3.AUTO if size >= _THREADS_FROM_BYTES else 1
    hasher = blake3(max_threads=threads)
    step = _CHUNK_BYTES if threads == 1 else _THREADS_FROM_BYTES
    total = 0
    while chunk := os.read(fd, step):
        hasher.update(chunk)
        total += len(chunk)
    return hasher.hexdigest(), total


def hash_file(path: str) -> tuple[str, int]:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return hash_open_file(fd, os.fstat(fd).st_size)
    finally:
        os.close(fd)


def reflink(source: int, target: int, device: int) -> bool:
    """Share the content of `source` with the empty file `target`, if the file system can."""
    if device in _no_reflinks:
        return False
    try:
        fcntl.ioctl(target, _FICLONE, source)
    except OSError as error:
        if error.errno in (errno.EOPNOTSUPP, errno.ENOTTY, errno.ENOSYS):
            _no_reflinks.add(device)
        return False
    return True


def copy_open_file(source: int, target: int, size: int, device: int) -> None:
    """Copy all of `source` into the empty file `target`, sharing blocks where possible."""
    if reflink(source, target, device):
        return
    if size <= _CHUNK_BYTES:
        _copy_by_reading(source, target)
        return
    try:
        while os.copy_file_range(source, target, 1 << 30):
            pass
    except (OSError, AttributeError) as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO):
            raise
        os.lseek(source, 0, os.SEEK_SET)
        os.lseek(target, 0, os.SEEK_SET)
        os.ftruncate(target, 0)
        _copy_by_reading(source, target)


def _copy_by_reading(source: int, target: int) -> None:
    while chunk := os.read(source, _CHUNK_BYTES):
        write_all(target, chunk)


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def copy_file(source: str, target: str, mode: int) -> None:
    """Copy to a new file; `target` must not exist. `mode` is subject to the umask."""
    read = os.open(source, os.O_RDONLY | os.O_CLOEXEC)
    try:
        copy_to(read, os.fstat(read), target, mode)
    finally:
        os.close(read)


class MadeFile(NamedTuple):
    """A file as it was made. Numbers of removed files are used again, generations are not."""

    inode: int
    generation: int
    mtime_ns: int
    size: int

    @classmethod
    def of(cls, fd: int) -> MadeFile:
        status = os.fstat(fd)
        return cls(status.st_ino, _generation(fd), status.st_mtime_ns, status.st_size)


def copy_to(source: int, status: os.stat_result, target: str, mode: int) -> MadeFile:
    """As `copy_file`, from an open file; what the new one is like."""
    write = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        copy_open_file(source, write, status.st_size, status.st_dev)
        return MadeFile.of(write)
    finally:
        os.close(write)


def _generation(fd: int) -> int:
    """0 where the file system does not tell."""
    number = bytearray(8)
    try:
        fcntl.ioctl(fd, _FS_IOC_GETVERSION, number)
    except OSError:
        return 0
    return int.from_bytes(number[:4], "little")
