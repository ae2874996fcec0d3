"""Finding the owner of a key: ask who is nearest before it, again and again."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sureline.overlay.kademlia.ids import ID_BYTES
from sureline.overlay.ring.base import RingBase
from sureline.overlay.ring.messages import Ask, Contacts, RingContact, Told
from sureline.overlay.ring.places import distance, place_of
from sureline.world.protocol import AgentId, Message

NEARER = 4
"""Contacts named in an answer."""
Owners = Sequence[RingContact]


class OwnerLookup:
    """One search; `on_done` hears the owner and those after him, or nothing at all if nobody could
    be asked. Never before `start` has returned."""

    def __init__(self, base: RingBase, key: int, on_done: Callable[[Owners], None]) -> None:
        self._base = base
        self._key = key
        self._on_done = on_done
        self._asked: set[AgentId] = set()
        self._known: dict[AgentId, int] = {}
        """How far it is from each to the key."""
        self.questions = 0

    def start(self, seeds: Sequence[AgentId] = ()) -> None:
        base = self._base
        owners, nearer = answer_here(base, self._key)
        if owners and not seeds:
            base.after(0.0, lambda: self._on_done(owners))
            return
        self._learn([contact.agent for contact in nearer] + list(seeds))
        if not self._go_on():
            base.after(0.0, lambda: self._on_done(()))

    def _learn(self, agents: Sequence[AgentId]) -> None:
        for agent in agents:
            if agent != self._base.me and agent not in self._asked:
                self._known[agent] = distance(place_of(agent), self._key)

    def _go_on(self) -> bool:
        """Ask the nearest that was not asked; False if there is none."""
        if not self._known or self.questions >= self._base.settings.questions_max:
            return False
        nearest = min(self._known, key=lambda agent: (self._known[agent], agent))
        del self._known[nearest]
        self._asked.add(nearest)
        self.questions += 1
        key, base = self._key.to_bytes(ID_BYTES), self._base
        base.ask(nearest, lambda n: Ask(n, base.life, key), self._answered, self._failed)
        return True

    def _answered(self, by: AgentId, answer: Message) -> None:
        if isinstance(answer, Told) and answer.owners:
            self._on_done(answer.owners)
            return
        if isinstance(answer, Told):
            limit = distance(place_of(by), self._key)
            self._learn(
                [c.agent for c in answer.nearer if distance(place_of(c.agent), self._key) < limit]
            )
        if not self._go_on():
            self._on_done(())

    def _failed(self, by: AgentId) -> None:
        if not self._go_on():
            self._on_done(answer_here(self._base, self._key)[0])


def answer_here(base: RingBase, key: int) -> tuple[Contacts, Contacts]:
    """What this node can say of a key, as in `Told`: its owner and those after, if this is he or
    the one before him; else who is nearer."""
    table, count = base.table, base.settings.leaves
    owned = table.owns(key)
    if owned and not base.leaving:
        return (base.mine, *table.after(count - 1)), ()
    nearer = table.nearer(key, NEARER)
    if owned or not nearer:
        return tuple(table.after(count)), ()
    return (), tuple(nearer)
