"""Who is running a run just now: a lock file held by the process that does.

The system releases the lock when the process ends, however it ends. The file's text (host, pid,
boot) is for people, and for file systems without locks: there, a holder on another machine
counts as alive, because nobody can tell. The lock only keeps two processes from starting one run
by accident; what keeps them from harming each other is the epoch (see `writer`).
"""

from __future__ import annotations

import errno
import fcntl
import os
import platform
import time
import weakref
from pathlib import Path

import msgspec

LOCK = "lock"
_TRIES = 10
_TRY_AGAIN_S = 0.01
_UNSUPPORTED = frozenset({errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.ENOLCK})


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a lock."""

    host: str
    pid: int
    boot: str = ""


def boot_id() -> str:
    """Which boot of this machine it is; '' where the system does not say."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def this_process() -> Holder:
    return Holder(platform.node(), os.getpid(), boot_id())


class RunLock:
    """A held lock. Dropped by `release`, or with the process."""

    def __init__(self, descriptor: int, notice: str | None) -> None:
        self._descriptor: int | None = descriptor
        self.notice = notice
        """One sentence for the user if the file system has no locks."""
        _held.add(self)

    @classmethod
    def acquire(cls, directory: Path) -> RunLock | None:
        """Hold `directory`/lock, the directory made if missing; None if somebody else does."""
        path = directory / LOCK
        for _ in range(_TRIES):
            directory.mkdir(parents=True, exist_ok=True)
            try:
                descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except FileNotFoundError:
                continue  # the directory was removed by a process that clears up after dead ones
            try:
                supported = _lock(descriptor, fcntl.LOCK_EX)
            except BlockingIOError:
                os.close(descriptor)
                time.sleep(_TRY_AGAIN_S)  # it may be a reader that only asks whether it is held
                continue
            if not _is_at(descriptor, path):
                os.close(descriptor)  # removed with its directory between open and lock
                continue
            if not supported and _owner_lives(path):
                os.close(descriptor)
                return None
            _write(descriptor, this_process())
            return cls(descriptor, None if supported else _no_locks(directory))
        return None

    @staticmethod
    def held_elsewhere(directory: Path) -> bool:
        """Whether a process holds the lock (also this one, by another RunLock). Takes nothing."""
        path = directory / LOCK
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            return not _lock(descriptor, fcntl.LOCK_SH) and _owner_lives(path)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)

    def release(self) -> None:
        """Idempotent. The file stays, empty: if it were removed, two processes could hold it."""
        if self._descriptor is not None:
            os.ftruncate(self._descriptor, 0)
            _lock(self._descriptor, fcntl.LOCK_UN)
            self._forget()

    def _forget(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None


_held: weakref.WeakSet[RunLock] = weakref.WeakSet()


def _forget_all() -> None:
    for lock in list(_held):
        lock._forget()


# A lock belongs to the open file: a forked worker that outlived its parent would keep it.
os.register_at_fork(after_in_child=_forget_all)


def holder(directory: Path) -> Holder | None:
    """What the lock file says, for people."""
    try:
        return msgspec.json.decode((directory / LOCK).read_bytes(), type=Holder)
    except (OSError, msgspec.DecodeError):
        return None


def _lock(descriptor: int, operation: int) -> bool:
    """False if the file system has no locks; BlockingIOError if somebody else holds it."""
    try:
        fcntl.flock(descriptor, operation | fcntl.LOCK_NB)
    except BlockingIOError:
        raise
    except OSError as error:
        if error.errno not in _UNSUPPORTED:
            raise
        return False
    return True


def _is_at(descriptor: int, path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))
    except FileNotFoundError:
        return False


def _owner_lives(path: Path) -> bool:
    owner = holder(path.parent)
    if owner is None:
        return False
    if owner.host != platform.node():
        return True
    if owner.boot != boot_id():
        return False
    try:
        os.kill(owner.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True  # alive, and somebody else's
    return True


def _write(descriptor: int, owner: Holder) -> None:
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, msgspec.json.encode(owner), 0)


def _no_locks(directory: Path) -> str:
    return (
        f"{directory} is on a file system without locks: "
        f"do not resume this run from another machine while it runs here"
    )
