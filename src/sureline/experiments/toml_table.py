"""Reading a TOML file so that every mistake in it is told at once, with its line and its key.

`load` parses; a `TomlTable` hands out the values of one table by kind of quantity, notes what is
wrong with them in a `Collector`, and gives the default instead, so that reading goes on. `done`
notes the keys that nobody asked for.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from sureline.experiments.distributions import FORMS, Distribution, parse_distribution
from sureline.workflow.collect import Collector, did_you_mean
from sureline.workflow.mistakes import Mistake, WorkflowError
from sureline.workflow.quantities import QuantityError, parse_duration, parse_size

T = TypeVar("T")
Path = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?")
_KEY = re.compile(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=""")
_AT_LINE = re.compile(r" \(at line (\d+), column \d+\)$")
_RATE = re.compile(r"\s*([\d.eE+-]+)\s*([kMG]?)bit\s*/\s*s\s*", re.ASCII)
_BITS = {"": 1, "k": 1000, "M": 1000**2, "G": 1000**3}


class ScenarioError(WorkflowError):
    """A scenario that cannot be run, with *all* that is wrong with it."""


def load(data: bytes, file: str) -> tuple[dict[str, Any], dict[Path, int]]:
    """The values of a file, and the line of every key that stands at the start of one."""
    try:
        text = data.decode()
        return tomllib.loads(text), _lines(text)
    except UnicodeDecodeError:
        mistake = Mistake("the file is not UTF-8 text", "save it as UTF-8", file)
    except tomllib.TOMLDecodeError as error:
        at = _AT_LINE.search(str(error))
        what = f"not valid TOML: {_AT_LINE.sub('', str(error))}"
        hint = "check quotes, brackets and equals signs here"
        mistake = Mistake(what, hint, file, int(at[1]) if at else None)
    raise ScenarioError([mistake])


def _lines(text: str) -> dict[Path, int]:
    """Good enough for messages: a line inside a text of many lines may look like a key, but then
    no key of that name is asked for."""
    found: dict[Path, int] = {}
    counts: dict[Path, int] = {}
    here: Path = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            here = _split(header[2])
            if header[1] == "[[":
                counts[here] = counts.get(here, -1) + 1
                here = (*here, counts[here])
            found.setdefault(here, number)
        elif key := _KEY.match(line):
            found.setdefault(here + _split(key[1]), number)
    return found


def _split(written: str) -> Path:
    return tuple(part.strip().strip("\"'") for part in written.split("."))


def parse_number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = float("nan")
    if not abs(value) < 1e15:
        raise QuantityError(f"'{text}' is not a number", "write a number, such as 2 or 0.5")
    return value


def parse_rate(text: str) -> float:
    """Bytes per second: '125MB/s', '1Gbit/s'."""
    bits = _RATE.fullmatch(text)
    if bits:
        return parse_number(bits[1]) * _BITS[bits[2]] / 8
    try:
        return float(parse_size(text.strip().removesuffix("/s")))
    except QuantityError:
        hint = "write bytes or bits per second, such as 125MB/s or 1Gbit/s"
        raise QuantityError(f"'{text}' is not a rate", hint) from None


def parse_signed_duration(text: str) -> float:
    """A duration that may be negative, as a clock's offset may."""
    stripped = text.strip()
    if stripped.startswith("-"):
        return -parse_duration(stripped[1:])
    return parse_duration(stripped)


