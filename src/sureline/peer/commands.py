"""How a task's `run` becomes a process: directly where that means the same, else by the shell.

Going by the shell is always right and costs about a millisecond; so the test for "no shell
syntax" is strict, and whatever it does not know goes to the shell.
"""

from __future__ import annotations

import os
import re
import shlex
from functools import lru_cache

SHELL = "/bin/sh"

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./^ \t-]+")
"""Characters that the shell takes as they are (a first word with '=' is looked at apart)."""
_QUOTED = re.compile(r"""(?:[A-Za-z0-9_@%+=:,./^ \t-]|'[^']*'|"[^"$`\\!]*")+""")
"""The same, with quoted parts in which nothing is expanded."""

_BUILTINS = """
    . : alias bg break cd command continue declare dirs eval exec exit export fc fg getopts hash
    history jobs let local logout popd pushd read readonly return set shift shopt source times
    trap type typeset ulimit umask unalias unset wait
"""
"""Builtins that change the shell itself, or that mean something else as programs."""
_RESERVED = """
    ! case do done elif else esac fi for function if in select then time until while
"""
_OF_THE_SHELL = frozenset(_BUILTINS.split()) | frozenset(_RESERVED.split())


def argv_of(run: str, path: str | None) -> list[str]:
    """The argument vector that runs `run`. `path` is the PATH to find programs on.

    With the shell's `-e`, a script of several lines stops at its first failure.
    """
    words: list[str] | None = None
    if _PLAIN.fullmatch(run):
        words = run.split()
    elif _QUOTED.fullmatch(run):
        words = shlex.split(run)
    if words and _is_program(words[0], path):
        return words
    return [SHELL, "-ec", run]


def _is_program(word: str, path: str | None) -> bool:
    if not word or "=" in word or word in _OF_THE_SHELL:
        return False
    return "/" in word or find_program(word, path) is not None


def find_program(word: str, path: str | None) -> str | None:
    """The file that `word` names on `path`; a word with a slash names itself."""
    if "/" in word:
        return word
    if path is None:
        path = os.defpath
    found = _search(word, path)
    if found is not None and not os.access(found, os.X_OK):
        _search.cache_clear()
        found = _search(word, path)
    return found


@lru_cache(maxsize=1024)
def _search(word: str, path: str) -> str | None:
    for directory in path.split(os.pathsep):
        # a relative entry means another directory for every task: leave that to the shell
        if os.path.isabs(directory):
            candidate = f"{directory}/{word}"
            if os.path.isfile(candidate) and os.access(candidate, os.X_OK):
                return candidate
    return None
