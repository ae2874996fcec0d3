"""Large buffers of arguments: each content is one file, however many calls use it at a time.

What an argument holds is taken when a call is submitted, so a buffer that looks like one that is
kept is compared with it. A file goes when no call needs it, except the newest of its size: the next
call may well have the same argument.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable

from sureline.peer.content import write_all
from sureline.peer.packed import Apart, Buffer, hash_buffer, mapped
from sureline.peer.spool import equal

_PIECE_BYTES = 16 << 20


class Shared:
    def __init__(self, directory: str) -> None:
        self.directory = directory
        os.makedirs(directory, exist_ok=True)
        self._keeping = threading.Lock()
        """Held while a buffer is compared, hashed and written."""
        self._counting = threading.Lock()
        self._uses: dict[str, int] = {}
        self._newest: dict[int, tuple[str, Buffer]] = {}

    def keep(self, view: memoryview) -> Apart:
        """The buffer, for one call; `release` it afterwards."""
        size = view.nbytes
        with self._keeping:
            newest = self._newest.get(size)
            if newest is not None and equal(view, newest[1]):
                self._count(newest[0], 1)
                return Apart(newest[0], size)
            digest = hash_buffer(view)
            with self._counting:
                known = digest in self._uses
                self._uses[digest] = self._uses.get(digest, 0) + 1
            if not known:
                self._write(view, digest)
            self._newest[size] = (digest, mapped(self._path(digest)))
            if newest is not None:
                self._count(newest[0], 0)
        return Apart(digest, size)

    def release(self, kept: Iterable[Apart]) -> None:
        for one in kept:
            self._count(one.digest, -1)

    def _count(self, digest: str, change: int) -> None:
        with self._counting:
            self._uses[digest] += change
            if self._uses[digest] or any(digest == name for name, _ in self._newest.values()):
                return
            del self._uses[digest]
            os.unlink(self._path(digest))

    def _path(self, digest: str) -> str:
        return f"{self.directory}/{digest}"

    def _write(self, view: memoryview, digest: str) -> None:
        fd = os.open(self._path(digest), os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            for start in range(0, view.nbytes, _PIECE_BYTES):
                write_all(fd, view[start : start + _PIECE_BYTES])
        except OSError:
            with self._counting:
                del self._uses[digest]
            os.unlink(self._path(digest))
            raise
        finally:
            os.close(fd)
