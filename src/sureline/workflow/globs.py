"""Matching paths with wildcards, without looking at every path for every pattern.

`*` and `?` match within one name, `[a-z]` one character, `**` any number of directories. As in a
shell, a wildcard at the start of a name does not match a dot there. Paths are kept sorted, once
as they are and once reversed; a pattern looks only at those that share its fixed beginning or
its fixed end, whichever are fewer.
"""

from __future__ import annotations

import os
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property, lru_cache
from typing import Protocol

from sureline.workflow.paths import JOURNAL_DIRECTORY

LOOKS_MAX = 20_000_000
ENTRIES_MAX = 2_000_000

_WILD = re.compile(r"[*?]|\[[^/][^\]/]*\]")
_TOP = chr(0x10FFFF)


class GlobError(ValueError):
    """Matching would take too long."""


def is_glob(path: str) -> bool:
    return ("*" in path or "?" in path or "[" in path) and _WILD.search(path) is not None


def escape_glob(path: str) -> str:
    """The pattern that matches this path alone; the path itself if nothing in it is a wildcard."""
    return re.sub(r"[*?\[]", r"[\g<0>]", path) if is_glob(path) else path


@lru_cache(maxsize=4096)
def compile_glob(pattern: str) -> Callable[[str], object]:
    """A test for paths."""
    if pattern.count("*") == 1 and "?" not in pattern and "[" not in pattern:
        return _single_star(*pattern.split("*"))  # a regex takes 30 times as long to compile
    written = []
    parts = pattern.split("/")
    for place, part in enumerate(parts):
        last = place == len(parts) - 1
        if part == "**":
            written.append(r"(?!\.)[^/]+(?:/(?!\.)[^/]+)*" if last else r"(?:(?!\.)[^/]+/)*")
        else:
            written.append(_name_regex(part) + ("" if last else "/"))
    return re.compile("".join(written)).fullmatch


def _single_star(head: str, tail: str) -> Callable[[str], object]:
    begins_a_name = not head or head.endswith("/")

    def test(path: str) -> bool:
        if not (path.startswith(head) and path.endswith(tail)):
            return False
        middle = path[len(head) : len(path) - len(tail)]
        if len(path) < len(head) + len(tail) or "/" in middle:
            return False
        return not (begins_a_name and path.startswith(".", len(head)))

    return test


def _name_regex(part: str) -> str:
    """The expression for one name. What stands between two stars may match at its first place,
    for good (an atomic group): so many stars take no longer than one."""
    hidden = r"(?!\.)" if part.startswith(("*", "?", "[")) else ""
    first, *rest = _between_stars(part)
    if not rest:
        return hidden + first
    middle = "".join(f"(?>[^/]*?{between})" for between in rest[:-1] if between)
    return f"{hidden}{first}{middle}[^/]*{rest[-1]}"


def _between_stars(part: str) -> list[str]:
    """Expressions for what stands before, between and after the stars of a name."""
    written = [""]
    place = 0
    while place < len(part):
        letter = part[place]
        if letter == "*":
            written.append("")
        elif letter == "?":
            written[-1] += "[^/]"
        elif letter == "[" and (end := part.find("]", place + 2)) > 0:
            inner = part[place + 1 : end]
            negated = inner[0] in "!^" and len(inner) > 1
            inner = inner[1:] if negated else inner
            inner = re.sub(r"[\\\[\]^&~|]", r"\\\g<0>", inner)
            written[-1] += f"(?!/)[{'^' if negated else ''}{inner}]"
            place = end
        else:
            written[-1] += re.escape(letter)
        place += 1
    return written


