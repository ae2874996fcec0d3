"""YAML as a light tree that knows its lines, built from the parser's events.

A general YAML loader guesses types ('00' becomes 0, `yes` becomes True) and forgets lines. This
one keeps every scalar as the text that was written and gives every node a line: a value in a
mapping has the line of its key, because that is where a reader of a message looks.

An alias shares the node that its anchor names, so a file that multiplies itself by aliases costs
no more than its own length; consumers bound what they make of it. Depth and size are bounded.
"""

from __future__ import annotations

from typing import Final

import msgspec
import yaml
from yaml.events import (
    AliasEvent,
    DocumentEndEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
    StreamEndEvent,
    StreamStartEvent,
)

from sureline.workflow.collect import Collector

try:
    from yaml.cyaml import CSafeLoader as _Parser
except ImportError:  # PyYAML was built without libyaml: ten times slower, else the same
    from yaml import SafeLoader as _Parser  # type: ignore[assignment] # same methods

FILE_BYTES_MAX: Final = 512 * 2**20
DEPTH_MAX: Final = 64


class Text(msgspec.Struct, gc=False):
    """A scalar, as written. `plain`: without quotes, so that an empty one means 'nothing'."""

    value: str
    line: int
    plain: bool


class Items(msgspec.Struct):
    items: list[Node]
    line: int


class Pairs(msgspec.Struct):
    pairs: dict[str, Node]
    line: int


Node = Text | Items | Pairs


class TreeError(Exception):
    """The text is not YAML, or not YAML that can be understood: one mistake ends the reading."""

    def __init__(self, what: str, hint: str, line: int | None) -> None:
        self.what, self.hint, self.line = what, hint, line
        super().__init__(what)


def decode_utf8(data: bytes) -> str:
    """The text of a file, without a byte order mark. Raises TreeError."""
    if len(data) > FILE_BYTES_MAX:
        size = f"{len(data) / 2**20:.0f} MiB"
        raise TreeError(f"the file has {size}", "at most 512 MiB are read; use `for:`", None)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        what = f"the byte 0x{data[error.start]:02x} is not UTF-8 text"
        raise TreeError(what, "save the file as UTF-8", line) from None


def load_tree(text: str, found: Collector) -> Node | None:
    """The tree of the one document in `text`; None if it has none. Raises TreeError.

    A key that is given twice is noted in `found`, and the last value stands.
    """
    builder = _Builder(found)
    try:
        parser = _Parser(text)
        try:
            get_event = parser.get_event
            while (event := get_event()) is not None:
                builder.take(event)
        finally:
            parser.dispose()
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, text) from None
    except yaml.reader.ReaderError as error:
        line = text.encode()[: error.position].count(b"\n") + 1
        what = f"a character is not allowed in YAML ({error.reason})"
        raise TreeError(what, "remove it, or write it with an escape in double quotes", line) from (
            None
        )
    return builder.root


def _syntax_error(error: yaml.MarkedYAMLError, text: str) -> TreeError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    hint = "check quotes, colons and indentation here and just above"
    problem = error.problem or error.context or "it cannot be parsed"
    if "cannot start any token" in problem:
        written = text.split("\n", mark.line + 1)[mark.line] if mark else ""
        tabbed = "\t" in written[: len(written) - len(written.lstrip())]
        hint = "indent with spaces, not with tabs" if tabbed else "put the value in quotes"
    return TreeError(f"not valid YAML: {problem}", hint, line)


def _line(event: Event) -> int:
    return event.start_mark.line + 1  # type: ignore[union-attr] # both parsers set it always


class _Open:
    """A collection whose end has not been seen. `key` is the one whose value comes next."""

    __slots__ = ("anchor", "key", "key_line", "node")

    def __init__(self, node: Items | Pairs, anchor: str | None) -> None:
        self.node = node
        self.anchor = anchor
        self.key: str | None = None
        self.key_line = 0


