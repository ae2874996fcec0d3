"""What the pilots of a site wish for, as its master has heard it; the totals are kept."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from sureline.strategies.latebinding.messages import RoomWish
from sureline.strategies.latebinding.settings import AHEAD_MAX, PLACES_MAX, QUIET_WISH_S
from sureline.world.address import PeerName
from sureline.world.protocol import AgentId

PILOTS_MAX = 20_000
STALE_S = 2.5 * QUIET_WISH_S


class PilotWish(msgspec.Struct):
    places: int
    ahead: int
    at_s: float
    agent: AgentId
    idle_s: float = 0.0
    """Since when it could begin something at once."""
    told: int = 0
    """The last task that it was told of directly."""
    ripe_s: float = 0.0
    """It takes part in rounds from then on, or as soon as a task has come whose inputs it holds."""
    missed: bool = False
    """The last broadcast did not reach it, or its answer was late."""


class Wishes:
    def __init__(self) -> None:
        self._of: dict[PeerName, PilotWish] = {}
        self._pilots: dict[PeerName, None] = {}
        self.places = 0
        """Tasks that could begin at once, of all together."""
        self.ahead = 0
        """And that could be fetched ahead."""

    def __len__(self) -> int:
        return len(self._of)

    def __iter__(self) -> Iterator[tuple[PeerName, PilotWish]]:
        return iter(self._of.items())

    def get(self, name: PeerName) -> PilotWish | None:
        return self._of.get(name)

    @property
    def pilots(self) -> int:
        """How many have ever wished for anything, as far as is remembered."""
        return len(self._pilots)

    @property
    def brisk(self) -> float:
        """How many tasks one wishes for ahead, on average: 1 where they take seconds."""
        return max(1.0, self.ahead / max(1, len(self._of)))

    def hear(self, name: PeerName, agent: AgentId, said: RoomWish, now: float) -> PilotWish | None:
        """What it wishes for now; None if that is nothing."""
        places, ahead = min(max(0, said.places), PLACES_MAX), min(max(0, said.ahead), AHEAD_MAX)
        old = self._of.get(name)
        if not places and not ahead:
            return None
        if old is None:
            if len(self._of) >= PILOTS_MAX:
                return None
            old = self._of[name] = PilotWish(0, 0, now, agent)
        if places and not old.places:
            old.idle_s = now
        self.settle(name, places, ahead)
        old.at_s, old.agent, old.missed = now, agent, False
        self._pilots.pop(name, None)
        self._pilots[name] = None
        if len(self._pilots) > PILOTS_MAX:  # the one heard of longest ago
            del self._pilots[next(iter(self._pilots))]
        return old

    def settle(self, name: PeerName, places: int, ahead: int) -> None:
        """So much is left of its wish."""
        wish = self._of.get(name)
        if wish is None:
            return
        places, ahead = max(0, places), max(0, ahead)
        self.places += places - wish.places
        self.ahead += ahead - wish.ahead
        wish.places, wish.ahead = places, ahead
        if not places and not ahead:
            del self._of[name]

    def drop(self, name: PeerName) -> None:
        self.settle(name, 0, 0)

    def forget(self, name: PeerName) -> None:
        """It is gone."""
        self.drop(name)
        self._pilots.pop(name, None)

    def drop_stale(self, now: float) -> None:
        for name in [name for name, wish in self._of.items() if now - wish.at_s > STALE_S]:
            self.drop(name)
