"""Money: the budget is never exceeded, and fees flow in the right direction."""

from __future__ import annotations

from fractions import Fraction

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureline.journal.events import Unknown, decode
from sureline.journal.views import RunView
from sureline.strategies.surety.client.ledger import Spending, exact
from sureline.strategies.surety.contract import Bid, Contract, Contracted, Settled, entries_of
from sureline.strategies.surety.pricing import (
    Tariff,
    answer_to,
    bid_for,
    is_sensible,
    settlement,
)
from sureline.workflow.model import Needs, Takes

BID = Bid("s", "p", cost=10.0, time=5.0, early=3.0, late=7.0, late_fee=2.0, cancel_fee=4.0)
HELD = Bid("s", "p", 10.0, 5.0, 3.0, 7.0, late_fee=2.0, cancel_fee=4.0, reserve_fee=1.0)
ENDINGS = ("done", "cancelled", "unused", "broken")

money = st.floats(0, 1000, allow_nan=False).map(lambda x: round(x, 4))
seconds = st.floats(0, 100, allow_nan=False)


@pytest.mark.parametrize(
    "ending, ended_s, reserved, paid, refunded",
    [
        ("done", 5.0, False, 10.0, 0.0),
        ("done", 7.0, False, 10.0, 0.0),  # late begins after `late`, not at it
        ("done", 9.0, False, 6.0, 4.0),
        ("done", 1000.0, False, 0.0, 10.0),  # never more than the cost
        ("cancelled", 5.0, False, 6.0, 4.0),
        ("cancelled", 8.0, False, 4.0, 6.0),  # late, and then cancelled
        ("cancelled", 1000.0, False, 0.0, 10.0),
        ("unused", 0.0, False, 0.0, 0.0),
        ("unused", 0.0, True, 1.0, 0.0),  # the reservation stays paid
        ("done", 5.0, True, 11.0, 0.0),
        ("done", 1000.0, True, 1.0, 10.0),
        ("broken", 5.0, False, 0.0, 0.0),
        ("broken", 5.0, True, 0.0, 1.0),
    ],
)
def test_who_owes_what_at_the_end(ending, ended_s, reserved, paid, refunded):
    due = settlement(HELD, ending, ended_s, reserved=reserved)
    assert (due.paid, due.refunded) == (paid, refunded)


def test_the_price_is_for_cores_and_expected_time():
    takes = Takes(1800.0, 3600.0, 5400.0)
    tariff = Tariff(2.0, late_fee=3.0, cancel_share=0.25, reserve_share=0.1, hold_s=60.0)
    bid = bid_for("k", "p", Needs(cores=4), takes, tariff, now=100.0)
    assert (bid.cost, bid.early, bid.time, bid.late) == (8.0, 1800.0, 3600.0, 5400.0)
    assert bid.late_fee == pytest.approx(3.0 * 4 / 3600)
    assert (bid.cancel_fee, bid.reserve_fee, bid.expires) == (2.0, 0.8, 160.0)


def test_asking_for_no_cores_is_not_free():
    assert bid_for("k", "p", Needs(cores=0), Takes(1, 3600, 7199), Tariff(2.0), 0.0).cost > 0


@pytest.mark.parametrize(
    "wished, load, cost",
    [
        (9.0, 0.0, 9.0),
        (8.0, 0.0, 8.0),  # 20 % off, and no more
        (7.9, 0.0, 10.0),
        (9.0, 0.5, 9.0),
        (8.9, 0.5, 10.0),  # the busier, the less comes off
        (9.9, 1.0, 10.0),
        (11.0, 0.0, 10.0),
    ],
)
def test_bargaining_stays_within_the_discount(wished, load, cost):
    wish = Bid("s", "p", wished, 1.0, 1.0, 1.0, late_fee=99.0, cancel_fee=99.0)
    granted = answer_to(wish, BID, Tariff(discount=0.2), load)
    assert granted.cost == cost
    assert (granted.time, granted.late, granted.late_fee) == (5.0, 7.0, 2.0)


def test_a_wish_for_another_service_is_not_granted():
    wish = Bid("other", "p", 9.0, 5.0, 3.0, 7.0)
    assert answer_to(wish, BID, Tariff(discount=0.2), 0.0) == BID


@pytest.mark.parametrize(
    "absurd",
    [
        Bid("s", "p", -1.0, 5, 3, 7),
        Bid("s", "p", float("nan"), 5, 3, 7),
        Bid("s", "p", 1.0, 5, 6, 7),
        Bid("s", "p", 1.0, 5, 3, float("inf")),
        Bid("s", "p", 1.0, 5, 3, 7, late_fee=-2.0),
        Bid("s", "p", 1.0, 5, 3, 7, expires=float("nan")),
    ],
)
def test_bids_that_cannot_be_meant(absurd):
    assert is_sensible(BID) and not is_sensible(absurd)


