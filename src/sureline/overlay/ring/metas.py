"""Meta-molecules: pointers to resource molecules, kept in the order of their values.

A publisher has one for each of its features, each with all of its features, at the position of that
feature's value: with the owner of the position and the next ones. It publishes them again and
again; what is not renewed runs out. Who moves into the neighbourhood is given what should be his.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from functools import partial

from sureline.overlay.kademlia.ids import ID_BYTES
from sureline.overlay.ring.base import RingBase
from sureline.overlay.ring.lookup import OwnerLookup, Owners
from sureline.overlay.ring.messages import Meta, MetaEntry, Publish, WithdrawMeta
from sureline.overlay.ring.places import Feature
from sureline.world.protocol import AgentId


class Metas:
    """What a node keeps for others: of each publisher and feature, the newest."""

    def __init__(self) -> None:
        self._held: dict[tuple[str, AgentId], tuple[int, Meta, float]] = {}
        """By feature and publisher: position, meta-molecule, when it runs out."""
        self._order: dict[str, list[tuple[int, AgentId]]] = {}

    def __len__(self) -> int:
        return len(self._held)

    def keep(self, entry: MetaEntry, now: float, most: int, ttl_s_max: float) -> None:
        place = entry.feature, entry.meta.publisher
        old = self._held.get(place)
        if old is None and len(self._held) >= most:
            return
        if not all(map(math.isfinite, entry.meta.features.values())) or not entry.ttl_s > 0:
            return
        if old is not None:
            if old[1].life == entry.meta.life and old[1].sequence > entry.meta.sequence:
                return
            self._drop(place)
        position = int.from_bytes(entry.position)
        until = now + min(entry.ttl_s, ttl_s_max)
        self._held[place] = position, entry.meta, until
        insort(self._order.setdefault(entry.feature, []), (position, entry.meta.publisher))

    def withdraw(self, feature: str, publisher: AgentId, sequence: int) -> None:
        old = self._held.get((feature, publisher))
        if old is not None and old[1].sequence <= sequence:
            self._drop((feature, publisher))

    def _drop(self, place: tuple[str, AgentId]) -> None:
        position, _, _ = self._held.pop(place)
        order = self._order[place[0]]
        del order[bisect_left(order, (position, place[1]))]

    def expire(self, now: float) -> None:
        for place in [place for place, (_, _, until) in self._held.items() if until <= now]:
            self._drop(place)

    def between(self, feature: str, first: int, last: int, now: float) -> Iterator[MetaEntry]:
        """In order."""
        order = self._order.get(feature, [])
        for at in range(bisect_left(order, (first, "")), len(order)):
            position, publisher = order[at]
            if position > last:
                return
            _, meta, until = self._held[feature, publisher]
            if until > now:
                yield MetaEntry(feature, position.to_bytes(ID_BYTES), meta, until - now)

    def everything(self, now: float) -> list[MetaEntry]:
        every = (1 << 8 * ID_BYTES) - 1
        return [e for feature in self._order for e in self.between(feature, 0, every, now)]


class MetaPublishing:
    """What this node publishes, and what it passes on."""

    def __init__(
        self,
        base: RingBase,
        metas: Metas,
        features: Mapping[str, Feature],
        asleep: Callable[[], bool] = lambda: False,
    ) -> None:
        self._base, self._metas, self._features = base, metas, features
        self._asleep = asleep
        self._mine: dict[str, float] = {}
        self._sequence = 0
        self._due_at = 0.0

    def publish(self, values: Mapping[str, float]) -> None:
        """From now on these, instead of what was published before; nothing to withdraw all. By the
        ring's own features it can be ranked; others are told with them.

        Raises ValueError for a value that is no finite number.
        """
        for name, value in values.items():
            if not math.isfinite(value):
                raise ValueError(f"{name} = {value} cannot be published: it is not finite")
        old, self._mine = self._mine, dict(values)
        self._sequence += 1
        if self._asleep():
            return  # what was published has run out, or will
        for name, value in old.items():
            if name in self._features and self._mine.get(name) != value:
                self._withdraw(name, value)
        self._send()

    def wake(self) -> None:
        """From now on somebody looks for it."""
        self._send()

    def tick(self, now: float) -> None:
        self._metas.expire(now)
        if now >= self._due_at and not self._asleep():
            self._send()

    def _send(self) -> None:
        base = self._base
        self._due_at = base.world.elapsed() + base.jittered(base.settings.republish_s)
        meta = Meta(base.me, base.life, self._sequence, dict(self._mine))
        for name, value in self._mine.items():
            if name not in self._features:
                continue
            position = self._features[name].position(value, base.me)
            entry = MetaEntry(name, position.to_bytes(ID_BYTES), meta, base.settings.meta_ttl_s)
            self._at_owners(position, partial(self._give, entries=(entry,)))

    def _give(self, to: AgentId, entries: tuple[MetaEntry, ...]) -> None:
        self._base.world.send(to, Publish(0, self._base.life, entries))

    def _withdraw(self, name: str, value: float) -> None:
        base = self._base
        old = WithdrawMeta(0, base.life, name, self._sequence - 1)
        position = self._features[name].position(value, base.me)
        self._at_owners(position, lambda owner: base.world.send(owner, old))

    def _at_owners(self, position: int, send: Callable[[AgentId], None]) -> None:
        def found(owners: Owners) -> None:
            for owner in owners[: self._base.settings.replicas]:
                send(owner.agent)

        OwnerLookup(self._base, position, found).start()

    def hand_over(self, to: AgentId) -> None:
        """Give a newcomer, or one who moved up, what he should have."""
        base = self._base
        owned = [
            entry
            for entry in self._metas.everything(base.world.elapsed())
            if any(owner.agent == to for owner in base.owners(int.from_bytes(entry.position)))
        ]
        for start in range(0, len(owned), base.settings.page_max):
            self._give(to, tuple(owned[start : start + base.settings.page_max]))
