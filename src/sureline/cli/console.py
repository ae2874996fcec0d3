"""Printing: JSON for programs on stdout, sentences for people, complaints on stderr."""

from __future__ import annotations

import io
import os
import re
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from sureline.journal.words import counted, duration, moment, size
from sureline.workflow.mistakes import Mistake, SurelineError

__all__ = [
    "OutputError",
    "open_streams",
    "drop_output",
    "print_json",
    "print_json_line",
    "harmless",
    "say",
    "write",
    "flush",
    "note",
    "complain",
    "duration",
    "size",
    "counted",
    "moment",
]


class OutputError(SurelineError):
    """Stdout cannot be written: a full disk, a terminal that is gone."""


def open_streams(as_json: bool) -> None:
    """Make stdin, stdout and stderr usable whatever they are. Call it once, first of all.

    A closed one is opened on nothing: its number must not go to the journal. What an encoding
    cannot show is escaped, but JSON is UTF-8 everywhere.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        if getattr(sys, name) is None:
            nothing = os.open(os.devnull, os.O_RDWR)
            if nothing != number:
                os.dup2(nothing, number)
                os.close(nothing)
            os.set_inheritable(number, True)
            opened = open(number, "w" if number else "r", closefd=False)  # noqa: SIM115 # to the end
            setattr(sys, name, opened)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if isinstance(stream, io.TextIOWrapper):
            if isinstance(stream.buffer, io.RawIOBase):
                stream = _that_writes_all(stream)
                setattr(sys, name, stream)
            stream.reconfigure(errors="backslashreplace")
    if as_json and isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")


def _that_writes_all(stream: io.TextIOWrapper) -> io.TextIOWrapper:
    """With PYTHONUNBUFFERED, what a signal keeps from being written at once would be lost."""
    raw = stream.buffer
    assert isinstance(raw, io.RawIOBase)
    buffered = io.BufferedWriter(raw)
    return io.TextIOWrapper(buffered, stream.encoding, stream.errors, line_buffering=True)


def drop_output() -> None:
    """Point stdout at nothing, so that the interpreter's last flush does not complain."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def print_json(value: object) -> None:
    """One value on stdout, indented; a program reads the whole of stdout as one document."""
    text = msgspec.json.format(msgspec.json.encode(value), indent=2)
    write(text.decode() + "\n")


def print_json_line(value: object) -> None:
    """One value in one line, for a program that reads as we go on."""
    write(msgspec.json.encode(value).decode() + "\n")


_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def harmless(text: str) -> str:
    """The same, with what moves cursors, rings bells or talks to the terminal made visible: names,
    reasons and logs may come from anybody."""
    return _CONTROLS.sub(lambda found: f"\\x{ord(found[0]):02x}", text)


def say(text: str = "") -> None:
    write(harmless(text) + "\n")


def write(text: str) -> None:
    """Raises OutputError, or BrokenPipeError if nobody reads on."""
    try:
        sys.stdout.write(text)
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _cannot_write(error) from None


def flush() -> None:
    """Raises as `write` does."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise _cannot_write(error) from None


def _cannot_write(error: OSError) -> OutputError:
    reason = os.strerror(error.errno or 0)
    return OutputError(f"the output cannot be written ({reason}); send it elsewhere")


def note(text: str) -> None:
    """Something a person may want to know, kept out of stdout. A broken terminal is no reason
    to stop."""
    try:
        sys.stderr.write(harmless(text) + "\n")
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
