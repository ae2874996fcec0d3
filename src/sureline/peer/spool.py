"""Large buffers of arguments, kept as they are when a call is described: each content once.

Where the system can, a kept buffer is a file without a name, to be given one in a store later, so
that it is written once and nothing is left if there is no run. One that a store in the current
directory has is not written at all. A buffer may be changed between two calls, so each call costs
one look at all of it: a hash, or a comparison with the last of its size.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from sureline.peer.content import write_all
from sureline.peer.packed import Apart, Buffer, hash_buffer, mapped
from sureline.peer.store import BlobStore

FILE_BYTES = 16 << 20
"""A shorter buffer is copied in memory."""
COMPARE_BYTES = 1 << 20
"""Comparing a longer one is quicker than hashing it."""
THREADED_BYTES = 32 << 20
"""Comparing more than this uses several threads."""
THREADS_MAX = 4
"""More do not read memory faster."""
_PIECE_BYTES = 16 << 20


class Spool:
    def __init__(self, near: BlobStore) -> None:
        """`near`: where a buffer may lie already."""
        self._near = near
        self._kept: dict[str, Buffer] = {}
        self._files: dict[str, int] = {}
        self._newest: dict[int, str] = {}
        """The newest digest of each size: calls one after the other often share an argument."""

    def __del__(self) -> None:
        for fd in self._files.values():
            os.close(fd)

    def keep(self, view: memoryview) -> Apart:
        size = view.nbytes
        last = self._newest.get(size)
        if last is not None and size >= COMPARE_BYTES and equal(view, self._kept[last]):
            return Apart(last, size)
        digest = hash_buffer(view)
        if digest not in self._kept:
            self._kept[digest] = self._copied(view, digest)
        self._newest[size] = digest
        return Apart(digest, size)

    def _copied(self, view: memoryview, digest: str) -> Buffer:
        if isinstance(view.obj, bytes):
            return view  # nobody can change it
        if self._near.whole(digest, False, view.nbytes, remove=False) is not None:
            return mapped(self._near.blob_path(digest))
        return self._to_file(view, digest) if view.nbytes >= FILE_BYTES else bytes(view)

    def _to_file(self, view: memoryview, digest: str) -> Buffer:
        try:
            fd = os.open(".", _NAMELESS, 0o444)
        except (OSError, TypeError):
            return bytes(view)
        try:
            for start in range(0, view.nbytes, _PIECE_BYTES):
                write_all(fd, view[start : start + _PIECE_BYTES])
            found = mmap.mmap(fd, view.nbytes, access=mmap.ACCESS_READ)
        except OSError:  # a full disk: memory may do
            os.close(fd)
            return bytes(view)
        self._files[digest] = fd
        return found

    def store(self, store: BlobStore) -> None:
        """Put all that was kept into a store, unless it is there and whole."""
        for digest, data in self._kept.items():
            if store.whole(digest, False, len(data)) is not None:
                continue
            fd = self._files.get(digest)
            if fd is None or not store.name_file(fd, digest):
                store.put_pieces([data], "", digest)
            store.note(digest, False, os.stat(store.blob_path(digest)).st_ctime_ns)


_NAMELESS: Any = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC if hasattr(os, "O_TMPFILE") else None


def equal(a: Buffer, b: Buffer) -> bool:
    """Whether two large buffers hold the same bytes; it stops at the first difference."""
    import numpy as np

    left, right = np.frombuffer(a, np.uint8), np.frombuffer(b, np.uint8)
    size = left.size
    if size != right.size:
        return False
    threads = min(THREADS_MAX, os.cpu_count() or 1) if size >= THREADED_BYTES else 1
    part = -(-size // threads)

    def same(start: int) -> bool:
        at = left.ctypes.data + start, right.ctypes.data + start
        return bool(_memcmp()(*at, min(part, size - start)) == 0)

    if threads == 1:
        return same(0)
    with ThreadPoolExecutor(threads, thread_name_prefix="sureline comparing") as pool:
        return all(pool.map(same, range(0, size, part)))


@functools.cache
def _memcmp() -> Any:
    found = ctypes.CDLL(None).memcmp
    found.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t]
    return found
