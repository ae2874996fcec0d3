"""The shape of a balanced tree over peers in the order of their addresses.

Peers are numbered in that order. Between each two neighbours i and i + 1 lies exactly one branch,
and peer i hosts it: so every peer has one leaf and all but the last one branch, a branch is a
search key (what comes before its host, and the host, lies to the left), and whoever knows its
neighbours knows who hosts what. `balanced` builds the whole tree level by level, for a million
peers in a second.
"""

from __future__ import annotations

import ipaddress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sureline.world.address import endpoint_of, node_of
from sureline.world.protocol import AgentId

Ints = NDArray[np.int64]

ROOT = -1


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


class TreeShape(NamedTuple):
    """Of every peer's branch; the last peer has none. A child c is the leaf of peer c if it is
    below the number of peers, else the branch of peer c - peers."""

    peers: int
    children: Ints
    """[peer, side]."""
    branch_parent: Ints
    """The host of the branch above; ROOT for the root."""
    leaf_parent: Ints
    depth: Ints
    """Of every branch: 0 for the root."""

    @property
    def height(self) -> int:
        return int(self.depth.max(initial=-1)) + 1


def balanced(peers: int) -> TreeShape:
    """Every branch has as many leaves on its left as on its right, or one more."""
    children = np.full((peers, 2), -1, np.int64)
    branch_parent = np.full(peers, ROOT, np.int64)
    leaf_parent = np.full(peers, ROOT, np.int64)
    depth = np.full(peers, -1, np.int64)
    low, high = np.array([0]), np.array([peers - 1])
    level = 0
    while len(low) and peers > 1:
        middle = (low + high) // 2
        depth[middle] = level
        next_low, next_high = [], []
        for side, first, last in ((0, low, middle), (1, middle + 1, high)):
            leaf = first == last
            children[middle[leaf], side] = first[leaf]
            leaf_parent[first[leaf]] = middle[leaf]
            inner = (first[~leaf] + last[~leaf]) // 2
            children[middle[~leaf], side] = peers + inner
            branch_parent[inner] = middle[~leaf]
            next_low.append(first[~leaf])
            next_high.append(last[~leaf])
        low, high = np.concatenate(next_low), np.concatenate(next_high)
        level += 1
    return TreeShape(peers, children, branch_parent, leaf_parent, depth)
