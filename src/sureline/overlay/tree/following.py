"""A tree that follows the membership: whoever is a member is in it, from when others hear of him
until they hear that he is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sureline.overlay.membership import Member
from sureline.overlay.tree.agent import Tree
from sureline.world.address import Node, PeerName, at, part_of

SETTLE_S = 0.5
"""Several who come or go at once are one change; the more there are, the longer it is waited..."""
FEW = 300
"""...beyond so many: with each look all of them are looked at."""


def follow(
    tree: Tree,
    members: Callable[[], Iterable[Member]],
    watch: Callable[[Callable[[Member], None]], None],
) -> None:
    """Keep the tree's links those that follow from who is there. `members` tells of those who are
    not known to be gone; all have their tree at the same part of their node."""
    part, due = part_of(tree.me), False
    there: dict[PeerName, Node] = {}

    def look() -> None:
        nonlocal due
        due = False
        there.clear()
        there.update({member.name: member.node for member in members()})
        peers = [at(node, part) for node in there.values()]
        if tree.me in peers:
            tree.among(peers)

    def heard(member: Member) -> None:
        """Most that is heard is how busy somebody is."""
        nonlocal due
        node = None if member.state in ("dead", "left") else member.node
        if not due and there.get(member.name) != node:
            due = True
            settle_s = SETTLE_S * max(1.0, len(there) / FEW)
            tree.world.after(settle_s, look)

    watch(heard)
    tree.begin()
    tree.world.after(SETTLE_S, look)
