"""Whether a machine can do its work: a task that fails because the disk is full, or cannot be
written, is not to blame.

A slot says so in its report (`JobEnded.fault`); a peer of a grid then gives the task back, takes no
other, and looks now and then whether it is well again (`CheckJob`).
"""

from __future__ import annotations

import errno
import os

NO_SPACE_BYTES = 64 << 10
"""With less free space than this, a command that failed may have failed for want of it."""
WELL_FROM_BYTES = 16 << 20
"""A machine that was ill is well again with so much."""

_WORDS = {
    errno.ENOSPC: "its disk is full",
    errno.EDQUOT: "its disk quota is used up",
    errno.EROFS: "its disk is read-only",
    errno.EIO: "its disk does not work",
    errno.ENOMEM: "it is out of memory",
    errno.EMFILE: "too many files are open",
    errno.ENFILE: "too many files are open",
    errno.EAGAIN: "it can start no more processes",
}


def trouble_of(error: BaseException) -> str:
    """What an error of our own work says about the machine; '' if it says nothing."""
    return _WORDS.get(error.errno or 0, "") if isinstance(error, OSError) else ""


def trouble_at(path: str, needed_bytes: int = NO_SPACE_BYTES) -> str:
    """What is wrong with the file system there; '' if nothing seems to be."""
    try:
        place = os.statvfs(path)
    except OSError as error:
        return trouble_of(error)
    if place.f_flag & os.ST_RDONLY:
        return _WORDS[errno.EROFS]
    if place.f_bavail * place.f_frsize < needed_bytes or (place.f_files and not place.f_favail):
        return _WORDS[errno.ENOSPC]
    return ""


def trouble_writing(directory: str) -> str:
    """What is wrong now, after a try; '' if the machine is well."""
    trouble = trouble_at(directory, WELL_FROM_BYTES)
    if trouble:
        return trouble
    path = f"{directory}/.sureline-well-{os.getpid()}"
    try:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.write(fd, bytes(NO_SPACE_BYTES))
        finally:
            os.close(fd)
            os.unlink(path)
    except OSError as error:
        return trouble_of(error) or "its disk cannot be written"
    return ""
