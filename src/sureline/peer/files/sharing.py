"""What the processes that share a cache must know of each other: is one of them a peer that serves
it, how large it lets the cache become, and what is to be found through the DHT.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import time

SETTLED_NS = 2_000_000_000
"""File systems tell times in steps; none has longer ones."""


class Sharing:
    def __init__(self, root: str) -> None:
        self._root = root
        for name in ("announced", "fresh"):
            os.makedirs(f"{root}/{name}", mode=0o700, exist_ok=True)
        self._serving: int | None = None
        self._fresh_ns = 0
        """When nothing was fresh: the time of its directory."""

    def close(self) -> None:
        if self._serving is not None:
            os.close(self._serving)

    # -- who serves ---------------------------------------------------------------------------

    def serve(self, size_bytes_max: int) -> None:
        """This process serves the cache from now on, and this is its bound for all processes."""
        if self._serving is None:
            self._serving = os.open(f"{self._root}/serving", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._serving, fcntl.LOCK_SH)
            temporary = f"{self._root}/bound.{os.getpid()}"
            with open(temporary, "w") as file:
                file.write(str(size_bytes_max))
            os.replace(temporary, f"{self._root}/bound")

    def served(self) -> bool:
        """Whether a process serves this cache to the grid."""
        if self._serving is not None:
            return True
        fd = os.open(f"{self._root}/serving", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False

    def bound(self) -> int | None:
        """The bound set by the process that serves this cache, or served it last."""
        try:
            with open(f"{self._root}/bound") as file:
                return int(file.read())
        except (FileNotFoundError, ValueError):
            return None

    # -- what is announced --------------------------------------------------------------------

    def remember(self, digest: str, *, fresh: bool) -> None:
        """This is to be found through the DHT. With `fresh`, the process that serves the cache has
        not been told yet."""
        for kind in ("announced", "fresh") if fresh else ("announced",):
            with open(f"{self._root}/{kind}/{digest}", "wb"):
                pass

    def take_fresh(self, limit: int) -> list[str]:
        """What other processes put here and want announced, at most `limit` of them."""
        place = f"{self._root}/fresh"
        changed_ns = os.stat(place).st_mtime_ns
        if changed_ns == self._fresh_ns:
            return []  # as it was when it was found empty
        there = sorted(os.listdir(place))
        for digest in there[:limit]:
            os.unlink(f"{place}/{digest}")
        # One that comes in the instant of the look may not show in the time: look again then.
        old = time.time_ns() - changed_ns > SETTLED_NS
        self._fresh_ns = changed_ns if not there and old else 0
        return there[:limit]

    def announced(self) -> list[str]:
        """All that is to be found through the DHT; some may have gone meanwhile."""
        return sorted(os.listdir(f"{self._root}/announced"))

    def forget(self, digest: str) -> None:
        """It is gone from here."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._root}/announced/{digest}")
