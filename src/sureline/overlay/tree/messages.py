"""What the nodes of a tree say to each other. Bounds are checked when a message is decoded."""

from __future__ import annotations

from typing import Annotated

import msgspec

from sureline.overlay.tree.leaf import Ask, Slot
from sureline.world.protocol import AgentId, Message

Peer = Annotated[AgentId, msgspec.Meta(max_length=400)]
CELLS_BYTES_MAX = 1 << 20
TASKS_MAX = 256
Slots = Annotated[tuple[Slot, ...], msgspec.Meta(max_length=TASKS_MAX)]


class Ref(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A place in the tree: the leaf or the branch of a peer."""

    host: Peer
    leaf: bool


# Availability.


class Update(Message, frozen=True, tag="tree.update", gc=False):
    """To the parent: what lies below me now."""

    leaf: bool
    slot: int
    cells: Annotated[bytes, msgspec.Meta(max_length=CELLS_BYTES_MAX)]
    height: int = 0


# Search and reservation.


class Request(Message, frozen=True, tag="tree.request"):
    """Find time for these tasks. Goes down to where a hole is promised, up where none is known."""

    ask: Ask
    owner: Peer
    leaf: bool
    """Whether it is for the receiver's leaf; else for its branch."""
    hops: int = 0
    trail: Annotated[tuple[Peer, ...], msgspec.Meta(max_length=256)] | None = None
    """Whom it has met, if its owner wants to know."""


class Reserved(Message, frozen=True, tag="tree.reserved"):
    """To the owner, from the leaf that has taken it; the lease runs."""

    number: int
    first: int
    slots: Slots
    hops: int
    trail: tuple[Peer, ...] | None = None


class Nowhere(Message, frozen=True, tag="tree.nowhere"):
    """To the owner: no hole is known for these tasks."""

    number: int
    first: int
    tasks: int
    hops: int


class Commit(Message, frozen=True, tag="tree.commit"):
    """Keep what you have reserved; here is when the inputs of each task are there. Answered by
    Committed, always, and may be said again with earlier startlines."""

    number: int
    first: int
    startlines_s: Annotated[tuple[float, ...], msgspec.Meta(max_length=TASKS_MAX)]


class Committed(Message, frozen=True, tag="tree.committed"):
    """The slots are final, and may be earlier than they were; none if the lease was over."""

    number: int
    first: int
    slots: Slots


class Release(Message, frozen=True, tag="tree.release"):
    """Roll back: drop all that was reserved or committed under this number and has not begun."""

    number: int


class Released(Message, frozen=True, tag="tree.released"):
    number: int


SEARCH_MESSAGES = (Update, Request, Reserved, Nowhere, Commit, Committed, Release, Released)
