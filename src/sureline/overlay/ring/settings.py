"""What a grid may tune about its ring; every table, queue and retry finds its bound here."""

from __future__ import annotations

import msgspec


class RingSettings(msgspec.Struct, frozen=True):
    replicas: int = 3
    leaves: int = 6
    """Neighbours known on each side; as many deaths in a row, and the ring may tear."""
    links: int = 2
    """Contacts per power of two of the distance, for routing."""
    lost_max: int = 64
    """Contacts that fell silent: tried again now and then, so that a split ring heals."""

    tick_s: float = 1.0
    """The beat of all upkeep, jittered."""
    idle_tick_s: float = 0.0
    """The beat of a node whose molecules nobody has changed for a while; 0 for the same."""
    awake_s: float = 0.0
    """A ring that nobody has woken for so long sleeps: nothing is published, and there is little
    upkeep; 0 for one that never sleeps."""
    asleep_tick_s: float = 60.0
    """The beat of one that does."""
    questions_max: int = 64
    """Per search."""
    asking_max: int = 128
    """Questions of one node that are on their way at a time ..."""
    asked_max: int = 8_192
    """... and that wait for that."""

    # Molecules.
    records_max: int = 65_536
    value_bytes_max: int = 16_384
    lease_s: float = 30.0
    """How long a captured molecule is its taker's, unless renewed."""
    rounds_max: int = 12
    """How often a change of a molecule is tried anew before its outcome is called unknown ..."""
    pause_s: float = 0.5
    """... with a jittered pause that grows from this."""
    moves_max: int = 16
    """Molecules that one node moves at a time, when their holders should be others."""
    stub_s: float = 300.0
    """How long it is remembered that a molecule has moved ..."""
    gone_s: float = 86_400.0
    """... and that it is gone. Nobody may be cut off for longer, with an old state in mind."""

    # Meta-molecules.
    republish_s: float = 10.0
    meta_ttl_s: float = 25.0
    metas_max: int = 65_536
    page_max: int = 64
    """Meta-molecules in one message."""
    nodes_max: int = 4_096
    """Nodes that one query may visit."""
