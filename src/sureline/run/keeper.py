"""The agent that keeps copies of other peers' runs, so that they outlive their submitters.

A copy is the run's graph and its events in order, without gaps. Like any peer, a keeper remembers
the highest epoch of each run and fences older writers. Readers with the right get it in pages.

A keeper takes nothing that is not signed by who may write the run, and keeps the seals: a copy ends
with one, and so does every page of it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import islice
from typing import NamedTuple, Protocol

import msgspec

from sureline.journal.events import (
    COMMITS,
    RunEnded,
    Submitted,
    TaskEnded,
    TaskRevoked,
    Unknown,
    Voters,
    decode,
)
from sureline.peer.messages import Fenced
from sureline.run import grant
from sureline.run.grant import Epoch, Holding
from sureline.run.keeping import (
    EVENTS_MAX,
    GRAPH_BYTES_MAX,
    LISTED_MAX,
    MESSAGES,
    PIECE_BYTES_MAX,
    GrantAsk,
    Granted,
    KeeperAsk,
    KeeperPart,
    KeepEvents,
    KeepRun,
    Kept,
    NumberedEvent,
    Position,
    RunKnown,
    RunsKnown,
    last_common,
    line_on,
)
from sureline.run.options import TAKEOVER_AFTER_S
from sureline.run.sealing import Checker
from sureline.world.address import Node, node_of, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.identity.signing import (
    PapersError,
    Trust,
    WriterAuthority,
    chain_start,
    digest,
    is_run_name,
    read_papers,
)
from sureline.world.protocol import AgentId, World

__all__ = [
    "MESSAGES",
    "About",
    "Done",
    "Keeper",
    "KeptInMemory",
    "KeptRuns",
    "KeptState",
    "Page",
    "Sealed",
    "Term",
    "page",
]

ASSEMBLIES_MAX = 8
"""Graphs that are being received at the same time ..."""
ASSEMBLIES_BYTES_MAX = 96 << 20
"""... and what they may take together, unless it is one alone."""
SHARE = 0.8
"""Of the time after which a run is taken over: so long its writer must have been silent here too.
Messages are lost, and keepers do not hear it at the same moment."""
CHANGING_MAX = 256
"""Runs whose copies are being written at the same time."""


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
            case Unknown():
                pass
            case _:
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


class Keeper(Agent):
    """One change of a run at a time: what a writer says meanwhile is not heard, and it says so
    again."""

    def __init__(self, me: AgentId, world: World, store: KeptRuns, trust: Trust) -> None:
        super().__init__(me, world)
        self._store = store
        self._checker = Checker(trust)
        self._began_s = world.elapsed()
        self._heard_s: dict[str, float] = {}
        """When the writer of each run was last heard, since this process began."""
        self._assemblies: dict[str, bytearray] = {}
        self._changing: set[str] = set()

    def silent_s(self, run: str) -> float:
        """For how long nothing was heard of the run's writer, as far as this process can tell."""
        return self.world.elapsed() - self._heard_s.get(run, self._began_s)

    @handles(KeepRun)
    def on_keep_run(self, sender: AgentId, message: KeepRun) -> None:
        run, epoch = message.run, Epoch(message.epoch, message.writer)
        state = self._store.state(run)
        if not self._admit(sender, run, epoch, state) or not self._may_change(run):
            return
        if not is_run_name(run) or not 0 < message.size_bytes <= GRAPH_BYTES_MAX:
            self._answer(sender, run, message.epoch, f"{run} cannot be kept here")
        elif state is None or epoch != state.term.promised or state.cut is None:
            self._begin(sender, message, state)
        else:
            self._take_piece(sender, message, state)

    def _begin(self, sender: AgentId, message: KeepRun, state: KeptState | None) -> None:
        """A writer comes whose epoch is new here, or who has not said what it builds on."""
        run, papers = message.run, message.papers
        term = Term(message.epoch, node_of(sender), papers, message.writer)
        try:
            self._check(sender, run, message.epoch, papers, state)
        except PapersError as error:
            self._refuse(sender, run, message.epoch, error)
            return
        self._changing.add(run)
        self._store.open(
            run,
            term,
            _base(message, state),
            lambda refused: self._opened(sender, message, refused),
        )

    def _check(
        self, sender: AgentId, run: str, epoch: int, papers: bytes, state: KeptState | None
    ) -> None:
        """Raise PapersError unless the sender may write the run in this epoch."""
        authority = self._checker.authority(run, epoch, papers, self.world.now())
        if authority.writer != peer_of(sender):
            raise PapersError(f"its papers are those of {authority.writer}")
        if state is not None and state.term.charter not in (b"", authority.start):
            raise PapersError("another run of this name is kept here")

    @handles(GrantAsk)
    def on_grant_ask(self, sender: AgentId, message: GrantAsk) -> None:
        run, epoch = message.run, Epoch(message.number, message.writer)
        state = self._store.state(run)
        why = self._why_not(sender, message, state)
        if why or state is None:
            self.world.send(sender, Granted(run, message.number, 0, "", 0, why))
        elif grant.asked(state.holding, epoch) == state.holding:
            self._promised(sender, message, "")
        elif self._may_change(run):
            self._changing.add(run)

            def done(refused: str) -> None:
                self._changing.discard(run)
                self._promised(sender, message, refused)

            term = Term(epoch.number, state.term.writer, message.papers, epoch.writer)
            self._store.promise(run, term, done)

    def _why_not(self, sender: AgentId, ask: GrantAsk, state: KeptState | None) -> str:
        """Why this question is not even thought of; '' if it is."""
        name = peer_of(self.me)
        if state is None or not state.graph_bytes:
            return f"{name} does not keep {ask.run}"
        due_s = self._store.due_s(ask.run)
        if ask.relief and (not due_s or self.silent_s(ask.run) < SHARE * due_s):
            return f"{name} has heard of the writer of {ask.run} of late"
        try:
            self._check(sender, ask.run, ask.number, ask.papers, state)
        except PapersError as error:
            return f"{name} does not let {peer_of(sender)} write {ask.run}: {error}"
        return ""

    def _promised(self, sender: AgentId, ask: GrantAsk, refused: str) -> None:
        """Say what holds now, and is durable."""
        state = self._store.state(ask.run)
        if refused or state is None:
            why = refused or f"{ask.run} is not kept here any more"
            self.world.send(sender, Granted(ask.run, ask.number, 0, "", 0, why))
            return
        promised = state.term.promised
        said = Granted(ask.run, ask.number, promised.number, promised.writer, state.position)
        self.world.send(sender, said)

    def _refuse(self, sender: AgentId, run: str, epoch: int, why: PapersError) -> None:
        self._answer(sender, run, epoch, f"{run} is not kept here: {why}")

    def _authority(self, run: str, state: KeptState) -> WriterAuthority:
        """Of its writer, who was believed when the term began. Raises PapersError."""
        return self._checker.authority(run, state.epoch, state.term.papers)

    def _admit(self, sender: AgentId, run: str, epoch: Epoch, state: KeptState | None) -> bool:
        """Whether this writer is heard; an older one is fenced."""
        if state is not None and not grant.may_write(state.holding, epoch):
            self.world.send(sender, Fenced(run, state.epoch, state.term.papers))
            return False
        self._heard_s[run] = self.world.elapsed()
        return True

    def _may_change(self, run: str) -> bool:
        return run not in self._changing and len(self._changing) < CHANGING_MAX

    def _opened(self, sender: AgentId, message: KeepRun, refused: str) -> None:
        self._changing.discard(message.run)
        state = self._store.state(message.run)
        if refused or state is None:
            self._answer(sender, message.run, message.epoch, refused)
        else:
            self._take_piece(sender, message, state)

    def _take_piece(self, sender: AgentId, message: KeepRun, state: KeptState) -> None:
        run, epoch = message.run, message.epoch
        graph = None if state.graph_bytes else self._assembled(message)
        if graph is None:
            self._answer(sender, run, epoch)
            return
        try:
            if digest(graph) != self._authority(run, state).graph:
                raise PapersError("its graph is not the one that was submitted")
        except PapersError as error:
            self._refuse(sender, run, epoch, error)
            return
        self._changing.add(run)
        self._store.keep_graph(run, graph, self._changed(sender, run, epoch))

    def _assembled(self, message: KeepRun) -> bytes | None:
        """The graph, if this was its last piece."""
        parts = self._assemblies.setdefault(message.run, bytearray())
        if message.offset == 0 or len(parts) + len(message.piece) > message.size_bytes:
            parts.clear()
        if message.offset == len(parts):
            parts += message.piece
        whole = len(parts) == message.size_bytes
        if whole:
            del self._assemblies[message.run]
        while len(self._assemblies) > ASSEMBLIES_MAX or (
            len(self._assemblies) > 1
            and sum(map(len, self._assemblies.values())) > ASSEMBLIES_BYTES_MAX
        ):
            del self._assemblies[next(iter(self._assemblies))]
        return bytes(parts) if whole else None

    @handles(KeepEvents)
    def on_keep_events(self, sender: AgentId, message: KeepEvents) -> None:
        run, epoch = message.run, message.epoch
        state = self._store.state(run)
        promised = Epoch(epoch) if state is None or epoch != state.epoch else state.term.promised
        if not self._admit(sender, run, promised, state) or not self._may_change(run):
            return
        if state is not None and (promised != state.term.promised or state.cut is None):
            return
        last = message.events[-1][0] if message.events else message.after
        if (
            state is None
            or state.cut is None
            or message.after != state.cut[0]
            or not message.events
        ):
            self._answer(sender, run, epoch)
            return
        if not grant.followed(state.holding, promised, state.base, message.after, last):
            self._answer(sender, run, epoch)
            return
        try:
            chain = self._checker.followed(
                self._authority(run, state), *state.cut, message.events, message.seal
            )
        except PapersError as error:
            self._refuse(sender, run, epoch, error)
            return
        if not _readable(message.events):
            self._answer(sender, run, epoch, f"what {run} is said to have recorded is no event")
            return
        self._changing.add(run)
        sealed = Sealed(chain, message.seal, state.term.papers)
        self._store.add(run, message.events, sealed, self._changed(sender, run, epoch))

    def _changed(self, sender: AgentId, run: str, epoch: int) -> Done:
        def done(refused: str) -> None:
            self._changing.discard(run)
            self._answer(sender, run, epoch, refused)

        return done

    def _answer(self, sender: AgentId, run: str, epoch: int, refused: str = "") -> None:
        state = self._store.state(run)
        if refused or state is None:
            self.world.send(sender, Kept(run, epoch, 0, 0, refused))
        else:
            graph_bytes = state.graph_bytes or len(self._assemblies.get(run, b""))
            position = state.position if state.cut is None else state.cut[0]
            self.world.send(sender, Kept(run, epoch, graph_bytes, position))

    # -- reading -------------------------------------------------------------------------------

    @handles(KeeperAsk)
    def on_ask(self, sender: AgentId, message: KeeperAsk) -> None:
        if not message.run:
            newest = self._store.known()[-LISTED_MAX:]
            self.world.send(sender, RunsKnown(message.serial, tuple(newest)))
            return
        state = self._store.state(message.run)
        if state is None or not state.graph_bytes:
            nothing = KeeperPart(message.serial, message.run, 0, 0, 0, b"", (), True)
            self.world.send(sender, nothing)
            return
        if 0 <= message.offset < state.graph_bytes:
            self._store.read_graph(
                message.run,
                message.offset,
                lambda piece: self._tell(sender, message, Page(), piece),
            )
        else:
            self._store.read_events(
                message.run, message.after, lambda page: self._tell(sender, message, page)
            )

    def _tell(self, sender: AgentId, ask: KeeperAsk, page: Page, piece: bytes = b"") -> None:
        state = self._store.state(ask.run)
        if state is None:
            return  # it has made room for another
        graph_left = ask.offset + len(piece) < state.graph_bytes
        told = page.events[-1][0] if page.events else ask.after
        part = KeeperPart(
            ask.serial,
            ask.run,
            state.epoch,
            state.graph_bytes,
            ask.offset,
            piece,
            tuple(page.events),
            not graph_left and not piece and told >= state.position,
            page.papers,
            page.seal,
        )
        self.world.send(sender, part)


