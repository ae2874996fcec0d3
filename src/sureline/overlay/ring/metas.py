"""Meta-molecules: pointers to resource molecules, kept in the order of their values.

A publisher has one for each of its features, each with all of its features, at the position of that
feature's value: with the owner of the position and the next ones. It publishes them again and
again; what is not renewed runs out. Who moves into the neighbourhood is given what should be his.
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping, Sequence

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
    """What this node publishes, and what it passes on. Of each feature one message is on its way at
    a time: what changes meanwhile is told by the next, as it is then."""

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
        self._due_at = base.world.elapsed() + base.jittered(base.settings.republish_s)
        self._placed: dict[str, tuple[int, list[AgentId]]] = {}
        """By feature: where it lies, and with whom."""
        self._told: dict[str, int] = {}
        """The sequence that each feature has been told with, or is being told."""
        self._telling: set[str] = set()
        self._looked_up: set[str] = set()
        """Features of which it is known well enough who should have them."""

    def publish(self, values: Mapping[str, float]) -> None:
        """From now on these, instead of what was published before; nothing to withdraw all. By the
        ring's own features it can be ranked; others are told with them.

        Raises ValueError for a value that is no finite number.
        """
        for name, value in values.items():
            if not math.isfinite(value):
                raise ValueError(f"{name} = {value} cannot be published: it is not finite")
        self._mine = dict(values)
        self._sequence += 1
        if not self._asleep():  # else what was published has run out, or will
            for name in self._features:
                self._tell(name)

    def wake(self) -> None:
        """From now on somebody looks for it."""
        if self._mine:
            self._tell_all_again()

    def tick(self, now: float) -> None:
        """Everything again once in a while, to whoever should have it by then."""
        self._metas.expire(now)
        if now >= self._due_at and self._mine and not self._asleep():
            self._tell_all_again()

    def _tell_all_again(self) -> None:
        base = self._base
        self._due_at = base.world.elapsed() + base.jittered(base.settings.republish_s)
        self._told.clear()
        self._looked_up.clear()
        for name in self._features:
            self._tell(name)

    def _tell(self, name: str) -> None:
        if name in self._telling or self._told.get(name) == self._sequence:
            return
        self._told[name] = self._sequence
        if name not in self._mine:
            self._take_back(name, ())
            return
        base = self._base
        position = self._features[name].position(self._mine[name], base.me)
        meta = Meta(base.me, base.life, self._sequence, dict(self._mine))
        entry = MetaEntry(name, position.to_bytes(ID_BYTES), meta, base.settings.meta_ttl_s)
        placed, owners = self._placed.get(name, (-1, []))
        if position == placed and name in self._looked_up:
            self._place(entry, position, owners)
            return

        def found(now: Owners) -> None:
            self._telling.discard(name)
            if name in self._mine:
                self._looked_up.add(name)
                self._place(entry, position, self._keepers(now))
            self._tell(name)

        self._telling.add(name)
        OwnerLookup(base, position, found).start()

    def _keepers(self, owners: Owners) -> list[AgentId]:
        return [owner.agent for owner in owners[: self._base.settings.replicas]]

    def _place(self, entry: MetaEntry, position: int, owners: list[AgentId]) -> None:
        if position != self._placed.get(entry.feature, (position, []))[0]:
            self._take_back(entry.feature, owners)
        self._placed[entry.feature] = position, owners
        for owner in owners:
            self._give(owner, (entry,))

    def _take_back(self, name: str, but: Sequence[AgentId]) -> None:
        """From those it was given to, and those who should have it by now; who is given another has
        that in its place."""
        if name not in self._placed:
            return
        position, owners = self._placed.pop(name)
        told, old = set(but), WithdrawMeta(0, self._base.life, name, self._sequence - 1)

        def tell(agents: Sequence[AgentId]) -> None:
            for agent in agents:
                if agent not in told:
                    told.add(agent)
                    self._base.world.send(agent, old)

        tell(owners)
        OwnerLookup(self._base, position, lambda now: tell(self._keepers(now))).start()

    def _give(self, to: AgentId, entries: tuple[MetaEntry, ...]) -> None:
        self._base.world.send(to, Publish(0, self._base.life, entries))

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
