"""The user's catalogs of sites and of programs: two YAML files in her home, `sites.yaml` and
`transformations.yaml`.

    lab:                                   blast:
      engine: local                          lab: {path: /opt/blast/bin/blastn}
      processors: 8                          meggie: {module: blast/2.14}
      directory: /scratch/ada

A site says which engine takes tasks there, how many processors one may count on and where files
lie; a program says how it is called at each site that has it. Both files are meant to be edited by
hand: what a command adds or takes away leaves all other lines, and their comments, as they are.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Generic, TypeVar

import msgspec

from sureline.workflow.collect import Collector, did_you_mean
from sureline.workflow.mistakes import UserError, WorkflowError
from sureline.workflow.quantities import QuantityError, parse_cores, parse_size
from sureline.workflow.yaml_tree import Items, Node, Pairs, Text, TreeError, decode_utf8, load_tree
from sureline.world.identity import disk
from sureline.world.identity.home import home_directory

ENGINES = ("local", "ssh", "slurm", "dask", "ray")
HERE = "here"
"""The machine of the submitter: no site may be called so."""
SITE_KEYS = ("engine", "processors", "memory", "directory", "address", "tags", "settings")
CALL_KEYS = ("path", "module", "container")
FILE_BYTES_MAX = 10_000_000
PROGRAM_TAG = "program:"
"""The tag of a site that has a program, and of a task that calls it."""

_NAME_HINT = f"use letters, digits, '_', '.' and '-', and not '{HERE}'"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}")


class SiteEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One site. `directory` is where files lie there; empty: the engine's usual place. `address`
    is where its engine is reached: a host of ssh, a scheduler of dask or ray; empty: on this
    machine. `settings` are the engine's own words, such as a partition."""

    name: str
    engine: str
    processors: float
    memory_bytes: int = 0
    directory: str = ""
    address: str = ""
    tags: tuple[str, ...] = ()
    settings: dict[str, str] = {}


