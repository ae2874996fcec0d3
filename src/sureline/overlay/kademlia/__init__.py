"""Kademlia: a distributed hash table of values under keys, and a broadcast to all its nodes.

`Kademlia` (agent) is what others use; `ids`, `table`, `everybody`, `lookup`, `storage` and
`regions` are its pure parts; `requests`, `search`, `placement`, `publishing`, `upkeep` and
`broadcast` drive them with messages. Bounds and intervals are in `settings`.
"""

from sureline.overlay.kademlia.agent import Kademlia
from sureline.overlay.kademlia.broadcast import Aggregate
from sureline.overlay.kademlia.ids import id_of, key_of
from sureline.overlay.kademlia.messages import MESSAGES
from sureline.overlay.kademlia.settings import KademliaSettings

__all__ = ["Kademlia", "KademliaSettings", "Aggregate", "MESSAGES", "id_of", "key_of"]