class TomlTable:
    """One table of the file. `path` leads to it; () is the top."""

    def __init__(
        self, values: dict[str, Any], path: Path, lines: dict[Path, int], found: Collector
    ) -> None:
        self._values = values
        self._path = path
        self._lines = lines
        self._found = found
        self._asked: dict[str, None] = {}

    def __contains__(self, key: str) -> bool:
        return key in self._values

    @property
    def keys_given(self) -> list[str]:
        return list(self._values)

    def taken(self) -> dict[str, Any]:
        """All of it, as it is written, for somebody else to check."""
        self._asked.update(dict.fromkeys(self._values))
        return dict(self._values)

    @property
    def line(self) -> int | None:
        return self._lines.get(self._path)

    def wrong(self, key: str, what: str, hint: str = "", sort: str = "wrong values") -> None:
        """Note a mistake about a key of this table."""
        self._found.add(sort, f"`{self._name(key)}`: {what}", hint, self._line_of(key))

    def missing(self, key: str, hint: str) -> None:
        name = self._name(key)
        self._found.add("missing keys", f"there is no `{name}`", hint, self.line)

    def _name(self, key: str) -> str:
        return ".".join([*(str(part) for part in self._path if isinstance(part, str)), key])

    def _line_of(self, key: str) -> int | None:
        return self._lines.get((*self._path, key), self.line)

    def table(self, key: str) -> TomlTable:
        """The table under a key; an empty one if there is none."""
        value = self._take(key)
        if value is not None and not isinstance(value, dict):
            self.wrong(key, "not a table", f"write [{self._name(key)}] and keys below it")
            value = None
        return TomlTable(value or {}, (*self._path, key), self._lines, self._found)

    def tables(self, key: str) -> list[TomlTable]:
        """The tables of an array of tables."""
        value = self._take(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
            self.wrong(key, "not a list of tables", f"write [[{self._name(key)}]] for each")
            return []
        return [
            TomlTable(one, (*self._path, key, place), self._lines, self._found)
            for place, one in enumerate(value)
        ]

    def _take(self, key: str) -> Any:
        self._asked[key] = None
        return self._values.get(key)

    def read(self, key: str, default: T, parse: Callable[[str], T]) -> T:
        """A quantity, written as text or as a number."""
        value = self._take(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            self.wrong(key, f"{value!r} is neither a text nor a number", "write one value")
            return default
        try:
            return parse(value if isinstance(value, str) else repr(value))
        except QuantityError as error:
            self.wrong(key, error.what, error.hint)
            return default

    def text(self, key: str, default: str = "", choices: Sequence[str] = ()) -> str:
        value = self._take(key)
        if value is None:
            return default
        if not isinstance(value, str) or not value.strip() or not value.isprintable():
            self.wrong(key, f"{value!r} is not a short text", "write one line in quotes")
            return default
        if choices and value not in choices:
            hint = did_you_mean(value, choices, "known are " + ", ".join(choices))
            self.wrong(key, f"'{value}' is not known", hint)
            return default
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """One text, or a list of them."""
        value = self._take(key)
        if value is None:
            return ()
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, list) or not all(isinstance(v, str) and v for v in values):
            self.wrong(key, f"{value!r} is no name", 'write "NAME" or a list of names')
            return ()
        return tuple(values)

    def groups(self, key: str) -> tuple[tuple[str, ...], ...]:
        """A list of lists of texts."""
        value = self._take(key)
        if value is None:
            return ()
        good = isinstance(value, list) and all(
            isinstance(group, list) and group and all(isinstance(v, str) for v in group)
            for group in value
        )
        if not good:
            self.wrong(key, f"{value!r} is no list of groups", 'write [["a", "b"], ["c"]]')
            return ()
        return tuple(tuple(group) for group in value)

    def flag(self, key: str, default: bool) -> bool:
        value = self._take(key)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.wrong(key, f"{value!r} is neither true nor false", "write true or false")
            return default
        return value

    def count(self, key: str, default: int, least: int = 0, most: int = 10**9) -> int:
        value = self._take(key)
        if value is None:
            return default
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not least <= value <= most:
            hint = f"write one from {least} to {most}"
            self.wrong(key, f"{value!r} is not a whole number in range", hint)
            return default
        return int(value)

    def number(
        self, key: str, default: float, least: float = 0.0, most: float = float("inf")
    ) -> float:
        value = self.read(key, default, parse_number)
        if not least <= value <= most:
            self.wrong(key, f"{value:g} is out of bounds", f"give one from {least:g} to {most:g}")
            return default
        return value

    def duration(self, key: str, default: float) -> float:
        return self.read(key, default, parse_duration)

    def size(self, key: str, default: int) -> int:
        return self.read(key, default, parse_size)

    def distribution(
        self,
        key: str,
        default: Distribution,
        parse: Callable[[str], float] = parse_number,
        *,
        least: float = 0.0,
        most: float = float("inf"),
        forms: Sequence[str] = FORMS,
    ) -> Distribution:
        def read(text: str) -> Distribution:
            return parse_distribution(text, parse, least=least, most=most, forms=forms)

        return self.read(key, default, read)

    def done(self) -> None:
        """Note every key that nobody asked for."""
        for key in self._values:
            if key not in self._asked:
                hint = did_you_mean(key, self._asked, "known are " + ", ".join(self._asked))
                line = self._line_of(key)
                self._found.add("unknown keys", f"unknown key `{self._name(key)}`", hint, line)
