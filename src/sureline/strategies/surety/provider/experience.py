"""What a provider has learned about how long things take on its own machine.

Durations of the last executions of each client's kinds are kept on disk, a bounded number of both.
What is bid from them is as far apart as PERT reads it: early and late lie three standard deviations
out, so that whoever computes sigma = (late - early) / 6 gets the spread that was observed. The p10
and the p90 are what is known well; they are extended outwards, in logarithms, because durations are
skewed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist, median

import msgspec

from sureline.workflow.model import Takes
from sureline.world.protocol import World

KINDS_MAX = 500
SEEN_MAX = 50
ENOUGH = 3
"""Fewer observations than this do not show their own spread."""
SPREAD_OF_FEW = math.log(3) / 1.645
"""One or two observations: right within a factor of 3, nine times in ten."""
SPREAD_MIN = 0.02
SECONDS_MIN = 1e-3
FACTOR_MAX = 20.0
"""A duration is never said to be earlier or later than the usual one by more than this."""
GUESS = Takes(1.0, 10.0, 100.0)
_P90 = NormalDist().inv_cdf(0.9)
_SIGMAS = 3.0


class _Seen(msgspec.Struct):
    key: tuple[str, str]
    """(client, kind); with the kind PACE, what things took against what the client believed."""
    values: list[float] = []


PACE = ""


class Experience:
    """Kinds are names that clients make up: what was seen of one client's kind says nothing about
    another's of the same name, and nobody can spoil the bids that others get.

    `speed` is what the machine is known to do against one of speed 1; how well a client's beliefs
    have matched corrects it, for that client."""

    def __init__(self, world: World, speed: float = 1.0) -> None:
        self._world = world
        self._speed = speed
        self._seen: dict[tuple[str, str], tuple[int, _Seen]] = {}
        """By client and kind: its place on disk, and what was seen; the one used last at the
        end."""

    def load(self) -> None:
        """Read what earlier processes learned."""
        for place in range(KINDS_MAX):
            data = self._world.get(f"market.seen.{place}")
            if data is None:
                break
            seen = msgspec.msgpack.decode(data, type=_Seen)
            self._seen[seen.key] = (place, seen)

    def note(self, client: str, kind: str, took_s: float, believed: Takes | None = None) -> None:
        """One execution succeeded and took so long; the client had believed something else."""
        took_s = max(SECONDS_MIN, took_s)
        self._add((client, kind), took_s)
        if believed is not None and believed.likely_s > 0:
            ratio = took_s / max(SECONDS_MIN, believed.likely_s)
            self._add((client, PACE), min(FACTOR_MAX, max(1 / FACTOR_MAX, ratio)))

    def _add(self, key: tuple[str, str], value: float) -> None:
        if key in self._seen:
            place, seen = self._seen.pop(key)
        else:
            place, seen = self._place(), _Seen(key)
        self._seen[key] = (place, seen)
        seen.values = [*seen.values, value][-SEEN_MAX:]
        self._world.put(f"market.seen.{place}", msgspec.msgpack.encode(seen))

    def _place(self) -> int:
        """A free place; of more than KINDS_MAX kinds, the one used longest ago gives up its own."""
        if len(self._seen) < KINDS_MAX:
            return len(self._seen)
        place, _ = self._seen.pop(next(iter(self._seen)))
        return place

    def _values(self, client: str, kind: str) -> list[float]:
        known = self._seen.get((client, kind))
        return known[1].values if known is not None else []

    def knows(self, client: str, kind: str) -> bool:
        """Whether it has done it often enough to speak for itself."""
        return len(self._values(client, kind)) >= ENOUGH

    def expects(self, client: str, kind: str, believed: Takes | None) -> Takes:
        """How long one execution will take here: as it did, else as the client believes, at this
        machine's speed; a wide guess if nobody knows."""
        seconds = self._values(client, kind)
        if len(seconds) >= ENOUGH or (seconds and believed is None):
            return spread_of(seconds)
        return scaled(believed if believed is not None else GUESS, self.speed_for(client))

    def usually_s(self, client: str, kind: str) -> float:
        """What one execution usually takes here; cheaper than all that it is expected to."""
        seconds = self._values(client, kind)
        if not seconds:
            return self.expects(client, kind, None).likely_s
        return sorted(seconds)[len(seconds) // 2]

    def speed_for(self, client: str) -> float:
        """As given, moved towards what was observed: half of the way after three executions."""
        ratios = self._values(client, PACE)
        if not ratios:
            return self._speed
        weight = len(ratios) / (len(ratios) + ENOUGH)
        return math.exp((1 - weight) * math.log(self._speed) - weight * math.log(median(ratios)))


def scaled(takes: Takes, speed: float) -> Takes:
    """What takes so long on a machine of speed 1, on one of this speed."""
    factor = 1.0 / speed
    return Takes(takes.optimistic_s * factor, takes.likely_s * factor, takes.pessimistic_s * factor)


def spread_of(seconds: Sequence[float]) -> Takes:
    """Three points from durations that were observed; see the module."""
    logs = sorted(math.log(max(SECONDS_MIN, one)) for one in seconds)
    middle = median(logs)
    if len(logs) < ENOUGH:
        below = above = SPREAD_OF_FEW
    else:
        below = (middle - _quantile(logs, 0.1)) / _P90
        above = (_quantile(logs, 0.9) - middle) / _P90
    wider = 1.0 + 2.0 / len(logs)  # few observations show less than there is
    limit = math.log(FACTOR_MAX)
    early = middle - min(limit, _SIGMAS * wider * max(SPREAD_MIN, below))
    late = middle + min(limit, _SIGMAS * wider * max(SPREAD_MIN, above))
    return Takes(math.exp(early), math.exp(middle), math.exp(late))


def _quantile(ordered: Sequence[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
