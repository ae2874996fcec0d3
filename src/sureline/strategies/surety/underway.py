"""Our attempts at providers: since when, for how long, and whether they are plainly late."""

from __future__ import annotations

import msgspec

from sureline.world.protocol import AgentId

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
    """What was placed and is not over."""

    def __init__(self) -> None:
        self._at: dict[AgentId, list[_Attempt]] = {}

    def begin(self, task: int, peer: AgentId, since: float, seconds: float, late_s: float) -> None:
        self._at.setdefault(peer, []).append(_Attempt(task, since, seconds, late_s))

    def end(self, task: int, peer: AgentId) -> None:
        self._at[peer] = [a for a in self._at.get(peer, ()) if a.task != task]

    def forget(self, peer: AgentId) -> None:
        self._at.pop(peer, None)

    def count(self, peer: AgentId) -> int:
        return len(self._at.get(peer, ()))

    def all(self) -> list[tuple[int, AgentId]]:
        """(task, peer) of every attempt."""
        return [(a.task, peer) for peer, attempts in self._at.items() for a in attempts]

    def tasks(self) -> list[int]:
        return sorted({task for task, _ in self.all()})

    def since(self, task: int, peer: AgentId) -> float | None:
        """When the task was given to the peer, if it is there."""
        return next((a.since for a in self._at.get(peer, ()) if a.task == task), None)

    def left_s(self, peer: AgentId, now: float) -> list[float]:
        """How long each of them will go on, the shortest first."""
        return sorted(a.left_s(now) for a in self._at.get(peer, ()))

    def is_overdue(self, task: int, peer: AgentId, now: float) -> bool:
        return any(a.task == task and a.longer(now) > 1 for a in self._at.get(peer, ()))

    def overdue(self, peer: AgentId, now: float) -> float:
        """How many times longer than expected what runs there takes; 1 at least."""
        return max([1.0, *(a.longer(now) for a in self._at.get(peer, ()))])

    def most_overdue(self, now: float) -> float:
        return max([1.0, *(self.overdue(peer, now) for peer in self._at)])
