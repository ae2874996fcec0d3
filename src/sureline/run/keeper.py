"""The agent that keeps copies of other peers' runs, so that they outlive their submitters.

A copy is the run's graph and its events in order, without gaps. Like any peer, a keeper remembers
the highest epoch of each run and fences older writers. Readers with the right get it in pages.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

import msgspec

from sureline.journal.events import COMMITS, RunEnded, Submitted, TaskEnded, TaskRevoked, decode
from sureline.peer.messages import Fenced
from sureline.run.keeping import (
    EVENTS_MAX,
    GRAPH_BYTES_MAX,
    LISTED_MAX,
    MESSAGES,
    PIECE_BYTES_MAX,
    KeeperAsk,
    KeeperPart,
    KeepEvents,
    KeepRun,
    Kept,
    NumberedEvent,
    Position,
    RunKnown,
    RunsKnown,
)
from sureline.world.address import Node, node_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, World

__all__ = ["MESSAGES", "About", "Keeper", "KeptInMemory", "KeptRuns", "KeptState", "page"]

ASSEMBLIES_MAX = 8
"""Graphs that are being received at the same time ..."""
ASSEMBLIES_BYTES_MAX = 96 << 20
"""... and what they may take together, unless it is one alone."""
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class KeptState(msgspec.Struct, frozen=True):
    epoch: int
    writer: Node
    position: Position
    graph_bytes: int
    """0 while the graph is not whole."""


class KeptRuns(Protocol):
    """Where copies lie. An `open` is durable when it returns: it fences."""

    def state(self, run: str) -> KeptState | None: ...

    def open(self, run: str, epoch: int, writer: Node, base: Position) -> str:
        """A writer of this epoch begins: drop what is beyond `base`, make the run if it is new.
        Why it cannot be kept, in one sentence; '' if it can."""

    def keep_graph(self, run: str, graph: bytes) -> None: ...

    def graph(self, run: str) -> bytes: ...

    def add(self, run: str, events: Sequence[NumberedEvent]) -> None:
        """What follows; positions rise."""

    def after(self, run: str, position: Position) -> list[NumberedEvent]:
        """The next events, as many as fit a message."""

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


class About:
    """What a list of runs tells of one, folded from its events."""

    def __init__(self) -> None:
        self.name = ""
        self.state = "running"
        self.submitted_at = 0.0
        self.total = 0
        self.committed: set[str] = set()

    def apply(self, body: bytes) -> None:
        match decode(body):
            case Submitted(name=name, at=at, total=total):
                self.name, self.submitted_at, self.total = name, at, total
            case TaskEnded(task=task, outcome=outcome) if outcome in COMMITS:
                self.committed.add(task)
            case TaskRevoked(task=task):
                self.committed.discard(task)
            case RunEnded(state=state):
                self.state = state
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
            len(self.committed),
            state.position,
            state.writer,
            state.graph_bytes > 0,
        )


class Keeper(Agent):
    def __init__(self, me: AgentId, world: World, store: KeptRuns) -> None:
        super().__init__(me, world)
        self._store = store
        self._assemblies: dict[str, bytearray] = {}

    @handles(KeepRun)
    def on_keep_run(self, sender: AgentId, message: KeepRun) -> None:
        run, epoch = message.run, message.epoch
        state = self._admit(sender, run, epoch)
        if state is not None and epoch < state.epoch:
            return
        if not _NAME.fullmatch(run) or not 0 < message.size_bytes <= GRAPH_BYTES_MAX:
            self.world.send(sender, Kept(run, epoch, 0, 0, f"{run} cannot be kept here"))
            return
        if state is None or epoch > state.epoch:
            refused = self._store.open(run, epoch, node_of(sender), message.base)
            if refused:
                self.world.send(sender, Kept(run, epoch, 0, 0, refused))
                return
            state = self._store.state(run)
        if state is not None and not state.graph_bytes:
            self._assemble(message)
        self._answer(sender, run, epoch)

    def _admit(self, sender: AgentId, run: str, epoch: int) -> KeptState | None:
        """What is kept of the run; an older writer is fenced."""
        state = self._store.state(run)
        if state is not None and epoch < state.epoch:
            self.world.send(sender, Fenced(run, state.epoch))
        return state

    def _assemble(self, message: KeepRun) -> None:
        parts = self._assemblies.setdefault(message.run, bytearray())
        if message.offset == 0 or len(parts) + len(message.piece) > message.size_bytes:
            parts.clear()
        if message.offset == len(parts):
            parts += message.piece
        if len(parts) == message.size_bytes:
            self._store.keep_graph(message.run, bytes(parts))
            del self._assemblies[message.run]
        while len(self._assemblies) > ASSEMBLIES_MAX or (
            len(self._assemblies) > 1
            and sum(map(len, self._assemblies.values())) > ASSEMBLIES_BYTES_MAX
        ):
            del self._assemblies[next(iter(self._assemblies))]

    @handles(KeepEvents)
    def on_keep_events(self, sender: AgentId, message: KeepEvents) -> None:
        state = self._admit(sender, message.run, message.epoch)
        if state is None or message.epoch != state.epoch:
            if state is None:
                self.world.send(sender, Kept(message.run, message.epoch, 0, 0))
            return
        positions = [position for position, _ in message.events]
        rising = all(a < b for a, b in zip([message.after, *positions], positions, strict=False))
        if message.after == state.position and rising and _readable(message.events):
            self._store.add(message.run, message.events)
        self._answer(sender, message.run, message.epoch)

    def _answer(self, sender: AgentId, run: str, epoch: int) -> None:
        state = self._store.state(run)
        if state is not None:
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
        self.world.send(sender, self._part(state, message))

    def _part(self, state: KeptState, ask: KeeperAsk) -> KeeperPart:
        piece, events = b"", list[NumberedEvent]()
        if 0 <= ask.offset < state.graph_bytes:
            piece = self._store.graph(ask.run)[ask.offset : ask.offset + PIECE_BYTES_MAX]
        else:
            events = self._store.after(ask.run, ask.after)
        graph_left = ask.offset + len(piece) < state.graph_bytes
        told = events[-1][0] if events else ask.after
        return KeeperPart(
            ask.serial,
            ask.run,
            state.epoch,
            state.graph_bytes,
            ask.offset,
            piece,
            tuple(events),
            not graph_left and not piece and told >= state.position,
        )


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

    def open(self, run: str, epoch: int, writer: Node, base: Position) -> str:
        events = [entry for entry in self._events.get(run, []) if entry[0] <= base]
        self._events[run] = events
        position = events[-1][0] if events else 0
        self._states[run] = KeptState(epoch, writer, position, len(self._graphs.get(run, b"")))
        return ""

    def keep_graph(self, run: str, graph: bytes) -> None:
        self._graphs[run] = graph
        self._states[run] = msgspec.structs.replace(self._states[run], graph_bytes=len(graph))

    def graph(self, run: str) -> bytes:
        return self._graphs[run]

    def add(self, run: str, events: Sequence[NumberedEvent]) -> None:
        self._events[run].extend(events)
        if events:
            last = events[-1][0]
            self._states[run] = msgspec.structs.replace(self._states[run], position=last)

    def after(self, run: str, position: Position) -> list[NumberedEvent]:
        return page([entry for entry in self._events[run] if entry[0] > position])

    def known(self) -> list[RunKnown]:
        found = []
        for run, state in self._states.items():
            about = About()
            for _, body in self._events[run]:
                about.apply(body)
            found.append(about.told(run, state))
        return sorted(found, key=lambda known: (known.submitted_at, known.run))
