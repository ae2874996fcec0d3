"""Searches of one node: each drives a `Lookup` with real questions; some wait for others."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from sureline.overlay.kademlia.base import KademliaBase
from sureline.overlay.kademlia.ids import ID_BYTES
from sureline.overlay.kademlia.lookup import Lookup
from sureline.overlay.kademlia.messages import Find, Found, ValueRecord
from sureline.world.protocol import AgentId, Message

OnEnd = Callable[["Search"], None]


class Search:
    """One search; when it is over, `records` or the nodes that answered say what it found."""

    __slots__ = ("_base", "_on_end", "_open", "_question", "holder", "lookup", "over", "records")

    def __init__(self, base: KademliaBase, lookup: Lookup, question: Find, on_end: OnEnd) -> None:
        self.lookup = lookup
        self.records: tuple[ValueRecord, ...] = ()
        self.holder: AgentId | None = None
        """Who had the records."""
        self.over = False
        self._base = base
        self._question = question
        """As it is asked, its number apart."""
        self._on_end = on_end
        self._open: dict[int, AgentId] = {}

    def begin(self, seeds: Sequence[AgentId]) -> None:
        """Ask the first questions. Never ends at once, so that nobody is called back early."""
        base = self._base
        base.table.searched(self.lookup.target, base.world.elapsed())
        self.lookup.offer(base.candidates(self.lookup.target, 2 * base.settings.k))
        self.lookup.offer(seeds)
        if self.lookup.over:
            base.world.after(0.0, self.end)
        else:
            self._go_on()

    def _go_on(self) -> None:
        base = self._base
        _, key, values, claim = msgspec.structs.astuple(self._question)
        for contact in self.lookup.take():
            number = base.requests.open(contact, self)
            self._open[number] = contact
            base.world.send(contact, Find(number, key, values, claim))
        if self.lookup.over:
            self.end()

    def end(self) -> None:
        """Stop asking. What was not answered by now no longer matters."""
        if not self.over:
            self.over = True
            for number in self._open:
                self._base.requests.close(number)
            self._on_end(self)

    def answered(self, number: int, by: AgentId, answer: Message) -> None:
        self._open.pop(number, None)
        if self.over or not isinstance(answer, Found):
            return
        self.records = tuple(r for r in answer.records if r.key == self._question.key)
        if self.records:
            self.holder = by
            self.lookup.answered(by)
            self.end()
            return
        usable = self._base.usable(c for c in answer.contacts if c not in self.lookup)
        now = self._base.world.elapsed()
        for contact in usable:
            self._base.table.heard_of(contact, now)
        self.lookup.answered(by, usable)
        self._go_on()

    def slow(self, number: int, by: AgentId) -> None:
        self.lookup.slow(by)
        self._go_on()

    def failed(self, number: int, by: AgentId) -> None:
        self._open.pop(number, None)
        self._base.table.silent(by)
        if not self.over:
            self.lookup.failed(by)
            self._go_on()


class Searches:
    """Starts searches, a few at a time, in the order in which they were asked for. Those that
    find the queue full end at once, having found nothing."""

    __slots__ = ("_base", "_running", "_waiting", "hops", "questions", "started")

    def __init__(self, base: KademliaBase) -> None:
        self._base = base
        self._running: dict[Search, None] = {}
        self._waiting: deque[tuple[Search, Sequence[AgentId]]] | None = None
        self.started = 0
        self.questions = 0
        """Asked by the searches that are over, all together; and their hops."""
        self.hops = 0

    def start(
        self,
        target: int,
        on_end: OnEnd,
        *,
        width: int,
        values: bool = False,
        claim: bool = False,
        questions_max: int | None = None,
        seeds: Sequence[AgentId] = (),
    ) -> None:
        """Search; `on_end` runs once, later."""

        def ended(search: Search) -> None:
            self.questions += search.lookup.questions
            self.hops += search.lookup.hops
            self._running.pop(search, None)
            on_end(search)
            self._next()

        settings = self._base.settings
        questions_max = questions_max or settings.questions_max
        lookup = Lookup(target, width, settings.alpha, questions_max)
        question = Find(0, target.to_bytes(ID_BYTES), values, claim)
        search = Search(self._base, lookup, question, ended)
        self.started += 1
        if len(self._running) < self._base.settings.searches_max:
            self._begin(search, seeds)
            return
        if self._waiting is None:
            self._waiting = deque()  # most nodes never need one
        if len(self._waiting) < self._base.settings.waiting_max:
            self._waiting.append((search, seeds))
        else:
            self._base.world.after(0.0, search.end)

    def _begin(self, search: Search, seeds: Sequence[AgentId]) -> None:
        self._running[search] = None
        search.begin(seeds)

    def _next(self) -> None:
        while self._waiting and len(self._running) < self._base.settings.searches_max:
            self._begin(*self._waiting.popleft())

    def stop(self) -> None:
        """Forget all searches; none of them calls back any more."""
        for search in self._running:
            search.over = True
        self._running.clear()
        self._waiting = None

    @property
    def running(self) -> tuple[Search, ...]:
        return tuple(self._running)

    def __len__(self) -> int:
        return len(self._running) + len(self._waiting or ())
