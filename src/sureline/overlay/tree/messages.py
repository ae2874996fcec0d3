"""What the nodes of a tree say to each other. Bounds are checked when a message is decoded."""

from __future__ import annotations

from typing import Annotated

import msgspec

from sureline.overlay.tree.changes import Links
from sureline.overlay.tree.leaf import HoleSought, PromisedTime
from sureline.overlay.tree.refs import Peer, Ref
from sureline.world.protocol import Message

__all__ = ["Ref"]

CELLS_BYTES_MAX = 1 << 20
TASKS_MAX = 256
Slots = Annotated[tuple[PromisedTime, ...], msgspec.Meta(max_length=TASKS_MAX)]


# Availability.


class Update(Message, frozen=True, tag="tree.update", gc=False):
    """To the parent: what lies below me now."""

    leaf: bool
    slot: int
    cells: Annotated[bytes, msgspec.Meta(max_length=CELLS_BYTES_MAX)]
    height: int = 0


# Search and reservation.


class TimeRequest(Message, frozen=True, tag="tree.request"):
    """Find time for these tasks. Goes down to where a hole is promised, up where none is known."""

    ask: HoleSought
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


class RollBack(Message, frozen=True, tag="tree.release"):
    """Roll back: drop all that was reserved or committed under this number and has not begun."""

    number: int


class Released(Message, frozen=True, tag="tree.released"):
    number: int


# Links.


class Seek(Message, frozen=True, tag="tree.seek"):
    """Where does this newcomer belong? Up to the root, then down. Answered by PlaceBetween."""

    who: Peer
    up: bool
    hops: int
    leaf: bool = False
    """Whether it is for the receiver's leaf; else for its branch."""


class PlaceBetween(Message, frozen=True, tag="tree.place"):
    """You belong between these two, one of whom may be nobody."""

    left: Peer
    right: Peer


class Hold(Message, frozen=True, tag="tree.hold"):
    """Hold still, and say your links: I change them. Answered by Held or Busy."""

    number: int


class Held(Message, frozen=True, tag="tree.held"):
    number: int
    links: Links
    dead: Annotated[tuple[tuple[Peer, Links], ...], msgspec.Meta(max_length=16)] = ()
    """The wills of dead peers that the sender knows."""


class Busy(Message, frozen=True, tag="tree.busy"):
    number: int


class Edit(Message, frozen=True, tag="tree.edit"):
    """These are your links from now on; you are free."""

    number: int
    links: Links


class Free(Message, frozen=True, tag="tree.free"):
    """Nothing came of it; you are free."""

    number: int


class Will(Message, frozen=True, tag="tree.will"):
    """My links, for when I am dead."""

    links: Links


LINK_MESSAGES = (Seek, PlaceBetween, Hold, Held, Busy, Edit, Free, Will)
MESSAGES = (
    *(Update, TimeRequest, Reserved, Nowhere, Commit, Committed, RollBack, Released),
    *LINK_MESSAGES,
)
"""All that travels, for the codec."""
