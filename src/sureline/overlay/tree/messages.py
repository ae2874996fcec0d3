"""What the nodes of a tree say to each other. Bounds are checked when a message is decoded."""

from __future__ import annotations

from typing import Annotated, NamedTuple

import msgspec

from sureline.overlay.tree.leaf import HoleSought, PromisedTime
from sureline.world.protocol import AgentId, Message

TRAIL_MAX = 256
CELLS_BYTES_MAX = 1 << 20
TASKS_MAX = 256
Peer = Annotated[AgentId, msgspec.Meta(max_length=400)]
Slots = Annotated[tuple[PromisedTime, ...], msgspec.Meta(max_length=TASKS_MAX)]


# Availability.


class Update(Message, frozen=True, tag="tree.update", gc=False):
    """To the parent: what lies below me now."""

    leaf: bool
    slot: int
    cells: Annotated[bytes, msgspec.Meta(max_length=CELLS_BYTES_MAX)]


# Search and reservation.


class TrailStep(NamedTuple):
    """Where a request has been, and how many holes were known there."""

    peer: Peer
    holes: int


Trail = Annotated[tuple[TrailStep, ...], msgspec.Meta(max_length=TRAIL_MAX)]


class TimeRequest(Message, frozen=True, tag="tree.request"):
    """Find time for these tasks. Goes down to where a hole is promised, up where none is known."""

    ask: HoleSought
    owner: Peer
    leaf: bool
    """Whether it is for the receiver's leaf; else for its branch."""
    hops: int = 0
    hope: bool = False
    """The root knows no hole that surely does: one that likely does is looked for now."""
    trail: Trail | None = None
    """Whom it has met, if its owner wants to know."""
    height: int = 0
    """Levels above the first branch that was asked."""


class TreeAnswer(Message, frozen=True):
    """To the owner of the sequence with this number."""

    number: int


class Reserved(TreeAnswer, frozen=True, tag="tree.reserved"):
    """From the leaf that has taken it; the lease runs."""

    first: int
    slots: Slots
    hops: int
    trail: Trail | None = None


class Nowhere(TreeAnswer, frozen=True, tag="tree.nowhere"):
    """No hole is known for one of its pieces."""

    hops: int
    reason: Annotated[str, msgspec.Meta(max_length=200)]


class Commit(Message, frozen=True, tag="tree.commit"):
    """Keep what you have reserved; here is when the inputs of each task are there. Answered by
    Committed, always, and may be said again with earlier startlines."""

    number: int
    first: int
    startlines_s: Annotated[tuple[float, ...], msgspec.Meta(max_length=TASKS_MAX)]


class Committed(TreeAnswer, frozen=True, tag="tree.committed"):
    """The slots are final, and may be earlier than they were; none if the lease was over."""

    first: int
    slots: Slots


class RollBack(Message, frozen=True, tag="tree.release"):
    """Roll back: drop what was reserved or committed of these tasks and has not begun."""

    number: int
    first: int = 0
    count: int = TASKS_MAX


MESSAGES = (Update, TimeRequest, Reserved, Nowhere, Commit, Committed, RollBack)
"""All that travels, for the codec."""
