"""What a run's writer, the keepers of its copies, and readers say to each other.

A keeper answers everything a writer sends with `Kept`: how much it has. The writer sends what
follows from there, one message at a time, so that nothing depends on any message arriving.
Positions order a run's events over all its epochs (see `journal.schema`). All that is told of a run
is signed: `papers` say who may write it, and a `seal` vouches for all events up to the last that it
comes with (see `world.identity.signing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

import msgspec

from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.world.address import Node
from sureline.world.protocol import WRITES, Message

Position = int
NumberedEvent = tuple[Position, bytes]
"""An event's position, and the event as the journal encodes it."""


class KeepRun(Message, frozen=True, tag="keeper.keep_run"):
    """Keep a copy of this run; here is a piece of its graph. `line` has the last position of each
    earlier epoch that the writer builds on, and `base` is the last of them: what a keeper has
    besides never happened."""

    needs_role: ClassVar[str] = WRITES

    run: str
    epoch: int
    base: Position
    size_bytes: int
    offset: int
    piece: bytes
    line: tuple[Position, ...] = ()
    """Empty if the writer is of a version that knows only its base."""
    papers: bytes = b""
    writer: str = ""
    """Of its epoch; see `run.grant`."""


class KeepEvents(Message, frozen=True, tag="keeper.keep_events"):
    """The events that follow `after`, without a gap; none to say that the writer is there."""

    needs_role: ClassVar[str] = WRITES

    run: str
    epoch: int
    after: Position
    events: tuple[NumberedEvent, ...]
    seal: bytes = b""


class Kept(Message, frozen=True, tag="keeper.kept"):
    """How much of the graph, and up to which position, a keeper has."""

    needs_role: ClassVar[str] = "run"

    run: str
    epoch: int
    graph_bytes: int
    position: Position
    refused: str = ""
    """Why it does not keep this run; one sentence."""


class GrantAsk(Message, frozen=True, tag="keeper.grant_ask"):
    """Promise me this epoch of the run. Answered by Granted."""

    needs_role: ClassVar[str] = WRITES

    run: str
    number: int
    writer: str
    """NAME:WORD, of a process of this peer alone."""
    relief: bool = False
    """Nobody asked for it: it is due only if the run's writer has been silent for long."""
    papers: bytes = b""
    """The run's, with the asker's mandate for this epoch; see `identity.signing`."""
    gone: int = 0
    """The last epoch whose writer is known to be gone; see `run.hearing`."""


class Granted(Message, frozen=True, tag="keeper.granted"):
    """What this keeper has promised, and up to where it has the run."""

    needs_role: ClassVar[str] = "run"

    run: str
    number: int
    """As asked for."""
    promised: int
    promised_to: str
    position: Position
    refused: str = ""
    """Why it does not even think of it; one sentence."""


class RunKnown(msgspec.Struct, frozen=True):
    """One line about a run of which somebody keeps a copy."""

    run: str
    name: str
    epoch: int
    state: str
    """'running' until the copy has the run's end."""
    submitted_at: float
    total: int
    done: int
    position: Position
    writer: Node
    """The node of its writer, when it was last heard of."""
    whole: bool = True
    """Whether the graph is there too, so that it can be resumed from here."""
    voters: tuple[str, ...] = ()
    """Who say who may write it."""
    takeover_after_s: float = 0.0
    """After how long a silence of its writer it is taken over; 0 for never."""


class KeeperAsk(Message, frozen=True, tag="keeper.ask"):
    """What do you have of this run after these? With run '', which runs do you have?"""

    needs_role: ClassVar[str] = WRITES

    serial: int
    run: str = ""
    offset: int = 0
    """How much of the graph the asker has."""
    after: Position = 0


class KeeperPart(Message, frozen=True, tag="keeper.part"):
    """A part of a run: a piece of its graph until that is whole, then events."""

    needs_role: ClassVar[str] = "run"

    serial: int
    run: str
    epoch: int
    size_bytes: int
    """Of the graph; 0 if the keeper has not got it."""
    offset: int
    piece: bytes
    events: tuple[NumberedEvent, ...]
    last: bool
    """Nothing follows, for now."""
    papers: bytes = b""
    """Of the writer who sealed these events; empty if they were kept before there were seals."""
    seal: bytes = b""


class RunsKnown(Message, frozen=True, tag="keeper.runs"):
    """The newest runs, at most LISTED_MAX."""

    needs_role: ClassVar[str] = "run"

    serial: int
    runs: tuple[RunKnown, ...]


def line_on(line: Sequence[Position], positions: Iterable[Position]) -> tuple[Position, ...]:
    """The last position of each epoch, after these have followed."""
    last = {position // POSITIONS_PER_EPOCH: position for position in line}
    for position in positions:
        last[position // POSITIONS_PER_EPOCH] = position
    return tuple(last.values())


def last_common(kept: Sequence[Position], line: Sequence[Position]) -> Position:
    """Up to where a copy is what a writer builds on. An event of an epoch has one history, so from
    the last one that both have, all before it is the same."""
    built_on = {position // POSITIONS_PER_EPOCH: position for position in line}
    common = [
        min(position, built_on[position // POSITIONS_PER_EPOCH])
        for position in kept
        if position // POSITIONS_PER_EPOCH in built_on
    ]
    return max(common, default=0)


LISTED_MAX = 500
PIECE_BYTES_MAX = 256 << 10
GRAPH_BYTES_MAX = 64 << 20
EVENTS_MAX = 500
"""In one message, which they may fill up to PIECE_BYTES_MAX (one longer event goes alone)."""
EVENT_BYTES_MAX = 960 << 10

MESSAGES = (KeepRun, KeepEvents, Kept, GrantAsk, Granted, KeeperAsk, KeeperPart, RunsKnown)
"""All that travels, for the codec."""
