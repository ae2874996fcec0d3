"""Directories as content: a manifest names all that is in one, so that its hash names it too.

A manifest is JSON, entries sorted by path; it holds nothing that differs between two equal
directories (no times, no owners).
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Literal

import msgspec

from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import SurelineError

MAX_ENTRIES = 1_000_000
"""A directory with more than this is refused: its manifest alone would be a burden."""


class StoreError(SurelineError):
    """A file that cannot be stored or put in its place; the message says which and why."""


class TreeEntry(msgspec.Struct, frozen=True, array_like=True):
    """`what` is the digest of a file, the target of a link, '' for a directory."""

    path: str
    kind: Literal["file", "program", "link", "directory"]
    what: str = ""
    size: int = 0


_DIGEST = re.compile("[0-9a-f]{64}")

_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(list[TreeEntry]).decode


def to_manifest(entries: list[TreeEntry]) -> bytes:
    return _encode(sorted(entries, key=lambda entry: entry.path))


def from_manifest(data: bytes) -> list[TreeEntry]:
    """Parents come before what is in them.

    Raises StoreError if this is no manifest, or one whose files would lie outside its directory:
    it may come from anybody who knows a digest.
    """
    try:
        entries = _decode(data)
    except msgspec.DecodeError:
        raise StoreError("a stored directory's manifest cannot be read") from None
    known: dict[str, str] = {"": "directory"}
    for entry in entries:
        parent, _, name = entry.path.rpartition("/")
        if (
            name in ("", ".", "..")
            or "\0" in entry.path
            or entry.path in known
            or known.get(parent) != "directory"
            or not _sound(entry)
        ):
            raise StoreError(f"a stored directory's manifest may not name {entry.path!r}")
        known[entry.path] = entry.kind
    return entries


def _sound(entry: TreeEntry) -> bool:
    if entry.kind == "link":
        return "\0" not in entry.what and stays_inside(entry.path, entry.what)
    if entry.kind == "directory":
        return True
    return _DIGEST.fullmatch(entry.what) is not None and entry.size >= 0


def walk(top: str) -> Iterator[tuple[str, os.stat_result]]:
    """All below `top`, as paths relative to it with what `lstat` says; parents first.

    Raises StoreError past MAX_ENTRIES.
    """
    waiting = [""]
    seen = 0
    while waiting:
        parent = waiting.pop()
        with os.scandir(f"{top}/{parent}") as found:
            names = sorted(entry.name for entry in found)
        for name in names:
            seen += 1
            if seen > MAX_ENTRIES:
                raise StoreError(f"{top} holds more than {MAX_ENTRIES} files")
            path = f"{parent}{name}"
            if not is_text(name):
                raise StoreError(f"{top} holds {_shown(path)}, a name that is not UTF-8; rename it")
            status = os.lstat(f"{top}/{path}")
            yield path, status
            if stat.S_ISDIR(status.st_mode):
                waiting.append(f"{path}/")


def entries_of(
    top: str,
    shown: str,
    store_file: Callable[[str, str], TreeEntry],
    on_leaving_link: Callable[[str, str], TreeEntry],
) -> list[TreeEntry]:
    """Describe a directory. `store_file(full, relative)` stores one file and describes it;
    `on_leaving_link` decides about a link that points out of the directory. `shown` is the name
    for messages."""
    found: list[TreeEntry] = []
    for path, status in walk(top):
        full = f"{top}/{path}"
        if stat.S_ISREG(status.st_mode):
            found.append(store_file(full, path))
        elif stat.S_ISDIR(status.st_mode):
            found.append(TreeEntry(path, "directory"))
        elif stat.S_ISLNK(status.st_mode):
            target = os.readlink(full)
            if not is_text(target):
                what = f"points to {_shown(target)}, a name that is not UTF-8"
                raise StoreError(f"{shown}/{path} {what}; rename it")
            if stays_inside(path, target):
                found.append(TreeEntry(path, "link", target))
            else:
                found.append(on_leaving_link(full, path))
        else:
            raise StoreError(f"{shown}/{path} is a {special_name(status.st_mode)}, not a file")
    return found


def is_text(name: str) -> bool:
    """Whether a name can be recorded, and sent to others."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _shown(name: str) -> str:
    """A name for messages, whatever bytes are in it."""
    return repr(os.fsencode(name))[1:]


def stays_inside(path: str, target: str) -> bool:
    """Whether a link at `path` (relative to the top) with this target stays below the top."""
    if os.path.isabs(target):
        return False
    reached = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return reached != ".." and not reached.startswith("../")


def special_name(mode: int) -> str:
    kinds = (
        (stat.S_ISFIFO, "named pipe"),
        (stat.S_ISSOCK, "socket"),
        (stat.S_ISBLK, "block device"),
        (stat.S_ISCHR, "character device"),
        (stat.S_ISLNK, "symbolic link"),
        (stat.S_ISDIR, "directory"),
    )
    return next((name for test, name in kinds if test(mode)), "special file")


def entry_of(relative: str, record: FileRecord) -> TreeEntry:
    kind = "program" if record.executable else "file"
    return TreeEntry(relative, kind, record.digest, record.size)  # type: ignore[arg-type]  # one of two
