"""What a grid may tune about its tree; every queue, retry and wait finds its bound here."""

from __future__ import annotations

import msgspec


class TreeSettings(msgspec.Struct, frozen=True):
    # Updates.
    bytes_per_s: float = 1000.0
    """What updates of one node may take of its link: the next waits until that is paid for..."""
    period_s: float = 1.0
    """...and at least so long."""
    beat_s: float = 10.0
    """An update is sent so often though nothing changed: time passes, and one shows to live."""
    swept: bool = False
    """Summaries are kept by somebody else, who sees all nodes: no updates are sent."""

    # Search.
    hops_max: int = 128
    asks_max: int = 256
    """Tasks in one request."""

    # Upkeep of the links.
    answer_s: float = 2.0
    """Those who take part in a change of links are held no longer than this without an answer..."""
    hold_s: float = 6.0
    """...and let go by themselves after this, if the one who holds them is silent."""
    retry_s: float = 1.0
    """A change that met somebody busy is tried again about so much later."""
    silence_s: float = 35.0
    """A neighbour that was not heard of for so long is taken for dead."""
    near: int = 4
    """Neighbours in the order of addresses, on each side, that a node knows."""
