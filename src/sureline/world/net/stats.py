"""What a node's network has done, for those who look."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sureline.world.address import Node
from sureline.world.net.link import NetLink

if TYPE_CHECKING:
    from sureline.world.identity.certificates import Identity


class PeerLink(NamedTuple):
    """One open connection, for those who look."""

    node: Node
    identity: Identity
    ours: bool
    idle_s: float
    messages_in: int
    messages_out: int
    bytes_in: int
    bytes_out: int
    through: Node
    """Who carries it, if it is not between the ends alone."""

    @classmethod
    def of(cls, link: NetLink, now: float) -> PeerLink:
        return cls(
            link.node,
            link.identity,
            link.ours,
            now - link.used_at,
            link.messages_in,
            link.messages_out,
            link.bytes_in,
            link.bytes_out,
            link.through,
        )


class Stats(NamedTuple):
    """Since the start, unless it says now."""

    links: int
    """Now."""
    half_open: int
    """Now."""
    opened: int
    """Connections with others, whoever opened them: each cost a handshake."""
    queued_bytes: int
    """Now."""
    sent: dict[str, int]
    """Messages handed over for sending, by tag."""
    received: dict[str, int]
    bytes_in: int
    bytes_out: int
    refused: int
    """Connections that were turned away."""
    without_role: int
    """Messages dropped because their sender must not say them."""
    overflowed: int
    """Messages dropped because too many waited for the same node."""
    undelivered: int
    """Messages dropped because nobody could be reached."""
    circuits: int
    """Connections carried for others, now."""
    carried_bytes: int
    """For others, both directions."""
