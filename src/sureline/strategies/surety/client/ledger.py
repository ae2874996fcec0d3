"""A client's book of money: what is set aside, what is bound by contracts, what is spent.

At every moment spent + bound + set aside <= budget. A contract binds all that it can cost, so
that nothing that happens later, a late provider or a lost message, can exceed the budget; what
does not become due is free again when the contract is settled.

Sums are exact: amounts are taken as the decimal numbers that they are written as, so that 650
contracts at 0.1 fit into a budget of 65.
"""

from __future__ import annotations

from collections.abc import Iterable
from fractions import Fraction

from sureline.strategies.surety.contract import Bid, Contract, Contracted, Settled
from sureline.strategies.surety.pricing import Ending, Settlement, settlement

Key = tuple[str, str]
"""(provider, number): who gave a contract its number, and the number."""


class Spending:
    """`budget` None is no limit; everything is counted all the same."""

    def __init__(self, budget: float | None = None) -> None:
        self.budget = budget
        self._limit = None if budget is None else exact(budget)
        self._aside = Fraction(0)
        self._spent = Fraction(0)
        self._refunded = Fraction(0)
        self._bound = Fraction(0)
        self._contracts: dict[Key, Contract] = {}

    @classmethod
    def of(cls, budget: float | None, entries: Iterable[Contracted | Settled]) -> Spending:
        """The book of a run that an earlier process began. Contracts that were not settled stay
        bound, until whoever goes on settles them."""
        self = cls(budget)
        for event in entries:
            if isinstance(event, Contracted):
                contract = _recorded(event)
                self._aside += exact(_price(contract))
                self.sign(contract)
            else:
                self._book((event.provider, event.contract), event.paid, event.refunded)
        return self

    @property
    def spent(self) -> float:
        """Paid for good, refunds taken off."""
        return float(self._spent)

    @property
    def refunded(self) -> float:
        """What came back as fees."""
        return float(self._refunded)

    @property
    def committed(self) -> float:
        """What open contracts, and what is set aside for some, can cost at most."""
        return float(self._bound + self._aside)

    @property
    def available(self) -> float | None:
        """What is left to spend; None if there is no limit."""
        if self._limit is None:
            return None
        return float(self._limit - self._spent - self._bound - self._aside)

    @property
    def open(self) -> list[Contract]:
        return list(self._contracts.values())

    def reserve(self, cost: float) -> bool:
        """Set money aside for a contract that is about to be asked for; False if there is not so
        much left, and then nothing changes."""
        amount = exact(cost)
        total = self._spent + self._bound + self._aside + amount
        if self._limit is not None and total > self._limit:
            return False
        self._aside += amount
        return True

    def release(self, cost: float) -> None:
        """The contract did not come about: what was set aside is free again."""
        self._take_aside(exact(cost))

    def sign(self, contract: Contract) -> None:
        """A contract was made, for which its price had been set aside. Told again, it changes
        nothing."""
        key = _key(contract)
        if key in self._contracts:
            return
        amount = exact(_price(contract))
        self._take_aside(amount)
        self._contracts[key] = contract
        self._bound += amount

    def settle(self, contract: Contract, ended_s: float, ending: Ending) -> Settlement | None:
        """A contract is over, `ended_s` after its attempt was bound; None if it was settled
        before."""
        if _key(contract) not in self._contracts:
            return None
        due = settlement(contract.bid, ending, ended_s, reserved=contract.reserved)
        self._book(_key(contract), due.paid, due.refunded)
        return due

    def _book(self, key: Key, paid: float, refunded: float) -> None:
        contract = self._contracts.pop(key, None)
        if contract is None:
            return
        price = exact(_price(contract))
        self._bound -= price
        self._spent += min(price, exact(paid))
        self._refunded += exact(refunded)

    def _take_aside(self, amount: Fraction) -> None:
        assert amount <= self._aside, "released or signed for more than was set aside"
        self._aside -= amount


def exact(amount: float) -> Fraction:
    """The decimal number that a float is written as.

    >>> exact(0.1) * 650 == 65
    True
    """
    return Fraction(repr(float(amount)))


def _price(contract: Contract) -> float:
    """All that it can cost."""
    return contract.bid.price if contract.reserved else contract.bid.cost


def _key(contract: Contract) -> Key:
    return (contract.bid.provider, contract.number)


def _recorded(event: Contracted) -> Contract:
    bid = Bid(
        "",
        event.provider,
        event.cost,
        event.time_s,
        event.early_s,
        event.late_s,
        event.late_fee,
        event.cancel_fee,
        event.reserve_fee,
    )
    return Contract(event.contract, bid, event.at, reserved=event.reserve_fee > 0)
