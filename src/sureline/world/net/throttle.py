"""How much one connection may deliver: a bucket of messages and one of bytes."""

from __future__ import annotations

from sureline.world.net.limits import Limits


class Throttle:
    """Buckets that drain at a steady rate; whoever fills one over its rim has to wait."""

    __slots__ = ("_at", "_bytes", "_messages")

    def __init__(self, now: float) -> None:
        self._at = now
        self._messages = 0.0
        self._bytes = 0.0

    def spend(self, now: float, messages: int, size_bytes: int, limits: Limits) -> float:
        """Note what has been received; the seconds for which nothing more should be read."""
        passed_s = now - self._at
        self._at = now
        self._messages = max(0.0, self._messages - passed_s * limits.messages_per_s) + messages
        self._bytes = max(0.0, self._bytes - passed_s * limits.bytes_per_s) + size_bytes
        return max(
            (self._messages - limits.messages_burst) / limits.messages_per_s,
            (self._bytes - limits.bytes_burst) / limits.bytes_per_s,
            0.0,
        )
