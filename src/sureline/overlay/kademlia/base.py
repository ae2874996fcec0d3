"""What the parts of one node share: its place in the world, its table, its open questions."""

from __future__ import annotations

from collections.abc import Iterable

from sureline.overlay.kademlia.everybody import Everybody
from sureline.overlay.kademlia.ids import Region, id_of
from sureline.overlay.kademlia.requests import Requests
from sureline.overlay.kademlia.settings import KademliaSettings
from sureline.overlay.kademlia.storage import Storage
from sureline.overlay.kademlia.table import RoutingTable
from sureline.world.protocol import AgentId, World


class KademliaBase:
    __slots__ = (
        "everybody", "joined", "me", "my_id", "requests", "settings", "storage", "table", "world",
    )  # fmt: skip

    def __init__(self, me: AgentId, world: World, settings: KademliaSettings) -> None:
        self.me = me
        self.my_id = id_of(me)
        self.world = world
        self.joined = False
        """Whether the table is filled, so that an empty bucket means an empty part of the space."""
        self.settings = settings
        self.table = RoutingTable(me, settings)
        self.requests = Requests(world, settings)
        self.storage = Storage(settings)
        self.everybody: Everybody | None = None
        """All others, if this node is told who is there; else it knows those of its table."""

    def usable(self, heard: Iterable[AgentId]) -> list[AgentId]:
        """Of the contacts that another node named, those worth asking."""
        now = self.world.elapsed()
        table = self.table
        return [c for c in heard if table.admissible(c) and not table.is_gone(c, now)]

    def closest(self, target: int, count: int) -> list[AgentId]:
        """Those nearest to the target that others may be told of, nearest first."""
        if self.everybody is None:
            return self.table.closest(target, count)
        return self._there(self.everybody.nearest(target, count))

    def candidates(self, target: int, count: int) -> list[AgentId]:
        """Like `closest`, for our own use."""
        if self.everybody is None:
            return self.table.candidates(target, count)
        return self._there(self.everybody.nearest(target, count))

    def within(self, region: Region) -> list[AgentId]:
        """All that are known of a region, the preferred first."""
        if self.everybody is None:
            return self.table.within(region)
        return self._there(self.everybody.within(region))

    def nodes_estimated(self) -> float:
        if self.everybody is None:
            return self.table.nodes_estimated()
        return len(self.everybody) + 1.0

    def _there(self, nodes: list[AgentId]) -> list[AgentId]:
        """Without those who refused us a moment ago, though others may still name them."""
        now, is_gone = self.world.elapsed(), self.table.is_gone
        return [node for node in nodes if not is_gone(node, now)]
