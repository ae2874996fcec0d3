"""One node of the ring.

Whoever speaks to it is a contact from then on, if it may be one; what is asked is answered from
what is known, at once. A beat keeps everything in order at a low and steady rate: neighbours are
greeted and tell of theirs, one lost contact is tried, now and then a far link is looked up,
molecules move to who should hold them, meta-molecules are published again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from sureline.overlay.kademlia.ids import ID_BITS, is_guest
from sureline.overlay.ring.base import Failed, RingBase
from sureline.overlay.ring.captures import Captures, OnCaptured
from sureline.overlay.ring.lookup import OwnerLookup, Owners, answer_here
from sureline.overlay.ring.messages import (
    Accept,
    Ask,
    Greet,
    Greeted,
    Prepare,
    Publish,
    RingAnswer,
    RingMessage,
    Scan,
    Told,
    Where,
    WithdrawMeta,
)
from sureline.overlay.ring.metas import MetaPublishing, Metas
from sureline.overlay.ring.places import SPACE, Feature
from sureline.overlay.ring.ranges import MetasFound, Query, Ranging, scan
from sureline.overlay.ring.settings import RingSettings
from sureline.world.address import at, node_of, part_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Message, Unreachable, World

DEFAULT = RingSettings()
NEWS_MAX = 4
"""Unknown neighbours that one answer makes us greet."""
LINK_TURNS = 4
"""Beats from one far link that is looked up to the next."""
ROUSED_S = 0.5
"""After this time all nodes have heard that the ring is awake..."""
ROUSED_S_MAX = 5.0
"""...and after this one nobody is waited for who was greeted then."""
LOOK_S = 0.1
USED_S = 60.0
"""So long after a molecule was last changed here the beat is the usual one."""


class Ring(Agent):
    """Callbacks run once and later, never before the call that takes them has returned."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        features: Sequence[Feature] = (),
        settings: RingSettings = DEFAULT,
    ) -> None:
        super().__init__(me, world)
        self.base = RingBase(me, world, settings)
        self.features = {feature.name: feature for feature in features}
        self.captures = Captures(self.base)
        self.metas = Metas()
        self.publishing = MetaPublishing(self.base, self.metas, self.features, lambda: self.asleep)
        self._seeds: tuple[AgentId, ...] = ()
        self._on_joined: Callable[[int], None] | None = None
        self._link = 0
        self._turn = 0
        self._beats = 0
        self._used_at = -math.inf
        self._awake_until = -math.inf
        self._woke_at = -math.inf
        self._greeting: set[AgentId] = set()
        self.on_wake: Callable[[], None] = lambda: None
        """Called when it was asleep and is no longer."""
        self.on_molecule: Callable[[bytes, bytes], None] = lambda key, value: None
        """Told (key, value) of a molecule that nobody has taken and whose first living holder this
        node is, when it comes or changes."""

    # The ring itself.

    def join(self, contacts: Sequence[AgentId], on_done: Callable[[int], None]) -> None:
        """Become part of the ring that these belong to; `on_done` hears how many nodes are known
        then. With none to answer it keeps trying them; without contacts this is the first node."""
        self._seeds = tuple(contact for contact in contacts if contact != self.me)
        self._on_joined = on_done
        if self._seeds:
            self._seek(self._seeds)
            for seed in self._seeds:
                self.base.table.remember(seed)
        else:
            self.base.after(0.0, self._joined)
        self._beat(self.base.settings.tick_s)

    def meet(self, other: AgentId) -> None:
        """Somebody else may be a node of the ring: find out."""
        if self.base.table.wants(other) and self._may_be_contact(other):
            self._greet(other, self.base.table.remember)

    def went(self, other: AgentId) -> None:
        """Somebody is known to be gone."""
        self.base.requests.unreachable(node_of(other))
        self.base.table.forget(other)
        self.base.table.lost.pop(other, None)

    # Sleep.

    @property
    def awake_s(self) -> float:
        """For how long it is still awake."""
        if not self.base.settings.awake_s:
            return math.inf
        return max(0.0, self._awake_until - self.world.elapsed())

    @property
    def asleep(self) -> bool:
        """Nobody uses it, as far as this node knows."""
        return self.awake_s <= 0

    def wake(self, for_s: float = math.inf) -> None:
        """Somebody uses the ring, or did: stay awake for so long, at most for what is set."""
        slept = self.asleep
        for_s = min(for_s, self.base.settings.awake_s)
        self._awake_until = max(self._awake_until, self.world.elapsed() + for_s)
        if slept and not self.asleep:
            self._woke_at = self.world.elapsed()
            self.on_wake()
            self.publishing.wake()
            self._beat(self.base.settings.tick_s)

    def when_roused(self, then: Callable[[], None]) -> None:
        """At once or, if it has just woken, when it knows its neighbours, and they theirs: who
        sleeps knows hardly anybody, and could not say who is to hold what."""
        awake_s = self.world.elapsed() - self._woke_at
        if awake_s < ROUSED_S or (self._greeting and awake_s < ROUSED_S_MAX):
            self.base.after(LOOK_S, lambda: self.when_roused(then))
        else:
            then()

    def _seek(self, through: Sequence[AgentId]) -> None:
        """Find one's neighbours, as others see them."""
        OwnerLookup(self.base, (self.base.table.place + 1) % SPACE, self._settle).start(through)

    def _settle(self, owners: Owners) -> None:
        for owner in owners:
            if owner.agent != self.me:
                self._greet(owner.agent)

    def _joined(self) -> None:
        if self._on_joined is not None:
            on_joined, self._on_joined = self._on_joined, None
            on_joined(len(self.base.table))

    def leave(self, on_done: Callable[[], None]) -> None:
        """Say goodbye, hand over what is held here, and fall silent."""
        base = self.base
        self.publishing.publish({})
        base.leaving = True
        for contact in dict.fromkeys([*base.table.after(), *base.table.before()]):
            self._greet(contact.agent)  # with no life, which says it
        for contact in base.table.after(base.settings.replicas):
            self.publishing.hand_over(contact.agent)

        def gone() -> None:
            self.stop()
            on_done()

        self.captures.hand_over(gone)

    def stop(self) -> None:
        """Fall silent without a word."""
        self.base.stopped = True
        self.base.requests.stop()

    def lookup(self, key: int, on_done: Callable[[Owners], None]) -> None:
        """The owner of a key, and those after him."""
        OwnerLookup(self.base, key, on_done).start()

    # Molecules, and ranges; what can be done with a molecule that was taken is in `captures`.

    def store(self, key: bytes, value: bytes, on_done: Callable[[bool], None]) -> None:
        """Put a molecule under a key that nobody else uses; on_done hears whether it is kept by a
        majority of its holders. False may also mean that it is not known. Raises ValueError if the
        value is too large."""
        self.captures.store(key, value, on_done)

    def capture(self, key: bytes, on_done: OnCaptured) -> None:
        """Take a molecule: it is this node's alone until the lease ends. Otherwise on_done hears
        why not: held (by another), gone, missing, unknown."""
        self.captures.capture(key, on_done)

    def publish(self, values: Mapping[str, float]) -> None:
        """What this node's resource offers from now on; nothing to take it back."""
        self.publishing.publish(values)

    def find(self, query: Query, on_done: Callable[[MetasFound], None]) -> None:
        """Raises ValueError for a feature that is not known."""
        if query.rank not in self.features:
            raise ValueError(f"{query.rank} is no feature of this ring")
        Ranging(self.base, self.features[query.rank], query, on_done).start()

    # The beat.

    def _beat(self, pause_s: float) -> None:
        """Begin to beat, after this pause; if it does already, no more in the old measure."""
        self._beats += 1
        this = self._beats
        pause_s = self.base.jittered(pause_s)
        self.base.after(pause_s, lambda: self._tick() if this == self._beats else None)

    def _tick(self) -> None:
        base, used_s = self.base, self.world.elapsed() - self._used_at
        pause_s = base.settings.tick_s
        if self.asleep:
            pause_s = base.settings.asleep_tick_s
        elif used_s > USED_S:
            pause_s = base.settings.idle_tick_s or pause_s
        self._beat(pause_s)
        after, before = base.table.after(), base.table.before()
        self._turn += 1
        near = after[:1] + before[:1]
        others = [contact for contact in {*after, *before} if contact not in near]
        if others and not self.asleep:
            near.append(sorted(others)[self._turn % len(others)])
        for contact in dict.fromkeys(near):
            self._greet(contact.agent)
        if base.table.lost:
            lost = next(iter(base.table.lost))
            del base.table.lost[lost]
            base.table.lost[lost] = None
            self._greet(lost)
        if not after and self._seeds:
            self._seek(self._seeds)
        if self._turn % LINK_TURNS == 0 and not self.asleep:
            self._refresh_link()
        now = self.world.elapsed()
        self.captures.tick(now)
        self.publishing.tick(now)

    def _refresh_link(self) -> None:
        """Look up who is half of the ring away, a quarter, an eighth, ... as far as there is
        anybody between here and the neighbours."""
        table = self.base.table
        after = table.after()
        if len(after) < self.base.settings.leaves:
            return
        self._link += 1
        key = (table.place + (SPACE >> (self._link % ID_BITS))) % SPACE
        if not table.nearer(key, 1) or self._link % ID_BITS == 0:
            self._link = 0  # nearer than the next neighbour: begin again far away
            return
        OwnerLookup(self.base, key, lambda owners: self._meet(owners[:1])).start()

    def _meet(self, owners: Owners) -> None:
        for owner in owners:
            if self.base.table.wants(owner.agent):
                self._greet(owner.agent)

    def _greet(self, agent: AgentId, silent: Failed = lambda by: None) -> None:
        """Unless it has yet to answer the last time; it must hear of a departure, though."""
        base = self.base
        if agent in self._greeting and not base.leaving:
            return

        def unheard(by: AgentId) -> None:
            self._greeting.discard(by)
            silent(by)

        self._greeting.add(agent)
        base.ask(agent, lambda number: Greet(number, base.life), self._greeted, unheard)

    def _greeted(self, by: AgentId, answer: Message) -> None:
        """Greet those nearby that we did not know."""
        self._greeting.discard(by)
        if not isinstance(answer, Greeted):
            return
        if answer.awake_s > 0:
            self.wake(answer.awake_s)
        table = self.base.table
        named = [contact.agent for contact in (*answer.after, *answer.before)]
        news = [
            agent
            for agent in dict.fromkeys(named)
            if agent not in table and self._may_be_contact(agent) and table.is_near(agent)
        ]
        if not self.asleep:
            for agent in [agent for agent in news if agent not in table.lost][:NEWS_MAX]:
                self._greet(agent)
        if self._on_joined is not None:
            self._joined()

    # What is said to it.

    def _may_be_contact(self, agent: AgentId) -> bool:
        return agent != self.me and not is_guest(agent) and part_of(agent) == part_of(self.me)

    def receive(self, sender: AgentId, message: Message) -> None:
        """As every agent; whoever speaks is there, and one that has stopped hears nothing."""
        if self.base.stopped:
            return
        if isinstance(message, RingMessage) and self._may_be_contact(sender):
            was_lost = sender in self.base.table.lost
            news = self.base.table.heard(sender, message.life)
            if was_lost and news and not self.asleep:
                self._seek([sender])  # we may have been on an island
            if news and self.base.table.is_near(sender):
                self.publishing.hand_over(sender)
        if isinstance(message, RingAnswer):
            self.base.answer(message.number, sender, message)
        else:
            super().receive(sender, message)

    @handles(Greet)
    def _on_greet(self, sender: AgentId, asked: Greet) -> None:
        table = self.base.table
        awake_s = self.awake_s if self.base.settings.awake_s else 0.0
        said = Greeted(
            asked.number, self.base.life, tuple(table.after()), tuple(table.before()), awake_s
        )
        self.world.send(sender, said)

    @handles(Ask)
    def _on_ask(self, sender: AgentId, asked: Ask) -> None:
        said = answer_here(self.base, int.from_bytes(asked.key))
        self.world.send(sender, Told(asked.number, self.base.life, *said))

    @handles(Where)
    def _on_where(self, sender: AgentId, asked: Where) -> None:
        self.world.send(sender, self.captures.registers.there(asked.number, asked.key))

    @handles(Prepare)
    def _on_prepare(self, sender: AgentId, asked: Prepare) -> None:
        now = self.world.elapsed()
        self.world.send(sender, self.captures.registers.prepare(asked, now))

    @handles(Accept)
    def _on_accept(self, sender: AgentId, asked: Accept) -> None:
        now = self._used_at = self.world.elapsed()
        self.world.send(sender, self.captures.registers.accept(asked, sender, now))
        value = self.captures.free(asked.key, now)
        if value is not None:
            self.on_molecule(asked.key, value)

    @handles(Publish)
    def _on_publish(self, sender: AgentId, said: Publish) -> None:
        settings, now = self.base.settings, self.world.elapsed()
        for entry in said.entries:
            self.metas.keep(entry, now, settings.metas_max, settings.meta_ttl_s)

    @handles(WithdrawMeta)
    def _on_withdraw(self, sender: AgentId, said: WithdrawMeta) -> None:
        self.metas.withdraw(said.feature, sender, said.sequence)

    @handles(Scan)
    def _on_scan(self, sender: AgentId, asked: Scan) -> None:
        self.world.send(sender, scan(self.base, self.metas, asked))

    @handles(Unreachable)
    def _on_unreachable(self, sender: AgentId, hint: Unreachable) -> None:
        agent = at(hint.node, part_of(self.me))
        self.base.requests.unreachable(hint.node)
        if agent in self.base.table:
            self._greet(agent)
