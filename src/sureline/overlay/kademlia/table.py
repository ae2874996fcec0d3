"""The routing table: whom a node knows, and which of them are nearest to a key.

A bucket holds the contacts at one order of magnitude of distance, least recently seen first, and
when it is full the least recently seen makes room: pilots live about equally long, so old age is
no sign of a long life to come. Only nodes that spoke to this one themselves become contacts. Those
displaced, and those it has merely heard of, are the bucket's spares: used when contacts fail or
are few, never passed on. So the memory of a dead node does not wander from table to table.

Contacts are bare addresses; identifiers come from `id_of`, and nothing else is kept per contact.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator

from sureline.overlay.kademlia.ids import Region, id_of, part_unless_guest
from sureline.overlay.kademlia.settings import KademliaSettings
from sureline.world.address import part_of
from sureline.world.protocol import AgentId


class Bucket:
    __slots__ = ("contacts", "searched_at", "spares")

    def __init__(self, now: float) -> None:
        self.contacts: list[AgentId] = []
        self.spares: list[AgentId] = []
        self.searched_at = now
        """When something in this bucket's range was last looked up."""


class RoutingTable:
    """Buckets by the bit length of the distance from this node: 160 is the far half."""

    __slots__ = ("_buckets", "_gone", "_part", "_settings", "lost", "me", "my_id")

    def __init__(self, me: AgentId, settings: KademliaSettings) -> None:
        self.me = me
        self.my_id = id_of(me)
        self.lost: list[AgentId] = []
        """Dropped contacts that may come back; oldest first."""
        self._part = part_of(me)
        self._settings = settings
        self._buckets: dict[int, Bucket] = {}
        self._gone: dict[AgentId, float] = {}

    # What happens to contacts.

    def seen(self, contact: AgentId, now: float) -> bool:
        """Note that the contact spoke to us. True if it was no contact before."""
        distance = id_of(contact) ^ self.my_id
        bucket = self._buckets.get(distance.bit_length())
        if bucket is not None and contact in bucket.contacts:
            if bucket.contacts[-1] != contact:
                bucket.contacts.remove(contact)
                bucket.contacts.append(contact)
            return False
        if not self.admissible(contact):
            return False
        self._add(distance.bit_length(), AgentId(sys.intern(contact)), now)
        return True

    def admissible(self, contact: AgentId) -> bool:
        """Whether this can be a contact at all: the same part of another node that is no guest."""
        return part_unless_guest(contact) == self._part and id_of(contact) != self.my_id

    def _add(self, order: int, contact: AgentId, now: float) -> None:
        bucket = self._buckets.get(order)
        if bucket is None:
            bucket = self._buckets[order] = Bucket(now)
        identifier = id_of(contact)
        # The same name at another address is the same node, started anew.
        bucket.contacts = [c for c in bucket.contacts if id_of(c) != identifier]
        bucket.spares = [c for c in bucket.spares if id_of(c) != identifier]
        self._gone.pop(contact, None)
        if contact in self.lost:
            self.lost.remove(contact)
        bucket.contacts.append(contact)
        if len(bucket.contacts) > self._settings.k:
            self._spare(bucket, bucket.contacts.pop(0))

    def _spare(self, bucket: Bucket, contact: AgentId) -> None:
        bucket.spares.append(contact)
        if len(bucket.spares) > self._settings.spares_max:
            del bucket.spares[0]

    def heard_of(self, contact: AgentId, now: float) -> None:
        """Note what another node said of an admissible one: worth no more than a spare."""
        if self.is_gone(contact, now):
            return
        order = (id_of(contact) ^ self.my_id).bit_length()
        bucket = self._buckets.get(order)
        if bucket is None:
            bucket = self._buckets[order] = Bucket(now)
        room = min(self._settings.k - len(bucket.contacts), self._settings.spares_max)
        if (
            len(bucket.spares) < room
            and contact not in bucket.contacts
            and contact not in bucket.spares
        ):
            bucket.spares.append(AgentId(sys.intern(contact)))

    def silent(self, contact: AgentId) -> None:
        """The contact did not answer in time. Once makes it a spare: a slow node is better than
        none, but is not passed on until it speaks again. Twice loses it."""
        bucket = self._buckets.get((id_of(contact) ^ self.my_id).bit_length())
        if bucket is None:
            return
        if contact in bucket.contacts:
            bucket.contacts.remove(contact)
            self._spare(bucket, contact)
        elif contact in bucket.spares:
            bucket.spares.remove(contact)
            self.remember(contact)

    def gone(self, contact: AgentId, now: float, *, for_good: bool = False) -> None:
        """The contact refused us, or said goodbye (`for_good`): drop it, and for a while do not
        believe those who still name it."""
        if len(self._gone) >= self._settings.gone_max:
            del self._gone[next(iter(self._gone))]
        self._gone[contact] = now + self._settings.gone_s
        bucket = self._buckets.get((id_of(contact) ^ self.my_id).bit_length())
        if bucket is None:
            return
        if contact in bucket.spares:
            bucket.spares.remove(contact)
        if contact in bucket.contacts:
            bucket.contacts.remove(contact)
            if not for_good:
                self.remember(contact)

    def remember(self, contact: AgentId) -> None:
        """Keep an address to try again later, in place of the oldest such."""
        if contact not in self.lost:
            self.lost.append(contact)
            if len(self.lost) > self._settings.lost_max:
                del self.lost[0]

    def is_gone(self, contact: AgentId, now: float) -> bool:
        until = self._gone.get(contact)
        if until is None:
            return False
        if until > now:
            return True
        del self._gone[contact]
        return False

    # What is asked of the table.

    def _orders(self, target: int) -> Iterator[int]:
        """Buckets in order of their distance from the target: whoever is in an earlier one is
        nearer than all in a later one. A bucket whose bit is set in our own distance to the
        target holds those for which that bit is cancelled: the higher, the nearer they are.
        Then come we ourselves, then the others, the lowest bit first."""
        ours = self.my_id ^ target
        orders = sorted(self._buckets)
        yield from (order for order in reversed(orders) if ours >> (order - 1) & 1)
        yield from (order for order in orders if not ours >> (order - 1) & 1)

    def closest(self, target: int, count: int) -> list[AgentId]:
        """The contacts nearest to the target, nearest first."""
        nearest: list[AgentId] = []
        for order in self._orders(target):
            contacts = self._buckets[order].contacts
            if contacts:
                nearest += sorted(contacts, key=lambda c: id_of(c) ^ target)
                if len(nearest) >= count:
                    break
        return nearest[:count]

    def candidates(self, target: int, count: int) -> list[AgentId]:
        """Like `closest`, for our own use: spares too, where contacts are few."""
        nearest: list[AgentId] = []
        for order in self._orders(target):
            bucket = self._buckets[order]
            members = bucket.contacts
            if 2 * len(members) < self._settings.k:
                members = members + bucket.spares
            nearest += sorted(members, key=lambda c: id_of(c) ^ target)
            if len(nearest) >= count:
                break
        return nearest[:count]

    def within(self, region: Region) -> list[AgentId]:
        """All of the region: the most recently seen of each bucket first, spares last."""
        if self.my_id in region:
            orders = [o for o in sorted(self._buckets, reverse=True) if 1 << o <= region.span]
        else:
            orders = [(region.first ^ self.my_id).bit_length()]
        buckets = [self._buckets[o] for o in orders if o in self._buckets]
        members = [c for b in buckets for c in reversed(b.contacts) if id_of(c) in region]
        return members + [c for b in buckets for c in reversed(b.spares) if id_of(c) in region]

    def is_contact(self, contact: AgentId) -> bool:
        bucket = self._buckets.get((id_of(contact) ^ self.my_id).bit_length())
        return bucket is not None and contact in bucket.contacts

    def contacts(self) -> Iterable[AgentId]:
        """All of them, the nearest bucket first."""
        return (c for o in sorted(self._buckets) for c in self._buckets[o].contacts)

    def buckets(self) -> dict[int, Bucket]:
        return self._buckets

    def __len__(self) -> int:
        return sum(len(bucket.contacts) for bucket in self._buckets.values())

    def searched(self, target: int, now: float) -> None:
        """Something near the target was looked up: the bucket around it is fresh."""
        order = (target ^ self.my_id).bit_length()
        if order in self._buckets:
            self._buckets[order].searched_at = now
        elif order:
            self._buckets[order] = Bucket(now)

    def nodes_estimated(self) -> float:
        """How many nodes the network has, judged by how near our nearest contacts are."""
        nearest = self.closest(self.my_id, self._settings.k)
        if not nearest:
            return 1.0
        return len(nearest) * 2.0**160 / ((id_of(nearest[-1]) ^ self.my_id) + 1) + 1