def _base(message: KeepRun, state: KeptState | None) -> Position:
    """Up to where what is here is what the new writer builds on."""
    if state is None or not message.line:
        return message.base
    return last_common(state.line, message.line)


def _readable(events: Sequence[NumberedEvent]) -> bool:
    """Whether all of them are events: what is kept must be of use to readers."""
    try:
        for _, body in events:
            decode(body)
    except msgspec.DecodeError:
        return False
    return True


class _Batch(NamedTuple):
    """What came under one seal."""

    events: Sequence[NumberedEvent]
    sealed: Sealed

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
        batch, state = _Batch(tuple(events), sealed), self._states[run]
        assert state.cut is not None, "its writer has said what it builds on"
        kept = [one for one in self._batches[run] if one.position <= state.cut[0]]
        self._batches[run] = [*kept, batch]
        self._states[run] = msgspec.structs.replace(
            state,
            position=batch.position,
            line=line_on((), (position for position, _ in self.events(run))),
            chain=sealed.chain,
            in_line=state.epoch,
            base=batch.position,
            cut=(batch.position, sealed.chain),
        )
        done("")

    def read_graph(self, run: str, offset: int, done: Callable[[bytes], None]) -> None:
        done(self._graphs[run][offset : offset + PIECE_BYTES_MAX])

    def read_events(self, run: str, after: Position, done: Callable[[Page], None]) -> None:
        batches = self._batches[run]
        first = bisect_right(batches, after, key=lambda batch: batch.position)
        pages = Pages()
        for events, sealed in islice(batches, first, None):
            following = [entry for entry in events if entry[0] > after]
            if not pages.take(following, sealed.seal, sealed.papers):
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
        about = About()
        for _, body in self.events(run):
            about.apply(body)
        return about
