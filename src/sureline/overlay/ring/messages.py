"""What the nodes of a ring say to each other.

Numbers match an answer to its question, together with whom it was asked. Every message says which
life of its sender it comes from: whoever starts again has forgotten what he promised. Bounds are
checked when a message is decoded.
"""

from __future__ import annotations

import math
from typing import Annotated

import msgspec

from sureline.overlay.kademlia.ids import ID_BYTES
from sureline.world.protocol import AgentId, Message

Key = Annotated[bytes, msgspec.Meta(min_length=ID_BYTES, max_length=ID_BYTES)]
Agent = Annotated[AgentId, msgspec.Meta(max_length=400)]
Life = Annotated[int, msgspec.Meta(ge=0, lt=1 << 48)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 53)]


class RingContact(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    agent: Agent
    life: Life


Contacts = Annotated[tuple[RingContact, ...], msgspec.Meta(max_length=64)]


class RingMessage(Message, frozen=True):
    number: Count
    life: Life
    """The sender's; 0 if it is about to go, and is to be counted on no more."""


class RingAnswer(RingMessage, frozen=True):
    """Goes to whoever asked the question of that number."""


# The ring.


class Greet(RingMessage, frozen=True, tag="ring.greet"):
    """Who are your neighbours? Answered by Greeted."""


class Greeted(RingAnswer, frozen=True, tag="ring.greeted"):
    after: Contacts
    before: Contacts
    awake_s: float = 0.0
    """For how long the ring is awake, as far as is known there."""


class Ask(RingMessage, frozen=True, tag="ring.ask"):
    """Whose is this key? Answered by Told."""

    key: Key


class Told(RingAnswer, frozen=True, tag="ring.told"):
    """Either its owner and those after him, or contacts nearer to it, nearest first."""

    owners: Contacts = ()
    nearer: Contacts = ()


# Molecules.


class Ballot(msgspec.Struct, frozen=True, array_like=True, gc=False, order=True):
    round: Count
    by: Agent


class MoleculeState(msgspec.Struct, frozen=True, array_like=True):
    """What a molecule is, as its holders have it."""

    birth: Count = 0
    """Drawn by its maker; 0 for one that was never made."""
    value: Annotated[bytes, msgspec.Meta(max_length=65_536)] = b""
    taker: Annotated[str, msgspec.Meta(max_length=400)] = ""
    token: Count = 0
    """Drawn by its taker, for each capture."""
    gone: bool = False
    moved: Contacts = ()
    """Its holders from now on; these change nothing any more."""


class Where(RingMessage, frozen=True, tag="ring.where"):
    """Who holds this molecule? Answered by There."""

    key: Key


class There(RingAnswer, frozen=True, tag="ring.there"):
    """`holders` is empty if nobody here knows; otherwise who holds it, in which configuration."""

    configuration: Count = 0
    holders: Contacts = ()
    born: MoleculeState | None = None
    """What the configuration began with: so those that have not heard of it can be told."""


class Prepare(RingMessage, frozen=True, tag="ring.prepare"):
    """Promise to accept nothing under a lower ballot. Answered by Promised, or by There if the
    receiver does not hold the molecule in this configuration. With `born`, a holder that does not
    know it yet begins with that."""

    key: Key
    configuration: Count
    holders: Contacts
    ballot: Ballot
    born: MoleculeState | None = None


class Promised(RingAnswer, frozen=True, tag="ring.promised"):
    """What was accepted last; `promised` is higher than the ballot asked for if that is refused."""

    promised: Ballot
    ballot: Ballot
    state: MoleculeState


class Accept(RingMessage, frozen=True, tag="ring.accept"):
    """Have the molecule be so. Answered by Accepted, or by There."""

    key: Key
    configuration: Count
    ballot: Ballot
    state: MoleculeState
    token: Count = 0
    """Whose capture this is part of; shows the taker, who alone may end his lease early."""


class Accepted(RingAnswer, frozen=True, tag="ring.accepted"):
    """`held`: refused, since somebody's lease has not run out."""

    promised: Ballot
    held: bool = False


# Meta-molecules.

Value = Annotated[float, msgspec.Meta()]
Name = Annotated[str, msgspec.Meta(max_length=100)]
Features = Annotated[dict[Name, Value], msgspec.Meta(max_length=32)]


class Meta(msgspec.Struct, frozen=True):
    """A pointer to a resource molecule, which stays with its publisher."""

    publisher: Agent
    life: Life
    sequence: Count
    """Grows with every change."""
    features: Features


class MetaEntry(msgspec.Struct, frozen=True, array_like=True):
    """A meta-molecule at a place."""

    feature: Name
    position: Key
    meta: Meta
    ttl_s: float


Entries = Annotated[tuple[MetaEntry, ...], msgspec.Meta(max_length=256)]


class Publish(RingMessage, frozen=True, tag="ring.publish"):
    """Keep these. No answer: they are published again and again."""

    entries: Entries


class WithdrawMeta(RingMessage, frozen=True, tag="ring.withdraw"):
    """The publisher's entry of this feature is no longer true, if it is not newer than this."""

    feature: Name
    sequence: Count


class ValueRange(msgspec.Struct, frozen=True, array_like=True):
    """Which values of a feature will do."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    """`>` rather than `>=`."""
    high_open: bool = False

    def __contains__(self, value: object) -> bool:
        assert isinstance(value, float | int)
        above = value > self.low if self.low_open else value >= self.low
        return above and (value < self.high if self.high_open else value <= self.high)


Wants = Annotated[dict[Name, ValueRange], msgspec.Meta(max_length=32)]


class Scan(RingMessage, frozen=True, tag="ring.scan"):
    """What is there of this feature between these positions, in order? Answered by Scanned."""

    feature: Name
    first: Key
    last: Key
    wants: Wants
    descending: bool = False


class Scanned(RingAnswer, frozen=True, tag="ring.scanned"):
    entries: Entries
    more: bool
    """There are others, beyond the last of these."""
    following: Contacts
    """Who is next in the direction of the scan."""


MESSAGES = (
    *(Greet, Greeted, Ask, Told),
    *(Where, There, Prepare, Promised, Accept, Accepted),
    *(Publish, WithdrawMeta, Scan, Scanned),
)
