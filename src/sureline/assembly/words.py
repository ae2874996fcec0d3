"""All that nodes of a grid say to each other."""

from __future__ import annotations

from sureline.overlay.kademlia.messages import MESSAGES as KADEMLIA_MESSAGES
from sureline.overlay.membership.messages import MESSAGES as MEMBERSHIP_MESSAGES
from sureline.overlay.news import MESSAGES as NEWS_MESSAGES
from sureline.overlay.renewal import MESSAGES as RENEWAL_MESSAGES
from sureline.peer.messages import MESSAGES as PEER_MESSAGES
from sureline.run.keeping import MESSAGES as KEEPER_MESSAGES
from sureline.run.options import CancelRun
from sureline.run.presence import MESSAGES as PRESENCE_MESSAGES
from sureline.strategies import known
from sureline.world.protocol import Message

_COMMON: tuple[type[Message], ...] = (
    *KADEMLIA_MESSAGES,
    *MEMBERSHIP_MESSAGES,
    *NEWS_MESSAGES,
    *RENEWAL_MESSAGES,
    *PEER_MESSAGES,
    *KEEPER_MESSAGES,
    *PRESENCE_MESSAGES,
    CancelRun,
)


def messages() -> tuple[type[Message], ...]:
    """All that travels, with what strategies bring."""
    return (*_COMMON, *(m for strategy in known().values() for m in strategy.messages))
