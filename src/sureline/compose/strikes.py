"""What a home remembers of peers that were refuted in its runs: `strikes.json` beside its keys.

It is a memory of this home alone: nobody else hears of it, and nobody else's word gets into it. A
file that is damaged is as good as none.
"""

from __future__ import annotations

import time

import msgspec

from sureline.journal.events import PeerLeft
from sureline.run.standing import Strikes
from sureline.world.address import PeerName
from sureline.world.identity import disk
from sureline.world.identity.home import FILE_BYTES_MAX, GridHome

PEERS_MAX = 1000
"""Those that were refuted last are kept."""
REASON_MAX = 300
_NAME = "strikes.json"
Remembered = dict[PeerName, Strikes]


def remembered(home: GridHome) -> Remembered:
    """Of those whom nothing is left to forgive, nothing is told."""
    now = time.time()
    found = _read(home)
    return {peer: s for peer, s in found.items() if s.forgiven(now) or s.left_s(now)}


def remember(home: GridHome, event: PeerLeft) -> None:
    """A peer was set aside for what it said."""
    reason = event.reason[:REASON_MAX]
    with home.locked():
        found = remembered(home)
        found.pop(event.peer, None)
        found[event.peer] = Strikes(event.strikes, event.at, event.aside_s, reason)
        newest = sorted(found.items(), key=lambda item: item[1].at)[-PEERS_MAX:]
        disk.write(home.path / _NAME, msgspec.json.encode(dict(newest)))


def forgive(home: GridHome, peer: PeerName) -> bool:
    """Forget what was held against a peer; False if nothing was."""
    with home.locked():
        found = _read(home)
        known = found.pop(peer, None) is not None
        if known:
            disk.write(home.path / _NAME, msgspec.json.encode(found))
    return known


def _read(home: GridHome) -> Remembered:
    data = disk.read(home.path / _NAME, FILE_BYTES_MAX)
    try:
        return msgspec.json.decode(data or b"{}", type=Remembered)
    except msgspec.MsgspecError:
        return {}
