"""What a provider bids, and what both sides are bound to once the bid is accepted.

Times are in one unit throughout: seconds on a grid; in a table of bids whatever the table means.
Fees run as the paper has them: the late fee (for every unit of time after `late`) and the
cancellation fee go back to the client; the reservation fee is paid by the client when the contract
is made, and stays paid even if the service is never invoked.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sureline.journal.events import Noted, Unknown
from sureline.world.address import PeerName


class Bid(msgspec.Struct, frozen=True, omit_defaults=True):
    """One provider's terms for one execution of one service."""

    service: str
    """What is offered: a task's kind, or a service's name in a table of bids."""
    provider: PeerName
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


class Contracted(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run notes when a provider took an attempt on under these terms; times in seconds."""

    at: float
    task: str
    attempt: int
    provider: PeerName
    contract: str
    cost: float
    time_s: float
    early_s: float
    late_s: float
    late_fee: float = 0.0
    cancel_fee: float = 0.0
    reserve_fee: float = 0.0


class Settled(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a run notes when a contract is over: `paid` is what it cost in the end, `refunded` what
    of that came back as late or cancellation fees."""

    at: float
    provider: PeerName
    contract: str
    paid: float
    refunded: float = 0.0
    reason: str = ""


_KINDS: dict[str, type[Contracted] | type[Settled]] = {"contracted": Contracted, "settled": Settled}


def entries_of(noted: Iterable[Noted | Unknown]) -> list[Contracted | Settled]:
    """The entries of a run's book, from its notes; journals of before there were notes have them
    as events of the same names."""
    return [
        msgspec.msgpack.decode(note.body, type=_KINDS[note.kind])
        for note in noted
        if note.kind in _KINDS and (isinstance(note, Unknown) or note.strategy == "surety")
    ]
