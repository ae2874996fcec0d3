"""Copies of other peers' runs, in a directory: what `run.keeper` keeps on a real disk.

Each run has a directory with three files: `term` (epoch, writer and papers, replaced whole and
synced: it fences), `graph`, and `events`, to which events are appended with their positions, and
behind each batch of them its seal, and synced: what a majority of keepers has is committed. What
is torn, all behind the last whole seal, is cut off when the file is read. When a new writer builds
on less than there is, the file is written anew, beside the old one, with its first events.
`import_copy` makes a proper journal of a copy, for reading or resuming.

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

from sureline.journal.events import decode
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry, Journal
from sureline.run.keeping import (
    EVENT_BYTES_MAX,
    EVENTS_MAX,
    PIECE_BYTES_MAX,
    NumberedEvent,
    Position,
    RunKnown,
    line_on,
)
from sureline.run.kept import About, Done, KeptState, Page, Pages, Sealed, Term, page
from sureline.world.identity.signing import PapersError, fold, read_papers

T = TypeVar("T")

RUNS_MAX = 2000
RUN_BYTES_MAX = 1 << 30
_HEAD = struct.Struct("<QI")
"""Position, length."""
SEAL = 0
"""In the place of a position: what follows is the seal behind what was before."""

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


class _Seal(msgspec.Struct, frozen=True, array_like=True):
    seal: bytes
    papers: bytes = b""
    """Of who sealed it, if that is another than before."""


_encode_seal = msgspec.msgpack.Encoder().encode
_decode_seal = msgspec.msgpack.Decoder(_Seal).decode


class _Mark(NamedTuple):
    """What there is up to a seal in the file of events, so that nobody reads it all again."""

    position: Position
    size_bytes: int
    about: About
    line: tuple[Position, ...]
    chain: bytes
    papers: bytes
    """Of who sealed last."""


def _after(
    mark: _Mark, batch: Sequence[NumberedEvent], chain: bytes, papers: bytes, size_bytes: int
) -> _Mark:
    """The mark behind a batch and its seal, which end there in the file."""
    about = msgspec.structs.replace(mark.about)
    for _, body in batch:
        about.apply(body)
    return _Mark(
        batch[-1][0] if batch else mark.position,
        size_bytes,
        about,
        line_on(mark.line, (position for position, _ in batch)),
        chain,
        papers or mark.papers,
    )


class _Copy:
    """One run's directory. Reading it once tells where everything is; after that only appends.

    A copy without papers was made before there were any: each event stands for itself."""

    def __init__(self, path: Path, term: Term) -> None:
        self.path = path
        self.term = term
        self.events = path / "events"
        graph = path / "graph"
        self.graph_bytes = graph.stat().st_size if graph.exists() else 0
        self.events.touch(mode=0o600)
        self._marks = [_Mark(0, 0, About(), (), term.charter, b"")]
        self._read_from(self._marks[0])
        self.base: Position = 0
        self.cut: _Mark | None = None
        """Where the promised writer goes on; see `KeptState`."""
        self.in_line = self._end.position // POSITIONS_PER_EPOCH
        """By the last event: with one of a writer, all before it is of its journal."""

    def _read_from(self, mark: _Mark) -> None:
        """Know what follows the mark, and cut off what is torn."""
        self._end = mark
        self._since_mark = 0
        batch: list[NumberedEvent] = []
        size_bytes = 0
        for position, body in _read(self.events, mark.size_bytes):
            size_bytes += _HEAD.size + len(body)
            if position != SEAL:
                batch.append((position, body))
            if position == SEAL or not self.term.papers:
                papers = _decode_seal(body).papers if position == SEAL else b""
                self._note(batch, fold(self._end.chain, batch), papers, size_bytes)
                batch, size_bytes = [], 0
        os.truncate(self.events, self._end.size_bytes)

    def _note(
        self, batch: Sequence[NumberedEvent], chain: bytes, papers: bytes, size_bytes: int
    ) -> None:
        """A batch and its seal are in the file."""
        self._end = _after(self._end, batch, chain, papers, self._end.size_bytes + size_bytes)
        self._since_mark += len(batch)
        since_bytes = self._end.size_bytes - self._marks[-1].size_bytes
        if self._since_mark >= EVENTS_MAX or since_bytes >= PIECE_BYTES_MAX:
            self._since_mark = 0
            self._marks.append(self._end)

    def _mark_before(self, position: Position) -> _Mark:
        """The last one with nothing beyond the position, whatever somebody took for one."""
        at = bisect_right(self._marks, position, key=lambda mark: mark.position)
        return self._marks[max(0, at - 1)]

    @property
    def size_bytes(self) -> int:
        return self._end.size_bytes

    @property
    def about(self) -> About:
        return self._end.about

    def state(self) -> KeptState:
        end, cut = self._end, self.cut
        return KeptState(
            self.term,
            end.position,
            self.graph_bytes,
            end.line,
            end.chain,
            self.in_line,
            self.base,
            None if cut is None else (cut.position, cut.chain),
        )

    def promise(self, term: Term) -> None:
        _replace(self.path / "term", msgspec.json.encode(term))
        self.term, self.cut = term, None

    def begin(self, term: Term, base: Position) -> None:
        self.promise(term)
        self.base, self.cut = base, self._last_seal(base)

    def _last_seal(self, base: Position) -> _Mark:
        """The last one up to this position, as a mark."""
        if self._end.position <= base:
            return self._end
        found = mark = self._mark_before(base)
        batch: list[NumberedEvent] = []
        size_bytes, since = mark.size_bytes, mark
        for position, body in _read(self.events, mark.size_bytes, self.size_bytes):
            size_bytes += _HEAD.size + len(body)
            if position != SEAL:
                if position > base:
                    break
                batch.append((position, body))
            if position == SEAL or not self.term.papers:
                papers = _decode_seal(body).papers if position == SEAL else b""
                found = _after(since, batch, fold(since.chain, batch), papers, size_bytes)
                since, batch = found, []
        return found

    def keep_graph(self, graph: bytes) -> None:
        _replace(self.path / "graph", graph)
        self.graph_bytes = len(graph)

    def add(self, events: Sequence[NumberedEvent], sealed: Sealed) -> None:
        before = self._end if self.cut is None else self.cut
        papers = b"" if sealed.papers == before.papers else sealed.papers
        records = [*events, (SEAL, _encode_seal(_Seal(sealed.seal, papers)))]
        data = b"".join(_HEAD.pack(position, len(body)) + body for position, body in records)
        assert self.cut is not None, "its writer has said what it builds on"
        if self.cut.size_bytes < self._end.size_bytes:
            self._replace_from(self.cut, data)
        else:
            self._append(data)
        self._note(events, sealed.chain, papers, len(data))
        self.in_line, self.base, self.cut = self.term.epoch, self._end.position, self._end

    def _append(self, data: bytes) -> None:
        with open(self.events, "r+b", buffering=0) as file:  # not kept open: they are many
            file.seek(self.size_bytes)  # over what a full disk may have torn off last time
            if file.write(data) < len(data):
                raise OSError(0, "the disk took only a part of it")
            os.fdatasync(file.fileno())

    def _replace_from(self, cut: _Mark, data: bytes) -> None:
        """What is beyond the cut never happened: this did."""
        beside = self.events.with_name(".events.new")
        shutil.copyfile(self.events, beside)
        os.truncate(beside, cut.size_bytes)
        with open(beside, "ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, self.events)
        _sync(self.path)
        self._marks = [mark for mark in self._marks if mark.size_bytes <= cut.size_bytes]
        self._end, self._since_mark = cut, 0

    def after(self, position: Position) -> Page:
        start = self._mark_before(position)
        pages, papers = Pages(), start.papers
        batch: list[NumberedEvent] = []
        for at, body in _read(self.events, start.size_bytes, self.size_bytes):
            if at > position:
                batch.append((at, body))
            if at == SEAL:
                seal = _decode_seal(body)
                papers = seal.papers or papers
                if batch and not pages.take(batch, seal.seal, papers):
                    break
                batch = []
            elif not self.term.papers and len(batch) >= EVENTS_MAX:
                break
        return pages.page if self.term.papers else Page(page(batch))

    def piece(self, offset: int) -> bytes:
        with open(self.path / "graph", "rb") as file:
            file.seek(offset)
            return file.read(PIECE_BYTES_MAX)


def _read(path: Path, start: int, end: int | None = None) -> Iterator[NumberedEvent]:
    """The whole events and seals from there on; what follows them is torn."""
    with open(path, "rb") as file:
        file.seek(start)
        while end is None or file.tell() < end:
            if len(head := file.read(_HEAD.size)) < _HEAD.size:
                return
            position, length = _HEAD.unpack(head)
            if length > EVENT_BYTES_MAX or len(body := file.read(length)) < length:
                return
            try:
                (_decode_seal if position == SEAL else decode)(body)
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

    def open(self, run: str, term: Term, base: Position, done: Done) -> None:
        path, old = self._directory / run, self._copies.get(run)
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
            copy = old
            if copy is not None and copy.term.charter != term.charter:
                shutil.rmtree(path)
                copy = None
            path.mkdir(mode=0o700, exist_ok=True)
            copy = copy or _Copy(path, term)
            copy.begin(term, base)
            return copy

        def opened(copy: _Copy) -> None:
            self._copies[run] = copy

        self._change(run, work, done, opened)

    def promise(self, run: str, term: Term, done: Done) -> None:
        copy = self._copies[run]
        self._change(run, lambda: copy.promise(term), done)

    def due_s(self, run: str) -> float:
        return self._seen[run][1].takeover_after_s

    def keep_graph(self, run: str, graph: bytes, done: Done) -> None:
        copy = self._copies[run]
        self._change(run, lambda: copy.keep_graph(graph), done)

    def add(self, run: str, events: Sequence[NumberedEvent], sealed: Sealed, done: Done) -> None:
        copy = self._copies[run]
        if copy.size_bytes >= RUN_BYTES_MAX:
            done(f"the copy of {run} here is {RUN_BYTES_MAX >> 20} MiB long and takes no more")
        else:
            self._change(run, lambda: copy.add(events, sealed), done)

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

    def read_events(self, run: str, after: Position, done: Callable[[Page], None]) -> None:
        copy = self._copies[run]
        self._aside(lambda: _or_nothing(lambda: copy.after(after), Page()), done)


def _or_nothing(read: Callable[[], T], nothing: T) -> T:
    """What was read; nothing, if it has been removed meanwhile or the disk fails."""
    try:
        return read()
    except OSError:
        return nothing


def _term_of(path: Path) -> Term | None:
    try:
        term = msgspec.json.decode((path / "term").read_bytes(), type=Term)
        if term.papers:
            read_papers(term.papers)
        return term
    except (OSError, msgspec.DecodeError, PapersError):
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
        return page(self._journal.bodies(self._run, position, EVENTS_MAX))

    def last(self) -> Position:
        return self._journal.last_position(self._run)
