"""Identifiers, keys, distances, and regions of the space.

A node's identifier is a hash of its certified name: nobody can choose where in the space they
live, and no message carries an identifier, so none can lie about one. A process with a suffix to
its name (`lab7+41`) may choose that suffix, so it is a *guest*: it asks and stores, but is in
nobody's table and holds nothing. Guests are short-lived commands for the most part; a table is
better off without them anyway.

Distance is the exclusive or of two identifiers; a region is all identifiers with a given prefix.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from blake3 import blake3

from sureline.world.address import name_of, part_of
from sureline.world.protocol import AgentId

ID_BYTES = 20
ID_BITS = 8 * ID_BYTES
CACHED_IDS = 1 << 18


@lru_cache(CACHED_IDS)
def id_of(agent: AgentId) -> int:
    """The identifier of the agent's node: 160 bits."""
    return int.from_bytes(blake3(name_of(agent).encode()).digest(ID_BYTES))


def key_of(text: str) -> bytes:
    """The key under which something with this name (such as a file's digest) is found."""
    return blake3(text.encode()).digest(ID_BYTES)


def is_guest(agent: AgentId) -> bool:
    """
    >>> is_guest("lab7+41@10.0.0.5:7733/kademlia"), is_guest("lab7@10.0.0.5:7733/kademlia")
    (True, False)
    """
    return "+" in name_of(agent)


@lru_cache(CACHED_IDS)
def part_unless_guest(agent: AgentId) -> str | None:
    """The agent's part of its node; None if the node is a guest."""
    return None if is_guest(agent) else part_of(agent)


class Region(NamedTuple):
    """All identifiers whose first `length` bits are `prefix`."""

    prefix: int
    length: int

    def __contains__(self, identifier: object) -> bool:
        return isinstance(identifier, int) and identifier >> (ID_BITS - self.length) == self.prefix

    def halves(self) -> tuple[Region, Region]:
        """
        >>> Region(1, 1).halves()
        (Region(prefix=2, length=2), Region(prefix=3, length=2))
        """
        return (
            Region(self.prefix << 1, self.length + 1),
            Region(self.prefix << 1 | 1, self.length + 1),
        )

    @property
    def first(self) -> int:
        """The lowest identifier of the region."""
        return self.prefix << (ID_BITS - self.length)

    @property
    def span(self) -> int:
        """How many identifiers the region has."""
        return 1 << (ID_BITS - self.length)


EVERYWHERE = Region(0, 0)
