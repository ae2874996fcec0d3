"""Copies of other peers' runs, in a directory: what `run.keeper` keeps on a real disk.

Each run has a directory with three files: `term` (epoch and writer, replaced whole and synced: it
fences), `graph`, and `events`, to which events are appended with their positions. Appending does
not wait for the disk: there are other copies, and an end that a power cut tore off is cut off when
the file is read. `import_copy` makes a proper journal of a copy, for reading or resuming.

Disks are slow, and graphs are long: all that touches a file is done where `Aside` says, in order,
and the loop sees only what came of it. What lies where in a file is known to that side alone.

Not a journal itself: merging into one reads all of the run's events anew, for every few that come.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import struct
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import msgspec

from sureline.journal.events import decode, encode
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry, Journal
from sureline.run.keeper import About, Done, KeptState, page
from sureline.run.keeping import (
    EVENT_BYTES_MAX,
    EVENTS_MAX,
    PIECE_BYTES_MAX,
    NumberedEvent,
    Position,
    RunKnown,
    line_on,
)
from sureline.world.address import Node

T = TypeVar("T")

RUNS_MAX = 2000
RUN_BYTES_MAX = 1 << 30
_HEAD = struct.Struct("<QI")
"""Position, length."""

Aside = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Does the first, and tells the second what came of it: later, and in the loop."""


def at_once(work: Callable[[], Any], then: Callable[[Any], None]) -> None:
    """For those who have no loop that could be held up."""
    then(work())


def in_a_thread(loop: asyncio.AbstractEventLoop) -> Aside:
    """One thread for all: what is asked for first is done first."""
    thread = ThreadPoolExecutor(1, "sureline-kept")

    def aside(work: Callable[[], Any], then: Callable[[Any], None]) -> None:
        future = loop.run_in_executor(thread, work)
        future.add_done_callback(lambda done: None if done.cancelled() else then(done.result()))

    return aside


class _Term(msgspec.Struct):
    epoch: int
    writer: Node


class _Mark(NamedTuple):
    """What there is up to a place in the file of events, so that nobody reads it all again."""

    position: Position
    size_bytes: int
    about: About
    line: tuple[Position, ...] = ()


