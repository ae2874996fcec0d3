"""Lending stored files: what is stored stays as it was hashed, whatever borrowers do.

The kernel sets a file's ctime whenever its content, mode, owner or links change, and no program can
set it. So a stored file whose ctime is the recorded one is what was hashed; of any other, the
content decides. That is why nobody gets a link to a small stored file (making one changes its
ctime): a copy costs less than finding out what a link did.

A long file is linked, but under a *lease*: as long as we hold one, the kernel lets nobody open the
file for writing, and it grants none while somebody has. Whoever tries is reported to us, and waits.
Linking and unlinking change the ctime; so what it is afterwards, still under the lease, is noted in
`vouched/`, one small file for each. A note is also made of what was found whole by its content.
A short file is linked in the same way where modes bind the user, without notes.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager

from sureline.peer.content import NO_LINK, MadeFile, hash_open_file, link

LINK_FROM_BYTES = 256 << 10
"""Below this a file is looked at again sooner than a note of it is written."""
LINKS_SHORT_FILES = os.geteuid() != 0
"""Modes do not bind root: its programs may open an input for writing without meaning to, and would
wait for the lease. A copy costs more, and bears it."""
LEASES_MAX = 200
"""In one sandbox; each is an open file."""
_NOTE_BYTES_MAX = 64


class ChangedError(Exception):
    """A stored file is not what was stored under its name."""


class Notes:
    """The ctimes at which stored files were last known to be whole, in the directory `place`."""

    def __init__(self, place: str) -> None:
        self._place = place

    def read(self, name: str) -> int | None:
        try:
            fd = os.open(f"{self._place}/{name}", os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return None
        try:
            return _number(os.read(fd, _NOTE_BYTES_MAX))
        finally:
            os.close(fd)

    def write(self, name: str, ctime_ns: int) -> None:
        """A place that cannot be written is no reason to stop: it will be looked at again."""
        with contextlib.suppress(OSError), self.held(name) as note:
            note.write(ctime_ns)

    def forget(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{self._place}/{name}")

    @contextlib.contextmanager
    def held(self, name: str) -> Iterator[Note]:
        """A note that nobody else reads or writes meanwhile; made if it is not there."""
        path = f"{self._place}/{name}"
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        try:
            fd = os.open(path, flags, 0o600)
        except FileNotFoundError:
            os.makedirs(self._place, mode=0o700, exist_ok=True)
            fd = os.open(path, flags, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield Note(fd)
        finally:
            os.close(fd)


class Note:
    def __init__(self, fd: int) -> None:
        self._fd = fd

    def read(self) -> int | None:
        return _number(os.pread(self._fd, _NOTE_BYTES_MAX, 0))

    def write(self, ctime_ns: int) -> None:
        data = b"%d\n" % ctime_ns
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))


def _number(text: bytes) -> int | None:
    try:
        return int(text)
    except ValueError:
        return None  # made, and not written yet


class Loan:
    """A stored file that is linked to `dest`, read-only for everybody until `give_back`."""

    def __init__(self, notes: Notes | None, name: str, fd: int, dest: str) -> None:
        self._notes = notes
        self._name = name
        self.ctime_ns = 0
        """When it was given back, and whole."""
        self._fd = fd
        self.dest = dest

    @classmethod
    def make(
        cls, notes: Notes | None, blob: str, name: str, digest: str, ctime_ns: int | None, dest: str
    ) -> Loan | None:
        """None if the kernel grants no lease, or no link: then a copy must do. Raises
        ChangedError, and FileNotFoundError if there is no such blob."""
        fd = os.open(blob, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            if not _lease(fd):
                os.close(fd)
                return None
            with _held(notes, name) as note:
                status = os.fstat(fd)
                vouched = status.st_ctime_ns in (ctime_ns, note and note.read())
                if not vouched and hash_open_file(fd, status.st_size)[0] != digest:
                    raise ChangedError(blob)
                link(blob, dest)
                if note is not None:
                    note.write(os.fstat(fd).st_ctime_ns)
        except OSError as error:
            os.close(fd)
            if error.errno in NO_LINK:
                return None
            raise
        except ChangedError:
            os.close(fd)
            raise
        return cls(notes, name, fd, dest)

    def wanted(self) -> bool:
        """Whether somebody has tried to open it for writing."""
        return fcntl.fcntl(self._fd, fcntl.F_GETLEASE) != fcntl.F_RDLCK

    def give_back(self, *, keep: bool = False) -> None:
        """Remove the link, unless it is to stay, and let go. Idempotent."""
        if self._fd < 0:
            return
        try:
            with _held(self._notes, self._name) as note:
                if not keep:
                    self._unlink()
                mode = os.fstat(self._fd).st_mode
                if mode & 0o222:
                    os.fchmod(self._fd, mode & 0o555)
                if not self.wanted():
                    self.ctime_ns = os.fstat(self._fd).st_ctime_ns
                    if note is not None:
                        note.write(self.ctime_ns)
        finally:
            os.close(self._fd)
            self._fd = -1

    def _unlink(self) -> None:
        """Its borrower may have put something else there, or moved it."""
        with contextlib.suppress(OSError):
            if os.path.samestat(os.lstat(self.dest), os.fstat(self._fd)):
                os.unlink(self.dest)


def _held(notes: Notes | None, name: str) -> AbstractContextManager[Note | None]:
    return contextlib.nullcontext() if notes is None else notes.held(name)


def _lease(fd: int) -> bool:
    """Have the kernel keep writers out while `fd` is open; a try wakes us by SIGCHLD, which whoever
    waits for a command listens to anyway."""
    if not hasattr(fcntl, "F_SETLEASE"):
        return False
    try:
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGCHLD)
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError:
        return False  # not this file system, not our file, or somebody writes to it
    return True


class Lent:
    """What was put into one sandbox: copies that must not be written to, and loans."""

    def __init__(self) -> None:
        self.copies: list[tuple[str, str, str, MadeFile]] = []
        """(input, path, digest, what it was like)."""
        self.loans: list[tuple[str, Loan]] = []
        """(input, loan)."""
        self._knowing: list[Callable[[int], object]] = []
        """Who hears the ctime of each when it is given back."""

    def add(self, shown: str, loan: Loan, know: Callable[[int], object]) -> None:
        self.loans.append((shown, loan))
        self._knowing.append(know)

    def written_to(self) -> list[str]:
        """The inputs that somebody wrote to, or tried to. Removing or replacing one is no harm."""
        found = {shown: None for shown, loan in self.loans if loan.wanted()}
        for shown, path, digest, made in self.copies:
            if not _is_as_made(path, made, digest):
                found[shown] = None
        return list(found)

    def give_back(self) -> None:
        for (_, loan), know in zip(self.loans, self._knowing, strict=True):
            loan.give_back()
            if loan.ctime_ns:
                know(loan.ctime_ns)


def _is_as_made(path: str, made: MadeFile, digest: str) -> bool:
    """Whether a copy has the content it came with, or is not there any more."""
    try:
        status = os.lstat(path)
        if (status.st_mtime_ns, status.st_size) == (made.mtime_ns, made.size):
            return True
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return True  # removed, or replaced by something that is no file of ours
    try:
        now = MadeFile.of(fd)
        if (now.inode, now.generation) != (made.inode, made.generation):
            return True
        return now.size == made.size and hash_open_file(fd, now.size)[0] == digest
    finally:
        os.close(fd)
