"""What a provider asks, how far it can be bargained down, and who owes whom at the end.

Formulas only: both sides of a contract use them, so that both come to the same sums.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from sureline.strategies.surety.contract import Bid
from sureline.workflow.model import Needs, Takes
from sureline.world.address import PeerName

Ending = Literal["done", "cancelled", "unused", "broken"]
"""How a contract ends. done: the service was performed (a task that fails by itself was run all
the same). cancelled: the client ended it after it was begun. unused: it never began. broken: the
provider vanished, or did not do what it had promised to."""

CORES_LEAST = 0.1
"""A task that asks for fewer cores than this is charged for so many."""
HOLD_S = 300.0
MONEY_DIGITS = 6
SECONDS_PER_HOUR = 3600.0


class Tariff(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a provider asks. The default is free of charge, and promises nothing."""

    per_core_hour: float = 0.0
    late_fee: float = 0.0
    """What goes back for an hour of lateness, for each core."""
    cancel_share: float = 0.0
    """The share of the cost that goes back to a client who cancels what has begun."""
    reserve_share: float = 0.0
    """What holding a place costs, as a share of the cost; with 0 no places are held."""
    discount: float = 0.0
    """The share of the cost that an idle provider can be bargained down by."""
    hold_s: float = HOLD_S
    """How long a bid stands."""


class Settlement(msgspec.Struct, frozen=True):
    """`paid` is what the client pays in the end; `refunded` is what has come back of what it had
    to pay: late and cancellation fees, and the reservation fee of a provider that failed it."""

    paid: float
    refunded: float = 0.0


def bid_for(
    service: str, provider: PeerName, needs: Needs, takes: Takes, tariff: Tariff, now: float
) -> Bid:
    """What a provider bids for a service that takes so long on its machine."""
    cores = max(CORES_LEAST, needs.cores)
    hours = expected(takes) / SECONDS_PER_HOUR
    cost = round(tariff.per_core_hour * cores * hours, MONEY_DIGITS)
    return Bid(
        service,
        provider,
        cost,
        takes.likely_s,
        takes.optimistic_s,
        takes.pessimistic_s,
        tariff.late_fee * cores / SECONDS_PER_HOUR,
        round(tariff.cancel_share * cost, MONEY_DIGITS),
        round(tariff.reserve_share * cost, MONEY_DIGITS),
        now + tariff.hold_s,
    )


def expected(takes: Takes) -> float:
    """The mean of the three points, as PERT has it."""
    return (takes.optimistic_s + 4 * takes.likely_s + takes.pessimistic_s) / 6


def answer_to(wish: Bid, own: Bid, tariff: Tariff, load: float) -> Bid:
    """What becomes of a bid when a client wishes for other terms: `own` itself if it is held.

    The cost comes down to what is wished, if that is not below what the discount allows; the
    busier the machine (`load`, the share of its cores that is promised), the less is allowed.
    Times and fees stay as they are, whatever is wished: the client sees them in the answer.
    """
    floor = own.cost * (1.0 - tariff.discount * max(0.0, 1.0 - load))
    if wish.service != own.service or not floor <= wish.cost < own.cost:
        return own
    return msgspec.structs.replace(own, cost=wish.cost, cancel_fee=min(own.cancel_fee, wish.cost))


def is_sensible(bid: Bid) -> bool:
    """Whether a bid from elsewhere says something that can be meant."""
    money = (bid.cost, bid.late_fee, bid.cancel_fee, bid.reserve_fee)
    return (
        all(0 <= amount < math.inf for amount in money)
        and 0 <= bid.early <= bid.time <= bid.late < math.inf
        and (bid.expires is None or math.isfinite(bid.expires))
    )


def settlement(bid: Bid, ending: Ending, ended_s: float, *, reserved: bool = False) -> Settlement:
    """Who owes what when a contract ends `ended_s` after it was begun.

    What goes back never exceeds the cost. The reservation fee stays paid, unless the provider
    breaks the contract.
    """
    price = bid.price if reserved else bid.cost
    match ending:
        case "broken":
            return Settlement(0.0, bid.reserve_fee if reserved else 0.0)
        case "unused":
            return Settlement(bid.reserve_fee if reserved else 0.0)
        case _:
            back = bid.late_fee * max(0.0, ended_s - bid.late)
            if ending == "cancelled":
                back += bid.cancel_fee
            back = min(bid.cost, back)
            return Settlement(price - back, back)
