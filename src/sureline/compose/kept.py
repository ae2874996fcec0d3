"""Copies of other peers' runs, in a directory: what `run.keeper` keeps on a real disk.

Each run has a directory with three files: `term` (epoch and writer, replaced whole and synced: it
fences), `graph`, and `events`, to which events are appended with their positions. Appending does
not wait for the disk: there are other copies, and an end that a power cut tore off is cut off when
the file is read. `import_copy` makes a proper journal of a copy, for reading or resuming.

Not a journal itself: merging into one reads all of the run's events anew, for every few that come.
"""

from __future__ import annotations

import os
import shutil
import struct
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from sureline.journal.events import decode, encode
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry, Journal
from sureline.run.keeper import About, KeptState, page
from sureline.run.keeping import EVENT_BYTES_MAX, EVENTS_MAX, NumberedEvent, Position, RunKnown
from sureline.world.address import Node

RUNS_MAX = 2000
RUN_BYTES_MAX = 1 << 30
_HEAD = struct.Struct("<QI")
"""Position, length."""


class _Term(msgspec.Struct):
    epoch: int
    writer: Node


class _Copy:
    """One run's directory. Reading it once tells where everything is; after that only appends."""

    def __init__(self, path: Path, term: _Term) -> None:
        self.path = path
        self.term = term
        self.about = About()
        self.position: Position = 0
        self.marks: list[tuple[Position, int]] = []
        """Every EVENTS_MAX events: (position, where the event after it begins)."""
        self.size_bytes = 0
        self._since_mark = 0
        graph = path / "graph"
        self.graph_bytes = graph.stat().st_size if graph.exists() else 0
        events = path / "events"
        events.touch(mode=0o600)
        for position, body in _read(events, 0):
            self._note(position, body)
        os.truncate(events, self.size_bytes)

    def _note(self, position: Position, body: bytes) -> None:
        self.about.apply(body)
        self.position = position
        self.size_bytes += _HEAD.size + len(body)
        self._since_mark += 1
        if self._since_mark >= EVENTS_MAX:
            self._since_mark = 0
            self.marks.append((position, self.size_bytes))

    def state(self) -> KeptState:
        return KeptState(self.term.epoch, self.term.writer, self.position, self.graph_bytes)

    def add(self, events: Sequence[NumberedEvent]) -> None:
        data = b"".join(_HEAD.pack(position, len(body)) + body for position, body in events)
        with open(self.path / "events", "ab", buffering=0) as file:  # not kept open: they are many
            file.write(data)
        for position, body in events:
            self._note(position, body)

    def after(self, position: Position) -> list[NumberedEvent]:
        start = 0
        for mark, offset in reversed(self.marks):
            if mark <= position:
                start = offset
                break
        found: list[NumberedEvent] = []
        for at, body in _read(self.path / "events", start):
            if at > position:
                found.append((at, body))
                if len(found) >= EVENTS_MAX:
                    break
        return page(found)


def _read(path: Path, start: int) -> Iterator[NumberedEvent]:
    """The whole events from there on; what follows them is torn."""
    with open(path, "rb") as file:
        file.seek(start)
        while len(head := file.read(_HEAD.size)) == _HEAD.size:
            position, length = _HEAD.unpack(head)
            if length > EVENT_BYTES_MAX or len(body := file.read(length)) < length:
                return
            try:
                decode(body)
            except msgspec.DecodeError:
                return
            yield position, body


class KeptJournals:
    """The copies in one directory; of more than RUNS_MAX, those that ended longest ago go."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._copies: dict[str, _Copy] = {}
        for path in sorted(directory.iterdir()):
            term = _term_of(path)
            if term is not None:
                self._copies[path.name] = _Copy(path, term)

    def state(self, run: str) -> KeptState | None:
        copy = self._copies.get(run)
        return None if copy is None else copy.state()

    def open(self, run: str, epoch: int, writer: Node, base: Position) -> str:
        path = self._directory / run
        old = self._copies.pop(run, None)
        if old is None and not self._make_room():
            return f"{RUNS_MAX} runs that have not ended are kept here already"
        path.mkdir(mode=0o700, exist_ok=True)
        term = _Term(epoch, writer)
        _replace(path / "term", msgspec.json.encode(term))
        events = path / "events"
        if old is not None and old.position > base:
            kept = b"".join(
                _HEAD.pack(position, len(body)) + body
                for position, body in _read(events, 0)
                if position <= base
            )
            _replace(events, kept)
        self._copies[run] = _Copy(path, term)
        return ""

    def _make_room(self) -> bool:
        if len(self._copies) < RUNS_MAX:
            return True
        over = [known for known in self.known() if known.state != "running"]
        if not over:
            return False
        del self._copies[over[0].run]
        shutil.rmtree(self._directory / over[0].run)
        return True

    def keep_graph(self, run: str, graph: bytes) -> None:
        copy = self._copies[run]
        _replace(copy.path / "graph", graph)
        copy.graph_bytes = len(graph)

    def graph(self, run: str) -> bytes:
        return (self._copies[run].path / "graph").read_bytes()

    def add(self, run: str, events: Sequence[NumberedEvent]) -> None:
        copy = self._copies[run]
        if copy.size_bytes < RUN_BYTES_MAX:
            copy.add(events)

    def after(self, run: str, position: Position) -> list[NumberedEvent]:
        return self._copies[run].after(position)

    def known(self) -> list[RunKnown]:
        found = [copy.about.told(run, copy.state()) for run, copy in self._copies.items()]
        return sorted(found, key=lambda known: (known.submitted_at, known.run))


def _term_of(path: Path) -> _Term | None:
    try:
        return msgspec.json.decode((path / "term").read_bytes(), type=_Term)
    except (OSError, msgspec.DecodeError):
        return None  # it was made just when the machine went down


def _replace(path: Path, data: bytes) -> None:
    """Put a file in place whole, durably."""
    temporary = path.with_name(f".{path.name}.new")
    with open(temporary, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def import_copy(journal: Journal, run: str, graph: bytes, events: Sequence[NumberedEvent]) -> None:
    """Merge a copy into a journal, all or nothing. Raises UserError if they contradict."""
    journal.merge(run, graph, [Entry(position, decode(body)) for position, body in events])


class Recorded:
    """A run's journal, for `run.mirror`."""

    def __init__(self, journal: Journal, run: str, epoch: int) -> None:
        self._journal = journal
        self._run = run
        self.base: Position = 0
        for entry in journal.events(run):
            if entry.position >= epoch * POSITIONS_PER_EPOCH:
                break
            self.base = entry.position

    def after(self, position: Position) -> list[NumberedEvent]:
        found: list[NumberedEvent] = []
        for entry in self._journal.events(self._run, position):
            found.append((entry.position, encode(entry.event)))
            if len(found) >= EVENTS_MAX:
                break
        return page(found)
