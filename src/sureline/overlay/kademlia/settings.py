"""What a grid may tune about its hash table; every table, queue and retry finds its bound here."""

from __future__ import annotations

import msgspec


class KademliaSettings(msgspec.Struct, frozen=True):
    k: int = 20
    """Contacts per bucket, contacts per answer, and the nearest nodes a vain search must ask."""
    alpha: int = 3
    """Questions of one search that are on their way at a time; slow ones do not count."""
    replicas: int = 3
    spares_max: int = 10
    """Per bucket: contacts to fall back on, displaced or only heard of."""

    # Round trips: a question is slow after about what its kind takes, and failed some time later.
    slow_s_min: float = 0.1
    slow_s_max: float = 1.0
    slow_s_first: float = 0.5
    failed_s_min: float = 1.0
    failed_s_max: float = 4.0

    # Searches.
    searches_max: int = 4
    """At once; the others wait. With alpha questions each they fit 16 warm connections."""
    waiting_max: int = 65_536
    questions_max: int = 128
    """Per search."""

    # Values.
    keys_max: int = 65_536
    values_max: int = 32
    """Per key."""
    value_bytes_max: int = 1024
    values_bytes_max: int = 64 << 20
    """All values that a node holds for others, together."""
    published_max: int = 65_536
    value_ttl_s: float = 5400.0
    republish_s: float = 1800.0
    """Every publisher renews each of its values this often ..."""
    replicate_s: float = 900.0
    """... and every holder sees to the replicas of a key that nobody has stored for this long."""
    settle_s: float = 15.0
    """After joining: how long until a node looks again for neighbours that joined with it."""

    # Upkeep: one jittered timer per node.
    upkeep_s: float = 30.0
    """Each time one neighbour is asked for its view, and one lost contact whether it is back..."""
    upkeep_quiet_s: float = 120.0
    """...and ever more rarely, up to this, while that brings nothing new."""
    refresh_s: float = 3600.0
    """A bucket in whose range nothing was looked up for this long is searched once."""
    gone_s: float = 30.0
    """How long a node that refused us is not asked again, unless it speaks first."""
    gone_max: int = 256
    lost_max: int = 32
    """Contacts that fell silent: asked again now and then, so that a split network heals."""

    # Broadcast.
    regions: int = 8
    cast_tries: int = 4
    """Contacts tried per region."""
    hop_s: float = 2.0
    """What each level below a node adds to its patience for replies."""
    watch_s: float = 1.0
    """How often those who have taken a part, but not replied, are asked whether they live."""
    casts_max: int = 512
    """Broadcasts remembered, to know a duplicate."""
    duties_max: int = 4
    """Regions of one broadcast that one node takes on, after failures elsewhere."""
    payload_bytes_max: int = 524_288
    payloads_bytes_max: int = 32 << 20
    """Of all broadcasts that this node sees to at a time; it takes on no more beyond that."""
    patience_s_max: float = 120.0
    """However long a broadcast's origin says that replies may take."""
    reply_bytes_max: int = 262_144
