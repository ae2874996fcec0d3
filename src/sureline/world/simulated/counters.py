"""Counts of what agents said to each other: per type of message, per node, and per second.

Messages between agents of one node cross no network and are not counted. A message is counted as
sent when its sender sends it, as received when it comes to a machine where its agent is, and as
dropped when it was lost on its way, cut off, or met nobody. One that arrives twice is received
twice.

`full` detail counts every type at every node, measures every message, and finds each node's
busiest second. For very many nodes, `light` keeps types over all nodes and messages per place, and
counts types by the bucket of the calendar; sizes are sampled: all messages of one bucket in
BUCKETS_PER_SAMPLE, and of any that holds a new type, are measured, and the others are taken to be
as long as these on average.
"""

from __future__ import annotations

from collections import Counter
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from sureline.world.address import Node, node_of
from sureline.world.protocol import AgentId, Message
from sureline.world.simulated.calendar import Calendar, Entry, SimTimer

if TYPE_CHECKING:
    from sureline.world.simulated.place import Place

BUCKETS_PER_SAMPLE = 32
FRAME_BYTES = 7
"""What is around every message and the names of both parts on the wire, at least."""

Detail = Literal["full", "light"]

_encode = msgspec.msgpack.Encoder().encode
_what_of = itemgetter(3)


class Traffic(msgspec.Struct):
    sent: int = 0
    sent_bytes: int = 0
    received: int = 0
    received_bytes: int = 0
    dropped: int = 0


class Peak(msgspec.Struct):
    """The busiest second so far: which one, and the messages in it."""

    second: int = 0
    messages: int = 0
    size_bytes: int = 0


class _Seconds:
    """Follows one node's, or the whole network's, messages by the second."""

    __slots__ = ("messages", "peak", "second", "size_bytes")

    def __init__(self) -> None:
        self.peak = Peak()
        self.second = -1
        self.messages = 0
        self.size_bytes = 0

    def count(self, second: int, messages: int, size_bytes: int) -> None:
        if second != self.second:
            self.second, self.messages, self.size_bytes = second, 0, 0
        self.messages += messages
        self.size_bytes += size_bytes
        if self.messages > self.peak.messages:
            self.peak = Peak(second, self.messages, self.size_bytes)


def size_of(message: Message, sender: AgentId, to: AgentId) -> int:
    """The bytes of a message on a network, with the names of the parts it is from and for."""
    parts = len(sender) + len(to) - len(node_of(sender)) - len(node_of(to))
    return FRAME_BYTES + parts + len(_encode(message))


def tag_of(message: type[Any]) -> str:
    return str(message.__struct_config__.tag or message.__name__)


