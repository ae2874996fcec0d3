"""A ring that follows the membership: of all members, a node gets to know those next to it, and one
for each power of two of the distance, to get about. To greet everybody would open a connection
between each two nodes of the grid.

While the ring sleeps it is enough to know the next node on either side: each of the others would be
greeted over a connection of its own, and in a grid that grows those that are next in turn are soon
others again. They are greeted when it wakes."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Sequence

from sureline.overlay.kademlia.ids import ID_BITS
from sureline.overlay.membership import Member, settle_s
from sureline.overlay.ring.agent import Ring
from sureline.overlay.ring.places import distance, place_of
from sureline.world.address import PeerName, at, node_of, part_of
from sureline.world.protocol import AgentId


def follow(ring: Ring, watch: Callable[[Callable[[Member], None]], None]) -> None:
    """All members have their ring at the same part of their node."""
    node, part, due = node_of(ring.me), part_of(ring.me), False
    place, leaves = place_of(ring.me), ring.base.settings.leaves
    there: dict[PeerName, AgentId] = {}
    order: list[tuple[int, AgentId]] = []
    """The same by their distance: nobody sorts them all each time that one comes."""

    def look() -> None:
        nonlocal due
        due = False
        asleep = ring.asleep
        known = [order[0][1], order[-1][1]] if asleep and order else neighbours(order, leaves)
        for agent in known:
            ring.meet(agent)

    def heard(member: Member) -> None:
        """Most that is heard is how busy somebody is."""
        nonlocal due
        known, agent = there.get(member.name), at(member.node, part)
        came = member.state == "alive" and known != agent
        went = known is not None and (known != agent or member.state in ("dead", "left"))
        if member.node == node or not (came or went):
            return
        if known is not None and went:
            del (
                there[member.name],
                order[bisect_left(order, (distance(place, place_of(known)), known))],
            )
            ring.went(known)
        if came:
            there[member.name] = agent
            insort(order, (distance(place, place_of(agent)), agent))
        if not due:
            due = True
            ring.base.after(settle_s(len(there)), look)

    ring.on_wake = look
    watch(heard)


def neighbours(order: Sequence[tuple[int, AgentId]], leaves: int) -> list[AgentId]:
    """Those whom a node should know, of all in the order of their distance."""
    found = [*order[:leaves], *order[leaves:][-leaves:]]
    for power in range(ID_BITS):
        at_least = bisect_left(order, (1 << power, ""))
        if leaves <= at_least < len(order) - leaves:
            found.append(order[at_least])
    return list(dict.fromkeys(agent for _, agent in found))
