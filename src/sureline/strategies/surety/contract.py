"""What a provider bids, and what both sides are bound to once the bid is accepted.

Times are in one unit throughout: seconds on a grid; in a table of bids whatever the table means.
Fees run as the paper has them: the late fee (for every unit of time after `late`) and the
cancellation fee go back to the client; the reservation fee is paid by the client when the contract
is made, and stays paid even if the service is never invoked.
"""

from __future__ import annotations

import msgspec


class Bid(msgspec.Struct, frozen=True, omit_defaults=True):
    """One provider's terms for one execution of one service."""

    service: str
    """What is offered: a task's kind, or a service's name in a table of bids."""
    provider: str
    cost: float
    time: float
    """The most likely duration."""
    early: float
    late: float
    """The optimistic and the pessimistic duration: early <= time <= late."""
    late_fee: float = 0.0
    cancel_fee: float = 0.0
    reserve_fee: float = 0.0
    expires: float | None = None
    """Until when the service may be started under these terms; None for no limit. On a grid,
    seconds since the epoch; in a table, time since the start of the workflow."""

    @property
    def price(self) -> float:
        """What choosing it costs the client if all goes as promised."""
        return self.cost + self.reserve_fee


class Contract(msgspec.Struct, frozen=True, omit_defaults=True):
    """An accepted bid. `number` is unique at the provider."""

    number: str
    bid: Bid
    made_at: float
    reserved: bool = False
    """Whether the reservation fee was paid: then a place is held until the bid expires."""