class Counters:
    def __init__(self, detail: Detail, calendar: Calendar) -> None:
        self.detail = detail
        self._calendar = calendar
        self._types: dict[type[Message], Traffic] = {}
        """With light detail, only what is not found out in another way: drops."""
        self._nodes: dict[str, dict[type[Message], Traffic]] = {}
        self._peaks: dict[str, _Seconds] = {}
        self._seconds = _Seconds()
        self._bulk: dict[str, Traffic] = {}
        # With light detail:
        self._arrived: Counter[type[Any]] = Counter()
        self._extra: Counter[type[Any]] = Counter()
        """Arrivals beyond one for each message sent."""
        self._lost: Counter[type[Any]] = Counter()
        """Dropped before they could arrive."""
        self._measured: dict[type[Any], tuple[int, int]] = {}
        """How many were measured, and their bytes together."""
        self._types_known = 0
        self._buckets = 0

    # What the world counts.

    def sent(self, place: Place, message: Message, size_bytes: int, time_s: float) -> None:
        place.sent += 1
        if self.detail == "light":
            return
        for traffic in self._traffic(place.machine.node, message):
            traffic.sent += 1
            traffic.sent_bytes += size_bytes
        self._seconds.count(int(time_s), 1, size_bytes)
        node = place.machine.node
        seconds = self._peaks.get(node)
        if seconds is None:
            seconds = self._peaks[node] = _Seconds()
        seconds.count(int(time_s), 1, size_bytes)

    def duplicated(self, message: Message) -> None:
        self._extra[type(message)] += 1

    def arrived(self, second: int, entries: list[Entry]) -> None:
        """With light detail: these entries, all of one second, are due."""
        arrived = self._arrived
        timers = arrived[SimTimer]
        kinds = set(map(type, map(_what_of, entries)))
        if len(kinds) == 1:
            arrived[kinds.pop()] += len(entries)
        else:
            arrived.update(map(type, map(_what_of, entries)))
        self._buckets += 1
        if self._buckets % BUCKETS_PER_SAMPLE == 0 or len(arrived) != self._types_known:
            self._types_known = len(arrived)
            self._measure(entries)
        self._seconds.count(second, len(entries) - (arrived[SimTimer] - timers), 0)

    def _measure(self, entries: list[Entry]) -> None:
        for _, to, sender, message in entries:
            if to is not None:
                count, size_bytes = self._measured.get(type(message), (0, 0))
                size_bytes += size_of(message, sender, to)
                self._measured[type(message)] = (count + 1, size_bytes)

    def received(self, place: Place, message: Message, sender: AgentId) -> None:
        place.received += 1
        if self.detail == "full":
            size_bytes = size_of(message, sender, place.me)
            for traffic in self._traffic(place.machine.node, message):
                traffic.received += 1
                traffic.received_bytes += size_bytes

    def dropped(self, node: Node, message: Message, *, arrived: bool) -> None:
        """A message from this node never reached anybody, though it may have `arrived`."""
        if not arrived:
            self._lost[type(message)] += 1
        for traffic in self._traffic(node, message):
            traffic.dropped += 1

    def bulk(self, source: str, target: str, arrived_bytes: int) -> None:
        for node in (source, target):
            if node not in self._bulk:
                self._bulk[node] = Traffic()
        self._bulk[source].sent += 1
        self._bulk[source].sent_bytes += arrived_bytes
        self._bulk[target].received += 1
        self._bulk[target].received_bytes += arrived_bytes

    def _traffic(self, node: Node, message: Message) -> list[Traffic]:
        """Where a message is counted: for its type and, with full detail, for the node."""
        kind = type(message)
        over_all = self._types.get(kind)
        if over_all is None:
            over_all = self._types[kind] = Traffic()
        if self.detail == "light":
            return [over_all]
        kinds = self._nodes.get(node)
        if kinds is None:
            kinds = self._nodes[node] = {}
        at_node = kinds.get(kind)
        if at_node is None:
            at_node = kinds[kind] = Traffic()
        return [over_all, at_node]

    # What one may ask.

    def by_type(self) -> dict[str, Traffic]:
        """Over all nodes, by the message's tag."""
        if self.detail == "full":
            return {tag_of(kind): traffic for kind, traffic in self._types.items()}
        under_way = Counter(type(entry[3]) for entry in self._calendar if entry[1] is not None)
        found = {}
        for kind in self._arrived | under_way | self._lost:
            if kind is not SimTimer:
                found[tag_of(kind)] = self._estimate(kind, under_way[kind])
        return found

    def _estimate(self, kind: type[Any], under_way: int) -> Traffic:
        arrived, lost = self._arrived[kind], self._lost[kind]
        dropped = self._types[kind].dropped if kind in self._types else 0
        sent = arrived + lost + under_way - self._extra[kind]
        received = arrived - (dropped - lost)
        measured, size_bytes = self._measured.get(kind, (0, 0))
        mean = size_bytes / measured if measured else 0.0
        return Traffic(sent, round(sent * mean), received, round(received * mean), dropped)

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

    def by_node_and_type(self) -> dict[str, dict[str, Traffic]]:
        """With full detail only."""
        return {
            node: {tag_of(kind): traffic for kind, traffic in kinds.items()}
            for node, kinds in self._nodes.items()
        }

    def peak(self) -> Peak:
        """The busiest second of the whole network: of messages sent, or, with light detail,
        arrived (then without their bytes)."""
        return self._seconds.peak

    def peaks(self) -> dict[str, Peak]:
        """The second in which each node sent most; with full detail only."""
        return {node: seconds.peak for node, seconds in self._peaks.items()}

    def bulk_by_node(self) -> dict[str, Traffic]:
        """Transfers of files: how many, and the bytes that arrived."""
        return self._bulk