class PathIndex:
    """Paths, to be searched by pattern. `looks` counts the paths tried over its life."""

    def __init__(self, paths: Iterable[str]) -> None:
        self._sorted = sorted(paths)
        self.looks = 0

    @cached_property
    def _reversed(self) -> list[str]:
        return sorted(path[::-1] for path in self._sorted)

    def match(self, pattern: str) -> list[str]:
        """The matching paths, sorted. Raises GlobError, and re.error for a senseless range."""
        wild = list(_WILD.finditer(pattern))
        head, tail = pattern[: wild[0].start()], pattern[wild[-1].end() :]
        low, high = _span(self._sorted, head)
        candidates: Iterable[str] = self._sorted[low:high]
        count = high - low
        if count > 100 and tail:
            low, high = _span(self._reversed, tail[::-1])
            if high - low < count:
                count = high - low
                candidates = sorted(path[::-1] for path in self._reversed[low:high])
        self.looks += count
        if self.looks > LOOKS_MAX:
            raise GlobError(f"the wildcards compare more than {LOOKS_MAX:,} names")
        test = compile_glob(pattern)
        return [path for path in candidates if test(path)]

    def near(self, path: str, count: int = 200) -> list[str]:
        """Paths that stand next to this one, sorted by beginnings: candidates for a hint."""
        place = bisect_left(self._sorted, path)
        return self._sorted[max(0, place - count) : place + count]

    def below(self, directory: str) -> list[str]:
        """The paths inside a directory, sorted."""
        low, high = _span(self._sorted, directory + "/")
        return self._sorted[low:high]


def _span(paths: list[str], prefix: str) -> tuple[int, int]:
    return bisect_left(paths, prefix), bisect_left(paths, prefix + _TOP)


class UserFiles(Protocol):
    """The user's files, as far as checking needs them. Paths are relative and normal."""

    def exists(self, path: str) -> bool: ...

    def names(self, directory: str, depth: int | None) -> Iterable[str]:
        """Paths below a directory ('' is the top) down to `depth` levels, hidden ones too.

        With depth None all levels, but files only; else files and directories.
        """


class RealDisk:
    """The files under a directory. A link to a directory is an entry, and is not followed."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self._top = os.fspath(directory)

    def exists(self, path: str) -> bool:
        return os.path.exists(f"{self._top}/{path}")

    def names(self, directory: str, depth: int | None) -> Iterator[str]:
        waiting = [(directory, 1)]
        count = 0
        while waiting:
            here, level = waiting.pop()
            try:
                entries = list(os.scandir(f"{self._top}/{here}"))
            except OSError:
                continue  # not there or not ours to read: nothing in it matches
            count += len(entries)
            if count > ENTRIES_MAX:
                raise GlobError(f"there are more than {ENTRIES_MAX:,} files to look through")
            for entry in entries:
                path = f"{here}/{entry.name}" if here else entry.name
                if path == JOURNAL_DIRECTORY:
                    continue
                below = entry.is_dir(follow_symlinks=False)
                if below and (depth is None or level < depth):
                    waiting.append((path, level + 1))
                if not (below and depth is None):
                    yield path


class DiskIndex:
    """Patterns against a disk; every directory is listed once."""

    def __init__(self, disk: UserFiles) -> None:
        self._disk = disk
        self._listed: dict[tuple[str, int | None], PathIndex] = {}

    def match(self, pattern: str) -> list[str]:
        """The existing paths that match, sorted. Raises GlobError or re.error."""
        parts = pattern.split("/")
        fixed = 0
        while fixed < len(parts) - 1 and not is_glob(parts[fixed]):
            fixed += 1
        depth = None if "**" in parts else len(parts) - fixed
        return self._index("/".join(parts[:fixed]), depth).match(pattern)

    def near(self, path: str) -> list[str]:
        """Existing paths in the same directory that stand next to this one. Raises GlobError."""
        directory = path.rsplit("/", 1)[0] if "/" in path else ""
        return self._index(directory, 1).near(path)

    def _index(self, directory: str, depth: int | None) -> PathIndex:
        index = self._listed.get((directory, depth))
        if index is None:
            index = PathIndex(_clean(self._disk.names(directory, depth)))
            self._listed[directory, depth] = index
        return index


def _clean(names: Iterable[str]) -> Iterator[str]:
    """Only names that are text: others could be neither journalled nor sent to a peer."""
    for name in names:
        try:
            name.encode()
        except UnicodeEncodeError:
            continue
        yield name
