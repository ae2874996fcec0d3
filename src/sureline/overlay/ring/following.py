"""A ring that follows the membership: of all members, a node gets to know those next to it, and one
for each power of two of the distance, to get about. To greet everybody would open a connection
between each two nodes of the grid."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable

from sureline.overlay.kademlia.ids import ID_BITS
from sureline.overlay.membership import Member
from sureline.overlay.ring.agent import Ring
from sureline.overlay.ring.places import distance, place_of
from sureline.world.address import PeerName, at, node_of, part_of
from sureline.world.protocol import AgentId

SETTLE_S = 0.5
"""Several who come or go at once are one change."""


def follow(ring: Ring, watch: Callable[[Callable[[Member], None]], None]) -> None:
    """All members have their ring at the same part of their node."""
    there = _Members(ring.me, ring.base.settings.leaves)
    due = False

    def look() -> None:
        nonlocal due
        due = there.changed = False
        for agent in there.neighbours():
            ring.meet(agent)

    def heard(member: Member) -> None:
        nonlocal due
        gone = there.heard(member)
        if gone is not None:
            ring.went(gone)
        if there.changed and not due:
            due = True
            ring.base.after(SETTLE_S, look)

    watch(heard)


class _Members:
    """Who is there, by the distance from here."""

    def __init__(self, me: AgentId, leaves: int) -> None:
        self._node, self._part, self._place = node_of(me), part_of(me), place_of(me)
        self._leaves = leaves
        self._agents: dict[PeerName, AgentId] = {}
        self._clockwise: list[tuple[int, AgentId]] = []
        self.changed = False

    def heard(self, member: Member) -> AgentId | None:
        """Who has gone by that, if anybody has."""
        if member.node == self._node:
            return None
        known, agent = self._agents.get(member.name), at(member.node, self._part)
        is_there = member.state == "alive"
        if is_there and known == agent:
            return None
        gone = None
        if known is not None and (known != agent or member.state in ("dead", "left")):
            gone = self._agents.pop(member.name)
            del self._clockwise[bisect_left(self._clockwise, self._entry(gone))]
            self.changed = True
        if is_there:
            self._agents[member.name] = agent
            insort(self._clockwise, self._entry(agent))
            self.changed = True
        return gone

    def _entry(self, agent: AgentId) -> tuple[int, AgentId]:
        return distance(self._place, place_of(agent)), agent

    def neighbours(self) -> list[AgentId]:
        """Those whom this node should know."""
        order, leaves = self._clockwise, self._leaves
        found = [agent for _, agent in (*order[:leaves], *order[leaves:][-leaves:])]
        for power in range(ID_BITS):
            at_least = bisect_left(order, (1 << power, ""))
            if leaves <= at_least < len(order) - leaves:
                found.append(order[at_least][1])
        return list(dict.fromkeys(found))
