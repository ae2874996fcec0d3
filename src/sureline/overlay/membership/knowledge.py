"""What a node believes about the members, and what it says of itself.

All rules about whom to believe stand here:

- Of two statements about a member the later one counts (see `messages`); what is new is passed on.
- What is said about myself and is not so, I contradict with a higher incarnation.
- A death that somebody tells as fresh news is believed: it was declared on evidence. One that only
  turns up when tables are compared may be history (the network was cut and is whole again): the
  member is suspected, and has the chance to contradict.
- A suspicion that one has only heard of is looked into before anybody is declared dead.
- A node that starts again supersedes its former life. One that hears of a later life of its own
  name, elsewhere, has a *rival*. If that one answers (nobody else can under this name) this node
  is superseded and falls silent; if not, somebody made it up, and it is contradicted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import msgspec

from sureline.overlay.membership.damping import Damping
from sureline.overlay.membership.dissemination import (
    LOAD_SENDS_MAX,
    Spreader,
    sends_max,
    weight,
)
from sureline.overlay.membership.messages import Load, MemberRecord, Offer, State
from sureline.overlay.membership.settings import (
    LIFE_AHEAD_S,
    LOADS_PER_MESSAGE,
    NODE_CHARS_MAX,
    NUMBER_MAX,
    OFFER_BYTES_MAX,
    RECORDS_PER_PAGE,
    RUMOURS_MAX,
    MembershipSettings,
)
from sureline.overlay.membership.table import MemberTable
from sureline.world.address import Node, PeerName, name_of
from sureline.world.protocol import World

RELAYS_MAX = 4
CORES_MAX = 1e6
"""More than any machine has; a greater number is a mistake or a lie."""


class Member(msgspec.Struct, frozen=True, gc=False):
    """A member as others see it. A later life is another process: what ran in the one before is
    gone."""

    node: Node
    life: int
    incarnation: int
    state: State
    offer: Offer
    load: float = 0.0
    """Cores in use."""
    waiting: int = 0
    """Tasks that wait there."""
    relays: tuple[Node, ...] = ()
    """Through whom it is reached, if it cannot be dialled."""

    @property
    def name(self) -> PeerName:
        return name_of(self.node)


def size_bytes(item: MemberRecord | Load | Offer) -> int:
    """What it takes in a message."""
    return len(msgspec.msgpack.encode(item))


class Knowledge:
    """`on_urgent` is called when there is news that should not wait for the next probe, and told
    whether somebody is gone; `on_return` with the name of a member that was gone and is back,
    `on_new` with one never heard of; `on_doubted` when this node itself had to contradict."""

    def __init__(
        self, node: Node, world: World, offer: Offer | None, settings: MembershipSettings
    ) -> None:
        self.name = name_of(node)
        self.world = world
        self.settings = settings
        self.table = MemberTable()
        self.own: MemberRecord | None = None
        """What this node says of itself; None for an observer."""
        self.joined = False
        self.rival: MemberRecord | None = None
        """A later life of this node's name at another address, if somebody speaks of one."""
        self.lacking: dict[PeerName, None] = {}
        """Whom others mention and this node does not know."""
        self.hearsay: dict[PeerName, float] = {}
        """When to look into each suspicion (again); every suspect is here."""
        self.rumours: Spreader[MemberRecord] = Spreader(size_bytes, RUMOURS_MAX)
        self.loads: Spreader[Load] = Spreader(lambda load: 1, settings.members_max)
        self.on_urgent: Callable[[bool], None] = lambda gone: None
        self.on_return: Callable[[PeerName], None] = lambda name: None
        self.on_new: Callable[[PeerName], None] = lambda name: None
        self.on_doubted: Callable[[], None] = lambda: None
        self._damping = Damping(settings.members_max)
        self._held: dict[PeerName, Member] = {}
        """How those are shown who flap: dead, and as they were then, whatever becomes of them."""
        self._watchers: list[Callable[[Member], None]] = []
        self._load_watchers: list[Callable[[Member], None]] = []
        """Those who also hear how busy members are; on most nodes nobody does."""
        self._view: dict[PeerName, Member] | None = None
        self._stale: set[PeerName] = set()
        """Whose load has changed since it was put into the view."""
        if offer is not None:
            self.offer(node, offer)

    def offer(self, node: Node, offer: Offer) -> None:
        """What this node has to give, before it has joined."""
        if size_bytes(offer) > OFFER_BYTES_MAX:
            raise ValueError(f"an offer takes at most {OFFER_BYTES_MAX} bytes: use fewer tags")
        assert not self.joined, "an offer is fixed for one life"
        relays = self.own.relays if self.own is not None else ()
        self.own = MemberRecord(node, int(self.world.now() * 1000), 0, "alive", offer, relays)
        self.table.put(self.own, self.world.elapsed())

    # -- what others see ------------------------------------------------------------------------

    def members(self) -> dict[PeerName, Member]:
        if self._view is None:
            self._view = {name: self._member(name) for name in self.table.records}
        for name in self._stale & self._view.keys():
            self._view[name] = self._member(name)
        self._stale.clear()
        return dict(self._view)

    def watch(self, on_change: Callable[[Member], None], *, loads: bool) -> None:
        self._watchers.append(on_change)
        if loads:
            self._load_watchers.append(on_change)

    def others_present(self) -> int:
        return len(self.table.ring) - (self.own is not None and self.own.present)

    def is_present(self, name: PeerName) -> bool:
        record = self.table.records.get(name)
        return record is not None and record.present and name != self.name

    def _member(self, name: PeerName) -> Member:
        return self._held.get(name) or self._as_said(name, self.table.records[name])

    def _as_said(self, name: PeerName, record: MemberRecord) -> Member:
        load = self.table.loads.get(name)
        assert record.offer is not None, "a record is kept with its offer only"
        known = load is not None and load.life == record.life
        return Member(
            record.node,
            record.life,
            record.incarnation,
            record.state,
            record.offer,
            load.cores if load is not None and known else 0.0,
            load.waiting if load is not None and known else 0,
            record.relays,
        )

    def _changed(self, name: PeerName, seen_before: Member | None) -> None:
        """Tell the watchers, if anything they can see is different."""
        if self._view is None and not self._watchers:
            return
        member = self._member(name)
        if self._view is not None:
            self._view[name] = member
        if member != seen_before:
            for watcher in list(self._watchers):
                watcher(member)

    def _seen(self, name: PeerName) -> Member | None:
        if self._view is None and not self._watchers:
            return None
        return self._member(name) if name in self.table.records else None

    # -- what is said about others --------------------------------------------------------------

    def hear(self, records: Sequence[MemberRecord], *, fresh: bool) -> None:
        """Statements that somebody passed on; `fresh` unless they come from comparing tables."""
        for record in records:
            name = name_of(record.node)
            if name == self.name and self.own is not None:
                self._hear_of_myself(record)
                continue
            old = self.table.records.get(name)
            if old is not None and record.order <= old.order:  # nearly all that is heard
                if fresh and record.order == old.order:
                    self.rumours.heard(name)
            elif is_sane(record, self.world.now()):
                self._hear_of(name, old, record, fresh)

    def _hear_of(
        self, name: PeerName, old: MemberRecord | None, record: MemberRecord, fresh: bool
    ) -> None:
        offer = old.offer if old is not None and old.life == record.life else record.offer
        if offer is None:
            if record.present and len(self.lacking) < RECORDS_PER_PAGE:
                self.lacking[name] = None
            return
        if old is None and (
            not record.present or len(self.table.records) >= self.settings.members_max
        ):
            return
        if record.state == "dead" and not fresh and old is not None and old.present:
            record = record.but(state="suspect", offer=None)
            if record.order <= old.order:
                return
        whole = record if record.offer is offer else record.but(offer=offer)
        self._accept(name, old, whole, hurry=fresh)

    def _accept(
        self, name: PeerName, old: MemberRecord | None, record: MemberRecord, *, hurry: bool
    ) -> None:
        now = self.world.elapsed()
        seen_before = self._seen(name)
        new_life = old is None or old.life != record.life
        self.table.put(record, now)
        if self.joined:
            self._pass_on(name, old, record)
        self.lacking.pop(name, None)
        if record.state == "suspect":
            wait_s = self.settings.suspicion_s * (1.5 + self.world.random.random())
            self.hearsay[name] = now + wait_s
        else:
            self.hearsay.pop(name, None)
        # A suspicion is looked into by whoever has it, and a refutation goes to whoever asks:
        # neither is worth a message of its own, least of all when everything is slow.
        comes_or_goes = new_life or old is None or old.present != record.present
        hurry = hurry and comes_or_goes and not self._damping.is_flapping(name, now)
        if old is None:
            self.on_new(name)
        else:
            self._came_or_went(name, old, record, now)
        if not record.present:
            self.loads.drop(name)
        if record.state == "left":
            self._held.pop(name, None)
        self._changed(name, seen_before)
        if hurry:
            self.on_urgent(not record.present)

    def _pass_on(self, name: PeerName, old: MemberRecord | None, record: MemberRecord) -> None:
        """That somebody is gone must reach all soon; who has come is met anyway. A doubt is the
        matter of whoever has it: its probes tell the member, whose answer ends it. In a large grid
        that is slow everywhere, nothing but doubts and contradictions would be told."""
        counts = weight(len(self.table.ring)) if record.present else 1
        new_life = old is None or old.life != record.life
        doubted = not new_life and old is not None and old.present and old.relays == record.relays
        if counts == 1 or not doubted:
            told = record if new_life and record.present else record.brief()
            self.rumours.add(name, told, counts)

    def _came_or_went(
        self, name: PeerName, old: MemberRecord, record: MemberRecord, now: float
    ) -> None:
        if old.present and (record.state == "dead" or (record.present and old.life < record.life)):
            self._damping.died(name, now)
        if record.present and (not old.present or old.life < record.life):
            self._damping.returned(name, now)
            if self._damping.is_held(name, now) and name not in self._held:
                shown = self._as_said(name, old)
                self._held[name] = msgspec.structs.replace(shown, state="dead")
        if record.present and not old.present:
            self.on_return(name)

    def release_held(self) -> None:
        """Show those again who flapped and have now stayed for long enough."""
        now = self.world.elapsed()
        for name in list(self._held):
            if self.is_present(name) and not self._damping.is_held(name, now):
                seen_before = self._seen(name)
                del self._held[name]
                self._changed(name, seen_before)

    def declare(self, name: PeerName, life: int, incarnation: int, state: State) -> None:
        """This node has evidence of its own that a member is suspect or dead."""
        old = self.table.records.get(name)
        if old is None or (old.life, old.incarnation) != (life, incarnation):
            return
        record = old.but(state=state, offer=old.offer)
        if record.order > old.order:
            self._accept(name, old, record, hurry=True)

    def forget_old(self) -> None:
        """Forget who has been gone for long."""
        now = self.world.elapsed()
        while self.table.gone:
            name, since = next(iter(self.table.gone.items()))
            if now - since <= self.settings.forget_s:
                return
            self.table.forget(name)
            self.rumours.drop(name)
            self._held.pop(name, None)
            if self._view is not None:
                self._view.pop(name, None)

    # -- what is said about this node -----------------------------------------------------------

    def _hear_of_myself(self, record: MemberRecord) -> None:
        own = self.own
        assert own is not None
        if own.state == "left" or not is_sane(record, self.world.now()):
            return
        if record.life > own.life or (record.life == own.life and record.node != own.node):
            later = record.life > own.life or record.node > own.node
            if self.joined and record.node != own.node and record.present and later:
                self.rival = record
            else:
                self._begin_after(record)
        elif record.life == own.life and record.order > own.order:
            incarnation = record.incarnation + 1
            contradicted = own.but(incarnation=incarnation, offer=own.offer)
            many = weight(len(self.table.ring)) > 1
            self._say(contradicted, new_life=False, tell=not (many and record.state == "suspect"))
            self.on_doubted()

    def reached_through(self, relays: tuple[Node, ...]) -> None:
        """Tell the others how this node is reached."""
        own = self.own
        if own is None or own.relays == relays or own.state == "left":
            return
        said = own.but(incarnation=own.incarnation + 1, offer=own.offer, relays=relays)
        self._say(said, new_life=False)
        self.on_urgent(False)

    def contradict_rival(self) -> None:
        """There is nobody at that address who answers to this node's name."""
        rival, self.rival = self.rival, None
        if rival is not None and self.own is not None and self.own.present:
            self._begin_after(rival)

    def _begin_after(self, record: MemberRecord) -> None:
        """A life after that one."""
        own = self.own
        assert own is not None
        life = max(own.life, record.life) + 1
        self._say(MemberRecord(own.node, life, 0, "alive", own.offer, own.relays), new_life=True)

    def _say(self, record: MemberRecord, *, new_life: bool, tell: bool = True) -> None:
        seen_before = self._seen(self.name)
        self.own = record
        self.table.put(record, self.world.elapsed())
        load = self.table.loads.get(self.name)
        if new_life and load is not None:
            self.report(load.cores, load.waiting)
        if tell:
            self.rumours.add(self.name, record if new_life else record.brief())
        self._changed(self.name, seen_before)
        if new_life or not record.present:
            self.on_urgent(not record.present)

    def introduce(self) -> None:
        """Tell the others that this node is there."""
        if self.own is not None:
            self.rumours.add(self.name, self.own)
            self.on_urgent(False)

    def say_goodbye(self) -> None:
        if self.own is not None:
            self._say(self.own.but(state="left", offer=self.own.offer), new_life=False)

    # -- loads ----------------------------------------------------------------------------------

    def report(self, cores: float, waiting: int) -> None:
        """This node's own load."""
        own = self.own
        assert own is not None, "an observer has no load"
        old = self.table.loads.get(self.name)
        sequence = old.sequence + 1 if old is not None else 1
        self._take_load(Load(self.name, own.life, sequence, cores, waiting))

    def hear_loads(self, loads: Sequence[Load]) -> None:
        """What others pass on; of its own load a node needs no telling."""
        for load in loads[: 2 * LOADS_PER_MESSAGE]:
            if is_sane_load(load) and (load.name != self.name or self.own is None):
                self._take_load(load)

    def _take_load(self, load: Load) -> None:
        if not self.table.put_load(load):
            if load == self.table.loads.get(load.name):
                self.loads.heard(load.name)
            return
        self.loads.add(load.name, load)
        if self._view is not None:
            self._stale.add(load.name)
        if self._load_watchers and load.name not in self._held:
            member = self._member(load.name)
            for watcher in list(self._load_watchers):
                watcher(member)

    # -- what the next message carries ----------------------------------------------------------

    def take_rumours(self, bytes_max: int, fresh: int | None = None) -> tuple[MemberRecord, ...]:
        often = sends_max(len(self.table.ring))
        return tuple(self.rumours.take(bytes_max, often, fresh))

    def take_loads(self, most: int) -> tuple[Load, ...]:
        return tuple(self.loads.take(most, LOAD_SENDS_MAX))


