"""One node of the hash table.

Whoever speaks to it is a contact from then on, if it may be one; what is asked is answered from
what is known, at once. Everything that takes more than one message is in a part of its own: a
search, a placement, a broadcast, the upkeep of what is published.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sureline.overlay.kademlia.base import KademliaBase
from sureline.overlay.kademlia.broadcast import Aggregate, Broadcasts, Handler, Merge
from sureline.overlay.kademlia.everybody import Everybody
from sureline.overlay.kademlia.ids import ID_BYTES, is_guest
from sureline.overlay.kademlia.messages import (
    Cast,
    CastReply,
    CastTaken,
    Find,
    Forget,
    Found,
    Leave,
    Store,
    Stored,
    ValueRecord,
)
from sureline.overlay.kademlia.publishing import Publishing, identifier
from sureline.overlay.kademlia.search import Search, Searches
from sureline.overlay.kademlia.settings import KademliaSettings
from sureline.overlay.kademlia.upkeep import TableUpkeep
from sureline.world.address import at, part_of, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Message, Unreachable, World

DEFAULT = KademliaSettings()
DOUBTS_MAX = 2
DOUBT_S = 1.0
"""A search in vain that met silent nodes is repeated so often, about so much later."""
LEAVE_TOLD_MAX = 64
"""Contacts told of a departure: the nearest, who would miss us."""


class Kademlia(Agent):
    """Callbacks run once and later, never before the call that takes them has returned."""

    def __init__(self, me: AgentId, world: World, settings: KademliaSettings = DEFAULT) -> None:
        super().__init__(me, world)
        self.base = KademliaBase(me, world, settings)
        self.searches = Searches(self.base)
        self.publishing = Publishing(self.base, self.searches)
        self.broadcasts = Broadcasts(self.base, self.searches)
        self.upkeep = TableUpkeep(self.base, self.searches, self.publishing)
        self._guest = is_guest(me)
        self._left = False

    def join(self, contacts: Sequence[AgentId], on_done: Callable[[int], None]) -> None:
        """Become part of the network that these belong to; `on_done` hears how many contacts came
        of it. With none (nobody there yet, or the first node of all) it keeps trying them."""
        self.upkeep.join([c for c in contacts if c != self.me], on_done)

    def meet(self, other: AgentId) -> None:
        """Somebody is there, by the word of one who knows of all: from now on this node asks those
        who are nearest without a search, and keeps no table of its own in order. Tell of each, and
        of all who go (`went`)."""
        base = self.base
        if base.table.admissible(other):
            if base.everybody is None:
                base.everybody, base.joined = Everybody(), True
            base.everybody.met(other)

    def went(self, other: AgentId) -> None:
        """Somebody is gone, by the same word."""
        if self.base.everybody is not None:
            self.base.everybody.went(other)

    def store(self, key: bytes, value: bytes, on_done: Callable[[int], None]) -> None:
        """Put a value under a key, besides what is there, and renew it until it is forgotten or
        this node goes; `on_done` hears on how many nodes it is kept.

        Raises ValueError if the value is too large or the key has not 20 bytes.
        """
        _check(key)
        self.publishing.store(key, value, on_done)

    def find(self, key: bytes, on_done: Callable[[tuple[bytes, ...]], None]) -> None:
        """Look up the values under a key: none, or those of the first node found to have any.

        Nothing found is believed only if all who were asked had answered. Otherwise those who were
        silent are asked again, a little later: they may have been busy. Who knows everybody asks
        few: those who should have it, and some in whose view they are these.

        Raises ValueError if the key has not 20 bytes.
        """
        _check(key)
        here = self.base.storage.records(key, self.world.elapsed())
        if here:
            values = tuple(record.value for record in here)
            self.world.after(0.0, lambda: on_done(values))
            return

        self._find(key, on_done, (), DOUBTS_MAX)

    def _find(
        self,
        key: bytes,
        on_done: Callable[[tuple[bytes, ...]], None],
        seeds: Sequence[AgentId],
        doubts: int,
    ) -> None:
        width = self.publishing.width if self.base.everybody is not None else self.base.settings.k

        def found(search: Search) -> None:
            silent = search.lookup.silent(width)
            if search.records:
                self._repair(search)
            elif silent and doubts and not self._left:
                again = partial(self._find, key, on_done, silent, doubts - 1)
                self.world.after(DOUBT_S * (0.5 + self.world.random.random()), again)
                return
            on_done(tuple(record.value for record in search.records))

        self.searches.start(identifier(key), found, width=width, values=True, seeds=seeds)

    def _repair(self, search: Search) -> None:
        """Give the records to the nearest node, if it lies nearer than who had them: a newcomer,
        or one that moved up when others died."""
        nearest = search.lookup.nearest(1)
        if nearest[0] != search.holder:
            self.world.send(nearest[0], Store(0, search.records))

    def forget(self, key: bytes, value: bytes) -> None:
        """Take back a value that this peer published."""
        _check(key)
        self.publishing.forget(key, value)

    def leave(self, on_done: Callable[[], None]) -> None:
        """Hand over what is held here, say goodbye, and fall silent."""

        def handed_over() -> None:
            for contact in self.base.closest(self.base.my_id, LEAVE_TOLD_MAX):
                self.world.send(contact, Leave())
            self.stop()
            on_done()

        self.publishing.hand_over(handed_over)

    def stop(self) -> None:
        """Fall silent without a word."""
        self._left = True
        self.upkeep.stop()
        self.searches.stop()
        self.broadcasts.stop()
        self.base.requests.stop()

    def broadcast(
        self, topic: str, payload: bytes, on_replies: Callable[[Aggregate], None] | None = None
    ) -> None:
        """Send to every other node. `on_replies`, if given, gets their merged replies.

        Raises ValueError if the payload is too large.
        """
        self.broadcasts.start(topic, payload, on_replies)

    def on_broadcast(self, topic: str, handler: Handler, aggregate: Merge) -> None:
        """Have a handler for a topic: it is given the origin and the payload, once for each
        broadcast, and its reply is merged with others by `aggregate`."""
        self.broadcasts.listen(topic, handler, aggregate)

    # What others say.

    def receive(self, sender: AgentId, message: Message) -> None:
        if self._left:
            return
        if type(message) is not Unreachable:
            self.base.table.seen(sender, self.world.elapsed())
        super().receive(sender, message)

    @handles(Unreachable)
    def _on_unreachable(self, sender: AgentId, message: Unreachable) -> None:
        self.base.table.gone(at(message.node, part_of(self.me)), self.world.elapsed())
        self.base.requests.unreachable(message.node)
        self.broadcasts.unreachable(message.node)

    @handles(Find)
    def _on_find(self, sender: AgentId, find: Find) -> None:
        records: tuple[ValueRecord, ...] = ()
        if find.values:
            records = self.base.storage.records(find.key, self.world.elapsed())
        if records:
            self.world.send(sender, Found(find.number, (), records))
            return
        k = self.base.settings.k
        nearest = self.base.closest(identifier(find.key), k + 1)
        contacts = tuple([c for c in nearest if c != sender][:k])
        self.world.send(sender, Found(find.number, contacts))
        if find.claim and self.base.table.is_contact(sender):
            self.publishing.give(sender)

    @handles(Store)
    def _on_store(self, sender: AgentId, store: Store) -> None:
        now = self.world.elapsed()
        kept = 0
        if not self._guest:
            kept = sum(self.base.storage.keep(record, now) for record in store.records)
        if store.number:
            self.world.send(sender, Stored(store.number, kept))

    @handles(Forget)
    def _on_forget(self, sender: AgentId, forget: Forget) -> None:
        self.base.storage.forget(forget.key, forget.value, peer_of(sender))

    @handles(Leave)
    def _on_leave(self, sender: AgentId, leave: Leave) -> None:
        self.base.table.gone(sender, self.world.elapsed(), for_good=True)

    @handles(Found)
    def _on_found(self, sender: AgentId, found: Found) -> None:
        self.base.requests.answer(found.number, sender, found)

    @handles(Stored)
    def _on_stored(self, sender: AgentId, stored: Stored) -> None:
        self.base.requests.answer(stored.number, sender, stored)

    @handles(Cast)
    def _on_cast(self, sender: AgentId, cast: Cast) -> None:
        self.broadcasts.on_cast(sender, cast)

    @handles(CastTaken)
    def _on_taken(self, sender: AgentId, taken: CastTaken) -> None:
        if not self.base.requests.answer(taken.number, sender, taken):
            self.broadcasts.on_taken(sender, taken)

    @handles(CastReply)
    def _on_reply(self, sender: AgentId, reply: CastReply) -> None:
        if not self.base.requests.answer(reply.number, sender, reply):
            self.broadcasts.on_reply(sender, reply)


def _check(key: bytes) -> None:
    if len(key) != ID_BYTES:
        raise ValueError(f"a key has {ID_BYTES} bytes, not {len(key)}: see key_of")
