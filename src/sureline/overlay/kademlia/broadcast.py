"""Broadcast: a message to every node, over a tree that grows as it goes, replies coming back.

Each node that is handed a region delivers the message, splits the region in at most eight (see
`regions`), and hands each part to a contact there. The contact says at once that it has taken the
part; if it does not, or is found to be gone before it has replied, another contact of that part is
tried. When all those known are used up, a search tells whether anybody else is there. Whoever has
taken a part, but does not reply for long, is asked whether it lives: its own children may not have
been told yet when it died.

Replies are merged on the way up. A node waits for its children's replies for as long as it was
told, less one hop for each level: so every level ends before the one above it, and what comes
later is dropped. Only replies have a deadline: a part that nobody has taken yet is still tried.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from sureline.overlay.kademlia.base import KademliaBase
from sureline.overlay.kademlia.ids import EVERYWHERE, ID_BITS, ID_BYTES, Region, id_of
from sureline.overlay.kademlia.messages import Cast, CastReply, CastTaken
from sureline.overlay.kademlia.probes import Probes
from sureline.overlay.kademlia.regions import RegionPart, passed_on, split
from sureline.overlay.kademlia.search import Search, Searches
from sureline.world.address import NO_AGENT, Node, node_of
from sureline.world.protocol import AgentId, Message, Timer

Handler = Callable[[AgentId, bytes], bytes | None]
"""Given the origin and the payload; what it returns is the node's own reply, if any."""
Merge = Callable[[Sequence[bytes]], bytes]
"""Makes one reply of several, none of them larger than the settings allow. It is applied at every
level, to replies and to merged replies, in no certain order."""
CastId = tuple[AgentId, int]

NODES_MAX = 1 << 32
"""Whoever counts more than this is not believed any further."""
DOUBTED_FROM = 6.0
"""Nodes that chance leaves out of a region once in 400 cases."""
SPARE_LEVELS = 2
"""Levels allowed for beyond those of a perfectly even tree."""


class Aggregate(msgspec.Struct, frozen=True):
    """What came back from a broadcast."""

    value: bytes | None
    """The merged replies; None if there were none."""
    reached: int
    """Nodes that had the message and said so in time, the origin not counted."""
    missed: int
    """Parts that somebody lives in but could not be reached, and replies that came late, were too
    large, or met a node that cannot merge them."""


class Child:
    """One part of a duty, and who has been asked to take it."""

    __slots__ = ("contacts", "duty", "number", "part", "searched", "taken", "to", "tries")

    def __init__(self, duty: Duty, part: RegionPart, predecessor: Child | None = None) -> None:
        self.duty = duty
        self.part = part
        self.contacts: list[AgentId] = predecessor.contacts if predecessor else part.contacts[::-1]
        """Who may be tried next, the preferred last."""
        self.tries: int = predecessor.tries if predecessor else 0
        self.to = NO_AGENT
        self.number = 0
        self.taken = False
        self.searched: bool = predecessor.searched if predecessor else False
        """Whether the part has been searched for others."""


class Duty:
    """A region that this node has taken on, until its replies have gone up."""

    __slots__ = (
        "cast", "children", "handed_out", "missed", "on_end", "over", "parent", "reached", "region",
        "replies", "searching", "silent", "timer", "watch",
    )  # fmt: skip

    def __init__(self, cast: Cast, region: Region, parent: AgentId) -> None:
        self.cast = cast
        self.region = region
        self.parent = parent
        self.children: dict[int, Child] = {}
        """Those not settled, by the number of their question."""
        self.silent: dict[int, Child] = {}
        """Those that others have been tried in place of, but whose word still counts."""
        self.searching = 0
        """Parts that are being searched for somebody to take them."""
        self.handed_out = 0
        self.replies: list[bytes] = []
        self.reached = 0
        self.missed = 0
        self.over = False
        self.timer: Timer | None = None
        self.watch: Timer | None = None
        self.on_end: Callable[[Aggregate], None] | None = None


