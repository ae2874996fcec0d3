"""A tree that follows the membership: whoever is a member is in it, from when others hear of him
until they hear that he is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sureline.overlay.membership import Member
from sureline.overlay.tree.agent import Tree
from sureline.world.address import at, part_of

SETTLE_S = 0.5
"""Several who come or go at once are one change."""


def follow(
    tree: Tree,
    members: Callable[[], Iterable[Member]],
    watch: Callable[[Callable[[Member], None]], None],
) -> None:
    """Keep the tree's links those that follow from who is there. `members` tells of those who are
    not known to be gone; all have their tree at the same part of their node."""
    part, due = part_of(tree.me), False

    def look() -> None:
        nonlocal due
        due = False
        peers = sorted({at(member.node, part) for member in members()})
        if tree.me in peers:
            tree.among(peers)

    def heard(member: Member) -> None:
        nonlocal due
        if not due:
            due = True
            tree.world.after(SETTLE_S, look)

    watch(heard)
    tree.begin()
    tree.world.after(SETTLE_S, look)
