"""Which of many words of progress are recorded: of an attempt one a second, of a peer a few.

A peer can say as much as it likes; the journal, its copies and all who look at them must not grow
by that.
"""

from __future__ import annotations

from collections.abc import Hashable

from sureline.world.address import PeerName

WINDOW_S = 1.0
OF_PEER_MAX = 20


class ProgressThrottle:
    def __init__(self) -> None:
        self._windows: dict[PeerName, tuple[float, set[Hashable]]] = {}
        """When each peer's began, by `World.elapsed`, and what has passed in it."""

    def passes(self, peer: PeerName, attempt: Hashable, elapsed: float) -> bool:
        began, passed = self._windows.get(peer, (0.0, None))
        if passed is None or elapsed - began >= WINDOW_S:
            self._windows[peer] = (elapsed, {attempt})
            return True
        if attempt in passed or len(passed) >= OF_PEER_MAX:
            return False
        passed.add(attempt)
        return True