def is_sane(record: MemberRecord, now: float) -> bool:
    """Whether a record can be kept and answered at all, whoever made it up."""
    return (
        0 <= record.life <= (now + LIFE_AHEAD_S) * 1000
        and 0 <= record.incarnation < NUMBER_MAX
        and 0 < len(record.node) <= NODE_CHARS_MAX
        and len(record.relays) <= RELAYS_MAX
        and all(0 < len(relay) <= NODE_CHARS_MAX for relay in record.relays)
        and (record.offer is None or is_sane_offer(record.offer))
    )


def is_sane_offer(offer: Offer) -> bool:
    """Whether somebody might have this: finite amounts, and a short text."""
    amounts = (offer.cores, offer.memory_bytes, offer.disk_bytes, offer.gpus)
    extras = [value for value in offer.extras.values() if not isinstance(value, str)]
    return (
        all(0 <= amount <= NUMBER_MAX for amount in (*amounts, offer.price))
        and all(math.isfinite(value) for value in extras)
        and offer.cores <= CORES_MAX
        and all(count is None or count >= 0 for count in offer.tags.values())
        and math.isfinite(offer.started_at)
        and size_bytes(offer) <= OFFER_BYTES_MAX
    )


def is_sane_load(load: Load) -> bool:
    return (
        0 <= load.sequence < NUMBER_MAX
        and 0 <= load.cores < math.inf
        and 0 <= load.waiting < NUMBER_MAX
    )
