"""When each stored file was last used: a log that several processes append to.

Forty bytes for each use, in one write, so that lines never mix. Whoever needs room reads the log
and shortens it. It is a hint: what a crash takes from it only makes a file look older.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Container, Iterable

_ENTRY = struct.Struct("<32sd")
_COMPACT_FROM = 20_000
"""A log with more entries is rewritten when it is read."""


class UseLog:
    def __init__(self, path: str) -> None:
        self._path = path

    def note(self, digests: Iterable[str]) -> None:
        """These are being used now."""
        now = time.time()
        data = b"".join(_ENTRY.pack(bytes.fromhex(digest), now) for digest in digests)
        fd = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, data)
        finally:
            os.close(fd)

    def read(self, held: Container[str]) -> dict[str, float]:
        """When each of the `held` digests was last used, as far as the log knows. Shortens a long
        log; call it under the cache's lock."""
        try:
            with open(self._path, "rb") as log:
                data = log.read()
        except FileNotFoundError:
            return {}
        found: dict[str, float] = {}
        whole = len(data) - len(data) % _ENTRY.size
        for raw, used_at in _ENTRY.iter_unpack(data[:whole]):
            digest = raw.hex()
            if digest in held:
                found[digest] = max(used_at, found.get(digest, 0.0))
        if whole > _COMPACT_FROM * _ENTRY.size or whole < len(data):
            self._rewrite(found)
        return found

    def _rewrite(self, found: dict[str, float]) -> None:
        temporary = f"{self._path}.{os.getpid()}"
        with open(temporary, "wb") as log:
            log.write(b"".join(_ENTRY.pack(bytes.fromhex(d), t) for d, t in found.items()))
        os.replace(temporary, self._path)
