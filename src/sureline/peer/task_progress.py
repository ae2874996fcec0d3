"""How a task says how much of it is done.

A command prints a line `progress: 40%` (or `progress: 0.4`, `progress: 3/10`) to stdout or stderr,
or writes such a line, with or without the word, at the end of the file that $SURELINE_PROGRESS
names. A Python call, or a program that imports sureline, calls `sureline.progress(0.4)`.

Looked at once a second while a job runs, and at the newest bytes only: a job that ends sooner costs
nothing, one that prints gigabytes no more than one that prints a line.
"""

from __future__ import annotations

import os
import re
import stat
import threading
import time
from collections.abc import Callable

VARIABLE = "SURELINE_PROGRESS"
EVERY_S = 1.0
STEP = 0.01
"""Smaller changes are not reported."""
REPORTS_MAX = 1000
"""Of one attempt."""
_LOOKED_AT_BYTES = 4096
_NUMBER = r"(\d{1,12}(?:\.\d{0,12})?)"
_SAYS = re.compile(rf"\s*(progress:)?\s*{_NUMBER}\s*(?:(%)|/\s*{_NUMBER})?\s*", re.IGNORECASE)


def fraction_in(line: str, *, word: bool = True) -> float | None:
    """What a line says, in 0..1; None if it says nothing. `word`: it must begin with 'progress:'.

    >>> fraction_in("progress: 40%"), fraction_in("Progress: 3/10"), fraction_in("progress: 0.4")
    (0.4, 0.3, 0.4)
    >>> fraction_in("40%"), fraction_in("40%", word=False), fraction_in("progress: 7")
    (None, 0.4, None)
    """
    found = _SAYS.fullmatch(line)
    if found is None or (word and found[1] is None):
        return None
    number, percent, of = float(found[2]), found[3], found[4]
    if of is not None:
        return min(1.0, number / float(of)) if float(of) > 0 else None
    if percent:
        return min(1.0, number / 100)
    return number if number <= 1 else None


class Sparing:
    """Reports only what changed, and not too often."""

    def __init__(self) -> None:
        self._told: float | None = None
        self._left = REPORTS_MAX

    def worth_telling(self, fraction: float) -> bool:
        if self._told is not None:
            done = fraction >= 1 > self._told
            if abs(fraction - self._told) < STEP and not done:
                return False
        if not self._left:
            return False
        self._told = fraction
        self._left -= 1
        return True


class Listener:
    """Hears what one command says: in two files that it writes to, and in one of its own."""

    def __init__(self, streams: tuple[int, ...], path: str) -> None:
        self._read_to = dict.fromkeys(streams, 0)
        self._path = path
        self._sparing = Sparing()

    def news(self) -> float | None:
        """The newest word, if it is worth telling."""
        heard = self._in_file()
        if heard is None:
            words = [self._in_stream(fd) for fd in self._read_to]
            heard = max((word for word in words if word is not None), default=None)
        return heard if heard is not None and self._sparing.worth_telling(heard) else None

    def _in_stream(self, fd: int) -> float | None:
        """The last line that says something, of those that are new and whole."""
        size = os.fstat(fd).st_size
        start = max(self._read_to[fd], size - _LOOKED_AT_BYTES)
        if size <= start:
            return None
        data = os.pread(fd, size - start, start)
        whole = max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        if not whole:
            return None
        self._read_to[fd] = start + whole
        for line in reversed(re.split(rb"[\r\n]", data[:whole])):
            found = fraction_in(line.decode("utf-8", "replace"))
            if found is not None:
                return found
        return None

    def _in_file(self) -> float | None:
        try:
            with open(self._path, "rb", opener=_open_plain) as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - _LOOKED_AT_BYTES))
                lines = file.read(_LOOKED_AT_BYTES).decode("utf-8", "replace").split("\n")
        except OSError:
            return None
        return next(
            (fraction_in(line, word=False) for line in reversed(lines) if line.strip()), None
        )


def _open_plain(path: str, flags: int) -> int:
    """What a task has put there may be anything; only a file of its own cannot hold us up. Raises
    OSError for all else."""
    fd = os.open(path, flags | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError("it is no file")
    return fd


class _Caller:
    """Who hears `progress` in this process: the slot that runs a call, if one does."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.say: Callable[[float], None] | None = None
        self.sparing = Sparing()
        self.next_at = 0.0


_caller = _Caller()


def listen(say: Callable[[float], None] | None) -> None:
    """A call begins, and `say` is to hear of its progress; None: it is over."""
    with _caller.lock:
        _caller.say, _caller.sparing, _caller.next_at = say, Sparing(), 0.0


def progress(fraction: float) -> None:
    """Say how much of the running task is done, from 0 to 1; as often as you like.

    For a Python call that Sureline runs, from any thread of it, and for a program that it runs as
    a command. Elsewhere it does nothing."""
    if not 0 <= fraction <= 1:
        raise ValueError(f"progress is from 0 to 1, not {fraction}")
    with _caller.lock:
        now = time.monotonic()
        if now < _caller.next_at and fraction < 1:
            return
        _caller.next_at = now + EVERY_S
        if _caller.say is not None:
            if _caller.sparing.worth_telling(fraction):
                _caller.say(float(fraction))
        elif path := os.environ.get(VARIABLE):
            with open(path, "w", encoding="ascii") as file:
                file.write(f"{fraction:g}\n")
