"""How a task's `run` becomes a process: directly where that means the same, else by a shell.

The shell is bash, or sh where there is none, and stops at the first failure, also of a part of a
pipe. A `shell:` names another program, to which the text is given as a file; a `#!` line does too.

Going by the shell is always right and costs about a millisecond; so the test for "no shell
syntax" is strict, and whatever it does not know goes to the shell.
"""

from __future__ import annotations

import os
import re
import shlex
from functools import lru_cache
from typing import NamedTuple

SHELL = "/bin/sh"
SCRIPT = ".sureline-script"
"""The file, in a task's own directory, that holds a text for another program than a shell."""
_PIPEFAIL = "(set -o pipefail) 2>/dev/null && set -o pipefail\n"
"""sh knows it since POSIX 2024; an older one goes without."""

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


class Start(NamedTuple):
    argv: list[str]
    script: bool = False
    """Whether the text must lie in the file SCRIPT."""


def argv_of(run: str, path: str | None, shell: str = "") -> list[str]:
    """The argument vector that runs `run`; see `start_of`."""
    return start_of(run, path, shell).argv


def start_of(run: str, path: str | None, shell: str = "") -> Start:
    """How to run `run`. `path` is the PATH to find programs on."""
    if run.startswith("#!"):
        line = run.split("\n", 1)[0][2:].strip()
        program, _, argument = line.partition(" ")
        return Start([program, *([argument.strip()] if argument.strip() else []), SCRIPT], True)
    if not shell:
        words: list[str] | None = None
        if _PLAIN.fullmatch(run):
            words = run.split()
        elif _QUOTED.fullmatch(run):
            words = shlex.split(run)
        if words and _is_program(words[0], path):
            return Start(words)
        return Start(shell_argv(run, path))
    words = shlex.split(shell)
    if len(words) == 1 and os.path.basename(words[0]) in ("bash", "sh"):
        return Start(_shell(words[0], run))
    if "{}" not in shell:
        words.append("{}")
    return Start([word.replace("{}", SCRIPT) for word in words], True)


def shell_argv(run: str, path: str | None) -> list[str]:
    """As a text for bash, or for sh where that is not on `path`."""
    return _shell("bash" if find_program("bash", path) else SHELL, run)


def _shell(program: str, run: str) -> list[str]:
    if os.path.basename(program) == "bash":
        return [program, "-eo", "pipefail", "-c", run]
    return [program, "-ec", _PIPEFAIL + run]


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
