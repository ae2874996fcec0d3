"""What the nodes of a hash table say to each other.

Numbers match an answer to its question, together with whom it was asked: an answer counts only
from the node that the question went to. Bounds are checked when a message is decoded.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from sureline.overlay.kademlia.ids import ID_BITS, ID_BYTES
from sureline.world.protocol import AgentId, Message

Key = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
Contact = Annotated[AgentId, msgspec.Meta(max_length=400)]
Contacts = Annotated[tuple[Contact, ...], msgspec.Meta(max_length=64)]

RECORDS_MAX = 128


class ValueRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One value under one key, as it travels."""

    key: Key
    value: Annotated[bytes, msgspec.Meta(max_length=4096)]
    publisher: Annotated[str, msgspec.Meta(max_length=200)]
    """The peer that first stored it, and the only one whose Forget counts."""
    ttl_s: float


Records = Annotated[tuple[ValueRecord, ...], msgspec.Meta(max_length=RECORDS_MAX)]


class Find(Message, frozen=True, tag="kademlia.find"):
    """Who is nearest to this key; or, with `values`, what is stored there. Answered by Found."""

    number: int
    key: Key
    values: bool = False
    claim: bool = False
    """I am new here: send me what I should hold, too. Answered by Store, if there is anything."""


class Found(Message, frozen=True, tag="kademlia.found"):
    """Either records under the key, or the nearest nodes the sender has heard from in person."""

    number: int
    contacts: Contacts = ()
    records: Records = ()


class Store(Message, frozen=True, tag="kademlia.store"):
    """Keep these, besides what is there. Answered by Stored, unless the number is 0."""

    number: int
    records: Records


class Stored(Message, frozen=True, tag="kademlia.stored"):
    number: int
    kept: int
    """How many of the records; the others were refused."""


class Forget(Message, frozen=True, tag="kademlia.forget"):
    """The publisher takes this value back."""

    key: Key
    value: Annotated[bytes, msgspec.Meta(max_length=4096)]


class Leave(Message, frozen=True, tag="kademlia.leave"):
    """I am going; what I held is with others."""


class Cast(Message, frozen=True, tag="kademlia.cast"):
    """Part of a broadcast: deliver this, and see that everybody else in the region gets it.
    Answered by CastTaken at once and, where replies are wanted, by CastReply; or by either."""

    number: int
    origin: Contact
    serial: int
    """With `origin`, the identity of the broadcast."""
    topic: Annotated[str, msgspec.Meta(max_length=100)]
    payload: bytes
    prefix: Key
    length: Annotated[int, msgspec.Meta(ge=0, le=ID_BITS)]
    """The region: the first `length` bits of `prefix`."""
    patience_s: float
    """How long the receiver may wait for replies from below; 0 if none are wanted."""
    without: Contacts = ()
    """Nodes of the region that have this broadcast already ..."""
    known: Contacts = ()
    """... and whom they know there, for what only they may know."""


class CastTaken(Message, frozen=True, tag="kademlia.taken"):
    number: int
    accepted: bool = True


class CastReply(Message, frozen=True, tag="kademlia.reply"):
    number: int
    reached: int
    """Nodes that had this broadcast from here on for the first time."""
    missed: int
    """Parts whose nodes could not be reached, and replies that were too late or too large."""
    value: bytes | None = None


MESSAGES = (Find, Found, Store, Stored, Forget, Leave, Cast, CastTaken, CastReply)
