"""What a grid may tune about its tree; every queue, retry and wait finds its bound here."""

from __future__ import annotations

import msgspec

PAPER_BYTES_PER_S = 1000.0
"""What the paper's nodes may send, on links of 1 Mbit/s."""


class TreeSettings(msgspec.Struct, frozen=True):
    # Updates.
    bytes_per_s: float = 10_000.0
    """What updates of one node may take of its link: the next waits until that is paid for..."""
    period_s: float = 0.2
    """...and at least so long."""
    beat_s: float = 10.0
    """An update is sent so often though nothing changed: one may have been lost..."""
    beat_max_s: float = 60.0
    """...and ever more rarely, up to this, while nothing changes."""

    # Search.
    hops_max: int = 128
    asks_max: int = 256
    """Tasks in one request."""
