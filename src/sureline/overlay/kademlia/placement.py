"""Putting records on the nodes nearest to their key: as many as wanted, the next ones if those
refuse, are gone or are silent."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sureline.overlay.kademlia.base import KademliaBase
from sureline.overlay.kademlia.messages import Store, Stored, ValueRecord
from sureline.world.protocol import AgentId, Message


class Placement:
    """`on_done` hears, once and later, how many nodes keep all of the records."""

    __slots__ = (
        "_base",
        "_candidates",
        "_kept",
        "_late",
        "_on_done",
        "_open",
        "_records",
        "_wanted",
    )

    def __init__(
        self,
        base: KademliaBase,
        records: tuple[ValueRecord, ...],
        candidates: Sequence[AgentId],
        wanted: int,
        on_done: Callable[[int], None],
    ) -> None:
        self._base = base
        self._records = records
        self._candidates = list(reversed(candidates))
        self._wanted = wanted
        self._on_done: Callable[[int], None] | None = on_done
        self._open: dict[int, AgentId] = {}
        self._late = 0
        self._kept = 0

    def begin(self) -> None:
        if self._candidates and self._wanted:
            self._go_on()
        else:
            self._base.world.after(0.0, self._end)

    def _go_on(self) -> None:
        """Keep as many stores under way as replicas are missing; slow ones do not count."""
        if self._kept >= self._wanted:
            self._end()
            return
        while self._candidates and self._kept + len(self._open) - self._late < self._wanted:
            contact = self._candidates.pop()
            if contact == self._base.me:
                self._keep_here()
                continue
            number = self._base.requests.open(contact, self)
            self._open[number] = contact
            self._base.world.send(contact, Store(number, self._records))
        if not self._open:
            self._end()

    def _keep_here(self) -> None:
        now = self._base.world.elapsed()
        kept = [self._base.storage.keep(record, now) for record in self._records]
        self._kept += all(kept)

    def _end(self) -> None:
        for number in self._open:
            self._base.requests.close(number)
        self._open.clear()
        if self._on_done is not None:
            on_done, self._on_done = self._on_done, None
            on_done(self._kept)

    def answered(self, number: int, by: AgentId, answer: Message) -> None:
        del self._open[number]
        self._late = min(self._late, len(self._open))
        if isinstance(answer, Stored) and answer.kept == len(self._records):
            self._kept += 1
        self._go_on()

    def slow(self, number: int, by: AgentId) -> None:
        self._late += 1
        self._go_on()

    def failed(self, number: int, by: AgentId) -> None:
        del self._open[number]
        self._late = min(self._late, len(self._open))
        self._base.table.silent(by)
        self._go_on()
