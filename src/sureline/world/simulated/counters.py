"""Counts of what agents said to each other: per type of message, per node, and per second.

Messages between agents of one node cross no network and are not counted. A message is counted as
sent when its sender sends it, as received when an agent gets it, and as dropped when it was lost
on its way, cut off, or met nobody; one that arrives twice is received twice.

`full` detail counts every type at every node, sizes exactly, and each node's busiest second. For
very many nodes, `light` keeps types over all nodes, and messages per node; sizes are then sampled:
of each type the first SIZES_EXACT messages are measured and then one in SIZES_EVERY, and the
others are taken to be as long as the last one measured.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from sureline.world.address import node_of
from sureline.world.protocol import AgentId, Message

if TYPE_CHECKING:
    from sureline.world.simulated.place import Place

SIZES_EXACT = 64
SIZES_EVERY = 64
FRAME_BYTES = 4
"""The length before every message on the wire."""

Detail = Literal["full", "light"]

_encode = msgspec.msgpack.Encoder().encode


class Traffic(msgspec.Struct):
    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    dropped: int = 0


class Peak(msgspec.Struct):
    """The busiest second so far: when it began, and what was sent in it."""

    second: int = 0
    messages: int = 0
    size_bytes: int = 0


class Kind:
    """One type of message."""

    __slots__ = ("name", "size_bytes", "traffic", "unmeasured")

    def __init__(self, message: type[Message]) -> None:
        self.name = str(message.__struct_config__.tag or message.__name__)
        self.size_bytes = 0
        """Of the last one measured."""
        self.unmeasured = -SIZES_EXACT
        """How many since then; below 0, all are measured."""
        self.traffic = Traffic()


class _NodePeak:
    __slots__ = ("messages", "peak", "second", "size_bytes")

    def __init__(self) -> None:
        self.peak = Peak()
        self.second = -1
        self.messages = 0
        self.size_bytes = 0

    def count(self, second: int, size_bytes: int) -> None:
        if second != self.second:
            self.second, self.messages, self.size_bytes = second, 0, 0
        self.messages += 1
        self.size_bytes += size_bytes
        if self.messages > self.peak.messages:
            self.peak = Peak(second, self.messages, self.size_bytes)


class Counters:
    def __init__(self, detail: Detail) -> None:
        self.detail = detail
        self.kinds: dict[type[Message], Kind] = {}
        self._nodes: dict[str, dict[str, Traffic]] = {}
        self._peaks: dict[str, _NodePeak] = {}
        self._peak = _NodePeak()
        self._bulk: dict[str, Traffic] = {}

    # What the world counts.

    def kind(self, message: type[Message]) -> Kind:
        found = self.kinds.get(message)
        if found is None:
            found = self.kinds[message] = Kind(message)
        return found

    def size_of(self, message: Message, sender: AgentId, to: AgentId) -> int:
        """The bytes of the message on a network, with its frame and both parts' names."""
        kind = self.kind(type(message))
        if self.detail == "light" and 0 <= kind.unmeasured < SIZES_EVERY:
            kind.unmeasured += 1
            return kind.size_bytes
        kind.unmeasured = kind.unmeasured + 1 if kind.unmeasured < 0 else 0
        parts = len(sender) + len(to) - len(node_of(sender)) - len(node_of(to))
        kind.size_bytes = FRAME_BYTES + 3 + parts + len(_encode(message))
        return kind.size_bytes

    def sent(self, place: Place, message: Message, size_bytes: int, time_s: float) -> None:
        kind = self.kind(type(message))
        traffic = kind.traffic
        traffic.sent += 1
        traffic.sent_bytes += size_bytes
        self._peak.count(int(time_s), size_bytes)
        if self.detail == "light":
            place.sent += 1
        else:
            node = place.machine.node
            traffic = self._at(node, kind.name)
            traffic.sent += 1
            traffic.sent_bytes += size_bytes
            peak = self._peaks.get(node)
            if peak is None:
                peak = self._peaks[node] = _NodePeak()
            peak.count(int(time_s), size_bytes)

    def received(self, place: Place, message: Message, size_bytes: int) -> None:
        kind = self.kind(type(message))
        kind.traffic.received += 1
        kind.traffic.received_bytes += size_bytes
        if self.detail == "light":
            place.received += 1
        else:
            traffic = self._at(place.machine.node, kind.name)
            traffic.received += 1
            traffic.received_bytes += size_bytes

    def dropped(self, node: str, message: Message) -> None:
        """A message from this node never reached anybody."""
        kind = self.kind(type(message))
        kind.traffic.dropped += 1
        if self.detail == "full":
            self._at(node, kind.name).dropped += 1

    def bulk(self, source: str, target: str, arrived_bytes: int) -> None:
        for node in (source, target):
            if node not in self._bulk:
                self._bulk[node] = Traffic()
        self._bulk[source].sent += 1
        self._bulk[source].sent_bytes += arrived_bytes
        self._bulk[target].received += 1
        self._bulk[target].received_bytes += arrived_bytes

    def _at(self, node: str, kind: str) -> Traffic:
        kinds = self._nodes.get(node)
        if kinds is None:
            kinds = self._nodes[node] = {}
        found = kinds.get(kind)
        if found is None:
            found = kinds[kind] = Traffic()
        return found

    # What one may ask.

    def by_type(self) -> dict[str, Traffic]:
        """Over all nodes, by the message's tag."""
        return {kind.name: kind.traffic for kind in self.kinds.values()}

    def by_node(self) -> dict[str, Traffic]:
        """Over all types, by node; with full detail only."""
        found = {}
        for node, kinds in self._nodes.items():
            total = found[node] = Traffic()
            for traffic in kinds.values():
                total.sent += traffic.sent
                total.sent_bytes += traffic.sent_bytes
                total.received += traffic.received
                total.received_bytes += traffic.received_bytes
                total.dropped += traffic.dropped
        return found

    def peaks(self) -> dict[str, Peak]:
        """The busiest second of each node; with full detail only."""
        return {node: peak.peak for node, peak in self._peaks.items()}

    def bulk_by_node(self) -> dict[str, Traffic]:
        """Transfers of files: how many, and the bytes that arrived."""
        return self._bulk
