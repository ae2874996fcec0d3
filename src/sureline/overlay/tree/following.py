"""A tree that follows the membership: whoever is a member is in it, from when others hear of him
until they hear that he is gone."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterable

from sureline.overlay.membership import Member, settle_s
from sureline.overlay.tree.agent import Tree
from sureline.overlay.tree.shape import order_of
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
    ordered: list[AgentId] = []
    """The same in their order in the tree: to sort them anew with every look would cost a grid of
    n peers that all come one after another n * n * log(n)."""

    def begin() -> None:
        for member in members():
            heard(member)
        look()

    def look() -> None:
        nonlocal due
        due = False
        if there.get(name_of(tree.me)) == tree.me:
            tree.among(ordered)

    def heard(member: Member) -> None:
        nonlocal due
        name, known = member.name, there.get(member.name)
        agent = None if member.state in ("dead", "left") else at(member.node, part)
        if known == agent:
            return
        if known is not None:
            del there[name], ordered[bisect_left(ordered, order_of(known), key=order_of)]
        if agent is not None:
            there[name] = agent
            insort(ordered, agent, key=order_of)
        if not due:
            due = True
            tree.world.after(settle_s(len(there)), look)

    watch(heard)
    tree.begin()
    tree.world.after(settle_s(1), begin)
