"""Quantities as people write them: durations, sizes, estimates, ranges, counts. Text in, text out.

Every `parse_*` raises `QuantityError` (a ValueError) that names the value and says what would be
right. Every `format_*` writes what `parse_*` reads back as the same value; a number that no unit
suits is written plainly.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from decimal import ROUND_CEILING, Decimal
from functools import lru_cache

from sureline.workflow.model import Takes

RANGE_VALUES_MAX = 10_000_000
DURATION_S_MAX = 1e10  # some three centuries: beyond it, a typing error
SIZE_BYTES_MAX = 2**63 - 1
COUNT_MAX = 10**9
CORES_MAX = 1e6


class QuantityError(ValueError):
    """`what` names the value; `hint` says what would be right."""

    def __init__(self, what: str, hint: str) -> None:
        self.what = what
        self.hint = hint
        super().__init__(f"{what}; {hint}")


_SECONDS = {
    "ms": Decimal("0.001"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), Decimal(1)),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), Decimal(60)),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), Decimal(3600)),
    **dict.fromkeys(("d", "day", "days"), Decimal(86_400)),
    **dict.fromkeys(("w", "week", "weeks"), Decimal(604_800)),
}
_NUMBER = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d{1,3})?"
_BARE = re.compile(_NUMBER, re.ASCII)
_DURATION_PART = re.compile(rf"\s*({_NUMBER})\s*([A-Za-z]+)\s*", re.ASCII)
_DURATION_HINT = "write a number and a unit, such as 250ms, 90s, 5 min or 1h30m"
_LENGTH_MAX = 100


@lru_cache(maxsize=65_536)
def parse_duration(text: str) -> float:
    """Seconds. '5 min', '1h30m', '250ms'; a bare number is seconds."""
    stripped = _short(text, "a duration", _DURATION_HINT)
    if stripped.startswith("-"):
        raise QuantityError(f"'{text}' is negative", "write a duration of zero or more")
    total = Decimal(stripped) if _BARE.fullmatch(stripped) else _sum_of_parts(stripped, text)
    if total > DURATION_S_MAX:
        raise QuantityError(f"'{text}' is longer than 300 years", "write a shorter duration")
    return float(total)


def _sum_of_parts(stripped: str, text: str) -> Decimal:
    total, position = Decimal(0), 0
    while position < len(stripped):
        part = _DURATION_PART.match(stripped, position)
        unit = part and _SECONDS.get(part[2].lower())
        if part is None or unit is None:
            raise QuantityError(f"'{text}' is not a duration", _DURATION_HINT)
        total += Decimal(part[1]) * unit
        position = part.end()
    return total


def format_duration(seconds: float) -> str:
    """
    >>> format_duration(300), format_duration(5400), format_duration(0.25), format_duration(1.5)
    ('5min', '1h30min', '250ms', '1.5s')
    """
    if seconds == int(seconds):
        rest, written = int(seconds), ""
        for unit, size in (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
            count, rest = divmod(rest, size)
            written += f"{count}{unit}" if count else ""
        return written or "0s"
    in_ms = f"{seconds * 1000:.0f}ms"
    if seconds < 1 and parse_duration(in_ms) == seconds:
        return in_ms
    return f"{seconds!r}s"


_SIZE = re.compile(rf"({_NUMBER})\s*([A-Za-z]*)", re.ASCII)
_SIZE_HINT = "write bytes, or a number and a unit, such as 200MB, 4 GiB or 1.5G"
_BYTES = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgtpe", start=1):
    _BYTES |= {_letter: 1000**_power, f"{_letter}b": 1000**_power}
    _BYTES |= {f"{_letter}i": 1024**_power, f"{_letter}ib": 1024**_power}
_DECIMAL_UNITS = [("TB", 1000**4), ("GB", 1000**3), ("MB", 1000**2), ("kB", 1000)]
_BINARY_UNITS = [("TiB", 1024**4), ("GiB", 1024**3), ("MiB", 1024**2), ("KiB", 1024)]


@lru_cache(maxsize=65_536)
def parse_size(text: str) -> int:
    """Bytes. kB, MB, ... are powers of 1000 ('M' alone too), KiB, MiB, ... of 1024."""
    stripped = _short(text, "a size", _SIZE_HINT)
    found = _SIZE.fullmatch(stripped)
    unit = found and _BYTES.get(found[2].lower())
    if found is None or unit is None:
        raise QuantityError(f"'{text}' is not a size", _SIZE_HINT)
    size = Decimal(found[1]) * unit
    if size > SIZE_BYTES_MAX:
        raise QuantityError(f"'{text}' is more than any machine has", "write a smaller size")
    return int(size.to_integral_value(ROUND_CEILING))


def format_size(size_bytes: int) -> str:
    """
    >>> format_size(200_000_000), format_size(4 * 2**30), format_size(1234), format_size(0)
    ('200MB', '4GiB', '1234', '0')
    """
    for unit, size in _DECIMAL_UNITS + _BINARY_UNITS:
        if size_bytes and size_bytes % size == 0:
            return f"{size_bytes // size}{unit}"
    return str(size_bytes)


_TAKES_HINT = "write optimistic .. likely .. pessimistic, such as 1s .. 3s .. 10s, or one duration"


@lru_cache(maxsize=65_536)
def parse_takes(text: str) -> Takes:
    """'1s .. 3s .. 10s', or one duration for all three."""
    parts = [part.strip() for part in text.split("..")]
    if len(parts) not in (1, 3) or not all(parts):
        raise QuantityError(f"'{text}' is not an estimate", _TAKES_HINT)
    low, likely, high = [parse_duration(part) for part in (parts * 3)[:3]]
    if not low <= likely <= high:
        raise QuantityError(f"'{text}' is out of order", _TAKES_HINT)
    return Takes(low, likely, high)


def format_takes(takes: Takes) -> str:
    values = [takes.optimistic_s, takes.likely_s, takes.pessimistic_s]
    if len(set(values)) == 1:
        return format_duration(values[0])
    return " .. ".join(format_duration(v) for v in values)


class IntRange:
    """The numbers of a range, as text; padded with zeros when a bound is ('00..99')."""

    def __init__(self, numbers: range, width: int) -> None:
        self.numbers = numbers
        self.width = width

    def __len__(self) -> int:
        return len(self.numbers)

    def __iter__(self) -> Iterator[str]:
        if not self.width:
            return map(str, self.numbers)
        return (f"{number:0{self.width}d}" for number in self.numbers)


_RANGE = re.compile(
    r"\s*(-?\d{1,18})\s*\.\.\s*(-?\d{1,18})\s*(?:\.\.\s*(-?\d{1,18})\s*)?", re.ASCII
)
_RANGE_HINT = "write first..last or first..last..step, such as 1..1000 or 0..100..5"


def looks_like_range(text: str) -> bool:
    return ".." in text


def parse_range(text: str) -> IntRange:
    """'1..1000' (both included), '0..100..5', '10..1..-1', '00..99' (padded)."""
    found = _RANGE.fullmatch(text)
    if found is None:
        raise QuantityError(f"'{_cut(text)}' is not a range", _RANGE_HINT)
    first, last, step = int(found[1]), int(found[2]), int(found[3] or 1)
    if step == 0:
        raise QuantityError(f"'{text}' has the step 0", _RANGE_HINT)
    numbers = range(first, last + (1 if step > 0 else -1), step)
    if not numbers:
        raise QuantityError(f"'{text}' is empty", f"swap the bounds, or {_RANGE_HINT}")
    if len(numbers) > RANGE_VALUES_MAX:
        raise QuantityError(
            f"'{text}' has {len(numbers):,} values", f"use at most {RANGE_VALUES_MAX:,}"
        )
    bounds = (found[1], found[2])
    padded = any(len(bound.lstrip("-")) > 1 and bound.lstrip("-")[0] == "0" for bound in bounds)
    return IntRange(numbers, max(map(len, bounds)) if padded else 0)


@lru_cache(maxsize=65_536)
def parse_cores(text: str) -> float:
    """A positive number of cores; parts of one are allowed."""
    hint = "write a positive number, such as 1, 4 or 0.5"
    stripped = _short(text, "a number of cores", hint)
    if not _BARE.fullmatch(stripped) or not 0 < float(stripped) <= CORES_MAX:
        raise QuantityError(f"'{text}' is not a number of cores", hint)
    return float(stripped)


def format_cores(cores: float) -> str:
    return str(int(cores)) if cores == int(cores) else repr(cores)


def parse_count(text: str, least: int = 0) -> int:
    """A whole number, at least `least`."""
    stripped = text.strip()
    if not re.fullmatch(r"\d{1,10}", stripped, re.ASCII) or not least <= int(stripped) <= COUNT_MAX:
        what = f"'{_cut(text)}' is not a whole number of {least} or more"
        raise QuantityError(what, f"write a number such as {max(least, 2)}")
    return int(stripped)


def parse_speed(speed: float) -> float:
    """A factor by which pretended time runs faster: positive and finite."""
    if not (speed > 0 and math.isfinite(speed)):
        raise QuantityError(f"speed {speed} is not possible", "give a positive number, such as 10")
    return speed


def _short(text: str, what: str, hint: str) -> str:
    stripped = text.strip()
    if not stripped or len(stripped) > _LENGTH_MAX:
        raise QuantityError(f"'{_cut(text)}' is not {what}", hint)
    return stripped


def _cut(text: str) -> str:
    return text if len(text) <= _LENGTH_MAX else text[:_LENGTH_MAX] + "..."
