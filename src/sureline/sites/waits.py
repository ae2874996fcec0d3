"""How long jobs wait in a queue, and pilots take to come up then: what was seen, kept durably, and
what that says of the next one.

Waits depend on the partition, the time of day, what is asked for, and most of all on how much waits
there already. The most particular memory that has enough is used: like jobs at this time of day,
like jobs at any time, all of the partition. Of these the nearest count, those that found about as
much ahead of them, each stretched by how much more or less there is now: a queue is emptied at
about the same pace. Where nobody knows what was ahead, the newest count. Nothing is assumed of the
form of the distribution. How long a pilot takes from its job's first line until it serves depends
on the machines only.
"""

from __future__ import annotations

import math
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec

NEWEST = 200
"""What is older has been overtaken by others of its sort."""
NEAREST = 12
ENOUGH = 5
STRETCH_MAX = 3.0
HOURS_APART = 3
LINES_MAX = 20_000
SIZES = (1, 4, 16, 64, 256, 1024)
LIMITS_S = (900.0, 3600.0, 4 * 3600.0, 24 * 3600.0)
COMING_UP_S = 10.0
"""What is assumed of a pilot's start-up while none were seen."""
UPS_MAX = 12
"""As many numbers say enough of how pilots come up."""


class WaitSeen(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job that began: when it was submitted, what it was, and how long it had waited."""

    at: float
    site: str
    partition: str
    cores: int
    limit_s: float
    wait_s: float
    ahead: int | None = None
    """Cores that jobs were waiting for when it was submitted; None if nobody knows."""
    up_s: float | None = None
    """From its first line to a pilot that served; None if it never did, or nobody saw it."""


class WaitFor(NamedTuple):
    """What is to be submitted."""

    at: float
    site: str
    partition: str
    cores: int
    """Of all jobs of the submission."""
    limit_s: float
    ahead: int | None = None
    """Cores that jobs are waiting for now."""


class ExpectedWait(NamedTuple):
    """`waits_s` are equally likely; none if nothing is known. `from_` says what they are of."""

    waits_s: tuple[float, ...]
    from_: str

    @property
    def is_known(self) -> bool:
        return bool(self.waits_s)

    def quantile_s(self, share: float) -> float:
        """By when it has begun with this chance."""
        return quantile_of(self.waits_s, share)

    def then_up_s(self, coming_up: ComingUp) -> tuple[float, ...]:
        """Equally likely times until a pilot serves; with no wait, if nothing is known of it."""
        return tuple(w + up for w in self.waits_s or (0.0,) for up in coming_up.ups_s)


class ComingUp(NamedTuple):
    """`ups_s` are equally likely, and some are there always. `from_` says what they are of."""

    ups_s: tuple[float, ...]
    from_: str


def quantile_of(seen_s: Sequence[float], share: float) -> float:
    """Below which the next is with this chance, at k / (n + 1), which is right on average however
    few were seen; beyond the longest, that one."""
    ordered = sorted(seen_s)
    place = share * (len(ordered) + 1) - 1
    if place >= len(ordered) - 1:
        return ordered[-1]
    low = max(0, int(place))
    part = max(0.0, place - low)
    return ordered[low] + part * (ordered[low + 1] - ordered[low])


class WaitBook:
    """A file of lines, one for each job that began; appended to by whoever sees it begin."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def add(self, seen: WaitSeen) -> None:
        """Durable when this returns. Lines of several processes do not mix."""
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, msgspec.json.encode(seen) + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def seen(self) -> list[WaitSeen]:
        """What is known, oldest first; a line that a crash has cut is passed over."""
        try:
            lines = self._path.read_bytes().splitlines()[-LINES_MAX:]
        except FileNotFoundError:
            return []
        found = []
        for line in lines:
            try:
                found.append(msgspec.json.decode(line, type=WaitSeen))
            except msgspec.MsgspecError:
                continue
        return found

    def expected(self, asked: WaitFor) -> ExpectedWait:
        return expected_wait(self.seen(), asked)

    def coming_up(self, site: str, partition: str) -> ComingUp:
        return expected_start(self.seen(), site, partition)


def expected_wait(seen: Sequence[WaitSeen], asked: WaitFor) -> ExpectedWait:
    here = [w for w in seen if (w.site, w.partition) == (asked.site, asked.partition)]
    alike = [
        w
        for w in here
        if _class(w.cores, SIZES) == _class(asked.cores, SIZES)
        and _class(w.limit_s, LIMITS_S) == _class(asked.limit_s, LIMITS_S)
    ]
    hour = _hour(asked.at)
    now = [w for w in alike if abs((_hour(w.at) - hour + 12) % 24 - 12) <= HOURS_APART]
    where = f"partition {asked.partition}" if asked.partition else asked.site
    for sort, said in (
        (now, "like jobs at this time of day"),
        (alike, "like jobs"),
        (here, "jobs"),
    ):
        if len(sort) >= ENOUGH:
            newest = sorted(sort, key=lambda w: w.at)[-NEWEST:]
            waits_s = _as_now(newest, asked.ahead)
            return ExpectedWait(waits_s, f"{len(waits_s)} {said} of {where}")
    return ExpectedWait((), f"fewer than {ENOUGH} jobs of {where} were seen")


def expected_start(seen: Sequence[WaitSeen], site: str, partition: str) -> ComingUp:
    """Of the partition's newest pilots, if there are enough, else of the site's."""
    there = [w for w in seen if w.site == site and w.up_s is not None]
    for sort in ([w for w in there if w.partition == partition], there):
        if len(sort) >= ENOUGH:
            newest = sorted(sort, key=lambda w: w.at)[-NEWEST:]
            ups_s = [w.up_s for w in newest if w.up_s is not None]
            number = min(UPS_MAX, len(ups_s))
            shares = ((k + 0.5) / number for k in range(number))
            said = f"{len(ups_s)} pilots of {site}"
            return ComingUp(tuple(quantile_of(ups_s, share) for share in shares), said)
    return ComingUp((COMING_UP_S,), f"a guess: fewer than {ENOUGH} pilots of {site} were seen")


def _as_now(seen: Sequence[WaitSeen], ahead: int | None) -> tuple[float, ...]:
    """What they would have waited with so much ahead of them."""
    known = [(w, w.ahead) for w in seen if w.ahead is not None]
    if ahead is None or len(known) < ENOUGH:
        return tuple(w.wait_s for w in seen)
    now = math.log1p(ahead)
    known.sort(key=lambda one: abs(math.log1p(one[1]) - now))
    stretches = ((w.wait_s, (ahead + 1) / (then + 1)) for w, then in known[:NEAREST])
    return tuple(w * min(STRETCH_MAX, max(1 / STRETCH_MAX, by)) for w, by in stretches)


def _class(amount: float, limits: Sequence[float]) -> int:
    return sum(amount > limit for limit in limits)


def _hour(at: float) -> float:
    local = time.localtime(at)
    return local.tm_hour + local.tm_min / 60
