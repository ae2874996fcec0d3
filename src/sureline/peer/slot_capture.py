"""What jobs write to stdout and stderr.

The slot's own descriptors 1 and 2 are two files, and jobs inherit them (or are this process, for
Python calls); most jobs write nothing, and then looking at two sizes is all the work there is.
"""

from __future__ import annotations

import os
import sys

import msgspec

INLINE_BYTES = 4096
"""Output up to this length is reported whole; of more, the tail, and the file is kept."""

RSS_UNIT_BYTES = 1 if sys.platform == "darwin" else 1024
"""What `ru_maxrss` counts in."""

_NEW = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
_STREAMS = ((1, "out"), (2, "err"))


class _Captured(msgspec.Struct):
    stdout: str = ""
    stderr: str = ""
    stdout_file: str | None = None
    stderr_file: str | None = None


NOTHING = _Captured()


class Capture:
    """The two files lie in the slot's directory in `work`; kept ones move to `root/logs/RUN/`."""

    def __init__(self, root: str, work: str, name: str, run: str) -> None:
        self._root = root
        self._run = run
        self._work = f"{work}/{name}/std"

    def collect(self, label: str) -> _Captured:
        """What was written since the last time."""
        if not os.fstat(1).st_size and not os.fstat(2).st_size:
            return NOTHING
        texts: list[str] = []
        files: list[str | None] = []
        for fd, suffix in _STREAMS:
            text, file = self._collect(fd, suffix, label)
            texts.append(text)
            files.append(file)
        return _Captured(texts[0], texts[1], files[0], files[1])

    def _collect(self, fd: int, suffix: str, label: str) -> tuple[str, str | None]:
        size = os.fstat(fd).st_size
        if size == 0:
            return "", None
        start = max(0, size - INLINE_BYTES)
        text = os.pread(fd, INLINE_BYTES, start).decode("utf-8", "replace")
        if start == 0:
            os.ftruncate(fd, 0)
            return text, None
        kept = f"logs/{self._run}/{label}.{suffix}"
        os.makedirs(f"{self._root}/logs/{self._run}", exist_ok=True)
        os.rename(f"{self._work}.{suffix}", f"{self._root}/{kept}")
        self._renew(fd, suffix)
        return text, kept

    def renew(self) -> None:
        """Start new files: a process that outlived its job may still hold the old ones."""
        for fd, suffix in _STREAMS:
            os.unlink(f"{self._work}.{suffix}")
            self._renew(fd, suffix)

    def _renew(self, fd: int, suffix: str) -> None:
        new = os.open(f"{self._work}.{suffix}", _NEW, 0o644)
        os.dup2(new, fd)
        os.close(new)


def flush_python() -> None:
    """Hand what Python has buffered to the descriptors; user's code may have closed the streams."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass
