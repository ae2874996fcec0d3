"""How far peers can be relied on, by what a run's writer has seen of them itself.

A peer is *refuted* by what it said and is not so: outputs that it does not have, a report that
makes no sense, tasks that it began and never ended while others did them. It is set aside: it gets
no work, and nothing that it says of attempts is heard, for a pause that doubles with every time.
What was refuted is remembered for the next run; there, a strike is forgiven with every day.

A peer that only *declines* (its disk is full, it cannot get a file) lies to nobody. After a few
refusals in a row it is left alone for pauses that grow likewise, and nothing is remembered.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from sureline.world.address import PeerName

PAUSE_S = 10.0
PAUSE_MAX_S = 3600.0
DOUBLINGS_MAX = 20
FORGIVEN_S = 86_400.0
"""After so long, one strike less is remembered."""
DECLINES_MAX = 3
OUTRUN_MAX = 2
"""How many others must have ended what a peer began and should have ended long before: one of them
alone could be the liar."""


class Strikes(msgspec.Struct, frozen=True):
    """What is remembered of a peer that was refuted."""

    count: int
    at: float
    """When it last was, in seconds since the epoch."""
    aside_s: float
    reason: str

    def left_s(self, now: float) -> float:
        """For how long it is still set aside."""
        return min(self.aside_s, max(0.0, self.at + self.aside_s - now))

    def forgiven(self, now: float) -> int:
        """How many strikes are left."""
        return max(0, self.count - int(max(0.0, now - self.at) // FORGIVEN_S))


class Aside(NamedTuple):
    """A peer gets no work for a while, and why; `strikes` only if it was refuted."""

    reason: str
    pause_s: float
    strikes: int = 0


class _Seen(msgspec.Struct):
    strikes: int = 0
    declined: int = 0
    """In a row."""
    pauses: int = 0
    """For declining, since it last delivered something."""
    outrun_by: set[PeerName] = set()
    aside_until: float = 0.0
    distrusted: bool = False
    """Whether it is set aside for what it said, or only left alone."""


class PeerStanding:
    """Times are `World.elapsed`, but for what is `remembered`, which is by the clock (`now`)."""

    def __init__(self, remembered: Mapping[PeerName, Strikes], now: float, elapsed: float) -> None:
        self._seen: dict[PeerName, _Seen] = {}
        self.known: dict[PeerName, Strikes] = {}
        """Those that are set aside from the outset."""
        for peer, strikes in remembered.items():
            seen = self._seen[peer] = _Seen(strikes.forgiven(now))
            if strikes.left_s(now):
                seen.aside_until, seen.distrusted = elapsed + strikes.left_s(now), True
                self.known[peer] = strikes

    def aside_s(self, peer: PeerName, elapsed: float) -> float:
        """For how long it gets no work; 0 if it may."""
        seen = self._seen.get(peer)
        return 0.0 if seen is None else max(0.0, seen.aside_until - elapsed)

    def is_heard(self, peer: PeerName, elapsed: float) -> bool:
        """Whether what it says counts."""
        seen = self._seen.get(peer)
        return seen is None or not seen.distrusted or elapsed >= seen.aside_until

    def refuted(self, peer: PeerName, reason: str, elapsed: float) -> Aside | None:
        """What it said is not so. None if it is set aside for that already."""
        if not self.is_heard(peer, elapsed):
            return None
        seen = self._of(peer)
        seen.strikes += 1
        seen.outrun_by, seen.declined = set(), 0
        pause_s = self._pause_s(seen, seen.strikes, elapsed, distrusted=True)
        return Aside(reason, pause_s, seen.strikes)

    def declined(self, peer: PeerName, reason: str, elapsed: float) -> Aside | None:
        """It would not have a task. None if it is not left alone for that yet, or already."""
        seen = self._of(peer)
        seen.declined += 1
        if elapsed < seen.aside_until or (seen.declined < DECLINES_MAX and not seen.pauses):
            return None
        seen.declined, seen.pauses = 0, seen.pauses + 1
        return Aside(reason, self._pause_s(seen, seen.pauses, elapsed, distrusted=False))

    def outrun(self, peer: PeerName, by: PeerName) -> bool:
        """Another ended what it should have ended long ago; whether that refutes it."""
        seen = self._of(peer)
        seen.outrun_by.add(by)
        return len(seen.outrun_by) >= OUTRUN_MAX

    def delivered(self, peer: PeerName) -> None:
        """Something that it made was needed, and is so."""
        seen = self._of(peer)
        seen.declined = seen.pauses = 0
        seen.outrun_by.clear()

    def _of(self, peer: PeerName) -> _Seen:
        return self._seen.setdefault(peer, _Seen())

    def _pause_s(self, seen: _Seen, times: int, elapsed: float, *, distrusted: bool) -> float:
        pause_s: float = min(PAUSE_MAX_S, PAUSE_S * 2 ** min(times - 1, DOUBLINGS_MAX))
        seen.aside_until, seen.distrusted = elapsed + pause_s, distrusted
        return pause_s
