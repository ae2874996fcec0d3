"""The client's side of `surety`, part by part: how contracts end, what repairs may cost, and how
much is looked at for one decision."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace

import pytest

from sureline.peer.capacity import Capacity, Ledger
from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Finished, Refused
from sureline.run.port import Bound, Over, Target
from sureline.run.repair import Remedy, RunningAttempt
from sureline.strategies.surety.client import underway
from sureline.strategies.surety.client.broker import ASKED_MAX, Broker
from sureline.strategies.surety.client.client import _ending
from sureline.strategies.surety.client.placing import Chosen, Placing
from sureline.strategies.surety.client.repairer import MoneyRepairer
from sureline.strategies.surety.client.services import Services
from sureline.strategies.surety.client.trust import ProviderTrust
from sureline.strategies.surety.contract import Bid
from sureline.strategies.surety.invocation import EstimateCall, Offered
from sureline.workflow.model import Command, Graph, Needs, Task
from sureline.world.address import node_of

# -- how a contract ends -------------------------------------------------------------------------


def finished(outcome, elapsed_s):
    return Finished("r", "t", 1, JobEnded(outcome, elapsed_s=elapsed_s), "key")


@pytest.mark.parametrize(
    ("ending", "told", "withdrawn", "started", "settled"),
    [
        ("succeeded", finished("succeeded", 3.0), False, True, "done"),
        ("failed", finished("failed", 3.0), False, True, "done"),
        ("timeout", finished("timeout", 3.0), False, True, "done"),
        ("withdrawn", finished("cancelled", 3.0), True, True, "cancelled"),
        ("withdrawn", finished("cancelled", 3.0), True, False, "cancelled"),
        ("withdrawn", finished("cancelled", 0.0), True, False, "unused"),
        ("withdrawn", None, True, True, "cancelled"),
        ("cancelled", finished("cancelled", 3.0), False, True, "broken"),
        ("lost", finished("lost", 0.0), False, True, "broken"),
        ("lost", None, False, True, "broken"),
        ("refused", Refused("r", "t", 1, "full"), False, False, "unused"),
    ],
)
def test_how_a_contract_ends_by_how_its_attempt_ended(ending, told, withdrawn, started, settled):
    bound = Bound(0, 1, "p", 0.0, started=started, withdrawn=withdrawn)
    assert _ending(Over(bound, ending, told))[0] == settled


# -- what repairs may cost -----------------------------------------------------------------------


class Repairs:
    """A repairer with so much left beyond what all open tasks need, and offers at these costs."""

    def __init__(self, left, costs):
        self.agreed = []
        bids = {name: Bid("k", name, cost, 60.0, 50.0, 70.0) for name, cost in costs.items()}
        options = [Chosen(b.provider, b.cost, 60.0, 0.0, b, True) for b in bids.values()]
        engine = SimpleNamespace(
            unfit=lambda task: (),
            graph=Graph("g", [Task(f"t{i}", Command("x")) for i in range(3)]),
            next_attempt=lambda task: 2,
        )
        placing = SimpleNamespace(
            spendable=lambda: left,
            anywhere=lambda task: options,
            places_at=lambda task, provider: 9,
            slower=lambda provider: 1.0,
        )
        money = SimpleNamespace(
            needs_contract=lambda provider, bid: True,
            agree=lambda service, attempted, bid, then: self.agreed.append(bid.cost) or True,
        )
        self.repairer = MoneyRepairer(
            engine,
            SimpleNamespace(),
            SimpleNamespace(of=[0, 0, 0]),
            SimpleNamespace(offer=lambda service, name: SimpleNamespace(bid=bids[name])),
            money,
            placing,
            SimpleNamespace(),
        )

    def apply(self, to):
        told = []
        self.repairer.apply(Remedy("duplicate", (), 0, "slow", to, 0.0), told.append)
        return told


@pytest.mark.parametrize("left", [1.9, 0.0, -5.0])
def test_no_repair_is_agreed_on_that_costs_more_than_is_left(left):
    repairs = Repairs(left, {"dear": 2.0})
    (told,) = repairs.apply("dear")
    assert not told.done and "more than is left" in told.why
    assert not repairs.agreed


def test_a_repair_may_cost_all_that_is_left():
    repairs = Repairs(2.0, {"dear": 2.0})
    assert repairs.apply("dear") == [] and repairs.agreed == [2.0]


@pytest.mark.parametrize(("left", "repaired"), [(1.9, 0), (2.0, 1), (3.9, 1), (4.0, 2), (9.0, 3)])
def test_repairs_that_are_offered_together_cost_no_more_than_is_left(left, repaired):
    late = [[RunningAttempt(task, 1, "slow", 0.0)] for task in range(3)]
    found = Repairs(left, {"dear": 2.0}).repairer._spread(late, lambda o: (o.cost, o.took_s))
    assert len(found) == repaired


# -- how much is looked at -----------------------------------------------------------------------

KINDS = 12


class Market:
    """A client's placing and broker with so many peers; whoever is asked for a bid makes one."""

    def __init__(self, monkeypatch, peers, under_way_each=0):
        tasks = [
            Task(f"k{k}_{n}", Command("x"), kind=f"k{k}", needs=Needs(cores=1))
            for k in range(KINDS)
            for n in range(4)
        ]
        self.graph = Graph("g", tasks)
        self.calls = Counter()
        self.asked = []
        self.world = SimpleNamespace(
            now=lambda: 0.0, elapsed=lambda: 0.0, send=self.hear, after=lambda s, a: None
        )
        engine = SimpleNamespace(
            unfit=lambda task: (),
            run="r",
            graph=self.graph,
            urgency=lambda task: 1.0,
            held=lambda task: {},
            next_attempt=lambda task: 1,
        )
        services = Services(self.graph, {})
        self.broker = Broker(self.world, "r", 1, services, lambda bids: None)
        money = SimpleNamespace(left=1e9, needs_contract=lambda provider, bid: False)
        self.placing = Placing(
            engine,
            self.world,
            services,
            self.broker,
            money,
            ProviderTrust(),
            lambda task, name: False,
        )
        for service in range(len(services)):
            self.broker.deal_in(service)
        self.count(monkeypatch, Ledger, "fits")
        self.count(monkeypatch, Broker, "offers")
        self.count(monkeypatch, underway._Attempt, "left_s")
        self.count(monkeypatch, underway._Attempt, "longer")
        for peer in range(peers):
            self.join(peer)
            for n in range(under_way_each):
                self.placing.bound(Bound((peer + n) % len(self.graph), 1, f"p{peer}", 0.0))

    def hear(self, to, message):
        if isinstance(message, EstimateCall):
            self.asked.append((node_of(to), message))

    def join(self, peer):
        name, capacity = f"p{peer}", Capacity(8, 0)
        self.broker.joined(name, name, capacity, 1.0)
        self.placing.target(Target(name, f"{name}/peer", capacity, extras={"price": 1.0}))
        while self.asked:
            provider, ask = self.asked.pop()
            bid = Bid("k", provider, 1.0, 60.0, 50.0, 70.0)
            self.broker.heard(provider, Offered("r", ask.deal, ask.serial, bid, 8))

    def count(self, monkeypatch, owner, name):
        before, calls = getattr(owner, name), self.calls

        def counted(*arguments):
            calls[name] += 1
            return before(*arguments)

        monkeypatch.setattr(owner, name, counted)

    def counted(self, action):
        self.calls.clear()
        action()
        return dict(self.calls)