class Broadcasts:
    """All broadcasts that this node has a part in."""

    __slots__ = (
        "_base", "_duties", "_numbers", "_payload_bytes", "_probes", "_searches", "_serial",
        "_topics", "forwards", "retries",
    )  # fmt: skip

    def __init__(self, base: KademliaBase, searches: Searches) -> None:
        self._base = base
        self._searches = searches
        self._topics: dict[str, tuple[Handler, Merge]] = {}
        self._duties: dict[CastId, list[Duty]] = {}
        """By broadcast, oldest first: those under way, and those over, to know duplicates."""
        self._numbers: dict[int, Child] = {}
        """Children that are not settled, and silent ones, by number."""
        self._probes = Probes(base, self._silent)
        self._serial = base.world.random.getrandbits(48)
        self._payload_bytes = 0
        self.forwards = 0
        """Parts handed out, at most eight of a broadcast; and those handed out again."""
        self.retries = 0

    def listen(self, topic: str, handler: Handler, merge: Merge) -> None:
        self._topics[topic] = (handler, merge)

    def start(
        self, topic: str, payload: bytes, on_replies: Callable[[Aggregate], None] | None
    ) -> None:
        """Send to all nodes but this one. `on_replies`, if given, runs once, later."""
        base = self._base
        if len(payload) > base.settings.payload_bytes_max:
            raise ValueError(
                f"a broadcast carries at most {base.settings.payload_bytes_max} bytes,"
                f" not {len(payload)}"
            )
        ways = max(2, base.settings.regions)
        levels = math.log(base.nodes_estimated(), ways) + SPARE_LEVELS
        patience_s = base.settings.hop_s * levels if on_replies else 0.0
        self._serial += 1
        prefix = bytes(ID_BYTES)
        cast = Cast(0, base.me, self._serial, topic, payload, prefix, 0, patience_s)
        duty = Duty(cast, EVERYWHERE, base.me)
        duty.on_end = on_replies
        self._enter(duty)
        self._hand_out(duty)
        base.world.after(0.0, lambda: self._end_if_done(duty))

    # From above.

    def on_cast(self, sender: AgentId, cast: Cast) -> None:
        region = Region(int.from_bytes(cast.prefix) >> (ID_BITS - cast.length), cast.length)
        earlier = self._duties.get((cast.origin, cast.serial), [])
        for duty in earlier:
            if duty.region.length <= region.length and region.first in duty.region:
                self._again(duty, sender, cast)
                return
        too_much = len(earlier) >= self._base.settings.duties_max or not self._has_room(cast)
        too_much = too_much or _handed_out(earlier) >= self._base.settings.regions
        # Whoever is still joining knows too little to be trusted with a region.
        if too_much or not self._base.joined:
            self._base.world.send(sender, CastTaken(cast.number, accepted=False))
            return
        patience_s = cast.patience_s if cast.patience_s > 0 else 0.0  # which also settles NaN
        patience_s = min(patience_s, self._base.settings.patience_s_max)
        cast = msgspec.structs.replace(cast, patience_s=patience_s)
        duty = Duty(cast, region, sender)
        self._enter(duty)
        if not earlier and cast.origin != self._base.me:
            self._deliver(duty)
        self._hand_out(duty)
        if cast.patience_s <= 0 or duty.children or duty.searching:
            self._base.world.send(sender, CastTaken(cast.number))
        self._end_if_done(duty)

    def _has_room(self, cast: Cast) -> bool:
        settings = self._base.settings
        return (
            len(cast.payload) <= settings.payload_bytes_max
            and self._payload_bytes + len(cast.payload) <= settings.payloads_bytes_max
        )

    def _again(self, duty: Duty, sender: AgentId, cast: Cast) -> None:
        """We see to that region already. The same parent asks because our word was lost, and gets
        it again; another one has nothing to wait for."""
        same = sender == duty.parent and cast.length == duty.region.length
        if same and not duty.over:
            duty.cast = msgspec.structs.replace(duty.cast, number=cast.number)
            self._base.world.send(sender, CastTaken(cast.number))
        elif cast.patience_s <= 0:
            self._base.world.send(sender, CastTaken(cast.number))
        elif same:
            value = duty.replies[0] if duty.replies else None
            self._base.world.send(sender, CastReply(cast.number, duty.reached, duty.missed, value))
        else:
            self._base.world.send(sender, CastReply(cast.number, 0, 0))

    def _enter(self, duty: Duty) -> None:
        key = (duty.cast.origin, duty.cast.serial)
        if key not in self._duties and len(self._duties) >= self._base.settings.casts_max:
            for forgotten in self._duties.pop(next(iter(self._duties))):
                self._close(forgotten)
        self._duties.setdefault(key, []).append(duty)
        self._payload_bytes += len(duty.cast.payload)

    def _deliver(self, duty: Duty) -> None:
        duty.reached = 1
        topic = self._topics.get(duty.cast.topic)
        if topic is not None:
            reply = topic[0](duty.cast.origin, duty.cast.payload)
            if reply is not None and duty.cast.patience_s > 0:
                self._take_reply(duty, reply)

    def _take_reply(self, duty: Duty, reply: bytes) -> None:
        if len(reply) <= self._base.settings.reply_bytes_max:
            duty.replies.append(reply)
        else:
            duty.missed += 1

    # To below.

    def _hand_out(self, duty: Duty) -> None:
        base = self._base
        cast = duty.cast
        insiders = [i for i in (base.me, *cast.without) if id_of(i) in duty.region]
        known = base.within(duty.region)
        told = [c for c in base.usable(cast.known) if id_of(c) in duty.region]
        contacts = [c for c in dict.fromkeys((*known, *told)) if c not in insiders]
        contacts = [c for c in contacts if c != cast.origin]
        doubtful = self._doubtful(duty.region, contacts)
        spent = _handed_out(self._duties[cast.origin, cast.serial])
        parts_max = max(1, base.settings.regions - spent - len(doubtful))
        for part in split(duty.region, contacts, insiders, parts_max):
            self._forward(Child(duty, part))
        for region in doubtful:
            self._search(Child(duty, RegionPart(region, [], [])))
        if cast.patience_s > 0 and (duty.children or duty.searching):
            duty.timer = base.world.after(cast.patience_s, lambda: self._expire(duty))
            self._keep_watch(duty)

    def _doubtful(self, region: Region, contacts: Sequence[AgentId]) -> list[Region]:
        """Buckets of ours in the region where we know nobody though many should be: our table may
        be at fault, so they are searched before they are taken to be empty."""
        table = self._base.table
        if table.my_id not in region:
            return []
        expected = self._base.nodes_estimated() / 2.0**region.length
        known = {(id_of(contact) ^ table.my_id).bit_length() for contact in contacts}
        doubtful = []
        for length in range(region.length + 1, ID_BITS):
            expected /= 2
            if expected < DOUBTED_FROM:
                break
            if ID_BITS + 1 - length not in known:
                doubtful.append(Region(table.my_id >> (ID_BITS - length) ^ 1, length))
        return doubtful

    def _forward(self, child: Child) -> None:
        """Hand the part to the next contact. When there is none left, search for others, once;
        then give the part up."""
        base = self._base
        if not child.contacts or child.tries >= base.settings.cast_tries:
            if child.searched:
                child.duty.missed += 1
            else:
                self._search(child)
            return
        if child.tries or child.searched:
            self.retries += 1
        else:
            self.forwards += 1
            child.duty.handed_out += 1
        child.tries += 1
        child.to = child.contacts.pop()
        child.taken = False
        child.number = base.requests.open(child.to, self)
        child.duty.children[child.number] = child
        self._numbers[child.number] = child
        base.world.send(child.to, self._cast_to(child))

    def _search(self, child: Child) -> None:
        """Find out who lives in a part where nobody we knew of does."""
        base = self._base
        duty, region = child.duty, child.part.region
        child.searched = True
        duty.searching += 1

        def ended(search: Search) -> None:
            duty.searching -= 1
            barred = (duty.parent, duty.cast.origin, *child.part.insiders)
            there = [c for c in search.lookup.nearest(base.settings.k) if id_of(c) in region]
            child.contacts = [c for c in reversed(there) if c not in barred]
            child.tries = 0
            if child.contacts:
                self._forward(child)
            self._end_if_done(duty)

        target = region.first + base.world.random.getrandbits(ID_BITS) % region.span
        self._searches.start(target, ended, width=base.settings.alpha)

    def _cast_to(self, child: Child) -> Cast:
        duty, part = child.duty, child.part
        hop_s = self._base.settings.hop_s
        patience_s = 0.0
        if duty.cast.patience_s > 0 and not duty.over:
            patience_s = max(duty.cast.patience_s - hop_s, hop_s / 2)
        return msgspec.structs.replace(
            duty.cast,
            number=child.number,
            prefix=part.region.first.to_bytes(ID_BYTES),
            length=part.region.length,
            patience_s=patience_s,
            without=tuple(part.insiders),
            known=passed_on(part),
        )

    # From below.

    def answered(self, number: int, by: AgentId, answer: Message) -> None:
        child = self._numbers.get(number)
        if child is None:
            return
        if isinstance(answer, CastReply):
            self._take(child, answer)
        elif isinstance(answer, CastTaken) and answer.accepted:
            child.taken = True
            if child.duty.cast.patience_s <= 0 or child.duty.over:
                self._drop(child)
                self._end_if_done(child.duty)
        else:
            self._retry(child)

    def on_taken(self, sender: AgentId, taken: CastTaken) -> None:
        """A child that had been silent speaks after all: it is waited for again. Whoever was
        tried in its place finds most nodes provided for, and replies for the others."""
        child = self._numbers.get(taken.number)
        if child is not None and child.to == sender and taken.accepted and not child.duty.over:
            child.taken = True
            child.duty.silent.pop(child.number, None)
            child.duty.children[child.number] = child

    def on_reply(self, sender: AgentId, reply: CastReply) -> None:
        """A reply of a child that had taken its part before, or had been silent."""
        child = self._numbers.get(reply.number)
        if child is not None and child.to == sender:
            self._take(child, reply)

    def slow(self, number: int, by: AgentId) -> None:
        """Not yet a reason to ask another: a second tree through the same region is dear."""

    def failed(self, number: int, by: AgentId) -> None:
        """Nobody has said a word."""
        self._silent(number, by)

    def _silent(self, number: int, by: AgentId) -> None:
        """Somebody else is tried in this one's place; should it speak later, good."""
        self._base.table.silent(by)
        child = self._numbers.get(number)
        if child is not None and number in child.duty.children:
            duty = child.duty
            del duty.children[number]
            duty.silent[number] = child
            self._forward(Child(duty, child.part, child))
            self._end_if_done(duty)

    def unreachable(self, node: Node) -> None:
        """Parts that this node had taken, but not replied to, go to somebody else."""
        for child in [c for c in self._numbers.values() if node_of(c.to) == node]:
            if child.number in child.duty.silent:
                self._drop(child)
            else:
                self._retry(child)

    def _retry(self, child: Child) -> None:
        self._drop(child)
        self._forward(child)
        self._end_if_done(child.duty)

    def _take(self, child: Child, reply: CastReply) -> None:
        duty = child.duty
        self._drop(child)
        if not duty.over:
            duty.reached = min(duty.reached + max(0, reply.reached), NODES_MAX)
            duty.missed = min(duty.missed + max(0, reply.missed), NODES_MAX)
            if reply.value is not None:
                self._take_reply(duty, reply.value)
        self._end_if_done(duty)

    def _keep_watch(self, duty: Duty) -> None:
        """Have those who are waited for asked, at intervals, whether they are still there."""

        def look() -> None:
            for child in [c for c in duty.children.values() if c.taken]:
                self._probes.ask(child.to, child.number)
            self._keep_watch(duty)

        duty.watch = None
        if not duty.over:
            duty.watch = self._base.world.after(self._base.settings.watch_s, look)

    def _drop(self, child: Child) -> None:
        self._probes.forget(child.number)
        self._numbers.pop(child.number, None)
        child.duty.children.pop(child.number, None)
        child.duty.silent.pop(child.number, None)

    # The end.

    def _end_if_done(self, duty: Duty) -> None:
        if not duty.children and not duty.searching:
            if not duty.over:
                self._end(duty)
            self._close(duty)

    def _expire(self, duty: Duty) -> None:
        if not duty.over:
            self._end(duty)
            self._end_if_done(duty)

    def _end(self, duty: Duty) -> None:
        """Reply with what there is. Parts that nobody has taken yet are still tried."""
        duty.over = True
        duty.missed += len(duty.children) + duty.searching
        for child in [c for c in duty.children.values() if c.taken]:
            self._drop(child)
        if duty.cast.patience_s <= 0:
            return
        value = self._merged(duty)
        if duty.on_end is not None:
            duty.on_end(Aggregate(value, duty.reached, duty.missed))
            duty.on_end = None
        elif duty.parent != self._base.me:
            reply = CastReply(duty.cast.number, duty.reached, duty.missed, value)
            self._base.world.send(duty.parent, reply)
            self._keep_reply(duty, value)

    def _close(self, duty: Duty) -> None:
        """Nothing more comes of it."""
        duty.over = True
        for timer in (duty.timer, duty.watch):
            if timer is not None:
                timer.cancel()
        duty.timer = duty.watch = None
        for child in [*duty.children.values(), *duty.silent.values()]:
            self._base.requests.close(child.number)
            self._drop(child)
        # Only its identity is needed from here on.
        self._payload_bytes -= len(duty.cast.payload)
        duty.cast = msgspec.structs.replace(duty.cast, payload=b"", known=(), without=())

    def _merged(self, duty: Duty) -> bytes | None:
        if len(duty.replies) < 2:
            return duty.replies[0] if duty.replies else None
        topic = self._topics.get(duty.cast.topic)
        value = topic[1](duty.replies) if topic is not None else None
        if value is not None and len(value) <= self._base.settings.reply_bytes_max:
            return value
        duty.missed += 1
        return None

    def _keep_reply(self, duty: Duty, value: bytes | None) -> None:
        """For a while, in case it is lost on the way and the parent asks again."""
        duty.replies = [value] if value is not None else []
        if value is not None:
            base = self._base
            base.world.after(base.settings.hop_s, duty.replies.clear)

    def stop(self) -> None:
        for duties in self._duties.values():
            for duty in duties:
                self._close(duty)

    def __len__(self) -> int:
        return len(self._duties)


def _handed_out(duties: Sequence[Duty]) -> int:
    return sum(duty.handed_out for duty in duties)
