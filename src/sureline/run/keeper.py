"""The agent that keeps copies of other peers' runs, so that they outlive their submitters.

A copy is the run's graph and its events in order, without gaps. Keepers also say who may write a
run: `run.grant` has the rules, and what is promised is durable before it is answered. Older writers
are fenced. Readers with the right get a copy in pages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Protocol

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
from sureline.world.address import Node, node_of, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, World

__all__ = ["MESSAGES", "About", "Done", "Keeper", "KeptInMemory", "KeptRuns", "KeptState", "page"]

ASSEMBLIES_MAX = 8
"""Graphs that are being received at the same time ..."""
ASSEMBLIES_BYTES_MAX = 96 << 20
"""... and what they may take together, unless it is one alone."""
CHANGING_MAX = 256
"""Runs whose copies are being written at the same time."""
EPOCH_MAX = 1 << 31
SHARE = 0.8
"""Of the time after which a run is taken over: so long its writer must have been silent here too.
Messages are lost, and keepers do not hear it at the same moment."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class KeptState(msgspec.Struct, frozen=True):
    epoch: int
    """The highest number that was promised."""
    writer: Node
    """Where the writer was that was heard last."""
    position: Position
    graph_bytes: int
    """0 while the graph is not whole."""
    line: tuple[Position, ...] = ()
    """The last position of each epoch in it."""
    promised_to: str = ""
    in_line: int = 0

    @property
    def holding(self) -> Holding:
        return Holding(Epoch(self.epoch, self.promised_to), self.in_line, self.position)


Done = Callable[[str], None]
"""Hears why something could not be done, in one sentence; '' if it was."""


class KeptRuns(Protocol):
    """Where copies lie. What may have to wait for a disk is done aside, and told when it is done:
    until then the store is asked for no other change of that run."""

    def state(self, run: str) -> KeptState | None: ...

    def open(self, run: str, epoch: Epoch, writer: Node, base: Position, done: Done) -> None:
        """A writer of this epoch begins: drop what is beyond `base`, make the run if it is new.
        Once it is done it is durable: it fences."""

    def promise(self, run: str, epoch: Epoch, done: Done) -> None:
        """Of a run that is kept; durable once it is done."""

    def keep_graph(self, run: str, graph: bytes, done: Done) -> None: ...

    def add(self, run: str, events: Sequence[NumberedEvent], done: Done) -> None:
        """What follows; positions rise. Durable once it is done."""

    def read_graph(self, run: str, offset: int, done: Callable[[bytes], None]) -> None:
        """The next piece."""

    def read_events(
        self, run: str, after: Position, done: Callable[[list[NumberedEvent]], None]
    ) -> None:
        """The next events, as many as fit a message."""

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
            state.writer,
            state.graph_bytes > 0,
            self.voters,
            self.takeover_after_s,
        )


class Warrants(Protocol):
    """How a keeper knows who may write a run, and signs what it promises."""

    def why_not(self, ask: GrantAsk, by: str) -> str:
        """Why this peer may not write the run; '' if it may."""

    def signed(self, run: str, promised: Epoch) -> tuple[bytes, bytes]:
        """The keeper's signature under its promise, and its certificate."""


class _Trusting:
    """Where nobody has certificates."""

    def why_not(self, ask: GrantAsk, by: str) -> str:
        return ""

    def signed(self, run: str, promised: Epoch) -> tuple[bytes, bytes]:
        return b"", b""


TRUSTING: Warrants = _Trusting()


