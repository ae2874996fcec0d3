"""What the parts of one node share: its place in the world, its table, its open questions."""

from __future__ import annotations

from collections.abc import Iterable

from sureline.overlay.kademlia.ids import id_of
from sureline.overlay.kademlia.requests import Requests
from sureline.overlay.kademlia.settings import KademliaSettings
from sureline.overlay.kademlia.storage import Storage
from sureline.overlay.kademlia.table import RoutingTable
from sureline.world.protocol import AgentId, World


class KademliaBase:
    __slots__ = ("joined", "me", "my_id", "requests", "settings", "storage", "table", "world")

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

    def usable(self, heard: Iterable[AgentId]) -> list[AgentId]:
        """Of the contacts that another node named, those worth asking."""
        now = self.world.elapsed()
        table = self.table
        return [c for c in heard if table.admissible(c) and not table.is_gone(c, now)]
