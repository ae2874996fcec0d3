"""Reading all stored files again, slowly: what a disk loses by itself changes no time, so nothing
but reading finds it.

One file after the other, in the order of their names, at a bounded rate; where it came to is kept,
so that a peer that is often restarted gets round too. A damaged copy is removed and no longer
announced: whoever needs it fetches it from elsewhere, or has it made again.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from collections.abc import Callable

from sureline.peer.content import hash_open_file
from sureline.peer.files.cache import CachedFile, FileCache

BYTES_PER_S = 4 << 20
"""Slow enough that nobody notices: 1 TB takes three days."""
PAUSE_S = 0.05
"""After each file, however short."""
ROUND_S = 3600.0
"""Between two rounds."""
_log = logging.getLogger(__name__)


class Scrub:
    """`rate` is in bytes per second."""

    def __init__(
        self, cache: FileCache, rate: float = BYTES_PER_S, round_s: float = ROUND_S
    ) -> None:
        self._cache = cache
        self._rate = rate
        self._round_s = round_s
        self._place = f"{cache.root}/scrubbed"
        self.on_damaged: Callable[[str], None] = lambda digest: None

    async def run(self) -> None:
        """Round after round, until it is cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            after = await loop.run_in_executor(None, self._came_to)
            held = await loop.run_in_executor(None, self._cache.held)
            for one in sorted(held, key=lambda one: one.digest):
                if one.digest > after:
                    await loop.run_in_executor(None, self._look_at, one)
                    await asyncio.sleep(PAUSE_S + one.size / self._rate)
            await loop.run_in_executor(None, self._note, "")
            await asyncio.sleep(self._round_s)

    def _look_at(self, one: CachedFile) -> None:
        path = self._cache.store.blob_path(one.digest, one.executable)
        with contextlib.suppress(OSError):  # evicted meanwhile, or a disk that cannot be read
            if _digest_on_disk(path) != one.digest:
                _log.warning("the stored copy of %s is damaged, and removed", one.digest)
                self._cache.discard(one.digest)
                self.on_damaged(one.digest)
        self._note(one.digest)

    def _note(self, digest: str) -> None:
        with contextlib.suppress(OSError):
            temporary = f"{self._place}.{os.getpid()}"
            with open(temporary, "w") as file:
                file.write(digest)
            os.replace(temporary, self._place)

    def _came_to(self) -> str:
        try:
            with open(self._place) as file:
                return file.read(64)
        except OSError:
            return ""


def _digest_on_disk(path: str) -> str:
    """Of what is on the disk, not of what the system has kept of it in memory."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        return hash_open_file(fd, os.fstat(fd).st_size)[0]
    finally:
        os.close(fd)
