"""Joining, and staying joined: what a node does about its own place in the network.

To join is to search for oneself: that finds the neighbours, and tells them. They also hand over
what the newcomer should hold. Then one question is asked about each bucket farther away: any node
there knows many others there, and whoever is met on later searches joins the bucket. Every
question may cost a connection, with keys exchanged, so there are no more than that. Some time
later a neighbour is asked again, for those who joined in the same moment.

From then on one timer keeps the table in order at a low and steady rate. Each time, one neighbour
is asked whom it knows near here, so that deaths and arrivals in the neighbourhood are noticed by
all (a broadcast depends on that); one lost contact is tried, so that a network that was split
grows together; and at most one bucket is searched that has not been for long.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sureline.overlay.kademlia.base import KademliaBase
from sureline.overlay.kademlia.ids import ID_BITS, ID_BYTES, id_of, is_guest
from sureline.overlay.kademlia.messages import Find, Found
from sureline.overlay.kademlia.publishing import Publishing
from sureline.overlay.kademlia.search import Search, Searches
from sureline.world.protocol import AgentId, Message, Timer

QUESTIONS_IF_EMPTY = 3
EMPTY_MORE_OFTEN = 10
"""A bucket with nobody in it is searched this many times as often as others."""
NEWS_MAX = 3
"""Unknown neighbours that one answer makes us ask."""


class TableUpkeep:
    __slots__ = (
        "_base",
        "_known",
        "_pause_s",
        "_publishing",
        "_searches",
        "_seeds",
        "_timer",
        "alone",
    )

    def __init__(self, base: KademliaBase, searches: Searches, publishing: Publishing) -> None:
        self._base = base
        self._searches = searches
        self._publishing = publishing
        self._seeds: tuple[AgentId, ...] = ()
        self._timer: Timer | None = None
        self._pause_s = base.settings.upkeep_s
        self._known: tuple[list[AgentId], set[AgentId]] = ([], set())
        """The neighbours, and who was lost, at the last look."""
        self.alone = True
        """Whether nobody has been found yet; the first answer then starts the joining anew."""

    # Joining.

    def join(self, seeds: Sequence[AgentId], on_done: Callable[[int], None]) -> None:
        self._seeds = tuple(seeds[: self._base.settings.k])
        if self._timer is None:
            self._set_timer(self._base.settings.settle_s)

        def ready() -> None:
            self._base.joined = True
            self.alone = not len(self._base.table)
            on_done(len(self._base.table))

        def settled(_: Search) -> None:
            self._keep_in_mind(self._seeds)
            if self._base.everybody is None:
                self._fill(ready)
            else:
                ready()

        self._search_self(settled, claim=not is_guest(self._base.me))

    def _keep_in_mind(self, seeds: Sequence[AgentId]) -> None:
        """Those that gave no answer may be where most others are: we could be on an island."""
        table = self._base.table
        for seed in seeds:
            if table.admissible(seed) and not table.is_contact(seed):
                table.remember(seed)

    def _search_self(self, on_end: Callable[[Search], None], *, claim: bool = False) -> None:
        """Whoever knows everybody asks only those who may have something for it."""
        base, settings = self._base, self._base.settings
        width = settings.k if base.everybody is None else settings.replicas
        self._searches.start(base.my_id, on_end, width=width, claim=claim, seeds=self._seeds)

    def _fill(self, on_done: Callable[[], None]) -> None:
        """Ask about every bucket beyond the nearest neighbour's: once if somebody is known there,
        else until somebody is, or all who were asked know of none."""
        orders = self._far_orders()
        left = len(orders)
        if not left:
            on_done()
            return

        def ended(_: Search) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                on_done()

        buckets = self._base.table.buckets()
        for order in orders:
            known = order in buckets and buckets[order].contacts
            self._search_bucket(order, ended, 1 if known else QUESTIONS_IF_EMPTY)

    def _far_orders(self) -> range:
        """The buckets beyond the nearest neighbour's, empty ones too."""
        buckets = self._base.table.buckets()
        nearest = min((order for order, b in buckets.items() if b.contacts), default=ID_BITS)
        return range(nearest + 1, ID_BITS + 1)

    def _search_bucket(
        self, order: int, on_end: Callable[[Search], None], questions_max: int
    ) -> None:
        base = self._base
        distance = 1 << (order - 1) | base.world.random.getrandbits(order - 1)
        target = base.my_id ^ distance
        self._searches.start(target, on_end, width=1, questions_max=questions_max)

    # Staying.

    def _set_timer(self, seconds: float) -> None:
        world = self._base.world
        self._timer = world.after(seconds * world.random.uniform(0.75, 1.25), self._fire)

    def _fire(self) -> None:
        base, settings = self._base, self._base.settings
        self._publishing.upkeep()
        neighbours = base.table.closest(base.my_id, settings.k)
        known = (neighbours, set(base.table.lost))
        busy = known != self._known or self._publishing.busy
        self._known = known
        self._pause_s = (
            settings.upkeep_s if busy else min(2 * self._pause_s, settings.upkeep_quiet_s)
        )
        self._set_timer(self._pause_s)
        if base.everybody is not None:
            return
        if neighbours:
            self._ask(base.world.random.choice(neighbours))
        lost = base.table.lost
        if lost:
            contact = lost.pop(0)
            base.table.remember(contact)
            self._ask(contact)
        if not neighbours:
            for seed in self._seeds[:NEWS_MAX]:
                self._ask(seed)
        self._refresh()

    def _refresh(self) -> None:
        base = self._base
        now, settings = base.world.elapsed(), base.settings
        buckets = base.table.buckets()
        due: list[tuple[float, int]] = []
        for order in self._far_orders():
            bucket = buckets.get(order)
            since_s = now - bucket.searched_at if bucket is not None else settings.refresh_s
            empty = bucket is None or not bucket.contacts
            if since_s >= settings.refresh_s / (EMPTY_MORE_OFTEN if empty else 1):
                due.append((since_s, order))
        if due:
            self._search_bucket(max(due)[1], _ignore, settings.alpha)

    def _ask(self, contact: AgentId) -> None:
        base = self._base
        number = base.requests.open(contact, self)
        base.world.send(contact, Find(number, base.my_id.to_bytes(ID_BYTES)))

    def answered(self, number: int, by: AgentId, answer: Message) -> None:
        """Greet neighbours that we did not know; if there are many, look around anew."""
        if not isinstance(answer, Found):
            return
        base = self._base
        if self.alone:
            self.alone = False
            self.join(self._seeds, _ignore)
            return
        neighbours = base.table.closest(base.my_id, base.settings.k)
        limit = 1 << ID_BITS
        if len(neighbours) == base.settings.k:
            limit = id_of(neighbours[-1]) ^ base.my_id
        news = [
            contact
            for contact in base.usable(answer.contacts)
            if id_of(contact) ^ base.my_id < limit and contact not in neighbours
        ]
        if len(news) > NEWS_MAX:
            self._search_self(_ignore)
        else:
            for contact in news:
                self._ask(contact)

    def slow(self, number: int, by: AgentId) -> None:
        """There is no hurry."""

    def failed(self, number: int, by: AgentId) -> None:
        self._base.table.silent(by)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _ignore(_: object) -> None:
    """What was found is in the table by now."""
