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
from sureline.strategies.surety.invocation import MESSAGES as SURETY_MESSAGES

MESSAGES = (
    *KADEMLIA_MESSAGES,
    *MEMBERSHIP_MESSAGES,
    *NEWS_MESSAGES,
    *RENEWAL_MESSAGES,
    *PEER_MESSAGES,
    *KEEPER_MESSAGES,
    *PRESENCE_MESSAGES,
    *SURETY_MESSAGES,
    CancelRun,
)
"""For the codec."""
