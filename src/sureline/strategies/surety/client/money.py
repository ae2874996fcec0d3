"""A run's contracts and its money: what the ledger says of every attempt that is paid for.

An attempt is known by (provider, task, attempt). Money is set aside before a contract is asked for,
is bound when it is made and noted (`Contracted`), and what was not due comes free when it is
settled (`Settled`). After a crash the two kinds of notes give the same book again; contracts of
attempts that are not under way any more are then settled as unused or broken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable

import msgspec

from sureline.journal.words import duration
from sureline.run.port import Engine, Noted, Unknown
from sureline.strategies.surety.client.broker import Broker
from sureline.strategies.surety.client.ledger import Spending
from sureline.strategies.surety.contract import Bid, Contract, Contracted, Settled, entries_of
from sureline.strategies.surety.pricing import Ending
from sureline.world.address import PeerName
from sureline.world.protocol import World

Attempted = tuple[PeerName, str, int]
"""(provider, task's name, attempt)."""


class Signed(msgspec.Struct, frozen=True):
    contract: Contract
    service: int


class Money:
    """`service_of` tells the service of a task by its name."""

    def __init__(
        self,
        engine: Engine,
        world: World,
        broker: Broker,
        past: Iterable[Noted | Unknown],
        service_of: Callable[[str], int],
    ) -> None:
        self._engine = engine
        self._world = world
        self._broker = broker
        entries = entries_of(past)
        self.ledger = Spending.of(engine.terms.budget, entries)
        still_open = {(c.bid.provider, c.number): c for c in self.ledger.open}
        self._numbers = set(still_open)
        self._signed: dict[Attempted, Signed] = {}
        for event in entries:
            if isinstance(event, Contracted):
                contract = still_open.get((event.provider, event.contract))
                if contract is not None:
                    key = (event.provider, event.task, event.attempt)
                    self._signed[key] = Signed(contract, service_of(event.task))

    @property
    def left(self) -> float:
        """What may still be committed; infinite without a budget."""
        available = self.ledger.available
        return math.inf if available is None else available

    def needs_contract(self, provider: PeerName, bid: Bid | None) -> bool:
        return self._broker.price(provider) > 0 or (bid is not None and bid.price > 0)

    def signed(self, attempted: Attempted) -> Contract | None:
        found = self._signed.get(attempted)
        return None if found is None else found.contract

    def of_provider(self, provider: PeerName) -> list[Attempted]:
        """The attempts that are contracted with it and not settled."""
        return [key for key in self._signed if key[0] == provider]

    def open(self) -> list[Attempted]:
        return list(self._signed)

    def agree(
        self, service: int, attempted: Attempted, bid: Bid, on_done: Callable[[str], None]
    ) -> bool:
        """Ask for a contract; False if there is no money for it, and then nothing happens.
        `on_done` hears '' when it is signed, or why there is none."""
        if not self.ledger.reserve(bid.cost):
            return False
        provider, task, attempt = attempted

        def agreed(number: str, terms: Bid | None, why: str) -> None:
            if terms is None or self._is_open(provider, number):
                self.ledger.release(bid.cost)
                why = why or f"{provider} gave the number of another contract"
            else:
                self._sign(service, attempted, Contract(number, bid, self._world.now()))
            on_done(why)

        self._broker.agree(service, provider, task, attempt, bid, agreed)
        return True

    def _is_open(self, provider: PeerName, number: str) -> bool:
        """Numbers are the provider's, and it might give one twice."""
        return (provider, number) in self._numbers

    def _sign(self, service: int, attempted: Attempted, contract: Contract) -> None:
        provider, task, attempt = attempted
        self.ledger.sign(contract)
        self._numbers.add((provider, contract.number))
        self._signed[attempted] = Signed(contract, service)
        bid = contract.bid
        made = Contracted(
            contract.made_at,
            task,
            attempt,
            provider,
            contract.number,
            bid.cost,
            bid.time,
            bid.early,
            bid.late,
            bid.late_fee,
            bid.cancel_fee,
        )
        self._engine.note(
            "contracted",
            f"{provider} took attempt {attempt} on for {bid.cost:g}, to take "
            f"{duration(bid.early)} to {duration(bid.late)}",
            msgspec.msgpack.encode(made),
            task=self._engine.graph.index[task],
            attempt=attempt,
            peer=provider,
        )

    def settle(self, attempted: Attempted, ending: Ending, reason: str) -> Contract | None:
        """The contract of an attempt is over, if it had one."""
        signed = self._signed.pop(attempted, None)
        if signed is None:
            return None
        contract, now = signed.contract, self._world.now()
        due = self.ledger.settle(contract, max(0.0, now - contract.made_at), ending)
        assert due is not None, "every signed contract is open"
        provider = attempted[0]
        self._numbers.discard((provider, contract.number))
        over = Settled(now, provider, contract.number, due.paid, due.refunded, reason)
        back = f", {due.refunded:g} came back" if due.refunded else ""
        self._engine.note(
            "settled",
            f"{due.paid:g} was paid to {provider} ({reason}){back}",
            msgspec.msgpack.encode(over),
            task=self._engine.graph.index[attempted[1]],
            attempt=attempted[2],
            peer=provider,
            paid=due.paid,
        )
        if ending != "done":
            self._broker.end(signed.service, provider, contract.number)
        return contract
