"""Our attempts at providers: since when, for how long, and whether they are plainly late."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import msgspec

from sureline.world.address import PeerName

LEFT_SHARE = 0.25
"""What has taken as long as expected, but is not overdue, goes on for so much of its age."""
OVERDUE_TIMES = 2.0
"""An attempt that is overdue is expected to go on for so many times its age: what is slow or stands
still mostly stays so for longer than it has been seen."""


class _Attempt(msgspec.Struct):
    task: int
    since: float
    seconds: float
    late_s: float
    """After so long it is later than it should ever have been."""

    def left_s(self, now: float) -> float:
        age_s = now - self.since
        if age_s > self.late_s:
            return OVERDUE_TIMES * age_s
        return max(self.seconds - age_s, LEFT_SHARE * age_s)

    def longer(self, now: float) -> float:
        """How many times longer it will have taken than was expected; 1 as long as it is not plain
        that it is late."""
        age_s = now - self.since
        if age_s <= self.late_s:
            return 1.0
        return max(1.0, (1 + OVERDUE_TIMES) * age_s / max(1e-3, self.seconds))


class UnderWay:
    """What was placed and is not over. `of_service` counts the tasks, by `service_of`."""

    def __init__(self, service_of: Sequence[int]) -> None:
        self._service_of = service_of
        self._at: dict[PeerName, list[_Attempt]] = {}
        self._of_task: Counter[int] = Counter()
        self.of_service: Counter[int] = Counter()

    def begin(self, task: int, peer: PeerName, since: float, seconds: float, late_s: float) -> None:
        self._at.setdefault(peer, []).append(_Attempt(task, since, seconds, late_s))
        self._of_task[task] += 1
        if self._of_task[task] == 1:
            self.of_service[self._service_of[task]] += 1

    def end(self, task: int, peer: PeerName) -> None:
        """One attempt of the task there is over, the oldest if there are several."""
        attempts = self._at.get(peer, [])
        found = next((a for a in attempts if a.task == task), None)
        if found is None:
            return
        attempts.remove(found)
        if not attempts:
            del self._at[peer]
        self._of_task[task] -= 1
        if not self._of_task[task]:
            del self._of_task[task]
            self.of_service[self._service_of[task]] -= 1

    def count(self, peer: PeerName) -> int:
        return len(self._at.get(peer, ()))

    def all(self) -> list[tuple[int, PeerName]]:
        """(task, peer) of every attempt."""
        return [(a.task, peer) for peer, attempts in self._at.items() for a in attempts]

    def since(self, task: int, peer: PeerName) -> float | None:
        """When the task was given to the peer, if it is there."""
        return next((a.since for a in self._at.get(peer, ()) if a.task == task), None)

    def left_s(self, peer: PeerName, now: float) -> list[float]:
        """How long each of them will go on, the shortest first."""
        return sorted(a.left_s(now) for a in self._at.get(peer, ()))

    def is_overdue(self, task: int, peer: PeerName, now: float) -> bool:
        return any(a.task == task and a.longer(now) > 1 for a in self._at.get(peer, ()))

    def overdue(self, peer: PeerName, now: float) -> float:
        """How many times longer than expected what runs there takes; 1 at least."""
        return max([1.0, *(a.longer(now) for a in self._at.get(peer, ()))])

    def most_overdue(self, now: float) -> float:
        return max([1.0, *(self.overdue(peer, now) for peer in self._at)])
