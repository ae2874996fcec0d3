"""What a file is, apart from where it lies: its identity and what a store must know of it."""

from __future__ import annotations

import re

import msgspec

_DIGEST = re.compile("[0-9a-f]{64}")


class FileRecord(msgspec.Struct, frozen=True, array_like=True):
    """One file or directory as a task read or made it.

    `digest` is the blake3 hash (hex) of the content; of a directory, that of its manifest. A file
    used in place has the digest `stat:SIZE:MTIME_NS`, because its content was never read.
    `ctime_ns` is when the stored copy was last changed in any way, as the kernel says; of a
    directory, the youngest of its files. If that is another now, or the size is, the content
    must be looked at before the copy is used.
    """

    path: str
    digest: str
    size: int
    ctime_ns: int = 0
    executable: bool = False
    directory: bool = False

    @property
    def in_place(self) -> bool:
        return self.digest.startswith("stat:")


def is_digest(text: str) -> bool:
    """Whether it could be the hash of a content."""
    return _DIGEST.fullmatch(text) is not None


def result_path(task: str) -> str:
    """The path under which a call's long result is recorded; never published to the user."""
    return f".sureline/results/{task}"
