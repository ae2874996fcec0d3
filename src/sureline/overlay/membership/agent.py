"""The membership agent: knows who is there, notices who has gone, tells the others.

It joins its parts: what is believed (`knowledge`), probing (`rota`, `suspicion`), whole tables
(`exchange`). At every beat it probes one member; everything else hangs on that beat, so that the
number of messages per node does not grow with the number of nodes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

import msgspec

from sureline.overlay.membership.exchange import PART, Exchange
from sureline.overlay.membership.knowledge import Knowledge, Member
from sureline.overlay.membership.messages import (
    Ack,
    Amend,
    Carrier,
    Compare,
    Differ,
    Fetch,
    Gossip,
    Join,
    JoinPage,
    Offer,
    Probe,
    ProbeFor,
    Vouch,
)
from sureline.overlay.membership.rota import Rota
from sureline.overlay.membership.settings import (
    REPORT_S,
    RUMOUR_BYTES_BURST,
    RUMOUR_BYTES_PROBE,
    MembershipSettings,
)
from sureline.overlay.membership.suspicion import Inquiries
from sureline.world.address import NO_NAME, Node, PeerName, at, name_of, node_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Message, Timer, Unreachable, World

OBSERVER_VISITS = 20
"""An observer stays with one member for so many readings."""
CALLERS_MAX = 8
GOODBYES = 8
RIVAL_ACKS = 4
"""How long one who claims to be this node may take to answer, in times of an ordinary answer."""
HURRIED = 6
"""So often a piece of news is sent on at once; the probes carry it further. When very many come one
after another, each message would else repeat what nearly all know by then."""
HANDLER_S = 50e-6
"""About what a message costs its receiver, decoding included."""


class Membership(Agent):
    """`offer` is what this node gives to the grid; None for an observer, which sees all members
    and is none."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        offer: Offer | None,
        settings: MembershipSettings | None = None,
    ) -> None:
        super().__init__(me, world)
        self.settings = settings or MembershipSettings()
        self.news = 0
        """The version of the revocation list that this node has; whoever has a newer one sets
        it."""
        self.on_news: Callable[[int, Node], None] = lambda version, node: None
        """Called with a version higher than `news`, and the node that has it, as often as one is
        heard of."""
        self.on_superseded: Callable[[], None] = lambda: None
        """Called when another node has come up under this node's name: this one has fallen
        silent."""
        self.knowledge = Knowledge(node_of(me), world, offer, self.settings)
        self.inquiries = Inquiries(world, self.settings, self.knowledge, lambda: self.news)
        self.exchange = Exchange(
            world, self.settings, self.knowledge, lambda: self.news, self._joined
        )
        self._rota = Rota(
            world.random,
            1 if offer is None else self.settings.partners,
            OBSERVER_VISITS if offer is None else self.settings.partner_visits,
            self.knowledge.is_present,
            lambda: [name for _, name in self.knowledge.table.ring],
        )
        self.knowledge.on_urgent = self._hurry
        self.knowledge.on_new = self._rota.welcome
        self.knowledge.on_return = self._back
        self.inquiries.on_silence = self._walk_on
        self.inquiries.near = self._near
        self._on_joined: Callable[[int], None] | None = None
        self._on_left: Callable[[], None] | None = None
        self._timers: dict[str, Timer] = {}
        self._stopped = False
        self._beats = 0
        self._burst_at = float("-inf")
        self._burst_due = 0.0
        self._sync_at = 0.0
        self._retry_at = 0.0
        self._reported_at = float("-inf")
        self._load = (0.0, 0)
        self._unanswered = NO_NAME
        """Whom this observer asked and has not heard from."""
        self._callers: deque[PeerName] = deque(maxlen=CALLERS_MAX)

    # -- what the rest of the node uses ---------------------------------------------------------

    def advertise(self, extras: Mapping[str, float | str]) -> None:
        """Before joining: what is to be said of this node besides its offer."""
        own = self.knowledge.own
        if own is not None and own.offer is not None:
            offer = msgspec.structs.replace(own.offer, extras={**own.offer.extras, **extras})
            self.knowledge.offer(own.node, offer)

    def join(self, contacts: Sequence[AgentId], on_done: Callable[[int], None]) -> None:
        """Join through any of the contacts (nodes, or agents there), trying them in turn until
        one answers or `stop` is called; then `on_done` hears how many others there are. Without
        contacts this is the first node of its grid."""
        self._on_joined = on_done
        self.exchange.join(contacts)

    def leave(self, on_done: Callable[[], None]) -> None:
        """Tell the others that this node goes, and stop. Done when some have confirmed it, or
        after a short while."""
        self._on_left = on_done
        if self.knowledge.own is None or not self.knowledge.joined or self._stopped:
            self._finish_leaving()
            return
        self.knowledge.say_goodbye()
        for name in self._near(GOODBYES):
            self.inquiries.send_probe_to(self.knowledge.table.records[name])
        self._after("goodbye", 4 * self.settings.ack_s, self._finish_leaving)

    def stop(self) -> None:
        """Fall silent without a word."""
        self._stopped = True
        self.exchange.stop()
        self.inquiries.stop()
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    def report(self, load: float, waiting: int) -> None:
        """What this node is doing: cores in use, tasks waiting. Told to the others if it has
        changed, the latest state only, about once a second at most. In a large grid, what lasts
        for a moment only (from one task to the next) is not told at all."""
        own = self.knowledge.own
        if own is None or self._stopped:
            return
        self._load = (load, waiting)
        if "report" not in self._timers:
            least_s = self.settings.report_s(len(self.knowledge.table.ring))
            wait_s = self._reported_at + least_s - self.world.elapsed()
            wait_s = max(wait_s, least_s - REPORT_S)
            if wait_s <= 0:
                self._report()
            else:
                self._after("report", wait_s, self._report)

    def reached_through(self, relays: Sequence[Node]) -> None:
        """Tell the others through whom this node is reached; nobody, if it can be dialled."""
        if not self._stopped:
            self.knowledge.reached_through(tuple(relays))

    def members(self) -> dict[PeerName, Member]:
        """Everybody this node knows, by name, itself included unless it is an observer; those who
        died or left too, for `forget_s`."""
        return self.knowledge.members()

    def watch(self, on_change: Callable[[Member], None], *, loads: bool = True) -> None:
        """From now on hear of every change, once it is believed; or, without `loads`, only of who
        comes and goes."""
        self.knowledge.watch(on_change, loads=loads)

    # -- the beat -------------------------------------------------------------------------------

    def _joined(self) -> None:
        if self.knowledge.joined:
            return  # found a contact again after having lost everybody
        self.knowledge.joined = True
        now = self.world.elapsed()
        # When many join at once, the first pages are soon out of date: compare early.
        self._sync_at = now + self.settings.probe_s * (1 + self.world.random.random())
        self._retry_at = now + self.settings.retry_gone_s * self.world.random.random()
        self.knowledge.introduce()
        first_s = self.settings.probe_s * self.world.random.random()
        self._after("beat", first_s, lambda: self._beat(now + first_s))
        if self._on_joined is not None:
            self._on_joined(self.knowledge.others_present())

    def _beat(self, due: float) -> None:
        now = self.world.elapsed()
        health = self.inquiries.health
        if health.is_late(due, now):
            health.worse()
            self.inquiries.begin_again()
            self._postpone_hearsay(now)
        health.beat()
        beat_s = self.settings.beat_s(len(self.knowledge.table.ring))
        self._after("beat", beat_s, lambda: self._beat(now + beat_s))
        self._beats += 1
        self.knowledge.release_held()
        self.knowledge.forget_old()
        if self.knowledge.own is None:
            self._read()
        else:
            self._probe()
            self._look_into_hearsay(now)
            self._sync(now)
        self._retry_gone(now)

    def _probe(self) -> None:
        if self._beats % 2:
            quiet = not (self.knowledge.rumours or self.knowledge.loads)
            if quiet and self._beats % (2 * self.settings.quiet_visits) != 1:
                return
            name = self._rota.next()
            if name is not None and not self.inquiries.is_open(name):
                self.inquiries.begin(name)
        else:
            self._walk_on(self.knowledge.name)

    def _walk_on(self, name: PeerName) -> None:
        """Probe the next on the ring whose silence is not yet under inquiry. So that a row of dead
        neighbours does not hide the one behind it, this is not put off to the next beat."""
        for following in self.knowledge.table.after(name):
            if following == self.knowledge.name:
                return
            if not self.inquiries.is_open(following):
                self.inquiries.begin(following, on_ring=True)
                return

    def _look_into_hearsay(self, now: float) -> None:
        """Until it dies or contradicts: an answer alone does not end a suspicion, and an inquiry
        may have to wait for others to end."""
        for name in [name for name, at_ in self.knowledge.hearsay.items() if at_ <= now]:
            self.knowledge.hearsay[name] = now + self.settings.suspicion_s
            self.inquiries.begin(name)

    def _postpone_hearsay(self, now: float) -> None:
        for name in self.knowledge.hearsay:
            self.knowledge.hearsay[name] = now + self.settings.suspicion_s

    def _sync(self, now: float) -> None:
        if self.knowledge.rumours:
            self._sync_within(differed=False)
        if now >= self._sync_at:
            self._sync_at = now + self.settings.sync_quiet_s
            for name in self._near(1):
                self.exchange.compare_with(self._agent_of(name))

    def _sync_within(self, *, differed: bool) -> None:
        within_s = self.settings.compare_s(len(self.knowledge.table.ring), differed=differed)
        self._sync_at = min(self._sync_at, self.world.elapsed() + within_s)

    def _retry_gone(self, now: float) -> None:
        """Knock on one door behind which somebody may be again."""
        if now < self._retry_at:
            return
        self._retry_at = now + self.settings.retry_gone_s
        records = self.knowledge.table.records
        dead = [name for name in self.knowledge.table.gone if records[name].state == "dead"]
        doors = [*map(self._agent_of, dead), *self.exchange.absent_contacts()]
        if doors:
            door = self.world.random.choice(doors)
            record = records.get(name_of(door))
            if record is None or record.node != node_of(door) or self.knowledge.own is None:
                self.exchange.compare_with(door)
            else:
                self.inquiries.send_probe_to(record)

    def _back(self, name: PeerName) -> None:
        """Somebody who was dead is back. If the network was cut, so are others: look at once, and
        compare tables."""
        now = self.world.elapsed()
        self._retry_at = min(self._retry_at, now)
        self._sync_at = min(self._sync_at, now + self.settings.probe_s)

    def _read(self) -> None:
        """An observer reads a member's table; one that did not answer is not asked again."""
        if self._unanswered:
            self._rota.dismiss(self._unanswered)
        name = self._rota.next()
        self._unanswered = name or NO_NAME
        if name is not None:
            self.exchange.compare_with(self._agent_of(name))

    # -- news that does not wait ----------------------------------------------------------------

    def _hurry(self, gone: bool) -> None:
        if self._stopped or not self.knowledge.joined or self.knowledge.own is None:
            return
        now, present = self.world.elapsed(), len(self.knowledge.table.ring)
        at_s = max(now, self._burst_at + self.settings.hurry_s(present, gone=gone))
        if "burst" not in self._timers or at_s < self._burst_due:
            self._burst_due = at_s
            self._after("burst", at_s - now, self._burst)

    def _burst(self) -> None:
        self._burst_at = self.world.elapsed()
        for name in self._near(self.settings.fanout):
            rumours = self.knowledge.take_rumours(RUMOUR_BYTES_BURST, HURRIED)
            if rumours:
                self.world.send(self._agent_of(name), Gossip(self.news, rumours))

    def _near(self, most: int) -> list[PeerName]:
        """Some of those with whom this node talks anyway."""
        following = next(self.knowledge.table.after(self.knowledge.name), self.knowledge.name)
        names = dict.fromkeys([*self._rota.partners(), following, *self._callers])
        there = [name for name in names if self.knowledge.is_present(name)]
        if len(there) < most:
            drawn = [self._anybody() for _ in range(most)]
            there = list(dict.fromkeys([*there, *(name for name in drawn if name is not None)]))
        return self.world.random.sample(there, min(most, len(there)))

    def _agent_of(self, name: PeerName) -> AgentId:
        return at(self.knowledge.table.records[name].node, PART)

    def _anybody(self) -> PeerName | None:
        ring = self.knowledge.table.ring
        for _ in range(8):
            if self.knowledge.others_present() == 0:
                return None
            name = self.world.random.choice(ring)[1]
            if name != self.knowledge.name:
                return name
        return None

    def _report(self) -> None:
        self._reported_at = self.world.elapsed()
        load, waiting = self._load
        old = self.knowledge.table.loads.get(self.knowledge.name)
        if old is None or (old.cores, old.waiting) != (load, waiting):
            self.knowledge.report(load, waiting)

    # -- messages -------------------------------------------------------------------------------

    def receive(self, sender: AgentId, message: Message) -> None:
        """As every agent; one that has stopped hears nothing."""
        if self._stopped:
            return
        self.world.busy(HANDLER_S)
        rival = self.knowledge.rival
        if rival is not None and node_of(sender) == rival.node:
            self.stop()
            self.on_superseded()
        else:
            super().receive(sender, message)

    def _hear(self, sender: AgentId, message: Carrier) -> None:
        self.knowledge.hear(message.rumours, fresh=True)
        self.knowledge.hear_loads(message.loads)
        if message.news > self.news:
            self.on_news(message.news, node_of(sender))
        if self.knowledge.lacking:
            self.exchange.ask_about_lacking(sender)
        self._look_at_rival()

    def _look_at_rival(self) -> None:
        """Somebody speaks of a later life of this node's name elsewhere: see who is there."""
        rival = self.knowledge.rival
        if rival is not None and "rival" not in self._timers:
            self.inquiries.send_probe_to(rival)
            self._after("rival", RIVAL_ACKS * self.settings.ack_s, self.knowledge.contradict_rival)

    @handles(Probe)
    def _on_probe(self, sender: AgentId, probe: Probe) -> None:
        # What to carry is chosen before the probe is read: no echo of what it brings.
        rumours = self.knowledge.take_rumours(RUMOUR_BYTES_PROBE)
        loads = self.inquiries.take_loads()
        caller = name_of(sender)
        self._hear(sender, probe)
        if self._stopped:
            return
        record = self.knowledge.table.records.get(caller)
        if probe.life and (record is None or record.life < probe.life):
            self.knowledge.lacking[caller] = None
            self.exchange.ask_about_lacking(sender)
        elif record is not None and (record.state != "alive" or record.life > probe.life > 0):
            rumours = (record.brief(), *rumours)  # let it contradict, or learn that it is replaced
        if record is not None and caller not in self._callers:
            self._callers.append(caller)
        self._answer(sender, probe, Ack(self.news, rumours, loads, number=probe.number))

    def _answer(self, sender: AgentId, probe: Probe, ack: Ack) -> None:
        own = self.knowledge.own
        if own is not None and own.state == "alive":
            about = own.but(
                state=probe.about_state, incarnation=probe.about_incarnation, offer=None
            )
            if probe.about_life == own.life:
                self.knowledge.hear((about,), fresh=True)
                own = self.knowledge.own or own
            said = (probe.about_life, probe.about_incarnation, probe.about_state)
            if said != (own.life, own.incarnation, own.state):
                known = probe.about_life == own.life
                ack = Ack(
                    ack.news,
                    ack.rumours,
                    ack.loads,
                    number=ack.number,
                    myself=own.brief() if known else own,
                )
            self.world.send(sender, ack)

    @handles(Ack)
    def _on_ack(self, sender: AgentId, ack: Ack) -> None:
        self._hear(sender, ack)
        if ack.myself is not None and name_of(ack.myself.node) == name_of(sender):
            self.knowledge.hear((ack.myself,), fresh=True)
        self.inquiries.answered(ack.number)
        if self._on_left is not None:
            self._finish_leaving()

    @handles(ProbeFor)
    def _on_probe_for(self, sender: AgentId, request: ProbeFor) -> None:
        self.inquiries.run_errand(sender, request)

    @handles(Vouch)
    def _on_vouch(self, sender: AgentId, vouch: Vouch) -> None:
        if vouch.record is not None:
            self.knowledge.hear((vouch.record,), fresh=True)
        self.inquiries.vouched(node_of(sender), vouch)

    @handles(Gossip)
    def _on_gossip(self, sender: AgentId, gossip: Gossip) -> None:
        self._hear(sender, gossip)

    @handles(Unreachable)
    def _on_unreachable(self, sender: AgentId, hint: Unreachable) -> None:
        if not self.knowledge.joined:
            return
        if self.knowledge.own is not None:
            self.inquiries.unreachable(hint.node)
        else:
            self._point_out(hint.node)

    def _point_out(self, node: Node) -> None:
        """An observer accuses nobody: it asks a member to look. If nobody listens there, that
        member notices for itself."""
        name, helper = name_of(node), self._anybody()
        if self.knowledge.is_present(name) and helper is not None and helper != name:
            record = self.knowledge.table.records[name]
            if record.node == node:
                self.world.send(self._agent_of(helper), ProbeFor(0, record.brief()))

    @handles(Join)
    def _on_join(self, sender: AgentId, request: Join) -> None:
        self.exchange.asked_to_join(sender, request)

    @handles(JoinPage)
    def _on_join_page(self, sender: AgentId, page: JoinPage) -> None:
        self.exchange.page_arrived(sender, page)
        self._hear(sender, page)

    @handles(Compare)
    def _on_compare(self, sender: AgentId, request: Compare) -> None:
        self._hear(sender, request)
        self.exchange.asked_to_compare(sender, request)

    @handles(Differ)
    def _on_differ(self, sender: AgentId, answer: Differ) -> None:
        self._unanswered = NO_NAME
        if self.exchange.told_of_difference(sender, answer):
            self._sync_within(differed=True)  # where one thing was missed there may be more
        self._hear(sender, answer)

    @handles(Amend)
    def _on_amend(self, sender: AgentId, message: Amend) -> None:
        self.exchange.amended(sender, message)

    @handles(Fetch)
    def _on_fetch(self, sender: AgentId, request: Fetch) -> None:
        self.exchange.asked_to_tell(sender, request)

    # -- timers and the end ---------------------------------------------------------------------

    def _after(self, what: str, seconds: float, action: Callable[[], None]) -> None:
        """At most one timer for each purpose."""

        def run() -> None:
            del self._timers[what]
            action()

        if what in self._timers:
            self._timers[what].cancel()
        self._timers[what] = self.world.after(seconds, run)

    def _finish_leaving(self) -> None:
        on_left, self._on_left = self._on_left, None
        self.stop()
        if on_left is not None:
            on_left()
