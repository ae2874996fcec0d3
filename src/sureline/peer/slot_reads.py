"""Which files a Python call reads: it is reused by content, so it must have named them.

Python tells an audit hook of every file that it opens. A call that read a file of the user's that
it did not declare (`depends=`), or that started a program, is not reused: nobody would notice a
change there. What it wrote itself, the interpreter's and the system's own files, and code that is
imported (it counts as code) or shown in a traceback, do not count.
"""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
import time
from collections.abc import Iterable, Sequence
from typing import Any

PATHS_MAX = 1000
"""How many files of a call are noted; past this it is clear enough."""
_OF_THE_SYSTEM = ("/dev/", "/proc/", "/sys/", "/etc/", "/usr/", "/lib/", "/lib64/", "/bin/")
_CODE = (".py", ".pyc", ".so", ".pyd", ".dylib")
_READERS_OF_CODE = ("<frozen importlib", "<frozen zipimport")
_SHOWS_CODE = frozenset({"linecache", "tokenize", "inspect"})
_PROGRAMS = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn"})


class Reads:
    """`begin`, the call, `end`: why its result may not be reused, '' if it may."""

    def __init__(self, own: str) -> None:
        """`own`: a directory of ours, in which reading does not count."""
        prefixes = {sys.prefix, sys.base_prefix, *sysconfig.get_paths().values()}
        self._foreign = (*_OF_THE_SYSTEM, f"{own}/", *(f"{path}/" for path in prefixes))
        self._read: dict[str, None] = {}
        self._wrote: set[str] = set()
        self._program = ""
        self._started_ns = 0
        self._active = False
        self._before: dict[str, dict[str, None]] = {}
        """What earlier calls of a function read here: they may have kept it in memory."""
        sys.addaudithook(self._hear)

    def begin(self) -> None:
        self._read, self._wrote, self._program = {}, set(), ""
        self._started_ns = time.time_ns()
        self._active = True

    def end(self, function: str, declared: Sequence[str], directory: str) -> str:
        self._active = False
        read = self._before.setdefault(function, {})
        if len(read) < PATHS_MAX:
            read.update(self._read)
        if read and (missing := _not_named(read, declared, directory)):
            shown = os.path.relpath(missing[0], directory)
            more = f" and {len(missing) - 1} more" if len(missing) > 1 else ""
            return f"it read {shown}{more}, which depends= does not name"
        if self._program and not declared:
            return f"it started {self._program}, which may read anything; say what with depends="
        return ""

    def _hear(self, event: str, args: tuple[Any, ...]) -> None:
        if not self._active:
            return
        try:
            if event == "open":
                self._opened(*args)
            elif event == "sqlite3.connect":
                self._opened(args[0], "r", 0)
            elif event in _PROGRAMS and not self._program:
                self._program = os.path.basename(os.fsdecode(args[0])) or "a program"
        except Exception:  # a hook that raises would fail the user's open()
            pass

    def _opened(self, path: Any, mode: str | None, flags: int) -> None:
        if isinstance(path, int) or len(self._read) >= PATHS_MAX:
            return
        full = os.path.normpath(os.path.join(os.getcwd(), os.fsdecode(path)))
        access = flags & os.O_ACCMODE
        reads = access != os.O_WRONLY if mode is None else "r" in mode
        writes = access != os.O_RDONLY if mode is None else mode.strip("rbtU") != ""
        is_code = full.endswith(_CODE) and _is_read_as_code()
        if reads and not is_code and full not in self._wrote and self._counts(full):
            self._read[full] = None
        if writes:
            self._wrote.add(full)

    def _counts(self, path: str) -> bool:
        """Whether it is the user's, and was there, as it is, before the call began."""
        if path.startswith(self._foreign):
            return False
        try:
            status = os.stat(path)
        except OSError:
            return False
        return stat.S_ISREG(status.st_mode) and status.st_ctime_ns < self._started_ns


def _is_read_as_code() -> bool:
    """Whether an import, or somebody who shows a line of code, opens the file. Asked by the hook:
    hook, `_opened`, and this are the frames above."""
    frame = sys._getframe(3)
    return (
        frame.f_code.co_filename.startswith(_READERS_OF_CODE)
        or frame.f_globals.get("__name__") in _SHOWS_CODE
    )


def _not_named(read: Iterable[str], declared: Sequence[str], directory: str) -> list[str]:
    named = [os.path.normpath(os.path.join(directory, path)) for path in declared]
    inside = tuple(f"{one}/" for one in named)
    return [path for path in read if path not in named and not path.startswith(inside)]
