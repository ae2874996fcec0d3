"""A tree that follows the membership: whoever is a member is in it, from when others hear of him
until they hear that he is gone."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sureline.overlay.membership import Member, settle_s
from sureline.overlay.tree.agent import Tree
from sureline.overlay.tree.shape import Leaves
from sureline.world.address import PeerName, at, name_of, part_of
from sureline.world.protocol import AgentId


def follow(
    tree: Tree,
    members: Callable[[], Iterable[Member]],
    watch: Callable[[Callable[[Member], None]], None],
) -> None:
    """Keep the tree's links those that follow from who is there. `members` tells of those who are
    not known to be gone; all have their tree at the same part of their node."""
    part, due = part_of(tree.me), False
    there: dict[PeerName, AgentId] = {}
    leaves = Leaves()
    """The same in their order in the tree."""

    def begin() -> None:
        for member in members():
            heard(member)
        look()

    def look() -> None:
        nonlocal due
        due = False
        if there.get(name_of(tree.me)) == tree.me:
            tree.among(leaves)

    def heard(member: Member) -> None:
        nonlocal due
        name, known = member.name, there.get(member.name)
        agent = None if member.state in ("dead", "left") else at(member.node, part)
        if known == agent:
            return
        if known is not None:
            del there[name]
            leaves.remove(known)
        if agent is not None:
            there[name] = agent
            leaves.add(agent)
        if not due:
            due = True
            tree.world.after(settle_s(len(there)), look)

    watch(heard)
    tree.begin()
    tree.world.after(settle_s(1), begin)