def test_a_decision_looks_at_no_more_when_more_is_under_way(monkeypatch):
    few, many = Market(monkeypatch, 2 * ASKED_MAX, 2), Market(monkeypatch, 20 * ASKED_MAX, 2)
    assert len(many.placing.under_way()) == 10 * len(few.placing.under_way())
    for market in (few, many):
        market.placing.options(0)  # what everything costs at least is known then
    looked = few.counted(lambda: few.placing.options(1))
    assert looked == many.counted(lambda: many.placing.options(1))
    assert looked["longer"] >= ASKED_MAX, "what those that are asked have is looked at"
    assert sum(looked.values()) < 10 * ASKED_MAX


def test_a_join_looks_at_each_service_once_however_many_are_there(monkeypatch):
    few, many = Market(monkeypatch, 4), Market(monkeypatch, 40 * ASKED_MAX)
    assert few.counted(lambda: few.join(9_999))["fits"] <= 2 * KINDS
    assert many.counted(lambda: many.join(9_999)).get("fits", 0) <= 2 * KINDS


def test_bids_are_gone_through_once_for_many_joins(monkeypatch):
    market = Market(monkeypatch, 4)
    joined = market.counted(lambda: [market.join(100 + n) for n in range(50)])
    assert "offers" not in joined
    assert market.counted(lambda: market.placing.spendable(0))["offers"] <= KINDS
    assert "offers" not in market.counted(lambda: market.placing.spendable(0))
