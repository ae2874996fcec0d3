"""The shape of the tree: a function of who is there, and of nothing else.

Peers stand in the order of their addresses. Between each two neighbours lies exactly one branch,
and the left one hosts it: so every peer has one leaf and all but the last one branch. Of a stretch
of leaves, the topmost branch is the one whose host has the highest *rank*, a hash of its name, of
those that leave at least a quarter of the leaves on either side.

- **Balanced**, whoever is there: no side has more than three quarters, so n leaves are at most
  1 + log(n) / log(4/3) deep. Chance makes it half of that.
- **Connected**, and in order: it is one tree over all of them, by construction. Whoever knows who
  is there knows his parents and his children; nobody has to agree on anything. Those who hear of a
  change later have old links for that long, and no longer.
- **Steady**: who comes or goes shifts the middle of m leaves by less than one. Another branch
  becomes their topmost one with a chance of about 4/m, and only then are m links other ones: about
  four links on each level, of however many peers.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from sureline.world.address import NO_AGENT, endpoint_of, node_of
from sureline.world.protocol import AgentId

Ints = NDArray[np.int64]

REMEMBERED = 1 << 15


@lru_cache(maxsize=REMEMBERED)
def order_of(agent: AgentId) -> tuple[int, int, int, str]:
    """Leaves are sorted by this: by the number of the network address, then the port and the name,
    so that neighbours in the tree tend to be near each other. Where there is no network address,
    by the name.

    >>> order_of("b@10.0.0.9:1/tree") < order_of("a@10.0.0.10:1/tree") < order_of("a@[::1]:1/tree")
    True
    """
    node = node_of(agent)
    if "@" not in node:
        return (0, 0, 0, node)
    try:
        there = endpoint_of(node)
        address = ipaddress.ip_address(there.host)
    except ValueError:
        return (99, 0, 0, node)
    return (address.version, int(address), there.port, there.name)


@lru_cache(maxsize=REMEMBERED)
def rank_of(agent: AgentId) -> int:
    """Who hosts a branch near the top: chance decides, the same for all who ask."""
    return int.from_bytes(blake3(node_of(agent).encode()).digest(length=7), "big")


def host_of(ranks: Ints, low: int, high: int) -> int:
    """Whose branch is the topmost one of the leaves low to high, both included."""
    margin = (high - low) // 4
    return low + margin + int(ranks[low + margin : high - margin].argmax())


class Ref(NamedTuple):
    """A place in the tree: the leaf or the branch of a peer."""

    host: AgentId
    leaf: bool


class Links(NamedTuple):
    """What a peer is tied to."""

    leaf_parent: AgentId = NO_AGENT
    """Who hosts the branch above its leaf; nobody while it is alone."""
    branch_parent: AgentId = NO_AGENT
    """Nobody for the root's."""
    kids: tuple[Ref, Ref] | None = None
    """The children of its branch, left and right; None if it has no branch."""


class Leaves:
    """Peers in their order, and their ranks: to sort and to rank them anew with every look would
    cost a grid of n peers that all come one after another n * n * log(n)."""

    def __init__(self, agents: Iterable[AgentId] = ()) -> None:
        self.agents = sorted(agents, key=order_of)
        self.ranks = [rank_of(agent) for agent in self.agents]

    def __len__(self) -> int:
        return len(self.agents)

    def place_of(self, agent: AgentId) -> int:
        return bisect_left(self.agents, order_of(agent), key=order_of)

    def add(self, agent: AgentId) -> None:
        place = self.place_of(agent)
        self.agents.insert(place, agent)
        self.ranks.insert(place, rank_of(agent))

    def remove(self, agent: AgentId) -> None:
        place = self.place_of(agent)
        del self.agents[place], self.ranks[place]


def links_of(me: AgentId, leaves: Leaves) -> Links:
    """The links of one of these peers."""
    ordered, ranks = leaves.agents, np.array(leaves.ranks, np.int64)
    mine = leaves.place_of(me)
    above, branch_parent = NO_AGENT, NO_AGENT
    kids: tuple[Ref, Ref] | None = None
    for low, high, host in _path(ranks, mine):
        if host == mine:
            branch_parent = above
            kids = (_child(ordered, ranks, low, mine), _child(ordered, ranks, mine + 1, high))
        above = ordered[host]
    return Links(above, branch_parent, kids)


def _path(ranks: Ints, leaf: int) -> Iterator[tuple[int, int, int]]:
    """The branches above a leaf from the root down, its own among them: the first and the last leaf
    below each, and its host."""
    low, high = 0, len(ranks) - 1
    while low < high:
        host = host_of(ranks, low, high)
        yield low, high, host
        low, high = (low, host) if leaf <= host else (host + 1, high)


def _child(ordered: Sequence[AgentId], ranks: Ints, low: int, high: int) -> Ref:
    return Ref(ordered[low if low == high else host_of(ranks, low, high)], low == high)
