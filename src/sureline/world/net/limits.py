"""The bounds of a node on a network, all in one place."""

from __future__ import annotations

from typing import NamedTuple

FRAME_BYTES_MAX = 1 << 20
HELLO_BYTES_MAX = 4096
WRITE_BYTES = 1 << 18
"""How much is encrypted and handed to the system at a time."""
UNACKNOWLEDGED_S = 10.0
"""If the other machine's system confirms nothing for so long, the connection is broken: the way
there is cut. (A process that merely stands still does not count: its system confirms.)"""


class Limits(NamedTuple):
    """Defaults suit a peer of a grid; 1,500 of them fit one machine."""

    warm_links: int = 24
    """Connections that this node has opened and keeps; beyond them the least recently used idle one
    is closed. Those that others have opened are theirs to close."""
    links_max: int = 2048
    """Beyond this many, or a quarter of the files that the process may open, one is closed even if
    it was used a moment ago."""
    busy_s: float = 120.0
    """A connection used within this time is not idle: an answer may be under way, or the end of a
    task, and those who speak with each other now and then would else exchange keys each time. An
    idle connection takes 31 KiB at either end; opening one takes as much CPU as 30 messages."""

    connect_s: float = 3.0
    handshake_s: float = 30.0
    """From the accepted connection to the end of the greeting: a peer that is short of CPU needs
    time, and whoever calls it again meanwhile takes more of it."""
    half_open_max: int = 256
    half_open_per_address_max: int = 128
    half_open_grace_s: float = 0.25
    """When there are too many half-open connections, the oldest gives way, unless it is younger
    than this; then the newcomer does."""
    dials_max: int = 64
    dials_behind_max: int = 4
    """Likewise while this process is behind: each costs it a handshake..."""
    behind_s: float = 0.2
    """...which it is when what was due came later than this."""
    backoff_min_s: float = 0.05
    backoff_max_s: float = 5.0
    destinations_max: int = 4096
    """How many other nodes are remembered at once, reachable or not."""

    queue_messages_max: int = 10_000
    """Waiting for one destination."""
    queue_bytes_max: int = 8 << 20
    queue_bytes_total_max: int = 64 << 20

    messages_per_s: float = 5_000.0
    """What one connection may deliver for long; what comes faster waits with its sender."""
    messages_burst: float = 10_000.0
    bytes_per_s: float = 64.0 * (1 << 20)
    bytes_burst: float = 16.0 * (1 << 20)
    frame_s: float = 30.0
    """Within this time a frame that has begun must be complete."""

    drain_s: float = 5.0
    """How long a connection that closes in order may take; then it is cut."""
    close_s: float = 5.0
    sweep_s: float = 1.0

    strangers_max: int = 8
    stranger_s: float = 10.0
    stranger_bytes_max: int = 16 << 10

    bulk_connections_per_node: int = 2
    """To one destination; further requests share them."""
    bulk_connections_max: int = 16
    """Opened by this node, over all destinations."""
    bulk_served_max: int = 64
    """Opened by others to this node."""
    bulk_pipeline: int = 4
    """Requests under way on one connection."""
    bulk_waiting_max: int = 256
    bulk_request_bytes_max: int = 64 << 10
    bulk_header_bytes_max: int = 64 << 10
    bulk_body_bytes_max: int = 4 << 20
    bulk_idle_s: float = 30.0
    bulk_answer_s: float = 60.0
    """An answer that makes no progress for this long is given up."""
    bulk_relayed_s: float = 20.0
    """Likewise through a relay: it may be its fault."""

    circuits_max: int = 512
    """Connections carried for others; beyond them the one that was idle longest gives way."""
    circuits_per_peer_max: int = 96
    """Asked for by one peer."""
    circuit_bytes_max: int = 128 << 10
    """Under way in each direction; then the one who sends is held back."""
    circuit_open_s: float = 5.0
    """Within this time whoever is wanted must have answered."""
    circuit_grace_s: float = 5.0
    """One that carried something within this time does not give way."""
    circuit_idle_s: float = 600.0
    moorings_max: int = 256
    """Nodes that can only dial out and are called through this one."""

    head_start_s: float = 0.15
    """How long the direct way may take before a relay is tried beside it."""
    relay_head_start_s: float = 0.5
    """Likewise a relay, before the next one is."""
    direct_again_s: float = 60.0
    """For so long a direct way that was in vain is not tried first."""
    relay_again_s: float = 60.0
    """For so long a relay that carried nothing is tried last."""
    third_again_s: float = 15.0
    """Before others are asked again to reach somebody for us; doubles up to 15 minutes."""
    go_over_s: float = 0.3
    """After a relayed link is open: look for a direct way; again after 100 times that, doubling."""
    ping_s: float = 3.0
    """On a relayed link that was silent for so long: ask whether it still carries."""
    silent_s: float = 9.0
    """If nothing was heard by then, it is cut and the relay tried last."""
    moor_s: float = 5.0
    """How often a node that can only dial out says so to its relays."""
    moored_s: float = 15.0
    """A relay that has not confirmed for so long is left for another."""
    dial_back_s: float = 300.0
    """How often a node asks whether others can dial it; a fifth of that while they cannot."""
