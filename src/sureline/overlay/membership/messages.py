"""What members say to each other, and what they say about each other.

A `MemberRecord` is one statement about one member. Statements about a member are ordered by its
life (one per start of its process), then by its incarnation (which only the member itself raises,
to contradict what is said about it), then by state: the same incarnation can only get worse.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from sureline.world.address import Node, PeerName
from sureline.world.protocol import Message

State = Literal["alive", "suspect", "dead", "left"]
RANK: dict[State, int] = {"alive": 0, "suspect": 1, "dead": 2, "left": 3}
PRESENT: tuple[State, ...] = ("alive", "suspect")


class Offer(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member has to give; fixed for one life."""

    cores: float
    memory_bytes: int
    disk_bytes: int = 0
    gpus: int = 0
    tags: dict[str, int | None] = {}
    site: str = ""
    extras: dict[str, float | str] = {}
    """What strategies' halves there say besides, such as a price."""
    roles: tuple[str, ...] = ()
    started_at: float = 0.0

    @property
    def price(self) -> float:
        """What a core costs there for an hour; 0 where nothing is asked."""
        price = self.extras.get("price", 0.0)
        return float(price) if isinstance(price, float | int) else 0.0

    @property
    def ends_at(self) -> float | None:
        """When its machine will be gone, by that machine's clock; None if it does not know."""
        ends_at = self.extras.get("ends_at")
        return float(ends_at) if isinstance(ends_at, float | int) else None


class MemberRecord(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One statement about one member. Without an offer it only says something new about a member
    whose offer is known already."""

    node: Node
    life: int
    """When it started, in milliseconds by its own clock, or one more than its life before."""
    incarnation: int
    state: State
    offer: Offer | None = None
    relays: tuple[Node, ...] = ()
    """Through whom it is reached, if it cannot be dialled; with each change it raises its
    incarnation."""

    @property
    def order(self) -> tuple[int, int, int]:
        """Of two statements the one with the greater order is believed."""
        return (self.life, self.incarnation, RANK[self.state])

    @property
    def present(self) -> bool:
        return self.state in PRESENT

    def brief(self) -> MemberRecord:
        return self.but(offer=None)

    def but(
        self,
        *,
        state: State | None = None,
        incarnation: int | None = None,
        offer: Offer | None,
        relays: tuple[Node, ...] | None = None,
    ) -> MemberRecord:
        """This, with another state, incarnation or offer, or other relays."""
        return MemberRecord(
            self.node,
            self.life,
            self.incarnation if incarnation is None else incarnation,
            self.state if state is None else state,
            offer,
            self.relays if relays is None else relays,
        )


class Load(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What a member reports of itself. Later reports of a life have greater sequences."""

    name: PeerName
    life: int
    sequence: int
    cores: float
    waiting: int


class Carrier(Message, frozen=True, omit_defaults=True):
    """Base of what members say: `news` is the version of the revocation list that the sender has,
    the rest what it passes on."""

    news: int = 0
    rumours: tuple[MemberRecord, ...] = ()
    loads: tuple[Load, ...] = ()


class Probe(Carrier, frozen=True, tag="membership.probe", kw_only=True):
    """Are you there? Answered by Ack. It says what the sender thinks of who receives it."""

    number: int
    life: int
    """The sender's own life."""
    about_life: int
    about_incarnation: int
    about_state: State


class Ack(Carrier, frozen=True, tag="membership.ack", kw_only=True):
    """I am. With my own record if what the probe said of me was not so."""

    number: int
    myself: MemberRecord | None = None


class ProbeFor(Message, frozen=True, tag="membership.probe_for"):
    """Probe somebody for me; say what came of it with Vouch."""

    number: int
    about: MemberRecord


class Vouch(Message, frozen=True, tag="membership.vouch"):
    """What came of an errand: it answered, nobody listens there, or silence."""

    number: int
    outcome: Literal["answered", "refused", "silent"]
    record: MemberRecord | None = None


class Gossip(Carrier, frozen=True, tag="membership.gossip", omit_defaults=True):
    """Fresh news, not waiting for the next probe. No answer."""


class Join(Message, frozen=True, tag="membership.join"):
    """Tell me who is there, from this place of the ring on. The record is the sender's own; an
    observer has none. Answered by JoinPage."""

    after: int
    record: MemberRecord | None = None


class JoinPage(Carrier, frozen=True, tag="membership.join_page", kw_only=True):
    """The members from `after` on, by their places on the ring; the last page has no `next`."""

    after: int
    records: tuple[MemberRecord, ...]
    next: int | None


class Compare(Carrier, frozen=True, tag="membership.compare", kw_only=True):
    """Sums over my table, one per segment of the ring. Answered by Differ."""

    sums: bytes


class Differ(Carrier, frozen=True, tag="membership.differ", kw_only=True):
    """Some of the segments that differ, and whom I have there. Answered by Amend, if the other
    knows better."""

    segments: tuple[int, ...]
    records: tuple[MemberRecord, ...]


class Amend(Message, frozen=True, tag="membership.amend"):
    """What I know better than you."""

    records: tuple[MemberRecord, ...]


class Fetch(Message, frozen=True, tag="membership.fetch"):
    """You mentioned members whom I do not know: tell me all about them. Answered by Amend."""

    names: tuple[PeerName, ...]


MESSAGES = (Probe, Ack, ProbeFor, Vouch, Gossip, Join, JoinPage, Compare, Differ, Amend, Fetch)
"""All that travels, for the codec."""
