"""Who stands at the door: connections that have been accepted but have not greeted yet.

Anybody can open a connection and say nothing. So there is room for a limited number, in total and
from one address, each for a limited time; when it is full, the one that has stood there longest
gives way. An honest peer needs milliseconds, so it gets in even while hundreds stand around.
"""

from __future__ import annotations

from collections.abc import Callable

from sureline.world.net.limits import Limits
from sureline.world.net.opening import Opening

Complain = Callable[[str, str, str], None]


class Door:
    """Keeps count of the half-open connections that others have made to us. `now` is the time in
    which this process was awake: what it had no turn to read is not their slowness."""

    def __init__(self, limits: Limits, now: Callable[[], float], complain: Complain) -> None:
        self._limits = limits
        self._now = now
        self._complain = complain
        self._standing: dict[Opening, None] = {}
        self._from: dict[str, dict[Opening, None]] = {}

    def __len__(self) -> int:
        return len(self._standing)

    def enter(self, opening: Opening) -> None:
        """Let one in; it, or one that has stood there longer, may be turned away."""
        limits = self._limits
        address = opening.stream.address
        neighbours = self._from.get(address, {})
        if len(neighbours) >= limits.half_open_per_address_max:
            self._make_room(neighbours, opening)
        elif len(self._standing) >= limits.half_open_max:
            self._make_room(self._standing, opening)
        if not opening.stream.closing:
            self._standing[opening] = None
            self._from.setdefault(address, {})[opening] = None

    def _make_room(self, crowd: dict[Opening, None], newcomer: Opening) -> None:
        oldest = next(iter(crowd))
        patient = self._now() - oldest.started_at >= self._limits.half_open_grace_s
        self._turn_away(oldest if patient else newcomer, "too many connections wait to greet")

    def _turn_away(self, opening: Opening, why: str) -> None:
        address = opening.stream.address
        self._complain("half open", address, f"a connection from {address} was cut: {why}")
        self.leave(opening)
        opening.stream.abort(why)

    def leave(self, opening: Opening) -> None:
        """It has greeted, or is gone."""
        self._standing.pop(opening, None)
        address = opening.stream.address
        neighbours = self._from.get(address)
        if neighbours is not None:
            neighbours.pop(opening, None)
            if not neighbours:
                del self._from[address]

    def sweep(self) -> None:
        """Turn away whoever has stood there for too long."""
        now = self._now()
        for opening in list(self._standing):
            if now - opening.started_at < self._limits.handshake_s:
                return
            self._turn_away(opening, f"no greeting within {self._limits.handshake_s:g} s")

    def close(self) -> None:
        for opening in list(self._standing):
            self.leave(opening)
            opening.stream.abort("the node goes away")
