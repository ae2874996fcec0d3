"""Paths of a workflow: relative to the working directory, '/'-separated, in normal form."""

from __future__ import annotations

import re

JOURNAL_DIRECTORY = ".sureline"

# What makes a path worth a second look; a path without any of it is in normal form already.
_ODD = re.compile(r"^[/.]|//|/\.|/$|[\x00-\x1f\x7f]|^$")
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class PathError(ValueError):
    def __init__(self, what: str, hint: str) -> None:
        self.what, self.hint = what, hint
        super().__init__(f"{what}; {hint}")


def normalise(path: str) -> str:
    """The path in normal form: no '.', '..', doubled or trailing '/'. Raises PathError.

    >>> normalise("./a//b/../c/")
    'a/c'
    """
    if not _ODD.search(path):
        return path
    if not path:
        raise PathError("a path is empty", "name a file or directory")
    if _CONTROL.search(path):
        raise PathError(f"the path {path!r} has a control character", "rename the file")
    if path.startswith("/"):
        hint = "use a path relative to it (`-C` chooses the directory)"
        raise PathError(f"'{path}' is absolute and leaves the working directory", hint)
    parts: list[str] = []
    for part in path.split("/"):
        if part == "..":
            if not parts:
                hint = "use a path inside it (`-C` chooses the directory)"
                raise PathError(f"'{path}' leaves the working directory", hint)
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    if not parts:
        hint = "name the files or directories in it"
        raise PathError(f"'{path}' is the working directory itself", hint)
    if parts[0] == JOURNAL_DIRECTORY:
        hint = "that directory is Sureline's own; use another"
        raise PathError(f"'{path}' lies in {JOURNAL_DIRECTORY}/", hint)
    return "/".join(parts)


def parents_of(path: str) -> list[str]:
    """The directories above a path, nearest first.

    >>> parents_of("a/b/c")
    ['a/b', 'a']
    """
    found = []
    while "/" in path:
        path = path.rsplit("/", 1)[0]
        found.append(path)
    return found