class Transformation(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a program is called at each site: by a path, after loading a module, in a container."""

    name: str
    calls: dict[str, dict[str, str]]
    """By site: exactly one of CALL_KEYS, and what it names."""


T = TypeVar("T", SiteEntry, Transformation)


class CatalogFile(Generic[T]):
    """One of the two files. Raises WorkflowError with all mistakes of the file, by line."""

    def __init__(self, path: Path, parse: Callable[[str, Pairs, Collector], T]) -> None:
        self.path = path
        self._parse: Callable[[str, Pairs, Collector], T] = parse

    def read(self) -> dict[str, T]:
        return self._read(self._text())

    def add(self, entry: T, *, replace: bool = False) -> None:
        """Append an entry. A name that is there already is a mistake, unless it is replaced."""
        if not _is_name(entry.name):
            raise UserError(f"{entry.name!r} cannot be a name; {_NAME_HINT}")
        try:
            self._read(_as_yaml(entry))
        except WorkflowError as error:
            raise UserError(f"{error.mistakes[0].what}; {error.mistakes[0].hint}") from None
        with disk.locked(self._lock()):
            text = self._text()
            before = self._read(text)
            if entry.name in before and not replace:
                raise UserError(f"{self.path} has {entry.name} already; take it out with rm first")
            text = _without(text, entry.name)
            if text and not text.endswith("\n"):
                text += "\n"
            self._replace(text + _as_yaml(entry), {**before, entry.name: entry})

    def remove(self, name: str) -> None:
        with disk.locked(self._lock()):
            text = self._text()
            before = self._read(text)
            if name not in before:
                hint = did_you_mean(name, before, "see its names with ls")
                raise UserError(f"{self.path} has no {name}; {hint}")
            wanted = {key: entry for key, entry in before.items() if key != name}
            self._replace(_without(text, name), wanted)

    def _lock(self) -> Path:
        disk.ensure_directory(self.path.parent)
        return self.path.with_suffix(".lock")

    def _text(self) -> str:
        try:
            return decode_utf8(disk.read(self.path, FILE_BYTES_MAX) or b"")
        except TreeError as error:
            found = Collector(str(self.path))
            found.add("syntax errors", error.what, error.hint, error.line)
            raise WorkflowError(found.mistakes()) from None

    def _read(self, text: str) -> dict[str, T]:
        found = Collector(str(self.path))
        root: Node | None = None
        try:
            root = load_tree(text, found)
        except TreeError as error:
            found.add("syntax errors", error.what, error.hint, error.line)
        entries = {}
        if isinstance(root, Pairs):
            for name, node in root.pairs.items():
                if not _is_name(name):
                    what = f"'{name}' cannot be a name here"
                    found.add("bad names", what, _NAME_HINT, node.line)
                elif isinstance(node, Pairs):
                    entries[name] = self._parse(name, node, found)
                else:
                    hint = "write keys and values below it"
                    found.add("wrong types", f"'{name}' is not a mapping", hint, node.line)
        elif root is not None and not (isinstance(root, Text) and not root.value):
            found.add("wrong types", "the file is not a mapping", "write names first", root.line)
        found.raise_if_any()
        return entries

    def _replace(self, text: str, wanted: Mapping[str, T]) -> None:
        try:
            made: object = self._read(text)
        except WorkflowError:
            made = None
        if made != wanted:
            raise UserError(f"{self.path} is written in a way that only you can edit; do so")
        disk.write(self.path, text.encode())


def catalog_directory() -> Path:
    return home_directory() / "catalog"


def site_catalog() -> CatalogFile[SiteEntry]:
    return CatalogFile(catalog_directory() / "sites.yaml", _site)


def transformation_catalog() -> CatalogFile[Transformation]:
    return CatalogFile(catalog_directory() / "transformations.yaml", _transformation)


def _as_yaml(entry: SiteEntry | Transformation) -> str:
    """As a block of the file; all texts in quotes, as JSON has them, which YAML reads alike."""

    def flow(value: object) -> str:
        return msgspec.json.encode(value).decode()

    if isinstance(entry, Transformation):
        inner = [f"  {flow(site)}: {flow(call)}" for site, call in entry.calls.items()]
    else:
        given = msgspec.to_builtins(entry)
        given["memory"] = f"{entry.memory_bytes}B" if entry.memory_bytes else ""
        inner = [f"  {key}: {flow(given[key])}" for key in SITE_KEYS if given.get(key)]
    return "\n".join([f"{entry.name}:", *inner]) + "\n"


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text != HERE


def _without(text: str, name: str) -> str:
    """The text without an entry: from its key to the next key, but comments before that stay."""
    lines = text.splitlines(keepends=True)
    key = re.compile(rf"""(?:{re.escape(name)}|"{re.escape(name)}"|'{re.escape(name)}')\s*:""")
    first = next((n for n, line in enumerate(lines) if key.match(line)), None)
    if first is None:
        return text
    last = first + 1
    while last < len(lines) and (lines[last][0] in " \t\r\n" or lines[last][0] in "}]"):
        last += 1
    while last > first + 1 and not lines[last - 1].strip():
        last -= 1
    return "".join(lines[:first] + lines[last:])


# -- sites -------------------------------------------------------------------------------------


def _site(name: str, node: Pairs, found: Collector) -> SiteEntry:
    _refuse_unknown(node, SITE_KEYS, found)
    texts = {key: _text_of(key, node, found) for key in SITE_KEYS[:5]}
    engine = texts["engine"]
    if engine not in ENGINES:
        known = "known are " + ", ".join(ENGINES)
        line = node.pairs["engine"].line if "engine" in node.pairs else node.line
        what = f"'{engine}' is no engine" if engine else f"{name} names no engine"
        found.add("engines", what, did_you_mean(engine, ENGINES, known), line)
    if engine == "ssh" and not texts["address"]:
        found.add("addresses", f"{name} has no address", "write `address: USER@HOST`", node.line)
    if "processors" not in node.pairs:
        hint = "say how many one may count on"
        found.add("processors", f"{name} has no processors", hint, node.line)
    return SiteEntry(
        name,
        engine,
        _amount("processors", texts, node, parse_cores, found) or 1.0,
        int(_amount("memory", texts, node, parse_size, found)),
        texts["directory"],
        texts["address"],
        tuple(_texts_of("tags", node, found)),
        dict(_settings(node, found)),
    )


def _amount(
    key: str,
    texts: Mapping[str, str],
    node: Pairs,
    parse: Callable[[str], float],
    found: Collector,
) -> float:
    if not texts[key]:
        return 0
    try:
        return parse(texts[key])
    except QuantityError as error:
        found.add("amounts", f"'{key}': {error.what}", error.hint, node.pairs[key].line)
        return 0


def _settings(node: Pairs, found: Collector) -> Iterable[tuple[str, str]]:
    settings = node.pairs.get("settings")
    if isinstance(settings, Pairs):
        for key in settings.pairs:
            yield key, _text_of(key, settings, found)
    elif settings is not None:
        hint = "write names and values, such as `settings: {partition: long}`"
        found.add("wrong types", "'settings' is not a mapping", hint, settings.line)


def _refuse_unknown(node: Pairs, keys: tuple[str, ...], found: Collector) -> None:
    for key, value in node.pairs.items():
        if key not in keys:
            hint = did_you_mean(key, keys, "known are " + ", ".join(keys))
            found.add("unknown keys", f"unknown key '{key}'", hint, value.line)


def _text_of(key: str, node: Pairs, found: Collector) -> str:
    value = node.pairs.get(key)
    if value is None or isinstance(value, Text):
        return "" if value is None else value.value
    found.add("wrong types", f"'{key}' is not a text", "write one value", value.line)
    return ""


def _texts_of(key: str, node: Pairs, found: Collector) -> Iterable[str]:
    value = node.pairs.get(key)
    for item in value.items if isinstance(value, Items) else [value]:
        if isinstance(item, Text):
            yield item.value
        elif item is not None:
            found.add("wrong types", f"'{key}' is not a list of texts", "write [a, b]", item.line)


# -- programs ----------------------------------------------------------------------------------


def _transformation(name: str, node: Pairs, found: Collector) -> Transformation:
    calls = {}
    for site, call in node.pairs.items():
        if not isinstance(call, Pairs):
            hint = "write how it is called there, such as {path: /opt/it}"
            found.add("wrong types", f"'{site}' of {name} is not a mapping", hint, call.line)
            continue
        _refuse_unknown(call, CALL_KEYS, found)
        ways = {key: _text_of(key, call, found) for key in CALL_KEYS if key in call.pairs}
        if len(ways) != 1 or not all(ways.values()):
            hint = "give one of " + ", ".join(CALL_KEYS)
            found.add("calls", f"{name} at {site} is not called in one way", hint, call.line)
        calls[site] = ways
    return Transformation(name, calls)


def programs_of(command: str, known: Iterable[str]) -> list[str]:
    """Those of the catalog's programs that a command names, as words of its own.

    >>> programs_of("blast -q a.fasta | sort > blast.out", ["blast", "last", "sort"])
    ['blast', 'sort']
    """
    return [
        name
        for name in known
        if re.search(rf"(?<![\w./-]){re.escape(name)}(?![\w./-])", command) is not None
    ]


def preamble(site: str, command: str, programs: Mapping[str, Transformation]) -> str:
    """What goes before a command, so that its programs are called as they are at that site."""
    lines = []
    for name in programs_of(command, programs):
        ((way, what),) = programs[name].calls.get(site, {"": ""}).items()
        if way == "module":
            lines.append(f"module load {shlex.quote(what)}")
        elif way == "container":
            lines.append(
                f'{name}() {{ apptainer exec {shlex.quote(what)} {shlex.quote(name)} "$@"; }}'
            )
        elif way == "path":
            lines.append(f'{name}() {{ {shlex.quote(what)} "$@"; }}')
    return "".join(f"{line}\n" for line in lines)