class _Copy:
    """One run's directory. Reading it once tells where everything is; after that only appends."""

    def __init__(self, path: Path, term: _Term) -> None:
        self.path = path
        self.term = term
        self.events = path / "events"
        graph = path / "graph"
        self.graph_bytes = graph.stat().st_size if graph.exists() else 0
        self.events.touch(mode=0o600)
        self._marks = [_Mark(0, 0, About())]
        self._since_mark = 0
        self._read_from(self._marks[0])

    def _read_from(self, mark: _Mark, until: Position | None = None) -> None:
        """Know what follows the mark, and cut off what is torn or beyond `until`."""
        self.position, self.size_bytes, about, self.line = mark
        self.about = msgspec.structs.replace(about)
        for position, body in _read(self.events, mark.size_bytes):
            if until is not None and position > until:
                break
            self._note(position, body)
        os.truncate(self.events, self.size_bytes)

    def _note(self, position: Position, body: bytes) -> None:
        self.about.apply(body)
        self.position = position
        self.line = line_on(self.line, (position,))
        self.size_bytes += _HEAD.size + len(body)
        self._since_mark += 1
        since_bytes = self.size_bytes - self._marks[-1].size_bytes
        if self._since_mark >= EVENTS_MAX or since_bytes >= PIECE_BYTES_MAX:
            self._since_mark = 0
            about = msgspec.structs.replace(self.about)
            self._marks.append(_Mark(position, self.size_bytes, about, self.line))

    def _mark_before(self, position: Position) -> _Mark:
        """The last one with nothing beyond the position, whatever somebody took for one."""
        at = bisect_right(self._marks, position, key=lambda mark: mark.position)
        return self._marks[max(0, at - 1)]

    def state(self) -> KeptState:
        term = self.term
        return KeptState(term.epoch, term.writer, self.position, self.graph_bytes, self.line)

    def begin(self, term: _Term, base: Position) -> None:
        """First what is beyond the base goes, then the new term holds: never the other way round,
        or a crash would leave what never happened in it."""
        if self.position > base:
            mark = self._mark_before(base)
            del self._marks[self._marks.index(mark) + 1 :]
            self._since_mark = 0
            self._read_from(mark, base)
            _sync(self.events)
        _replace(self.path / "term", msgspec.json.encode(term))
        self.term = term

    def keep_graph(self, graph: bytes) -> None:
        _replace(self.path / "graph", graph)
        self.graph_bytes = len(graph)

    def add(self, events: Sequence[NumberedEvent]) -> None:
        data = b"".join(_HEAD.pack(position, len(body)) + body for position, body in events)
        with open(self.events, "r+b", buffering=0) as file:  # not kept open: they are many
            file.seek(self.size_bytes)  # over what a full disk may have torn off last time
            if file.write(data) < len(data):
                raise OSError(0, "the disk took only a part of it")
        for position, body in events:
            self._note(position, body)

    def after(self, position: Position) -> list[NumberedEvent]:
        start = self._mark_before(position)
        found: list[NumberedEvent] = []
        size = 0
        for at, body in _read(self.events, start.size_bytes):
            if at > position:
                found.append((at, body))
                size += len(body)
                if len(found) >= EVENTS_MAX or size > PIECE_BYTES_MAX:
                    break
        return page(found)

    def piece(self, offset: int) -> bytes:
        with open(self.path / "graph", "rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES_MAX)


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

    def __init__(self, directory: Path, aside: Aside = at_once) -> None:
        self._directory = directory
        self._aside = aside
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._copies: dict[str, _Copy] = {}
        self._seen: dict[str, tuple[KeptState, RunKnown]] = {}
        """Each copy as it was after its last change: what the loop knows of it."""
        for path in sorted(directory.iterdir()):
            term = _term_of(path)
            if term is not None:
                self._copies[path.name] = _Copy(path, term)
                self._see(path.name)

    def _see(self, run: str) -> None:
        copy = self._copies[run]
        state = copy.state()
        self._seen[run] = state, copy.about.told(run, state)

    def state(self, run: str) -> KeptState | None:
        seen = self._seen.get(run)
        return None if seen is None else seen[0]

    def known(self) -> list[RunKnown]:
        found = [known for _, known in self._seen.values()]
        return sorted(found, key=lambda known: (known.submitted_at, known.run))

    def open(self, run: str, epoch: int, writer: Node, base: Position, done: Done) -> None:
        path, term, old = self._directory / run, _Term(epoch, writer), self._copies.get(run)
        over = ""
        if old is None and len(self._copies) >= RUNS_MAX:
            over = next((one.run for one in self.known() if one.state != "running"), "")
            if not over:
                done(f"{RUNS_MAX} runs that have not ended are kept here already")
                return
            del self._copies[over], self._seen[over]

        def work() -> _Copy:
            if over:
                shutil.rmtree(self._directory / over)
            path.mkdir(mode=0o700, exist_ok=True)
            copy = old or _Copy(path, term)
            copy.begin(term, base)
            return copy

        def opened(copy: _Copy) -> None:
            self._copies[run] = copy

        self._change(run, work, done, opened)

    def keep_graph(self, run: str, graph: bytes, done: Done) -> None:
        copy = self._copies[run]
        self._change(run, lambda: copy.keep_graph(graph), done)

    def add(self, run: str, events: Sequence[NumberedEvent], done: Done) -> None:
        copy = self._copies[run]
        if copy.size_bytes >= RUN_BYTES_MAX:
            done(f"the copy of {run} here is {RUN_BYTES_MAX >> 20} MiB long and takes no more")
        else:
            self._change(run, lambda: copy.add(events), done)

    def _change(
        self,
        run: str,
        work: Callable[[], Any],
        done: Done,
        then: Callable[[Any], None] = lambda _: None,
    ) -> None:
        """Do it aside; a disk that fails refuses, and what is known of the copy stays."""

        def tried() -> tuple[Any, str]:
            try:
                return work(), ""
            except OSError as error:
                return None, f"{run} cannot be written here: {error.strerror}"

        def tell(came: tuple[Any, str]) -> None:
            made, refused = came
            if not refused:
                then(made)
                self._see(run)
            done(refused)

        self._aside(tried, tell)

    def read_graph(self, run: str, offset: int, done: Callable[[bytes], None]) -> None:
        copy = self._copies[run]
        self._aside(lambda: _or_nothing(lambda: copy.piece(offset), b""), done)

    def read_events(
        self, run: str, after: Position, done: Callable[[list[NumberedEvent]], None]
    ) -> None:
        copy = self._copies[run]
        self._aside(lambda: _or_nothing(lambda: copy.after(after), list[NumberedEvent]()), done)


def _or_nothing(read: Callable[[], T], nothing: T) -> T:
    """What was read; nothing, if it has been removed meanwhile or the disk fails."""
    try:
        return read()
    except OSError:
        return nothing


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
    _sync(path.parent)


def _sync(path: Path) -> None:
    """A file, or the names in a directory."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def import_copy(journal: Journal, run: str, graph: bytes, events: Sequence[NumberedEvent]) -> None:
    """Merge a copy into a journal, all or nothing. Raises UserError if they contradict."""
    journal.merge(run, graph, [Entry(position, decode(body)) for position, body in events])


class JournalRecorded:
    """A run's journal, for `run.mirror`."""

    def __init__(self, journal: Journal, run: str, epoch: int) -> None:
        self._journal = journal
        self._run = run
        first = epoch * POSITIONS_PER_EPOCH
        earlier = takewhile(lambda entry: entry.position < first, journal.events(run))
        self.line = line_on((), (entry.position for entry in earlier))

    def after(self, position: Position) -> list[NumberedEvent]:
        found: list[NumberedEvent] = []
        for entry in self._journal.events(self._run, position):
            found.append((entry.position, encode(entry.event)))
            if len(found) >= EVENTS_MAX:
                break
        return page(found)