class Keeper(Agent):
    """One change of a run at a time: what a writer says meanwhile is not heard, and it says so
    again."""

    def __init__(
        self, me: AgentId, world: World, store: KeptRuns, warrants: Warrants = TRUSTING
    ) -> None:
        super().__init__(me, world)
        self._store = store
        self._warrants = warrants
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
        if not _NAME.fullmatch(run) or not 0 < message.size_bytes <= GRAPH_BYTES_MAX:
            self._answer(sender, run, epoch.number, f"{run} cannot be kept here")
            return
        holding = Holding() if state is None else state.holding
        begun = grant.begun(holding, epoch, _base(message, state))
        if state is not None and begun == holding:
            self._take_piece(sender, message, state)
        elif begun is not None:
            self._changing.add(run)
            self._store.open(
                run,
                epoch,
                node_of(sender),
                _base(message, state),
                lambda refused: self._opened(sender, message, refused),
            )

    def _admit(self, sender: AgentId, run: str, epoch: Epoch, state: KeptState | None) -> bool:
        """Whether this writer is heard; an older one is fenced."""
        if state is not None and not grant.may_write(state.holding, epoch):
            self.world.send(sender, Fenced(run, state.epoch))
            return False
        self._heard_s[run] = self.world.elapsed()
        return True

    @handles(GrantAsk)
    def on_grant_ask(self, sender: AgentId, message: GrantAsk) -> None:
        run, epoch = message.run, Epoch(message.number, message.writer)
        state = self._store.state(run)
        why = self._why_not(sender, message, state)
        if why or state is None:
            said = Granted(run, message.number, 0, "", 0, why)
            self.world.send(sender, said)
        elif grant.asked(state.holding, epoch) == state.holding:
            self._promised(sender, message, "")
        elif self._may_change(run):
            self._changing.add(run)

            def done(refused: str) -> None:
                self._changing.discard(run)
                self._promised(sender, message, refused)

            self._store.promise(run, epoch, done)

    def _why_not(self, sender: AgentId, ask: GrantAsk, state: KeptState | None) -> str:
        """Why this question is not even thought of; '' if it is."""
        name = peer_of(self.me)
        if state is None or not state.graph_bytes:
            return f"{name} does not keep {ask.run}"
        if ask.writer.partition(":")[0] != peer_of(sender) or not 0 < ask.number < EPOCH_MAX:
            return f"{peer_of(sender)} asks for what is not its own"
        due_s = self._store.due_s(ask.run)
        if ask.relief and (not due_s or self.silent_s(ask.run) < SHARE * due_s):
            return f"{name} has heard of the writer of {ask.run} of late"
        return self._warrants.why_not(ask, peer_of(sender))

    def _promised(self, sender: AgentId, ask: GrantAsk, refused: str) -> None:
        state = self._store.state(ask.run)
        if refused or state is None:
            self.world.send(sender, Granted(ask.run, ask.number, 0, "", 0, refused or "it is gone"))
            return
        epoch = state.holding.promised
        signature, certificate = self._warrants.signed(ask.run, epoch)
        self.world.send(
            sender,
            Granted(
                ask.run,
                ask.number,
                epoch.number,
                epoch.writer,
                state.position,
                "",
                signature,
                certificate,
            ),
        )

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
        else:
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
        run, number = message.run, message.epoch
        epoch, state = Epoch(number, message.writer), self._store.state(run)
        if not self._admit(sender, run, epoch, state) or not self._may_change(run):
            return
        if state is not None and epoch != state.holding.promised:
            return
        positions = [position for position, _ in message.events]
        rising = all(a < b for a, b in zip([message.after, *positions], positions, strict=False))
        last = positions[-1] if positions else message.after
        fits = state and grant.followed(state.holding, epoch, message.after, last)
        if not fits or not rising or not positions:
            self._answer(sender, run, number)
        elif not _readable(message.events):
            self._answer(sender, run, number, f"what {run} is said to have recorded is no event")
        else:
            self._changing.add(run)
            self._store.add(run, message.events, self._changed(sender, run, number))

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
            self.world.send(sender, Kept(run, epoch, graph_bytes, state.position))

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
                lambda piece: self._tell(sender, message, piece=piece),
            )
        else:
            self._store.read_events(
                message.run, message.after, lambda events: self._tell(sender, message, events)
            )

    def _tell(
        self,
        sender: AgentId,
        ask: KeeperAsk,
        events: Sequence[NumberedEvent] = (),
        piece: bytes = b"",
    ) -> None:
        state = self._store.state(ask.run)
        if state is None:
            return  # it has made room for another
        graph_left = ask.offset + len(piece) < state.graph_bytes
        told = events[-1][0] if events else ask.after
        part = KeeperPart(
            ask.serial,
            ask.run,
            state.in_line,
            state.graph_bytes,
            ask.offset,
            piece,
            tuple(events),
            not graph_left and not piece and told >= state.position,
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


class KeptInMemory:
    """Copies that die with their process."""

    def __init__(self) -> None:
        self._states: dict[str, KeptState] = {}
        self._graphs: dict[str, bytes] = {}
        self._events: dict[str, list[NumberedEvent]] = {}

    def state(self, run: str) -> KeptState | None:
        return self._states.get(run)

    def open(self, run: str, epoch: Epoch, writer: Node, base: Position, done: Done) -> None:
        events = [entry for entry in self._events.get(run, []) if entry[0] <= base]
        self._events[run] = events
        position = events[-1][0] if events else 0
        line = line_on((), (position for position, _ in events))
        graph_bytes = len(self._graphs.get(run, b""))
        self._states[run] = KeptState(
            epoch.number, writer, position, graph_bytes, line, epoch.writer, epoch.number
        )
        done("")

    def promise(self, run: str, epoch: Epoch, done: Done) -> None:
        self._states[run] = msgspec.structs.replace(
            self._states[run], epoch=epoch.number, promised_to=epoch.writer
        )
        done("")

    def due_s(self, run: str) -> float:
        return self._about(run).takeover_after_s

    def keep_graph(self, run: str, graph: bytes, done: Done) -> None:
        self._graphs[run] = graph
        self._states[run] = msgspec.structs.replace(self._states[run], graph_bytes=len(graph))
        done("")

    def add(self, run: str, events: Sequence[NumberedEvent], done: Done) -> None:
        self._events[run].extend(events)
        if events:
            state, last = self._states[run], events[-1][0]
            line = line_on(state.line, (position for position, _ in events))
            self._states[run] = msgspec.structs.replace(state, position=last, line=line)
        done("")

    def read_graph(self, run: str, offset: int, done: Callable[[bytes], None]) -> None:
        done(self._graphs[run][offset : offset + PIECE_BYTES_MAX])

    def read_events(
        self, run: str, after: Position, done: Callable[[list[NumberedEvent]], None]
    ) -> None:
        done(page([entry for entry in self._events[run] if entry[0] > after]))

    def known(self) -> list[RunKnown]:
        found = []
        for run, state in self._states.items():
            found.append(self._about(run).told(run, state))
        return sorted(found, key=lambda known: (known.submitted_at, known.run))

    def _about(self, run: str) -> About:
        about = About()
        for _, body in self._events[run]:
            about.apply(body)
        return about
