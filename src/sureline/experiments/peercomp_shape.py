"""The whole tree as arrays, for simulations that see all peers: what `overlay/tree/shape.py` tells
each of them of its own place."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from sureline.overlay.tree.shape import Ints, host_of

ROOT = -1


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


def shape_of(ranks: Ints) -> TreeShape:
    """The whole tree of peers that are given in their order: what all of them know together."""
    peers = len(ranks)
    children = np.full((peers, 2), -1, np.int64)
    branch_parent = np.full(peers, ROOT, np.int64)
    leaf_parent = np.full(peers, ROOT, np.int64)
    depth = np.full(peers, -1, np.int64)
    left = [(0, peers - 1, ROOT, 0, 0)]
    while left:
        low, high, above, side, level = left.pop()
        if low == high:
            leaf_parent[low] = above
        else:
            host = host_of(ranks, low, high)
            branch_parent[host], depth[host] = above, level
            left.append((low, host, host, 0, level + 1))
            left.append((host + 1, high, host, 1, level + 1))
        if above != ROOT:
            children[above, side] = low if low == high else peers + host
    return TreeShape(peers, children, branch_parent, leaf_parent, depth)
