"""Whose task goes next: fair shares between users, priorities between the runs of one user.

A user's use is what was given out to it lately, in seconds of cores; it halves every HALVED_S. The
user who has used least, for the share it has, goes next; of its runs the one with the highest
priority, and among equals the one that has used least. In a run, the task with the longest chain
behind it.

A task whose inputs lie at one site waits for that site, and may go elsewhere only after a while.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

import msgspec

from sureline.strategies.latebinding.messages import ListedTask

HALVED_S = 3600.0
GUESSED_S = 60.0
"""For a task of which nobody knows how long it takes."""
ANYWHERE = ""
ELSEWHERE_S = 5.0
"""So long a task waits for the site that has its inputs."""


class WaitingRun(msgspec.Struct):
    """A run's tasks that nobody has, by the site that has most of their inputs."""

    user: str
    priority: int
    used_s: float = 0.0
    heaps: dict[str, list[tuple[float, int, float, str]]] = {}
    """(-urgency, number, since, task)."""


class Shares:
    """`is_waiting(run, task, number)` tells whether an entry still counts: those that do not are
    forgotten when they are met."""

    def __init__(self, is_waiting: Callable[[str, str, int], bool]) -> None:
        self._is_waiting = is_waiting
        self.runs: dict[str, WaitingRun] = {}
        self.shares: dict[str, float] = {}
        self.used_s: dict[str, float] = {}
        self._aged_s = 0.0

    def open(self, run: str, user: str, priority: int) -> None:
        if run not in self.runs:
            self.runs[run] = WaitingRun(user, priority)

    def close(self, run: str) -> None:
        self.runs.pop(run, None)

    def push(self, listed: ListedTask, home: str, number: int, now_s: float) -> None:
        heap = self.runs[listed.run].heaps.setdefault(home, [])
        heappush(heap, (-listed.urgency, number, now_s, listed.task))

    def charge(self, listed: ListedTask) -> None:
        """It was given out."""
        cost_s = (listed.takes_s or GUESSED_S) * max(0.001, listed.needs.cores)
        waiting = self.runs[listed.run]
        waiting.used_s += cost_s
        self.used_s[waiting.user] = self.used_s.get(waiting.user, 0.0) + cost_s

    def age(self, now_s: float) -> None:
        factor = 0.5 ** ((now_s - self._aged_s) / HALVED_S)
        self._aged_s = now_s
        for user in self.used_s:
            self.used_s[user] *= factor
        for waiting in self.runs.values():
            waiting.used_s *= factor

    def next(self, site: str, idle: Callable[[str], bool], now_s: float) -> tuple[str, str] | None:
        """(run, task) that goes to a pilot of this site; it is taken out. `idle` tells of a site
        whether a task could begin there at once: then its own wait for it, for a while."""
        for near in (True, False):
            found: tuple[tuple[float, int, float, str], WaitingRun, str] | None = None
            for run, waiting in self.runs.items():
                home = self._home(run, waiting, site, idle, now_s, near=near)
                if home is None:
                    continue
                share = max(1e-6, self.shares.get(waiting.user, 1.0))
                used_s = self.used_s.get(waiting.user, 0.0)
                order = (used_s / share, -waiting.priority, waiting.used_s, run)
                if found is None or order < found[0]:
                    found = order, waiting, home
            if found is not None:
                (*_, run), waiting, home = found
                return run, heappop(waiting.heaps[home])[3]
        return None

    def _home(
        self,
        run: str,
        waiting: WaitingRun,
        site: str,
        idle: Callable[[str], bool],
        now_s: float,
        *,
        near: bool,
    ) -> str | None:
        """The heap of which a run's next task for this site comes."""
        if near:
            homes = [home for home in (site, ANYWHERE) if self._top(run, waiting, home)]
        else:
            homes = [
                home
                for home in list(waiting.heaps)
                if (top := self._top(run, waiting, home))
                and (now_s - top[2] > ELSEWHERE_S or not idle(home))
            ]
        return min(homes, key=lambda home: waiting.heaps[home][0]) if homes else None

    def _top(
        self, run: str, waiting: WaitingRun, home: str
    ) -> tuple[float, int, float, str] | None:
        heap = waiting.heaps.get(home, [])
        while heap and not self._is_waiting(run, heap[0][3], heap[0][1]):
            heappop(heap)
        if not heap:
            waiting.heaps.pop(home, None)
            return None
        return heap[0]