@given(
    cost=money,
    fees=st.tuples(money, money, money),
    late=seconds,
    ended_s=seconds,
    ending=st.sampled_from(ENDINGS),
    reserved=st.booleans(),
)
def test_nobody_gets_back_more_than_was_paid(cost, fees, late, ended_s, ending, reserved):
    bid = Bid("s", "p", cost, late / 2, 0.0, late, *fees)
    due = settlement(bid, ending, ended_s, reserved=reserved)
    price = bid.price if reserved else bid.cost
    assert 0 <= due.paid <= price and 0 <= due.refunded <= price
    if ending in ("done", "cancelled"):
        assert due.paid + due.refunded == pytest.approx(price)


steps = st.lists(
    st.one_of(
        st.tuples(st.just("reserve"), money),
        st.tuples(st.just("give up"), st.integers(0, 50)),
        st.tuples(st.just("sign"), st.integers(0, 50)),
        st.tuples(
            st.just("settle"), st.integers(0, 50), seconds, st.sampled_from(ENDINGS), st.booleans()
        ),
    ),
    max_size=60,
)


@given(budget=money, steps=steps)
def test_the_budget_holds_whatever_happens(budget, steps):
    """Against a book kept by hand: exactly, at every step."""
    ledger, events = Spending(budget), []
    aside: list[float] = []
    bound: dict[str, Contract] = {}
    over: list[Contract] = []
    spent = Fraction(0)
    for step in steps:
        match step:
            case ("reserve", cost):
                held = sum(map(exact, aside)) + sum(exact(c.bid.cost) for c in bound.values())
                fits = spent + held + exact(cost) <= exact(budget)
                assert ledger.reserve(cost) == fits
                aside += [cost] if fits else []
            case ("give up", place) if aside:
                ledger.release(aside.pop(place % len(aside)))
            case ("sign", place) if aside:
                cost = aside.pop(place % len(aside))
                number = str(len(bound) + len(over))
                contract = Contract(number, Bid("s", "p", cost, 5.0, 3.0, 7.0, 1.0, 2.0), 0.0)
                ledger.sign(contract)
                ledger.sign(contract)  # the answer came twice
                bound[number] = contract
                events.append(Contracted(0.0, "t", 1, "p", number, cost, 5.0, 3.0, 7.0, 1.0, 2.0))
            case ("settle", place, ended_s, ending, _) if bound:
                contract = bound.pop(list(bound)[place % len(bound)])
                due = ledger.settle(contract, ended_s, ending)
                assert ledger.settle(contract, 0.0, "done") is None  # only once
                assert due == settlement(contract.bid, ending, ended_s)
                spent += exact(due.paid)
                over.append(contract)
                events.append(Settled(0.0, "p", contract.number, due.paid, due.refunded))
        assert ledger.spent + ledger.committed <= budget + 1e-9
        assert spent + exact_committed(aside, bound) <= exact(budget)
        assert ledger.spent == float(spent)
        assert ledger.committed == float(exact_committed(aside, bound))
        assert ledger.available == float(exact(budget) - spent - exact_committed(aside, bound))
    again = Spending.of(budget, events)
    assert again.spent == ledger.spent and again.refunded == ledger.refunded
    assert [c.number for c in again.open] == [c.number for c in ledger.open]


def exact_committed(aside, bound) -> Fraction:
    return sum(map(exact, aside), Fraction(0)) + sum(exact(c.bid.cost) for c in bound.values())


def test_sums_are_those_of_the_decimal_numbers():
    ledger = Spending(65.0)
    assert all(ledger.reserve(0.1) for _ in range(650))
    assert not ledger.reserve(0.000001)
    assert ledger.available == 0.0


def test_a_budget_of_nothing_takes_what_is_free():
    ledger = Spending(0.0)
    assert ledger.reserve(0.0) and not ledger.reserve(0.01)


def test_without_a_budget_everything_is_counted():
    ledger = Spending(None)
    assert ledger.reserve(1e9) and ledger.available is None
    contract = Contract("1", Bid("s", "p", 1e9, 1, 1, 1), 0.0)
    ledger.sign(contract)
    ledger.settle(contract, 1.0, "done")
    assert ledger.spent == 1e9 and ledger.committed == 0.0


def test_a_reservation_binds_its_fee_too():
    ledger = Spending(11.0)
    contract = Contract("1", HELD, 0.0, reserved=True)
    assert ledger.reserve(contract.bid.price) and ledger.available == 0.0
    ledger.sign(contract)
    due = ledger.settle(contract, 0.0, "unused")
    assert due is not None and due.paid == ledger.spent == 1.0
    assert ledger.available == 10.0


def test_the_book_of_a_journal_from_before_there_were_notes_is_read():
    """Contracts were events then: they are unknown now, and kept as they came."""
    made = Contracted(1.0, "t", 1, "p", "7", 4.0, 5.0, 3.0, 7.0)
    over = Settled(2.0, "p", "7", 3.0, 1.0, "done")
    events = [
        decode(msgspec.msgpack.encode({"event": kind, **msgspec.to_builtins(entry)}))
        for kind, entry in (("contracted", made), ("settled", over))
    ]
    assert [type(event) for event in events] == [Unknown, Unknown]
    assert entries_of(events) == [made, over]
    assert Spending.of(10.0, entries_of(events)).spent == 3.0
    assert RunView.of(events).spent == 3.0
