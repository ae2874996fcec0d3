"""What a keeper holds of a run, and where it lies: the port of its store, and one in memory.

`compose.run_copies` is the store on a real disk, `experiments.machine_kept` the one of simulated
machines.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec

from sureline.journal.events import (
    COMMITS,
    Opened,
    RunEnded,
    Submitted,
    TaskEnded,
    TaskRevoked,
    Voters,
    decode,
)
from sureline.run.grant import Epoch, Holding
from sureline.run.keeping import (
    EVENTS_MAX,
    PIECE_BYTES_MAX,
    NumberedEvent,
    Position,
    RunKnown,
    line_on,
)
from sureline.run.options import TAKEOVER_AFTER_S
from sureline.world.address import Node
from sureline.world.identity.signing import chain_start, read_papers


class Term(msgspec.Struct, frozen=True):
    """Who writes a run now."""

    epoch: int
    """The highest number that was promised."""
    writer: Node
    """Where the writer was that was heard last."""
    papers: bytes = b""
    """Empty if it was kept before there were papers: nobody believes such a copy."""

    promised_to: str = ""

    @property
    def promised(self) -> Epoch:
        return Epoch(self.epoch, self.promised_to)

    @property
    def charter(self) -> bytes:
        """The same for all writers of a run, and for no other run."""
        return chain_start(read_papers(self.papers)) if self.papers else b""


class Sealed(NamedTuple):
    """What stands behind the last event of a copy."""

    chain: bytes
    seal: bytes
    papers: bytes
    """Of who sealed it: in a new term, that is an earlier writer until the new one tells more."""


class Page(NamedTuple):
    """Some events, and the seal behind the last of them."""

    events: Sequence[NumberedEvent] = ()
    seal: bytes = b""
    papers: bytes = b""


class KeptState(msgspec.Struct, frozen=True):
    term: Term
    position: Position
    graph_bytes: int
    """0 while the graph is not whole."""
    line: tuple[Position, ...] = ()
    """The last position of each epoch in it."""
    chain: bytes = b""
    """Of its events up to the position."""
    in_line: int = 0
    """See `grant.Holding`."""
    base: Position = 0
    """What it has in common with the journal of the promised writer ..."""
    cut: tuple[Position, bytes] | None = None
    """... and the last seal up to there, with its chain: that writer goes on from here. None if it
    has not said what it builds on."""

    @property
    def holding(self) -> Holding:
        return Holding(self.term.promised, self.in_line, self.position)

    @property
    def epoch(self) -> int:
        return self.term.epoch


Done = Callable[[str], None]
"""Hears why something could not be done, in one sentence; '' if it was."""


class KeptRuns(Protocol):
    """Where copies lie. What may have to wait for a disk is done aside, and told when it is done:
    until then the store is asked for no other change of that run."""

    def state(self, run: str) -> KeptState | None: ...

    def open(self, run: str, term: Term, base: Position, done: Done) -> None:
        """A writer begins: what is beyond the last seal up to `base` goes when it adds what it has
        instead, and everything if what is there has another charter; make the run if it is new.
        Once it is done it is durable: it fences."""

    def promise(self, run: str, term: Term, done: Done) -> None:
        """Of a run that is kept. Durable once it is done."""

    def keep_graph(self, run: str, graph: bytes, done: Done) -> None: ...

    def add(self, run: str, events: Sequence[NumberedEvent], sealed: Sealed, done: Done) -> None:
        """What follows, in place of what is beyond the cut; positions rise. Durable once done."""

    def read_graph(self, run: str, offset: int, done: Callable[[bytes], None]) -> None:
        """The next piece."""

    def read_events(self, run: str, after: Position, done: Callable[[Page], None]) -> None:
        """The next events, as many as fit a message, up to a seal."""

    def due_s(self, run: str) -> float:
        """After how long a silence of its writer a run that is kept is taken over; 0 for never."""

    def known(self) -> list[RunKnown]:
        """All of them, the newest last."""


def page(events: Sequence[NumberedEvent]) -> list[NumberedEvent]:
    """As many of the first events as fit a message; at least one, if there is one."""
    found: list[NumberedEvent] = []
    size = 0
    for position, body in events[:EVENTS_MAX]:
        size += len(body) + 16
        if found and size > PIECE_BYTES_MAX:
            break
        found.append((position, body))
    return found


class Pages:
    """Gathers what came under several seals, as long as it fits a message."""

    def __init__(self) -> None:
        self.page = Page()
        self._events: list[NumberedEvent] = []
        self._bytes = 0

    def take(self, events: Sequence[NumberedEvent], seal: bytes, papers: bytes) -> bool:
        """Whether it fits beside what is there."""
        self._bytes += sum(len(body) + 16 for _, body in events)
        count = len(self._events) + len(events)
        if self._events and (count > EVENTS_MAX or self._bytes > PIECE_BYTES_MAX):
            return False
        self._events += events
        self.page = Page(self._events, seal, papers)
        return True


class About(msgspec.Struct):
    """What a list of runs tells of one, folded from its events."""

    name: str = ""
    state: str = "running"
    submitted_at: float = 0.0
    total: int = 0
    done: int = 0
    takeover_after_s: float = TAKEOVER_AFTER_S
    voters: tuple[str, ...] = ()

    def apply(self, body: bytes) -> None:
        match decode(body):
            case Submitted(name=name, at=at, total=total, options=options):
                self.name, self.submitted_at, self.total = name, at, total
                after_s = options.get("takeover_after_s", TAKEOVER_AFTER_S)
                if isinstance(after_s, int | float) and after_s >= 0:
                    self.takeover_after_s = float(after_s)
            case Voters(voters=voters):
                self.voters = voters
            case TaskEnded(outcome=outcome) if outcome in COMMITS:
                self.done += 1
            case TaskRevoked():
                self.done = max(0, self.done - 1)
            case RunEnded(state=state):
                self.state = state
            case Opened():
                self.state = "running"

    def told(self, run: str, state: KeptState) -> RunKnown:
        return RunKnown(
            run,
            self.name,
            state.epoch,
            self.state,
            self.submitted_at,
            self.total,
            self.done,
            state.position,
            state.term.writer,
            state.graph_bytes > 0,
            self.voters,
            self.takeover_after_s,
        )


class _Batch(NamedTuple):
    """What came under one seal."""

    events: Sequence[NumberedEvent]
    sealed: Sealed
    about: About
    """Of all up to its end, as is `line`: a keeper is asked for them with every message."""
    line: tuple[Position, ...]

    @property
    def position(self) -> Position:
        return self.events[-1][0]


class KeptInMemory:
    """Copies that die with their process."""

    def __init__(self) -> None:
        self._states: dict[str, KeptState] = {}
        self._graphs: dict[str, bytes] = {}
        self._batches: dict[str, list[_Batch]] = {}

    def state(self, run: str) -> KeptState | None:
        return self._states.get(run)

    def events(self, run: str) -> list[NumberedEvent]:
        """All that is kept of the run."""
        return [entry for batch in self._batches[run] for entry in batch.events]

    def open(self, run: str, term: Term, base: Position, done: Done) -> None:
        old = self._states.get(run)
        if old is None or old.term.charter != term.charter:
            self._batches[run], self._graphs[run] = [], b""
            old = KeptState(term, 0, 0, (), term.charter)
        sealed = [batch for batch in self._batches[run] if batch.position <= base]
        cut = (sealed[-1].position, sealed[-1].sealed.chain) if sealed else (0, term.charter)
        self._states[run] = msgspec.structs.replace(old, term=term, base=base, cut=cut)
        done("")

    def promise(self, run: str, term: Term, done: Done) -> None:
        self._states[run] = msgspec.structs.replace(self._states[run], term=term, cut=None)
        done("")

    def keep_graph(self, run: str, graph: bytes, done: Done) -> None:
        self._graphs[run] = graph
        self._states[run] = msgspec.structs.replace(self._states[run], graph_bytes=len(graph))
        done("")

    def add(self, run: str, events: Sequence[NumberedEvent], sealed: Sealed, done: Done) -> None:
        state, batches = self._states[run], self._batches[run]
        assert state.cut is not None, "its writer has said what it builds on"
        del batches[self._first_after(run, state.cut[0]) :]
        about = msgspec.structs.replace(self._about(run))
        for _, body in events:
            about.apply(body)
        line = line_on(batches[-1].line if batches else (), (position for position, _ in events))
        batch = _Batch(tuple(events), sealed, about, line)
        batches.append(batch)
        self._states[run] = msgspec.structs.replace(
            state,
            position=batch.position,
            line=line,
            chain=sealed.chain,
            in_line=state.epoch,
            base=batch.position,
            cut=(batch.position, sealed.chain),
        )
        done("")

    def read_graph(self, run: str, offset: int, done: Callable[[bytes], None]) -> None:
        done(self._graphs[run][offset : offset + PIECE_BYTES_MAX])

    def read_events(self, run: str, after: Position, done: Callable[[Page], None]) -> None:
        pages = Pages()
        for batch in islice(self._batches[run], self._first_after(run, after), None):
            following = [entry for entry in batch.events if entry[0] > after]
            if not pages.take(following, batch.sealed.seal, batch.sealed.papers):
                break
        done(pages.page)

    def known(self) -> list[RunKnown]:
        found = []
        for run, state in self._states.items():
            found.append(self._about(run).told(run, state))
        return sorted(found, key=lambda known: (known.submitted_at, known.run))

    def due_s(self, run: str) -> float:
        return self._about(run).takeover_after_s

    def _about(self, run: str) -> About:
        batches = self._batches[run]
        return batches[-1].about if batches else About()

    def _first_after(self, run: str, position: Position) -> int:
        return bisect_right(self._batches[run], position, key=lambda batch: batch.position)
