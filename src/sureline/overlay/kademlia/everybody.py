"""All nodes of the network, for one that is told of each: whoever knows everybody need not search.

Kept in the order of their identifiers. Those nearest to a key, and those of a region, are a stretch
of that order, so nobody looks at all of them.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from sureline.overlay.kademlia.ids import ID_BITS, Region, id_of
from sureline.world.protocol import AgentId

Entry = tuple[int, AgentId]


class Everybody:
    __slots__ = ("_order",)

    def __init__(self) -> None:
        self._order: list[Entry] = []

    def __len__(self) -> int:
        return len(self._order)

    def met(self, node: AgentId) -> None:
        """It is there; the same name at another address is the same node, started anew."""
        entry = (id_of(node), node)
        place = bisect_left(self._order, (entry[0], ""))
        if place < len(self._order) and self._order[place][0] == entry[0]:
            self._order[place] = entry
        else:
            insort(self._order, entry)

    def went(self, node: AgentId) -> None:
        entry = (id_of(node), node)
        place = bisect_left(self._order, entry)
        if self._order[place : place + 1] == [entry]:
            del self._order[place]

    def nearest(self, target: int, count: int) -> list[AgentId]:
        """The nearest first. The stretch with the longest prefix in common with the target that
        holds enough of them has all of them: whoever differs earlier is farther away."""
        low, high = 0, len(self._order)
        for bit in reversed(range(ID_BITS)):
            split = bisect_left(self._order, ((target >> bit | 1) << bit, ""), low, high)
            below, above = (split, high) if target >> bit & 1 else (low, split)
            if above - below < count:
                break
            low, high = below, above
        found = sorted((identifier ^ target, node) for identifier, node in self._order[low:high])
        return [node for _, node in found[:count]]

    def within(self, region: Region) -> list[AgentId]:
        low = bisect_left(self._order, (region.first, ""))
        high = bisect_left(self._order, (region.first + region.span, ""))
        return [node for _, node in self._order[low:high]]
