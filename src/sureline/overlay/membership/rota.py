"""Whom to probe next.

Every other probe goes to the next member on the ring, so everybody is probed by somebody every
two periods, for certain. The probes between go to a few partners in turn. A partner is replaced
after a few visits by one drawn at random among those not yet visited in this round: everybody is
everybody's partner once in a round, and news crosses the ring on these chords.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sureline.world.address import PeerName

if TYPE_CHECKING:
    from random import Random


class Rota:
    """`present(name)` says whether somebody is still there; `everybody()` names them all."""

    def __init__(
        self,
        random: Random,
        partners_max: int,
        visits_max: int,
        present: Callable[[PeerName], bool],
        everybody: Callable[[], Sequence[PeerName]],
    ) -> None:
        self._random = random
        self._partners_max = partners_max
        self._visits_max = visits_max
        self._present = present
        self._everybody = everybody
        self._partners: list[PeerName] = []
        self._visits: dict[PeerName, int] = {}
        self._unvisited: list[PeerName] = []
        self._turn = 0

    def partners(self) -> list[PeerName]:
        """Those who are partners now."""
        self._fill()
        return list(self._partners)

    def next(self) -> PeerName | None:
        """The partner whose turn it is; None if nobody is there."""
        self._fill()
        if not self._partners:
            return None
        self._turn = (self._turn + 1) % len(self._partners)
        name = self._partners[self._turn]
        visits = self._visits.get(name, 0) + 1
        if visits < self._visits_max:
            self._visits[name] = visits
        else:
            self._visits.pop(name, None)
            del self._partners[self._turn]
        return name

    def welcome(self, name: PeerName) -> None:
        """Somebody new: to be visited in this round already."""
        self._unvisited.append(name)

    def dismiss(self, name: PeerName) -> None:
        """Not this one, for now."""
        if name in self._partners:
            self._partners.remove(name)
            self._visits.pop(name, None)

    def _fill(self) -> None:
        self._partners = [name for name in self._partners if self._present(name)]
        while len(self._partners) < self._partners_max:
            drawn = self._draw()
            if drawn is None:
                return
            self._partners.append(drawn)

    def _draw(self) -> PeerName | None:
        """One of those not yet visited in this round; a new round begins when all were."""
        for _ in range(2):
            while self._unvisited:
                index = self._random.randrange(len(self._unvisited))
                last = self._unvisited.pop()
                if index < len(self._unvisited):
                    last, self._unvisited[index] = self._unvisited[index], last
                if self._present(last) and last not in self._partners:
                    return last
            self._unvisited = list(self._everybody())
        return None
