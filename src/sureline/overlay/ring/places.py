"""Places on the ring: identifiers of nodes, keys of molecules, positions of values.

All are numbers below 2^160, in a circle. A node's is a hash of its certified name, as in
`kademlia`; a key or position belongs to the first node at or after it. A position keeps the order
of values: the higher bits are the value's share of its feature's span, the lower ones tell
publishers of equal values apart, which lie with one node.
"""

from __future__ import annotations

import math

import msgspec
from blake3 import blake3

from sureline.overlay.kademlia.ids import ID_BITS, id_of
from sureline.world.protocol import AgentId

SPACE = 1 << ID_BITS
SHARE_BITS = 48
_REST_BITS = ID_BITS - SHARE_BITS


def distance(start: int, end: int) -> int:
    """How far it is clockwise.

    >>> distance(5, 3) == SPACE - 2
    True
    """
    return (end - start) % SPACE


def place_of(agent: AgentId) -> int:
    return id_of(agent)


class Feature(msgspec.Struct, frozen=True):
    """Something that machines are ranked by. Values outside its span are in order all the same, but
    all of them lie at its ends: a span that fits spreads the load."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ValueError(f"the feature {self.name} needs a span: low and high, low below high")

    def share(self, value: float) -> int:
        """Never decreases with the value."""
        share = (value - self.low) / (self.high - self.low)
        return int(min(1.0, max(0.0, share)) * ((1 << SHARE_BITS) - 1))

    def first(self, value: float) -> int:
        """The first position of this value, and of all that have its share."""
        return self.share(value) << _REST_BITS

    def last(self, value: float) -> int:
        return self.first(value) | ((1 << _REST_BITS) - 1)

    def position(self, value: float, publisher: AgentId) -> int:
        tie = int.from_bytes(blake3(f"{self.name} {publisher}".encode()).digest(_REST_BITS // 8))
        return self.first(value) | tie
