"""Quantities in words, rounded for people; programs get the numbers."""

from __future__ import annotations

import datetime
from collections.abc import Sequence


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


def percent(share: float) -> str:
    """
    >>> percent(0.871), percent(1.0)
    ('87 %', '100 %')
    """
    return f"{100 * share:.0f} %"


def counted(count: int, noun: str, plural: str = "") -> str:
    """
    >>> counted(1, "task"), counted(6, "task"), counted(0, "dependency", "dependencies")
    ('1 task', '6 tasks', '0 dependencies')
    """
    return f"{count} {noun}" if count == 1 else f"{count} {plural or noun + 's'}"


def listed(names: Sequence[str], most: int = 3, total: int | None = None) -> str:
    """Some of them, and how many more there are (of `total`, if these are not all).

    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 more')
    """
    total = len(names) if total is None else total
    shown = list(names[:most])
    if total > len(shown):
        shown.append(f"{total - len(shown)} more")
    return " and ".join(part for part in (", ".join(shown[:-1]), *shown[-1:]) if part)


def moment(at: float) -> str:
    """A time for programs: ISO 8601 with an offset, to the second."""
    return datetime.datetime.fromtimestamp(at).astimezone().isoformat(timespec="seconds")
