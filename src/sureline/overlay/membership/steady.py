"""Time that only moves on.

A machine's clock may be set back; then everything that waits for a moment would wait for longer.
Set forward, it looks as if this process had stood still, which is harmless here.
"""

from __future__ import annotations

from sureline.world.protocol import World


class Steady:
    """Seconds that never decrease, by the world's clock."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._read = world.now()
        self._passed = 0.0

    def now(self) -> float:
        read = self._world.now()
        self._passed += max(0.0, read - self._read)
        self._read = read
        return self._passed
