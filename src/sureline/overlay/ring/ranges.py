"""Range queries: the best of all resources that will do, best first.

The meta-molecules of the feature to rank by lie in the order of its values around the ring. So a
query goes to the owner of the first position and then from neighbour to neighbour, until the range
ends or enough is found: O(log n) hops to the first and one for each node on the way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import msgspec

from sureline.overlay.kademlia.ids import ID_BYTES
from sureline.overlay.ring.base import RingBase
from sureline.overlay.ring.lookup import OwnerLookup, Owners
from sureline.overlay.ring.messages import Meta, Scan, Scanned, ValueRange
from sureline.overlay.ring.metas import Metas
from sureline.overlay.ring.places import SPACE, Feature, place_of
from sureline.world.protocol import AgentId, Message


class Query(msgspec.Struct, frozen=True):
    """The best `most` by the feature `rank` (the lowest, or the highest), of those that have every
    feature wanted within its limits."""

    rank: str
    wants: Mapping[str, ValueRange] = {}
    highest: bool = False
    most: int = 1 << 30


class MetasFound(msgspec.Struct, frozen=True):
    metas: tuple[Meta, ...]
    """Best first."""
    whole: bool
    """False if some part of the range could not be asked."""
    questions: int
    """What it cost."""


class Ranging:
    """One query under way."""

    def __init__(
        self, base: RingBase, feature: Feature, query: Query, on_done: Callable[[MetasFound], None]
    ) -> None:
        self._base, self._feature, self._query, self._on_done = base, feature, query, on_done
        limits = query.wants.get(query.rank, ValueRange())
        self._first = feature.first(limits.low) if limits.low > -math.inf else 0
        self._last = feature.last(limits.high) if limits.high < math.inf else SPACE - 1
        self._best: dict[AgentId, Meta] = {}
        self._wants = {query.rank: limits, **query.wants}
        self._questions = 0
        self._whole = True

    def start(self) -> None:
        if self._first > self._last:
            self._base.after(0.0, self._end)
            return

        def found(owners: Owners) -> None:
            self._questions += lookup.questions
            self._visit([owner.agent for owner in owners], self._first, self._last)

        lookup = OwnerLookup(self._base, self._last if self._query.highest else self._first, found)
        lookup.start()

    def _visit(self, candidates: Sequence[AgentId], first: int, last: int) -> None:
        """Ask the next node about what is left of the range; if it is silent, the one behind it."""
        if not candidates or self._questions >= self._base.settings.nodes_max:
            self._whole = False
            self._end()
            return
        base, node = self._base, candidates[0]
        self._questions += 1

        def answered(by: AgentId, answer: Message) -> None:
            if isinstance(answer, Scanned):
                self._take(node, answer, first, last)
            else:
                self._visit(candidates[1:], first, last)

        ends = (first.to_bytes(ID_BYTES), last.to_bytes(ID_BYTES))
        asked = (self._query.rank, *ends, self._wants, self._query.highest)
        base.ask(
            node,
            lambda number: Scan(number, base.life, *asked),
            answered,
            lambda by: self._visit(candidates[1:], first, last),
        )

    def _take(self, node: AgentId, answer: Scanned, first: int, last: int) -> None:
        for entry in answer.entries:
            known = self._best.get(entry.meta.publisher)
            if known is None or known.sequence < entry.meta.sequence:
                self._best[entry.meta.publisher] = entry.meta
        if answer.more and answer.entries:
            end = int.from_bytes(answer.entries[-1].position)
            first, last = (first, end - 1) if self._query.highest else (end + 1, last)
            self._go_on([node], first, last)
            return
        following = [contact.agent for contact in answer.following]
        if self._query.highest:
            self._go_down(following, first, last)
        else:
            self._go_up(node, following, first, last)

    def _go_up(self, node: AgentId, following: list[AgentId], first: int, last: int) -> None:
        place = place_of(node)
        all_that_is_left = place < first or place >= last or not following
        self._go_on(following, last + 1 if all_that_is_left else place + 1, last)

    def _go_down(self, following: list[AgentId], first: int, last: int) -> None:
        before = [agent for agent in following if place_of(agent) < last]
        if not before or len(before) < len(following[:1]) or place_of(following[0]) >= last:
            last = first - 1
        else:
            last = place_of(before[0])
        self._go_on(before, first, last)

    def _go_on(self, following: list[AgentId], first: int, last: int) -> None:
        if first > last or self._is_enough(first, last):
            self._end()
        else:
            self._visit(following, first, last)

    def _is_enough(self, first: int, last: int) -> bool:
        """Whether nothing that is left could be better than what there is."""
        if len(self._best) < self._query.most:
            return False
        values = (meta.features[self._query.rank] for meta in self._best.values())
        if self._query.highest:
            sure = sum(self._feature.first(value) > last for value in values)
        else:
            sure = sum(self._feature.last(value) < first for value in values)
        return sure >= self._query.most

    def _end(self) -> None:
        rank, sign = self._query.rank, -1 if self._query.highest else 1
        ordered = sorted(
            self._best.values(), key=lambda meta: (sign * meta.features[rank], meta.publisher)
        )
        self._on_done(MetasFound(tuple(ordered[: self._query.most]), self._whole, self._questions))


def scan(base: RingBase, metas: Metas, asked: Scan) -> Scanned:
    """What this node has of a range: going up what is its own, going down also what it keeps for
    those before it, who may be dead."""
    first, last = int.from_bytes(asked.first), int.from_bytes(asked.last)
    if not asked.descending and first <= base.table.place < last:
        last = base.table.place
    found = [
        entry
        for entry in metas.between(asked.feature, first, last, base.world.elapsed())
        if all(
            name in entry.meta.features and entry.meta.features[name] in limits
            for name, limits in asked.wants.items()
        )
    ]
    if asked.descending:
        found.reverse()
    page = base.settings.page_max
    following = base.table.before() if asked.descending else base.table.after()
    more = len(found) > page
    return Scanned(asked.number, base.life, tuple(found[:page]), more, tuple(following))
