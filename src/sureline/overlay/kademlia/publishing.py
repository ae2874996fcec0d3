"""Keeping values alive: publishers renew theirs, holders see to replicas, newcomers get theirs.

Three things make replicas disappear: nodes that die, nodes that leave, and newcomers that come to
lie between a key and its holders. Against the first, a publisher stores its values again at an
interval, and a holder does so for keys that nobody has stored for a while (with the time they
have left, so that what its publisher no longer renews does expire). Against the second, a node
that leaves hands over what it holds. Against the third, a newcomer asks its neighbours for what
it should hold.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from functools import partial
from itertools import islice

from sureline.overlay.kademlia.base import KademliaBase
from sureline.overlay.kademlia.ids import id_of, is_guest
from sureline.overlay.kademlia.messages import RECORDS_MAX, Forget, Store, ValueRecord
from sureline.overlay.kademlia.placement import Placement
from sureline.overlay.kademlia.search import Search, Searches
from sureline.world.address import peer_of
from sureline.world.protocol import AgentId

KEYS_PER_STEP = 256
"""Keys looked through in one go for a newcomer; the rest in the next step."""
RECORDS_PER_STORE = 32
assert RECORDS_PER_STORE <= RECORDS_MAX
OnPlaced = Callable[[int], None]
"""Hears on how many nodes something is kept."""


def identifier(key: bytes) -> int:
    return int.from_bytes(key)


class Publishing:
    __slots__ = ("_base", "_published", "_searches", "_under_way", "_waiting")

    def __init__(self, base: KademliaBase, searches: Searches) -> None:
        self._base = base
        self._searches = searches
        self._published: dict[tuple[bytes, bytes], float] = {}
        """When each value of ours was last stored; the least recently stored first."""
        self._waiting: deque[tuple[tuple[ValueRecord, ...], OnPlaced]] = deque()
        """To be placed; as many as there are values here and of ours, at most."""
        self._under_way = 0

    # What this node publishes.

    def store(self, key: bytes, value: bytes, on_done: OnPlaced) -> None:
        settings = self._base.settings
        if len(value) > settings.value_bytes_max:
            raise ValueError(
                f"a value has at most {settings.value_bytes_max} bytes, not {len(value)}"
            )
        self._published.pop((key, value), None)
        self._published[key, value] = self._base.world.elapsed()
        if len(self._published) > settings.published_max:
            del self._published[next(iter(self._published))]
        publisher = peer_of(self._base.me)
        self._place((ValueRecord(key, value, publisher, settings.value_ttl_s),), on_done)

    def forget(self, key: bytes, value: bytes) -> None:
        base = self._base
        self._published.pop((key, value), None)
        base.storage.forget(key, value, peer_of(base.me))

        def tell(search: Search) -> None:
            for contact in search.lookup.nearest(self.width):
                base.world.send(contact, Forget(key, value))

        self._searches.start(identifier(key), tell, width=self.width)

    @property
    def width(self) -> int:
        """How many must answer a search for the nearest few before we believe it."""
        return self._base.settings.replicas + self._base.settings.alpha

    def _place(self, records: tuple[ValueRecord, ...], on_done: OnPlaced) -> None:
        """Store records of one key on the nodes nearest to it, this one among them."""
        base = self._base
        if base.everybody is not None:
            self._waiting.append((records, on_done))
            base.world.after(0.0, self._next)
            return

        def found(search: Search) -> None:
            self._put(records, search.lookup.nearest(base.settings.k), on_done)

        self._searches.start(identifier(records[0].key), found, width=self.width)

    def _next(self) -> None:
        """Without a search; a few at a time, since every one may cost some connections."""
        base = self._base
        while self._waiting and self._under_way < base.settings.searches_max:
            records, on_done = self._waiting.popleft()
            self._under_way += 1
            nearest = base.candidates(identifier(records[0].key), base.settings.k)
            self._put(records, nearest, partial(self._placed, on_done))

    def _placed(self, on_done: OnPlaced, kept: int) -> None:
        self._under_way -= 1
        self._base.world.after(0.0, self._next)
        on_done(kept)

    def _put(
        self, records: tuple[ValueRecord, ...], candidates: list[AgentId], on_done: OnPlaced
    ) -> None:
        base, target = self._base, identifier(records[0].key)
        if not is_guest(base.me):
            candidates = sorted([*candidates, base.me], key=lambda c: id_of(c) ^ target)
        Placement(base, records, candidates, base.settings.replicas, on_done).begin()

    # Upkeep.

    @property
    def busy(self) -> bool:
        """Whether there is anything here to see to."""
        return bool(self._published) or len(self._base.storage) > 0

    def upkeep(self) -> None:
        """Renew and replicate what is due: so many at a time that all get their turn."""
        base, settings = self._base, self._base.settings
        now = base.world.elapsed()
        base.storage.expire(now)
        share = 1.5 * settings.upkeep_s
        count = math.ceil(len(self._published) * share / settings.republish_s)
        due = [
            entry
            for entry in islice(self._published, count)
            if self._published[entry] <= now - settings.republish_s + share
        ]
        for key, value in due:
            self.store(key, value, _ignore)
        count = math.ceil(len(base.storage) * share / settings.replicate_s)
        for key in list(islice(base.storage.unattended(now - settings.replicate_s), count)):
            base.storage.attend(key, now)
            records = base.storage.records(key, now)
            if records:
                self._place(records[:RECORDS_MAX], _ignore)

    # Newcomers and leavers.

    def give(self, newcomer: AgentId) -> None:
        """Send a newcomer those of our records that it should hold, by what we know."""
        self._give(newcomer, list(self._base.storage))

    def _give(self, newcomer: AgentId, keys: list[bytes]) -> None:
        base = self._base
        now = base.world.elapsed()
        parcel: list[ValueRecord] = []
        for key in keys[:KEYS_PER_STEP]:
            if newcomer in base.closest(identifier(key), base.settings.replicas):
                parcel += base.storage.records(key, now)
        for start in range(0, len(parcel), RECORDS_PER_STORE):
            records = tuple(parcel[start : start + RECORDS_PER_STORE])
            base.world.send(newcomer, Store(0, records))
        rest = keys[KEYS_PER_STEP:]
        if rest:
            base.world.after(0.0, lambda: self._give(newcomer, rest))

    def hand_over(self, on_done: Callable[[], None]) -> None:
        """Give all we hold to those who are nearest when we are gone."""
        base = self._base
        now = base.world.elapsed()
        parcels: dict[AgentId, list[ValueRecord]] = {}
        for key in base.storage:
            records = base.storage.records(key, now)
            for heir in base.closest(identifier(key), base.settings.replicas):
                parcels.setdefault(heir, []).extend(records)
        stores = [
            (heir, tuple(parcel[start : start + RECORDS_PER_STORE]))
            for heir, parcel in parcels.items()
            for start in range(0, len(parcel), RECORDS_PER_STORE)
        ]
        left = len(stores)

        def placed(_: int) -> None:
            nonlocal left
            left -= 1
            if left == 0:
                on_done()

        for heir, records in stores:
            Placement(base, records, [heir], 1, placed).begin()
        if not stores:
            base.world.after(0.0, on_done)

    def __len__(self) -> int:
        return len(self._published)


def _ignore(_: int) -> None:
    """Nobody waits for a renewal."""
