"""Files and directories that are there whole or not at all, and that only their owner may read.

Everything is written beside its place, made durable, and moved there by a rename. A kill may
leave a file or directory whose name begins with '.new-': it is never read, is as private as the
real one, and `sweep` removes it once it is old enough that nobody can be at work on it.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from sureline.world.identity.errors import IdentityError

_UNFINISHED = ".new-"
_UNFINISHED_AGE_S_MAX = 3600.0
_LOCK_PAUSE_S = 0.02


def read(path: Path, size_bytes_max: int) -> bytes | None:
    """The file's content; None if there is none. Raises IdentityError if it is too large."""
    try:
        with open(path, "rb") as file:
            content = file.read(size_bytes_max + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise unusable(path, error) from None
    if len(content) > size_bytes_max:
        raise IdentityError(f"{path} is larger than it can be; restore it, or enrol anew")
    return content


def read_secret(path: Path, size_bytes_max: int) -> bytes | None:
    """Like `read`; refuses a file that others could have read."""
    check_private(path)
    return read(path, size_bytes_max)


def write(path: Path, content: bytes) -> None:
    """Replace the file, durably, in one step; only its owner may read it."""
    beside = path.with_name(f"{_UNFINISHED}{path.name}-{secrets.token_hex(4)}")
    try:
        _write_new(beside, content)
        os.rename(beside, path)
        _sync_directory(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            os.unlink(beside)
        raise unusable(path, error) from None


def make_directory(path: Path, fill: Callable[[Path], None]) -> bool:
    """Make a directory with all that `fill` puts into it, durably, in one step; False if it
    exists already, in which case it is left alone."""
    beside = path.with_name(f"{_UNFINISHED}{path.name}-{secrets.token_hex(4)}")
    try:
        os.mkdir(beside, 0o700)
        fill(beside)
        _sync_directory(beside)
        return move_directory(beside, path)
    except OSError as error:
        raise unusable(path, error) from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def move_directory(source: Path, target: Path) -> bool:
    """Move a complete directory into place; False if something is there already."""
    try:
        os.rename(source, target)
    except OSError:
        if target.exists():
            return False
        raise
    _sync_directory(target.parent)
    return True


def ensure_directory(path: Path) -> None:
    """The directory and its parents, private to their owner where they are new."""
    for missing in reversed([path, *path.parents]):
        try:
            os.mkdir(missing, 0o700)
        except FileExistsError:
            continue
        except OSError as error:
            if missing.is_dir():
                continue  # such as a read-only system directory on the way
            raise unusable(missing, error) from None


def check_private(path: Path) -> None:
    """Raises IdentityError if anybody but its owner, who must be us, may read or change it.
    A path that does not exist is private enough."""
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable(path, error) from None
    if found.st_uid != os.geteuid():
        raise IdentityError(f"{path} belongs to another user; use a home of your own")
    if found.st_mode & 0o077:
        mode = "700" if stat.S_ISDIR(found.st_mode) else "600"
        raise IdentityError(f"{path} is open to other users; close it with: chmod {mode} {path}")


def check_not_writable(path: Path) -> None:
    """Raises IdentityError if anybody but its owner could put something into a directory."""
    try:
        mode = os.stat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise unusable(path, error) from None
    if mode & 0o022:
        raise IdentityError(f"{path} can be changed by others; close it with: chmod go-w {path}")


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock file: one process (and thread) at a time."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(path, error) from None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def try_lock(path: Path, patience_s: float = 0.0) -> int | None:
    """A descriptor that holds the lock file until it is closed; None if another has it. Others
    hold it for a moment just to see whether they can: be patient if that would matter."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise unusable(path, error) from None
    deadline = time.monotonic() + patience_s
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return descriptor
        except OSError:
            if time.monotonic() >= deadline:
                os.close(descriptor)
                return None
            time.sleep(_LOCK_PAUSE_S)


def sweep(directory: Path) -> None:
    """Remove what a killed process left unfinished in this directory."""
    before = time.time() - _UNFINISHED_AGE_S_MAX
    for entry in list(os.scandir(directory)):
        with contextlib.suppress(OSError):
            if entry.name.startswith(_UNFINISHED) and entry.stat().st_mtime < before:
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path, ignore_errors=True)
                else:
                    os.unlink(entry.path)


def unusable(path: Path, error: OSError) -> IdentityError:
    reason = os.strerror(error.errno) if error.errno else str(error)
    return IdentityError(f"{path} cannot be used ({reason}); repair it, or set SURELINE_HOME")


def _write_new(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(descriptor)


def _sync_directory(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
