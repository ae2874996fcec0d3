"""What stays in a call's directory for the next call of its interpreter: the user's modules, and
names that stand for the user's files.

Putting all that in and taking it out again costs more than a short call. So what a call leaves as
it found it stays; all else goes, as after every job. While this looks, the interpreter stands
still.
"""

from __future__ import annotations

import os
import stat
from typing import NamedTuple

from sureline.peer.jobs import CALL_DIRECTORY, MODULES, CommandJob
from sureline.peer.lending import Lent
from sureline.peer.removing import empty_directory
from sureline.peer.slot_lone import STANDS_FOR_DIRECTORY, STANDS_FOR_FILE
from sureline.workflow.files import FileRecord

_LONG_AGO_NS = (0, 0)
"""Set as the time of a directory, it shows any change in it, however coarse the clock of the file
system is."""


class _Stamp(NamedTuple):
    inode: int
    mode: int
    size: int
    mtime_ns: int

    @classmethod
    def of(cls, path: str) -> _Stamp:
        status = os.lstat(path)
        return cls(status.st_ino, status.st_mode, status.st_size, status.st_mtime_ns)

    @classmethod
    def of_directory(cls, path: str) -> _Stamp:
        os.utime(path, ns=_LONG_AGO_NS, follow_symlinks=False)
        return cls.of(path)


class StandingFiles:
    """In the directory `top`."""

    def __init__(self, top: str) -> None:
        self._top = top
        self._calls = f"{top}/{CALL_DIRECTORY}"
        self._beside: tuple[str, ...] = ()
        self._names: dict[str, _Stamp] = {}
        """What has the name of a user's file, and is nothing else."""
        self._code: dict[str, str] = {}
        """Digests, by path."""
        self._stamps: dict[str, _Stamp] = {}
        """Of the code, and of the directories that it lies in."""
        self.lent = Lent()

    @property
    def stands(self) -> bool:
        return bool(self._stamps)

    def serves(self, job: CommandJob) -> bool:
        """Whether the job would find the same in a directory of its own."""
        if job.call is None or job.call.beside != self._beside:
            return False
        paths = [*(file.path for file in job.inputs), *job.outputs]
        if self._names and any(path.partition("/")[0] in self._names for path in paths):
            return False
        return all(self._code.get(file.path, file.digest) == file.digest for file in job.inputs)

    def lacks(self, job: CommandJob) -> list[FileRecord]:
        """The modules of a call that do not stand here yet."""
        return [
            file
            for file in job.inputs
            if file.path.startswith(MODULES) and file.path not in self._code
        ]

    def has(self, file: FileRecord) -> bool:
        return file.path in self._code

    def add(self, job: CommandJob, code: list[FileRecord]) -> None:
        """These modules were put in for a call; nothing runs yet that could change them."""
        assert job.call is not None
        self._beside = job.call.beside
        directories = {self._calls}
        for file in code:
            path = f"{self._top}/{file.path}"
            self._code[file.path] = file.digest
            self._stamps[path] = _Stamp.of(path)
            while (path := os.path.dirname(path)) not in directories:
                directories.add(path)
        for path in directories:
            self._stamps[path] = _Stamp.of_directory(path)

    def tidy(self) -> bool:
        """After a call: remove what it left. False if it has changed what stands here: then all
        must go. Raises OSError, which means the same."""
        inner = self._stamps.pop(self._calls, None)
        if inner is None or any(_Stamp.of(path) != was for path, was in self._stamps.items()):
            return False
        there = set(os.listdir(self._top))
        stamps = {name.rstrip("/"): self._standing_for(name, there) for name in self._beside}
        self._names = {name: stamp for name, stamp in stamps.items() if stamp}
        if len(there) > len(self._names) + 1:
            empty_directory(self._top, {CALL_DIRECTORY, *self._names})
        if _Stamp.of(self._calls) != inner:
            empty_directory(self._calls, [os.path.basename(MODULES)] if self._code else [])
            inner = _Stamp.of_directory(self._calls)
        self._stamps[self._calls] = inner
        return stat.S_ISDIR(inner.mode)

    def _standing_for(self, name: str, there: set[str]) -> _Stamp | None:
        """What is there by the name of a user's file or directory, if it is as it was made."""
        own = name.rstrip("/")
        if own not in there:
            return None
        path = f"{self._top}/{own}"
        found = _Stamp.of(path)
        if own == name:
            return (
                found if found.mode == stat.S_IFREG | STANDS_FOR_FILE and not found.size else None
            )
        if found == self._names.get(own):
            return found
        try:
            os.rmdir(path)  # which shows that it is one, and nothing is in it
        except OSError:
            return None
        os.mkdir(path, STANDS_FOR_DIRECTORY)
        return _Stamp.of_directory(path)
