"""Printing: JSON for programs on stdout, sentences for people, complaints on stderr."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from sureline.workflow.mistakes import Mistake


def print_json(value: object) -> None:
    """One value on stdout, indented; a program reads the whole of stdout as one document."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    sys.stdout.write(text.decode() + "\n")


def say(text: str = "") -> None:
    sys.stdout.write(text + "\n")


def note(text: str) -> None:
    """Something a person may want to know, kept out of stdout. A broken terminal is no reason
    to stop."""
    try:
        sys.stderr.write(text + "\n")
        sys.stderr.flush()
    except OSError:
        pass


def complain(mistakes: Sequence[Mistake | str], as_json: bool, code: int, *, hint: str = "") -> int:
    """Print what went wrong, one sentence each, and return the exit code.

    With --json, stdout gets {"error": {"code", "mistakes": [{file, line, what, hint}]}} too.
    """
    for mistake in mistakes:
        note(f"sureline: {mistake}" + (f"; {hint}" if hint else ""))
    if as_json:
        print_json({"error": {"code": code, "mistakes": [_as_data(m, hint) for m in mistakes]}})
    return code


def _as_data(mistake: Mistake | str, hint: str) -> dict[str, Any]:
    if isinstance(mistake, str):
        return {"file": None, "line": None, "what": mistake, "hint": hint}
    return {
        "file": mistake.file,
        "line": mistake.line,
        "what": mistake.what,
        "hint": mistake.hint,
    }


def duration(seconds: float) -> str:
    """A duration for people: 0.4 s, 12 s, 3 min 20 s, 2 h 05 min."""
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def size(count: float) -> str:
    """A size for people: 12 B, 3.4 MB."""
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1000
    return f"{count:.1f} TB"
