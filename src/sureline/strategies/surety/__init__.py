"""Scheduling under uncertainty: bids, plans on the Pareto front, contracts, repair.

After Sample, Keyani and Wiederhold, "Scheduling Under Uncertainty: Planning for the Ubiquitous
Grid". Three parts, and what they share:
- `planning`, pure: tables of bids, the paper's equations, all schedules or the best of very many,
  the Pareto front, refusals.
- `client`, beside a run's writer: asks for bids, chooses a plan, places tasks, pays, repairs.
- `provider`, on every machine: bids from what it has learned, promises no place twice, lets a
  machine run an attempt only as agreed.
- What providers bid and promise (`contract`), who owes whom (`pricing`), and the seven calls
  between the two sides (`invocation`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from decimal import Decimal

from sureline.journal.events import Event, Noted, Unknown
from sureline.run.port import Machine, Place, Seat, Strategy
from sureline.strategies.surety.client.client import Client
from sureline.strategies.surety.contract import Contracted, entries_of
from sureline.strategies.surety.invocation import MESSAGES
from sureline.strategies.surety.pricing import Tariff
from sureline.strategies.surety.provider.agent import PART, Provider
from sureline.workflow.terms import Terms
from sureline.world.address import at, node_of


def _client(seat: Seat) -> Client:
    return Client(seat)


def _provider(machine: Machine, place: Place, tariff: Tariff) -> Provider:
    return Provider(at(node_of(machine.me), PART), place(PART), machine, tariff)


def _budget_kept(events: Sequence[Event], terms: Terms) -> Iterable[str]:
    """At no time did what was paid, and what open contracts could cost, exceed the budget."""
    if terms.budget is None:
        return
    budget = Decimal(str(terms.budget))
    total, bound = Decimal(0), dict[tuple[str, str], Decimal]()
    for entry in entries_of(event for event in events if isinstance(event, Noted | Unknown)):
        if isinstance(entry, Contracted):
            cost = Decimal(str(entry.cost)) + Decimal(str(entry.reserve_fee))
            bound[entry.provider, entry.contract] = cost
            total += cost
        else:
            total -= bound.pop((entry.provider, entry.contract), Decimal(0))
            total += Decimal(str(entry.paid))
        if total > budget:
            yield f"{total} was spent or promised of {budget:g} at {entry.at:.3f}"
            return


surety = Strategy(
    name="surety",
    summary="bids, contracts and repair: done in time as surely as wanted, within a budget",
    paper="Sample, Keyani and Wiederhold: Scheduling Under Uncertainty: Planning for the "
    "Ubiquitous Grid (2002)",
    where="grid",
    spends=True,
    judges=True,
    machine_settings=Tariff,
    messages=MESSAGES,
    deciding=_client,
    machine=_provider,
    audits={"budget kept": _budget_kept},
)