class _Builder:
    def __init__(self, found: Collector) -> None:
        self.root: Node | None = None
        self._found = found
        self._open: list[_Open] = []
        self._anchors: dict[str, Node] = {}
        self._documents = 0
        self._strings: dict[str, str] = {}

    def take(self, event: Event) -> None:
        kind = type(event)
        if kind is ScalarEvent:
            self._scalar(event)  # type: ignore[arg-type] # `kind is` narrows nothing; it is fast
        elif kind is MappingStartEvent or kind is SequenceStartEvent:
            self._start(event, kind is MappingStartEvent)
        elif kind is MappingEndEvent or kind is SequenceEndEvent:
            self._open.pop()
        elif isinstance(event, AliasEvent):
            self._alias(event)
        elif isinstance(event, DocumentStartEvent):
            self._documents += 1
            if self._documents > 1:
                line = _line(event)
                raise TreeError("a second YAML document starts here", "use one file each", line)
        else:
            assert isinstance(event, StreamStartEvent | StreamEndEvent | DocumentEndEvent)

    def _scalar(self, event: ScalarEvent) -> None:
        value: str = event.value
        line = _line(event)
        if event.tag is not None:
            self._refuse_tag(event.tag, line)
        if "\0" in value:
            raise TreeError("a NUL character is in this text", "remove the \\0", line)
        top = self._open[-1] if self._open else None
        if top is not None and top.key is None and type(top.node) is Pairs:
            # keys repeat in every task: keep one copy of each
            top.key = self._strings.setdefault(value, value)
            top.key_line = line
            if event.anchor:
                self._anchors[event.anchor] = Text(value, line, False)
            return
        # style is None for the C parser's plain scalars, '' or None for the other one's
        self._place(Text(value, line, not event.style), event.anchor)

    def _start(self, event: Event, mapping: bool) -> None:
        line = _line(event)
        assert isinstance(event, MappingStartEvent | SequenceStartEvent)
        if event.tag is not None:
            self._refuse_tag(event.tag, line)
        if len(self._open) >= DEPTH_MAX:
            raise TreeError(f"nested deeper than {DEPTH_MAX} levels", "flatten it", line)
        if self._open:
            top = self._open[-1]
            if top.key is None and type(top.node) is Pairs:
                raise TreeError("a list or mapping is used as a key", "use text as the key", line)
        node = Pairs({}, line) if mapping else Items([], line)
        self._place(node, None)
        self._open.append(_Open(node, event.anchor))
        if event.anchor:
            self._anchors[event.anchor] = node

    def _alias(self, event: AliasEvent) -> None:
        line = _line(event)
        name = str(event.anchor)
        found = self._anchors.get(name)
        if found is None:
            hint = "define &name before *name, or put the value in quotes"
            raise TreeError(f"the alias '*{name}' has no anchor", hint, line)
        if any(opened.anchor == name for opened in self._open):
            raise TreeError(f"'*{name}' contains itself", "remove the alias", line)
        top = self._open[-1]
        if type(top.node) is Pairs and top.key is None:
            raise TreeError(f"the alias '*{name}' is used as a key", "write the key itself", line)
        if isinstance(found, Text):
            self._place(Text(found.value, line, found.plain), None)
        elif isinstance(found, Items):
            self._place(Items(found.items, line), None)
        else:
            self._place(Pairs(found.pairs, line), None)

    def _place(self, node: Node, anchor: str | None) -> None:
        if anchor:
            self._anchors[anchor] = node
        if not self._open:
            self.root = node
            return
        top = self._open[-1]
        parent = top.node
        if type(parent) is Items:
            parent.items.append(node)
            return
        assert type(parent) is Pairs and top.key is not None
        key, top.key = top.key, None
        node.line = top.key_line
        if key in parent.pairs:
            first = parent.pairs[key].line
            what = f"'{key}' is given twice (first in line {first})"
            self._found.add("keys given twice", what, "keep one of them", top.key_line)
        parent.pairs[key] = node

    def _refuse_tag(self, tag: str, line: int) -> None:
        if tag != "!" and not tag.startswith("tag:yaml.org,2002:"):
            raise TreeError(f"the YAML tag '{tag}' is not understood", "remove it", line)
