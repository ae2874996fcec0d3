"""Addresses of agents.

An agent's address is `NODE/PART`. The node is one process of one peer; on a network it is
`NAME@HOST:PORT`, where NAME is what the peer's certificate says (or that name, `+` and a suffix
of the peer's own choosing: a second process under the same identity), and HOST:PORT is where it
listens. A peer that starts again elsewhere has another node: whoever still writes to the old one
writes to nobody. PART names the agent within the node, such as `kademlia` or `peer`.

In the simulator, and within one process, a node may be any text without a slash.

All three are texts, and types of their own, so that one is not taken for another. Text becomes one
where it comes in; the functions here go from one to the other, and since they run for every
message, they do so without the call that `Node(text)` would be.
"""

from __future__ import annotations

from typing import NamedTuple, NewType

AgentId = NewType("AgentId", str)
"""`NODE/PART`."""
Node = NewType("Node", str)
"""`NAME@HOST:PORT`, or any text without a slash where there is no network."""
PeerName = NewType("PeerName", str)
"""What a peer's certificate says, with the suffix of a second process: NAME of a node."""

NO_AGENT = AgentId("")
NO_NODE = Node("")
NO_NAME = PeerName("")


class Endpoint(NamedTuple):
    """Where a node listens, and who is expected there."""

    name: str
    host: str
    port: int

    @property
    def node(self) -> Node:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return Node(f"{self.name}@{host}:{self.port}")


def node_of(agent: AgentId) -> Node:
    """
    >>> node_of(AgentId("lab7@10.0.0.5:7733/kademlia"))
    'lab7@10.0.0.5:7733'
    """
    return agent.partition("/")[0]  # type: ignore[return-value]  # no call: see the module


def part_of(agent: AgentId) -> str:
    """
    >>> part_of(AgentId("lab7@10.0.0.5:7733/kademlia")), part_of(AgentId("n42"))
    ('kademlia', '')
    """
    return agent.partition("/")[2]


def at(node: Node, part: str) -> AgentId:
    """
    >>> at(Node("lab7@10.0.0.5:7733"), "kademlia")
    'lab7@10.0.0.5:7733/kademlia'
    """
    return f"{node}/{part}"  # type: ignore[return-value]  # no call: see the module


def name_of(address: AgentId | Node) -> PeerName:
    """The name of the node of an agent, or of a node, without where it listens.

    >>> name_of(AgentId("lab7+41@10.0.0.5:7733/kademlia")), name_of(Node("n42"))
    ('lab7+41', 'n42')
    """
    node = address.partition("/")[0]
    return node.partition("@")[0]  # type: ignore[return-value]  # no call: see the module


def peer_of(address: AgentId | Node | PeerName) -> str:
    """The name of the peer: what its certificate says.

    >>> peer_of(AgentId("lab7+41@10.0.0.5:7733/kademlia"))
    'lab7'
    """
    return address.partition("/")[0].partition("@")[0].partition("+")[0]


def endpoint_of(node: str) -> Endpoint:
    """Also of text that came from outside, which becomes a node here.

    >>> endpoint_of("lab7@[::1]:7733")
    Endpoint(name='lab7', host='::1', port=7733)

    Raises ValueError if the node is not one of a network.
    """
    name, at_sign, where = node.partition("@")
    host, colon, port = where.rpartition(":")
    if not (name and at_sign and host and colon and port.isdecimal() and int(port) < 65536):
        raise ValueError(f"{node!r} is no address on a network (NAME@HOST:PORT)")
    return Endpoint(name, host.removeprefix("[").removesuffix("]"), int(port))
