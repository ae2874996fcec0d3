"""Whose task goes next: fair shares between users, priorities between the runs of one user.

A user's use is what was given out to it lately, in seconds of cores; it halves every HALVED_S, and
what comes back without having been bound is taken off. The user who has used least, for the share
it has, goes next; of its runs the one with the highest priority, and among equals the one that has
used least. In a run, the task with the longest chain behind it.

A task whose inputs lie at one site waits for that site, and may go elsewhere only after a while. A
pilot that holds the inputs of some is given one of those before others of the same run, unless much
more depends on these; then one of its site, or of none, before those of other sites.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import TypeVar

import msgspec

from sureline.strategies.latebinding.messages import ListedTask
from sureline.world.address import PeerName
from sureline.world.identity.names import is_name

HALVED_S = 3600.0
GUESSED_S = 60.0
"""For a task of which nobody knows how long it takes."""
FORGOTTEN_S = 0.01
"""Nobody remembers that somebody has used so little."""
ANYWHERE = ""
ELSEWHERE_S = 5.0
"""So long a task waits for the site that has its inputs."""
SHARES_MAX = 1000
"""Of users that are not 1."""
SWEEP_FROM = 1000

_Of = TypeVar("_Of", bound=str)

Entry = tuple[float, int, float, str]
"""(-urgency, number, since, task)."""


class WaitingRun(msgspec.Struct):
    """A run's tasks that nobody has, by the site that has most of their inputs, and by the pilot
    that does."""

    user: str
    priority: int
    used_s: float = 0.0
    heaps: dict[str, list[Entry]] = {}
    of_pilot: dict[PeerName, list[Entry]] = {}
    pushed: int = 0
    """So many entries were added since those that do not count any more were last looked for; """
    kept: int = 0
    """so many were left then."""
    stays: bool = False
    """Its tasks go to no other site than the one that has their inputs, as in the paper."""
    is_mute: bool = False
    """Nothing was heard of its writer lately; its turn does not come."""


class Shares:
    """`is_waiting(run, task, number)` tells whether an entry still counts: those that do not are
    forgotten when they are met."""

    def __init__(self, is_waiting: Callable[[str, str, int], bool]) -> None:
        self._is_waiting = is_waiting
        self.runs: dict[str, WaitingRun] = {}
        self.shares: dict[str, float] = {}
        self.used_s: dict[str, float] = {}
        self._aged_s = 0.0

    def take_up(self, shares: dict[str, float], used_s: dict[str, float], now_s: float) -> None:
        """What an earlier process left."""
        self.shares, self.used_s, self._aged_s = shares, used_s, now_s

    def open(self, run: str, user: str, priority: int) -> None:
        if run not in self.runs:
            self.runs[run] = WaitingRun(user, priority)

    def close(self, run: str) -> None:
        self.runs.pop(run, None)

    def set_share(self, user: str, share: float) -> str:
        """Why not; '' if it is done."""
        if not math.isfinite(share):
            return f"a share is a number, not {share}"
        if not is_name(user):
            return f"no peer has the name '{user[:100]}'"
        if share == 1.0:  # as everybody has
            self.shares.pop(user, None)
        elif user in self.shares or len(self.shares) < SHARES_MAX:
            self.shares[user] = min(max(share, 0.001), 1000.0)
        else:
            return f"{SHARES_MAX} users have shares of their own; set one of them to 1 first"
        return ""

    def push(self, listed: ListedTask, number: int, now_s: float) -> None:
        """It waits, from then on."""
        run = self.runs[listed.run]
        entry = (-listed.urgency, number, now_s, listed.task)
        heappush(run.heaps.setdefault(listed.home, []), entry)
        for holder in listed.holders:
            heappush(run.of_pilot.setdefault(holder, []), entry)
        run.stays = listed.architecture == "distributed"
        run.pushed += 1 + len(listed.holders)
        if run.pushed > run.kept + SWEEP_FROM:  # pilots may never ask for theirs
            run.pushed, run.kept = 0, self._swept(listed.run, run.heaps)
            run.kept += self._swept(listed.run, run.of_pilot)

    def _swept(self, run: str, heaps: dict[_Of, list[Entry]]) -> int:
        """How many entries are left when those are gone that do not count any more."""
        for key, heap in list(heaps.items()):
            heap[:] = [entry for entry in heap if self._is_waiting(run, entry[3], entry[1])]
            heapify(heap)
            if not heap:
                del heaps[key]
        return sum(map(len, heaps.values()))

    def charge(self, listed: ListedTask) -> None:
        """It was given out."""
        self._use(listed, 1.0)

    def give_back(self, listed: ListedTask, age_s: float) -> None:
        """It was charged so long ago, and not bound."""
        self._use(listed, -_left(age_s))

    def _use(self, listed: ListedTask, part: float) -> None:
        cost_s = part * (listed.takes_s or GUESSED_S) * max(0.001, listed.needs.cores)
        waiting = self.runs[listed.run]
        waiting.used_s = max(0.0, waiting.used_s + cost_s)
        self.used_s[waiting.user] = max(0.0, self.used_s.get(waiting.user, 0.0) + cost_s)

    def age(self, now_s: float) -> None:
        factor = _left(now_s - self._aged_s)
        self._aged_s = now_s
        self.used_s = {user: s * factor for user, s in self.used_s.items() if s > FORGOTTEN_S}
        for waiting in self.runs.values():
            waiting.used_s *= factor

    def next(
        self,
        site: str,
        pilot: PeerName,
        is_there: Callable[[str], bool],
        now_s: float,
        *,
        at_once: bool,
    ) -> tuple[str, str] | None:
        """(run, task) that goes to a pilot of this site, rather one whose inputs it holds; it is
        taken out. `is_there` tells of a site whether anybody there asks for tasks: then its own
        wait for it, though not for ever if they could begin here `at_once`."""
        for run, waiting in self._in_turn():
            heap = self._near(run, waiting, site, pilot) or self._far(
                run, waiting, is_there, now_s, at_once=at_once
            )
            if heap is not None:
                return run, heappop(heap)[3]
        return None

    def next_near(self, site: str, is_first: Callable[[str], bool]) -> tuple[str, str] | None:
        """(run, task) that goes to this site because its inputs lie there, of a run before which
        no other comes."""
        for run, waiting in self._in_turn() if site else ():
            heap = waiting.heaps.get(site)
            if heap and self._clean(run, heap) and is_first(run):
                return run, heappop(heap)[3]
        return None

    def _in_turn(self) -> list[tuple[str, WaitingRun]]:
        speaking = [one for one in self.runs.items() if not one[1].is_mute]
        return sorted(speaking, key=lambda one: self.turn(one[0]))

    def turn(self, run: str) -> tuple[float, int, float, str]:
        """The lowest goes next."""
        waiting = self.runs[run]
        share = max(1e-6, self.shares.get(waiting.user, 1.0))
        used_s = self.used_s.get(waiting.user, 0.0)
        return (used_s / share, -waiting.priority, waiting.used_s, run)

    def _near(
        self, run: str, waiting: WaitingRun, site: str, pilot: PeerName
    ) -> list[Entry] | None:
        """Where a run's next task for this pilot lies."""
        own = waiting.of_pilot.get(pilot)
        if own is not None and not self._clean(run, own):
            del waiting.of_pilot[pilot]
            own = None
        heaps = [h for home in (site, ANYWHERE) if (h := waiting.heaps.get(home)) is not None]
        heaps = [heap for heap in heaps if self._clean(run, heap)]
        most = min(heaps, key=lambda heap: heap[0], default=None)
        if own is not None and (most is None or waiting.stays or own[0][0] < most[0][0] / 2):
            return own  # less may depend on it, but not half as much or less
        return most

    def _far(
        self,
        run: str,
        waiting: WaitingRun,
        is_there: Callable[[str], bool],
        now_s: float,
        *,
        at_once: bool,
    ) -> list[Entry] | None:
        """Tasks of other sites: where nobody asks, or nobody was found for a while."""
        found = [
            heap
            for home, heap in waiting.heaps.items()
            if self._clean(run, heap)
            and (
                not is_there(home)
                or (at_once and not waiting.stays and now_s - heap[0][2] > ELSEWHERE_S)
            )
        ]
        return min(found, key=lambda heap: heap[0], default=None)

    def _clean(self, run: str, heap: list[Entry]) -> bool:
        """Whether anything is left of it that still counts."""
        while heap and not self._is_waiting(run, heap[0][3], heap[0][1]):
            heappop(heap)
        return bool(heap)


def _left(age_s: float) -> float:
    """Of what was used so long ago."""
    return float(0.5 ** (age_s / HALVED_S))
