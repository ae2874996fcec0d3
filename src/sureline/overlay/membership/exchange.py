"""Whole tables: fetched in pages when a node joins, compared with somebody's now and then.

Joining: the contact takes in the newcomer's record and gives its table, a page at a time. A
contact that keeps silent is left for the next one, round and round, until one has answered.

Comparing makes up for whatever rumours missed: A sends sums over the segments of its ring; B
answers with whom it has in some of the segments that differ; A with what it knows better; and B
with those who, as far as it knows, are gone. An observer does nothing else, only more often: it
reads, and is no part of anything.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice

from sureline.overlay.membership.knowledge import Knowledge
from sureline.overlay.membership.messages import (
    Amend,
    Compare,
    Differ,
    Fetch,
    Join,
    JoinPage,
    Load,
    MemberRecord,
)
from sureline.overlay.membership.settings import (
    LOADS_PER_MESSAGE,
    RECORDS_PER_PAGE,
    MembershipSettings,
)
from sureline.overlay.membership.table import SEGMENTS
from sureline.world.address import NO_AGENT, PeerName, at, name_of, node_of
from sureline.world.protocol import AgentId, Timer, World

PART = "membership"
JOIN_WAIT_S_MAX = 5.0


class Exchange:
    """`news` gives the version to mention; `on_joined` is called when the last page is there."""

    def __init__(
        self,
        world: World,
        settings: MembershipSettings,
        knowledge: Knowledge,
        news: Callable[[], int],
        on_joined: Callable[[], None],
    ) -> None:
        self.world = world
        self.settings = settings
        self.knowledge = knowledge
        self._news = news
        self._on_joined = on_joined
        self._contacts: list[AgentId] = []
        self._tries = 0
        self._asked_of = NO_AGENT
        self._asked: set[AgentId] = set()
        """All that were asked for a first page."""
        self._after = 0
        self._timer: Timer | None = None
        self._loads_from = 0

    @property
    def _observes(self) -> bool:
        """An observer has no evidence of its own: it believes whatever a member tells it, and
        tells nothing."""
        return self.knowledge.own is None

    # -- joining --------------------------------------------------------------------------------

    def join(self, contacts: Sequence[AgentId]) -> None:
        """Ask one contact after the other; without any, this node is the first of its grid."""
        own_node = self.knowledge.own.node if self.knowledge.own is not None else ""
        nodes = dict.fromkeys(node_of(contact) for contact in contacts)
        self._contacts = [at(node, PART) for node in nodes if node != own_node]
        if self._contacts:
            self._ask_next()
        else:
            self._on_joined()

    def absent_contacts(self) -> list[AgentId]:
        """Contacts that are no members as far as this node knows. Nodes that came up together and
        joined through each other may be a grid of their own without knowing it. One who is there
        under another address has moved."""
        records = self.knowledge.table.records
        return [
            contact
            for contact in self._contacts
            if (record := records.get(name_of(contact))) is None or not record.present
        ]

    def stop(self) -> None:
        self._contacts = []
        self._cancel()

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ask_next(self) -> None:
        self._asked_of = self._contacts[self._tries % len(self._contacts)]
        self._asked.add(self._asked_of)
        self._tries += 1
        self._ask_page(0)

    def _ask_page(self, after: int) -> None:
        self._after = after
        self.world.send(self._asked_of, Join(after, None if after else self.knowledge.own))
        rounds = self._tries // max(1, len(self._contacts))
        wait_s = min(JOIN_WAIT_S_MAX, 2 * self.settings.ack_s * (1 + rounds))
        self._cancel()
        self._timer = self.world.after(wait_s, self._ask_next)

    def asked_to_join(self, sender: AgentId, request: Join) -> None:
        table = self.knowledge.table
        name = name_of(sender)
        known = table.records.get(name)
        if request.record is not None and name_of(request.record.node) == name:
            self.knowledge.hear((request.record,), fresh=True)
        records, following = table.page(request.after, RECORDS_PER_PAGE)
        if request.record is not None and known is not None and not request.after:
            records = (*records, known)  # its own past, so that it can begin a later life
        answer = JoinPage(
            news=self._news(),
            loads=tuple(
                table.loads[name_of(record.node)]
                for record in records
                if name_of(record.node) in table.loads
            ),
            after=request.after,
            records=records,
            next=following,
        )
        self.world.send(sender, answer)

    def page_arrived(self, sender: AgentId, page: JoinPage) -> None:
        if self._timer is None:
            return
        if sender != self._asked_of or page.after != self._after:
            if page.after or self._after or sender not in self._asked:
                return
            self._asked_of = sender  # the first that answers will do, however late
        self._cancel()
        self.knowledge.hear(page.records, fresh=False)
        if page.next is not None and page.next > page.after:
            self._ask_page(page.next)
        else:
            self._tries = 0
            self._on_joined()

    # -- comparing ------------------------------------------------------------------------------

    def compare_with(self, agent: AgentId) -> None:
        loads = () if self._observes else self._stretch_of_loads()
        message = Compare(news=self._news(), loads=loads, sums=self.knowledge.table.sums())
        self.world.send(agent, message)

    def asked_to_compare(self, sender: AgentId, request: Compare) -> None:
        try:
            differing = self.knowledge.table.segments_that_differ(request.sums)
        except ValueError:
            return  # not from our code; whoever sent it gets no answer
        segments: list[int] = []
        records: list[MemberRecord] = []
        start = self.world.random.randrange(len(differing)) if differing else 0
        for number in differing[start:] + differing[:start]:
            if len(records) >= RECORDS_PER_PAGE:
                break
            segments.append(number)
            records.extend(self.knowledge.table.segment(number))
        answer = Differ(
            news=self._news(),
            loads=self._loads_for(name_of(sender)),
            segments=tuple(segments),
            records=tuple(records),
        )
        self.world.send(sender, answer)

    def told_of_difference(self, sender: AgentId, answer: Differ) -> bool:
        """Whether either knew better than the other."""
        table = self.knowledge.table
        theirs = {name_of(record.node): record for record in answer.records}
        mine = [
            record
            for number in dict.fromkeys(answer.segments)
            if 0 <= number < SEGMENTS
            for record in table.segment(number)
        ]
        better = [
            record
            for record in mine
            if (their := theirs.get(name_of(record.node))) is None or their.order < record.order
        ]
        better += self._gone_among(answer.records)
        differed = bool(better) or any(
            (known := table.records.get(name)) is None or known.order < record.order
            for name, record in theirs.items()
        )
        self.knowledge.hear(answer.records, fresh=self._observes)
        if better and self._observes:
            names = [name_of(record.node) for record in better[:RECORDS_PER_PAGE]]
            self.world.send(sender, Fetch(tuple(names)))
        elif better:
            self._amend(sender, better)
        return differed

    def amended(self, sender: AgentId, message: Amend) -> None:
        gone = self._gone_among(message.records)
        self.knowledge.hear(message.records, fresh=self._observes)
        if gone and not self._observes:
            self._amend(sender, gone)

    def asked_to_tell(self, sender: AgentId, request: Fetch) -> None:
        records = self.knowledge.table.records
        known = [records[name] for name in request.names[:RECORDS_PER_PAGE] if name in records]
        if known:
            self._amend(sender, known)

    def ask_about_lacking(self, sender: AgentId) -> None:
        """Somebody just mentioned members that this node does not know."""
        names = tuple(islice(self.knowledge.lacking, RECORDS_PER_PAGE))
        if names:
            self.knowledge.lacking.clear()
            self.world.send(sender, Fetch(names))

    def _amend(self, to: AgentId, records: Sequence[MemberRecord]) -> None:
        self.world.send(to, Amend(tuple(records[: 4 * RECORDS_PER_PAGE])))

    def _gone_among(self, records: Sequence[MemberRecord]) -> list[MemberRecord]:
        """Those of them who, as this node knows, are gone."""
        known = [self.knowledge.table.records.get(name_of(record.node)) for record in records]
        return [
            mine
            for mine, theirs in zip(known, records, strict=True)
            if mine is not None and not mine.present and theirs.order < mine.order
        ]

    def _loads_for(self, name: PeerName) -> tuple[Load, ...]:
        """For one who is no member, and hears of loads in no other way, the newest ones too."""
        table = self.knowledge.table
        if name in table.records:
            return self._stretch_of_loads()
        newest = [table.loads[name] for name in islice(reversed(table.loads), LOADS_PER_MESSAGE)]
        return (*reversed(newest), *self._stretch_of_loads())

    def _stretch_of_loads(self) -> tuple[Load, ...]:
        """What is known of loads on a stretch of the ring, a further one each time."""
        table = self.knowledge.table
        if self._loads_from >= len(table.ring):
            self._loads_from = 0
        stretch = table.loads_from(self._loads_from, LOADS_PER_MESSAGE // 2)
        self._loads_from += LOADS_PER_MESSAGE // 2
        return stretch
