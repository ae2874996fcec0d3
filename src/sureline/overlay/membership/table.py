"""Whom a node knows: one record per name, and the ring of those who are present.

The ring orders names by a hash, so that neighbours on it are seldom neighbours in a rack. It
serves three ends: everybody probes the next on it, pages of the table are stretches of it, and
two tables are compared by sums over its segments. Those who are gone are remembered beside it,
each node for itself; they are no part of what two nodes must agree on.
"""

from __future__ import annotations

import struct
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from functools import lru_cache
from hashlib import blake2b

from sureline.overlay.membership.messages import Load, MemberRecord
from sureline.overlay.membership.settings import GONE_MAX
from sureline.world.address import PeerName, name_of

SEGMENTS = 64
_SEGMENT_SHIFT = 64 - 6
_SUMS = struct.Struct(f"<{SEGMENTS}Q")


def _hash(text: str) -> int:
    return int.from_bytes(blake2b(text.encode(), digest_size=8).digest(), "big")


@lru_cache(maxsize=1 << 16)
def place_of(name: PeerName) -> int:
    """Where a name is on the ring: 64 bits, the same everywhere."""
    return _hash(name)


class MemberTable:
    """Records by name. Invariant: the ring holds exactly the names whose record is present, and
    `gone` the others, in the order in which they went."""

    def __init__(self) -> None:
        self.records: dict[PeerName, MemberRecord] = {}
        self.ring: list[tuple[int, PeerName]] = []
        self.gone: dict[PeerName, float] = {}
        self.loads: dict[PeerName, Load] = {}
        """In the order in which they were heard, the newest last."""
        self._sums = [0] * SEGMENTS

    def put(self, record: MemberRecord, now: float) -> None:
        """Take this as the truth about its member."""
        name = name_of(record.node)
        old = self.records.get(name)
        was_present = old is not None and old.present
        place = (place_of(name), name)
        if was_present and old is not None:
            self._sums[place[0] >> _SEGMENT_SHIFT] ^= _stamp(name, old)
        if record.present:
            self._sums[place[0] >> _SEGMENT_SHIFT] ^= _stamp(name, record)
        if record.present and not was_present:
            self.gone.pop(name, None)
            self.ring.insert(bisect_left(self.ring, place), place)
        elif was_present and not record.present:
            del self.ring[bisect_left(self.ring, place)]
            self.loads.pop(name, None)
        if not record.present and name not in self.gone:
            self.gone[name] = now
        self.records[name] = record
        if len(self.gone) > GONE_MAX:
            self.forget(next(iter(self.gone)))

    def forget(self, name: PeerName) -> None:
        """Somebody who is gone was never here."""
        del self.gone[name]
        del self.records[name]

    def put_load(self, load: Load) -> bool:
        """Whether this was news about somebody present."""
        record = self.records.get(load.name)
        if record is None or not record.present or record.life != load.life:
            return False
        old = self.loads.get(load.name)
        if old is not None and old.life == load.life and old.sequence >= load.sequence:
            return False
        self.loads.pop(load.name, None)
        self.loads[load.name] = load
        return True

    def after(self, name: PeerName) -> Iterator[PeerName]:
        """The names present, once around the ring, from the one after `name` to `name` itself."""
        start = bisect_right(self.ring, (place_of(name), name))
        for index in range(len(self.ring)):
            yield self.ring[(start + index) % len(self.ring)][1]

    def page(self, after: int, records_max: int) -> tuple[tuple[MemberRecord, ...], int | None]:
        """Some of the present beyond a place, and from where to go on; None after the last."""
        start = bisect_left(self.ring, (after, ""))
        stretch = self.ring[start : start + records_max]
        records = tuple(self.records[name] for _, name in stretch)
        more = start + records_max < len(self.ring)
        return records, self.ring[start + records_max][0] if more else None

    def loads_from(self, start: int, loads_max: int) -> tuple[Load, ...]:
        """What is known of the loads on a stretch of the ring."""
        stretch = self.ring[start : start + loads_max]
        return tuple(self.loads[name] for _, name in stretch if name in self.loads)

    def segment(self, number: int) -> tuple[MemberRecord, ...]:
        start = bisect_left(self.ring, (number << _SEGMENT_SHIFT, ""))
        end = bisect_left(self.ring, ((number + 1) << _SEGMENT_SHIFT, ""))
        return tuple(self.records[name] for _, name in self.ring[start:end])

    def sums(self) -> bytes:
        """Equal, but for a chance of 2**-64, for tables with the same members present in the same
        lives and incarnations."""
        return _SUMS.pack(*self._sums)

    def segments_that_differ(self, sums: bytes) -> list[int]:
        """Raises ValueError if these are no sums."""
        if len(sums) != _SUMS.size:
            raise ValueError(f"{len(sums)} bytes are no sums of a table")
        theirs = _SUMS.unpack(sums)
        return [number for number in range(SEGMENTS) if theirs[number] != self._sums[number]]


def _stamp(name: PeerName, record: MemberRecord) -> int:
    # Suspicion comes and goes: it is no difference worth an exchange.
    return _hash(f"{name} {record.life} {record.incarnation}")
