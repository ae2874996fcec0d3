"""Who is in the grid, and who has gone: membership without a centre.

Every node knows all members. `agent.Membership` is the agent; it probes one member a second,
passes news on with the probes, and compares its table with others'. The rules of whom to believe
stand in `knowledge`, those of when silence means death in `suspicion`, the times in `settings`.
"""

from sureline.overlay.membership.agent import Membership
from sureline.overlay.membership.knowledge import Member
from sureline.overlay.membership.messages import MESSAGES, Offer, State
from sureline.overlay.membership.settings import MembershipSettings, settle_s

__all__ = [
    "MESSAGES",
    "Member",
    "Membership",
    "MembershipSettings",
    "Offer",
    "State",
    "settle_s",
]
