"""A file on its way in: `DIGEST.N.data` beside `.list` (its chunks' digests) and `.have` (which
chunks are there, four bytes each, appended after the chunk was written).

Whoever works on one holds a lock on its `.have`; a second process after the same content takes
the next N. After a crash, the chunks that `.have` names are hashed again before they count. The
file has its final size from the start, so that the cache knows what is on the way.

The digest of the whole is computed along the prefix that is complete, from memory where a chunk
arrives in order, so that little is left to read at the end. Methods that read, write or hash are
for worker threads; several may run at once.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import struct
import threading
from collections.abc import Iterator
from typing import NamedTuple

import msgspec
import numpy as np
from blake3 import blake3

from sureline.peer.files.chunks import (
    CHUNK_BYTES_MAX,
    DIGEST_BYTES,
    Flags,
    agreeing,
    chunk_count,
    chunk_span,
    digest_in,
    to_bits,
)
from sureline.peer.files.wire import Buffer

COPIES_MAX = 4
"""So many processes may fetch one content into one cache at once."""
_PREFIX_CHUNKS_PER_STEP = 4
_WRITE_BYTES = 1 << 18
"""Written at a time. For longer writes Linux takes larger blocks of free memory, and those a
virtual machine may have to get back from its host first: 3 s of CPU per GB instead of 0.3."""
_INDEX = struct.Struct("<I")


class _Listed(msgspec.Struct, array_like=True, frozen=True):
    size: int
    chunks: bytes


class Leftover(NamedTuple):
    """Parts of a file on their way in, or left by a process that is gone."""

    stem: str
    digest: str
    size: int
    used_at: float

    def remove(self) -> int:
        """Remove it, unless somebody works on it; how many bytes that freed."""
        fd = _lock(f"{self.stem}.have")
        if fd is None:
            return 0
        try:
            _remove(self.stem)
        finally:
            os.close(fd)
        return self.size


def leftovers(incoming: str) -> list[Leftover]:
    found = []
    for name in sorted(os.listdir(incoming)):
        stem, kind = os.path.splitext(f"{incoming}/{name}")
        if kind == ".have":
            try:
                used_at = os.stat(f"{stem}.have").st_mtime
                size = os.stat(f"{stem}.data").st_size
            except FileNotFoundError:
                size = 0
                used_at = 0.0
            found.append(Leftover(stem, name.partition(".")[0], size, used_at))
    return found


class BusyError(Exception):
    """Too many processes fetch this content into this cache already."""


class Partial:
    """Use `Partial.open`, then `begin` with the size and the list of chunk digests."""

    def __init__(self, digest: str, stem: str, have: int) -> None:
        self.digest = digest
        self.size = 0
        self.chunks = b""
        self.kept: Flags = np.zeros(0, dtype=np.bool_)
        """Which chunks are there and agree with the list."""
        self._stem = stem
        self._have = have
        self._data = -1
        self._mutex = threading.Lock()
        self._idle = threading.Condition(self._mutex)
        self._users = 0
        self._closed = False
        self._hashing = threading.Lock()
        self._whole = blake3()
        self._hashed = 0
        self._claimed: list[int] = []

    @classmethod
    def open(cls, incoming: str, digest: str) -> Partial:
        """Take up what is there of this content, if nobody else does. Raises BusyError."""
        for number in range(COPIES_MAX):
            stem = f"{incoming}/{digest}.{number}"
            have = _lock(f"{stem}.have")
            if have is not None:
                partial = cls(digest, stem, have)
                partial._read()
                return partial
        raise BusyError(f"{COPIES_MAX} others fetch the same content into this cache")

    def _read(self) -> None:
        """What an earlier process claimed; `begin` verifies it."""
        try:
            with open(f"{self._stem}.list", "rb") as file:
                listed = msgspec.msgpack.decode(file.read(), type=_Listed)
        except (FileNotFoundError, msgspec.DecodeError):
            return
        if len(listed.chunks) != chunk_count(listed.size) * DIGEST_BYTES:
            return
        self.size, self.chunks = listed.size, listed.chunks
        data = os.pread(self._have, 4 * len(listed.chunks), 0)
        claimed = {i for (i,) in _INDEX.iter_unpack(data[: len(data) // 4 * 4])}
        self._claimed = sorted(i for i in claimed if i < chunk_count(listed.size))

    @property
    def reserved_bytes(self) -> int:
        """What the cache counts for it already."""
        try:
            return os.stat(self.path).st_size
        except FileNotFoundError:
            return 0

    def begin(self, size: int, chunks: bytes) -> None:
        """Work by this list from now on. Chunks that are there already and agree with it stay.

        The room for `size` bytes must have been made. Raises OSError if the disk is full.
        """
        same = size == self.size and len(self.chunks) == len(chunks)
        found = self._trusted() if same else []
        self.kept = np.zeros(chunk_count(size), dtype=np.bool_)
        if found:
            self.kept[found] = True
            self.kept &= agreeing(self.chunks, chunks)
        self.size, self.chunks, self._claimed = size, chunks, []
        self._whole, self._hashed = blake3(), 0
        self._write_list()
        if self._data < 0:
            self._data = os.open(f"{self._stem}.data", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(self._data, size)
        os.ftruncate(self._have, 0)
        os.pwrite(self._have, b"".join(_INDEX.pack(i) for i in np.flatnonzero(self.kept)), 0)
        os.lseek(self._have, 0, os.SEEK_END)

    def _trusted(self) -> list[int]:
        """The chunks that are really there: those kept by this process, or by an earlier one if
        they still have the right digest."""
        if self._data >= 0:
            return [int(i) for i in np.flatnonzero(self.kept)]
        try:
            self._data = os.open(f"{self._stem}.data", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return []
        return [i for i in self._claimed if self._digest_at(i) == digest_in(self.chunks, i)]

    def _digest_at(self, index: int) -> bytes:
        digest: bytes = blake3(self.read(index)).digest()
        return digest

    def _write_list(self) -> None:
        temporary = f"{self._stem}.list.new"
        with open(temporary, "wb") as file:
            file.write(msgspec.msgpack.encode(_Listed(self.size, self.chunks)))
        os.replace(temporary, f"{self._stem}.list")

    # -- chunks -----------------------------------------------------------------------------

    def keep(self, index: int, body: Buffer) -> bool:
        """Write a chunk if it is what the list says; whether it is."""
        with self._using():
            return self._keep(index, body)

    def _keep(self, index: int, body: Buffer) -> bool:
        start, length = chunk_span(self.size, index)
        if len(body) != length or blake3(body).digest() != digest_in(self.chunks, index):
            return False
        view = memoryview(body)
        while view:
            written = os.pwrite(self._data, view[:_WRITE_BYTES], start)
            start, view = start + written, view[written:]
        with self._mutex:
            if not self.kept[index]:
                os.write(self._have, _INDEX.pack(index))
                self.kept[index] = True
        self._follow(index, body)
        return True

    @contextlib.contextmanager
    def _using(self) -> Iterator[None]:
        """No descriptor is closed under a thread that uses it: its number might be another file's
        by then. Raises OSError if it is closed."""
        with self._mutex:
            if self._closed:
                raise OSError(errno.EBADF, "closed")
            self._users += 1
        try:
            yield
        finally:
            with self._mutex:
                self._users -= 1
                self._idle.notify_all()

    def _rest(self) -> None:
        with self._mutex:
            self._closed = True
            self._idle.wait_for(lambda: not self._users)
        if self._data >= 0:
            os.close(self._data)
            self._data = -1

    def _follow(self, index: int, body: Buffer) -> None:
        """Hash on along the prefix: this chunk, if it is the next, and a few that wait."""
        if not self._hashing.acquire(blocking=False):
            return
        try:
            if index == self._hashed:
                self._whole.update(body)
                self._hashed += 1
            self._advance(_PREFIX_CHUNKS_PER_STEP)
        finally:
            self._hashing.release()

    def _advance(self, limit: int) -> None:
        buffer: memoryview | None = None
        for _ in range(limit):
            if self._hashed == len(self.kept) or not self.kept[self._hashed]:
                return
            start, length = chunk_span(self.size, self._hashed)
            if buffer is None:
                buffer = memoryview(bytearray(min(CHUNK_BYTES_MAX, max(length, 1))))
            got = os.preadv(self._data, [buffer[:length]], start)
            self._whole.update(buffer[:got])
            self._hashed += 1

    def read(self, index: int) -> bytes:
        """A chunk that is there. Raises OSError if the file is not on its way any more."""
        start, length = chunk_span(self.size, index)
        with self._using():
            return os.pread(self._data, length, start)

    def have_bits(self) -> bytes:
        return to_bits(self.kept)

    def whole(self) -> bool:
        """Whether all chunks together are the content that was wanted."""
        with self._hashing:
            self._advance(len(self.kept))
            right: bool = self._whole.hexdigest() == self.digest
            return right and self._hashed == len(self.kept)

    # -- ends -------------------------------------------------------------------------------

    @property
    def path(self) -> str:
        return f"{self._stem}.data"

    def close(self) -> None:
        """Leave what is there to whoever comes later."""
        self._rest()
        if not self.chunks:
            _remove(self._stem)
        os.close(self._have)

    def finish(self) -> None:
        """The data file has become a stored one: remove the rest."""
        self._rest()
        _remove(self._stem)
        os.close(self._have)


def _lock(path: str) -> int | None:
    """Open and lock a file; None if somebody else has it locked."""
    for _ in range(3):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        if os.fstat(fd).st_nlink:
            return fd
        os.close(fd)  # removed between open and lock
    return None


def _remove(stem: str) -> None:
    """`.have` goes last: while it is there, the others have an owner."""
    for kind in ("data", "list", "list.new", "have"):
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{stem}.{kind}")
