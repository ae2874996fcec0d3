"""What must hold in any network of Kademlia nodes, checked from outside.

Nothing here uses the agents' own idea of identifiers, distances or bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from blake3 import blake3

from sureline.overlay.kademlia import Kademlia

K = 20
ALPHA = 3
SPARES = 10
SEARCHES = 4
KEYS = 65_536
VALUES = 32
CASTS = 512
SEARCH_S_MAX = 60.0
MESSAGES_PER_NODE_AND_S = 400
"""In a node's busiest second: joining, a few searches, and its part of some broadcasts."""


def identifier(agent: str) -> int:
    name = agent.split("/")[0].split("@")[0]
    return int.from_bytes(blake3(name.encode()).digest(20))


def check_tables(agents: Iterable[Kademlia]) -> None:
    for agent in agents:
        mine = identifier(agent.me)
        seen: list[str] = []
        for order, bucket in agent.base.table.buckets().items():
            assert len(bucket.contacts) <= K, f"{agent.me} has {len(bucket.contacts)} contacts"
            assert len(bucket.spares) <= SPARES, f"{agent.me} has {len(bucket.spares)} spares"
            for contact in (*bucket.contacts, *bucket.spares):
                assert contact.endswith("/kademlia")
                assert (identifier(contact) ^ mine).bit_length() == order
                seen.append(contact)
        assert agent.me not in seen, f"{agent.me} is its own contact"
        assert len(set(seen)) == len(seen), f"{agent.me} has a contact twice"


def check_bounds(agents: Iterable[Kademlia]) -> None:
    for agent in agents:
        assert len(agent.base.storage) <= KEYS
        assert all(agent.base.storage.values_under(key) <= VALUES for key in agent.base.storage)
        assert len(agent.broadcasts) <= CASTS
        # Each running search, and little besides, has questions on the way.
        assert len(agent.base.requests) <= SEARCHES * (ALPHA + K) + 64
        assert len(agent.base.table.lost) <= 32


def check_nothing_hangs(agents: Iterable[Kademlia], pass_time: Callable[[float], None]) -> None:
    """Every search comes to an end. Some upkeep may just have begun one: that is given time."""
    under_way = [(agent, search) for agent in agents for search in agent.searches.running]
    if under_way:
        pass_time(SEARCH_S_MAX)
    for agent, search in under_way:
        assert search not in agent.searches.running, f"{agent.me} still searches"


def check_replicas_are_near(agents: dict[str, Kademlia], keys: Iterable[bytes]) -> None:
    """Whatever anyone holds, somebody among the 20 nearest to its key holds, or a search that
    asks the 20 nearest could not find it."""
    for key in keys:
        target = int.from_bytes(key)
        near = sorted(agents, key=lambda node: identifier(node) ^ target)[:K]
        held = [node for node, agent in agents.items() if key in agent.base.storage]
        assert not held or set(held) & set(near), f"{key.hex()} is held too far away"
