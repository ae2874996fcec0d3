"""Removing directories that tasks have made: however deep, however long their paths, whatever their
modes, and never by following a link.

A directory inside another is first moved up to the top, and then emptied there: so two open
descriptors are enough for any depth, and no path is ever longer than a name. What cannot be removed
(a mount, a file that the kernel protects) does not keep the rest: `clear_away` moves it aside and
says where to.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections.abc import Collection

_MOVED = ".sureline-up-"
"""What was moved up to be emptied; a number follows."""
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_EMPTY = (errno.ENOTEMPTY, errno.EEXIST)
_ROUNDS_MAX = 1_000_000
"""Each round goes one level deeper; a tree that never ends is being made while we remove it."""


def remove_tree(path: str) -> None:
    """Remove a directory and all in it. Not finding something is no error: that is what was wanted.

    Raises OSError, when all that can go has gone, if something is left.
    """
    try:
        empty_directory(path)
        os.rmdir(path)
    except FileNotFoundError:
        pass


def empty_directory(path: str, but: Collection[str] = ()) -> None:
    """Remove all that is in a directory but for some names, and not the directory. Raises as
    `remove_tree` does."""
    try:
        top = _opened(path, None)
    except FileNotFoundError:
        return
    try:
        _empty(top, but)
    finally:
        os.close(top)


def clear_away(path: str, aside: str) -> str:
    """Remove a directory or file; what cannot be removed is moved into the directory `aside`. Where
    it is then; '' if all of it is gone. Raises OSError if it can neither go nor move."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            remove_tree(path)
        else:
            os.unlink(path)
        return ""
    except FileNotFoundError:
        return ""
    except OSError:
        os.makedirs(aside, exist_ok=True)
        name = os.path.basename(path)
        for number in itertools.count(1):
            target = f"{aside}/{name}.{number}"
            try:
                if not os.path.lexists(target):
                    os.rename(path, target)
                    return target
            except OSError as error:
                if error.errno not in _NOT_EMPTY:
                    raise
        raise


def _empty(top: int, but: Collection[str]) -> None:
    serial = itertools.count()
    stuck: dict[str, OSError] = {}
    for _ in range(_ROUNDS_MAX):
        names = [name for name in os.listdir(top) if name not in stuck and name not in but]
        if not names:
            break
        for name in names:
            error = _remove(top, name, top, serial)
            if error is not None:
                stuck[name] = error
    for error in stuck.values():
        raise error


def _remove(parent: int, name: str, top: int, serial: itertools.count[int]) -> OSError | None:
    """Remove one entry; a directory that lies below `top` may be moved there instead. What kept it,
    if it is neither gone nor moved."""
    try:
        os.unlink(name, dir_fd=parent)
        return None
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in (errno.EISDIR, errno.EPERM, errno.EACCES):
            return error
        refused = error
    try:
        os.rmdir(name, dir_fd=parent)
        return None
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        return refused
    except OSError as error:
        if error.errno not in (*_NOT_EMPTY, errno.EACCES, errno.EPERM):
            return error
    try:
        return _remove_full(parent, name, top, serial)
    except OSError as error:
        return error


def _remove_full(parent: int, name: str, top: int, serial: itertools.count[int]) -> OSError | None:
    inside = _opened(name, parent)
    try:
        if parent != top:
            _rename_up(parent, name, top, serial)
            return None
        kept = None
        for below in os.listdir(inside):
            kept = _remove(inside, below, top, serial) or kept
    finally:
        os.close(inside)
    if kept is None:
        try:
            os.rmdir(name, dir_fd=parent)
        except OSError as error:
            return error
    return kept


def _rename_up(parent: int, name: str, top: int, serial: itertools.count[int]) -> None:
    for number in serial:
        try:
            os.rename(name, f"{_MOVED}{number}", src_dir_fd=parent, dst_dir_fd=top)
            return
        except OSError as error:
            if error.errno not in (*_NOT_EMPTY, errno.ENOTDIR):
                raise


def _opened(name: str, parent: int | None) -> int:
    """The directory, open, and ours to change."""
    try:
        fd = os.open(name, _DIRECTORY, dir_fd=parent)
    except PermissionError:
        _unlock(name, parent)
        fd = os.open(name, _DIRECTORY, dir_fd=parent)
    if os.fstat(fd).st_mode & 0o700 != 0o700:
        try:
            os.fchmod(fd, 0o700)
        except OSError:
            pass  # somebody else's: what may go goes
    return fd


def _unlock(name: str, parent: int | None) -> None:
    """Let us in, without following a link."""
    where = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{where}", 0o700)
    finally:
        os.close(where)
