"""Runs with terms on simulated grids: bids, contracts, the budget, repair; the agents are the real
ones. What must hold of the money is checked at every event of the journal (`market_lab`)."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from market_lab import BEGIN_S, MarketLab, chain, fan

from sureline.experiments.drive import run_scenario
from sureline.experiments.market import Seller
from sureline.experiments.scenario_reader import read_scenario
from sureline.journal.events import (
    Opened,
    Planned,
    Repaired,
    TaskBound,
    TaskEnded,
)
from sureline.journal.history import Observed
from sureline.strategies.surety.client.services import Services, took_before
from sureline.strategies.surety.client.trust import ProviderTrust
from sureline.strategies.surety.contract import Contracted, Settled
from sureline.strategies.surety.invocation import Declined, Invoke, Invoked
from sureline.strategies.surety.planning.assignment import Market, TaskPrice, assign, plans
from sureline.strategies.surety.pricing import Tariff
from sureline.strategies.surety.provider.agent import PART, Provider
from sureline.world.address import at, node_of
from sureline.world.agent import handles

PRICED = {f"m{n}": Tariff(60.0 * n, late_fee=60.0, cancel_share=0.2) for n in (2, 3, 4)}
"""A task of a minute costs 2, 3, 4; m1 is free."""


def used(lab):
    return {event.peer for event in lab.of(TaskBound)}


# -- the budget --------------------------------------------------------------------------------


def test_every_attempt_on_a_priced_peer_has_a_contract_that_is_settled_and_paid():
    lab = MarketLab(fan(6), PRICED, budget=20)
    lab.drive()
    lab.check()
    contracted = {(e.task, e.attempt, e.provider) for e in lab.of(Contracted)}
    bound = {(e.task, e.attempt, e.peer) for e in lab.of(TaskBound)}
    assert contracted == {one for one in bound if one[2] != "m1"}
    assert lab.spent == pytest.approx(10.0)  # two at 2, two at 3; m1 has room for the other two
    assert lab.took_s < 140  # one round, and the join
    assert "surety.examine" not in lab.grid.sim.counters.by_type()  # nobody was late


def test_without_money_only_free_peers_are_used():
    lab = MarketLab(fan(6), PRICED, budget=0)
    lab.drive()
    lab.check()
    assert used(lab) == {"m1"} and not lab.of(Contracted)


def test_the_budget_holds_and_the_rest_is_done_by_who_is_free():
    lab = MarketLab(fan(12), PRICED, budget=5)
    lab.drive()
    lab.check()
    assert 0 < lab.spent <= 5


def test_with_nobody_free_and_too_little_money_nothing_is_spent_in_vain():
    all_priced = PRICED | {"m1": Tariff(60.0)}
    lab = MarketLab(fan(6), all_priced, budget=3)  # seven tasks at 1 or more
    lab.drive(until_s=300.0)
    assert not lab.driver.over and not lab.of(Contracted)


def test_cheaper_tasks_leave_enough_for_all_others():
    all_priced = PRICED | {"m1": Tariff(60.0)}
    lab = MarketLab(fan(6), all_priced, budget=8.0)  # seven at 1, and 1 to spare
    lab.drive()
    lab.check()
    assert lab.spent <= 8


# -- the deadline ------------------------------------------------------------------------------


def test_the_plan_is_the_cheapest_that_is_sure_enough():
    loose = MarketLab(fan(6), PRICED, within_s=400, budget=30)
    loose.drive()
    loose.check()
    tight = MarketLab(fan(6), PRICED, within_s=150, budget=30)
    tight.drive()
    tight.check()
    (of_loose,), (of_tight,) = loose.of(Planned), tight.of(Planned)
    assert of_loose.cost == 0 and of_loose.surety > 0.9 and loose.spent == 0
    assert of_tight.cost == pytest.approx(10.0) and of_tight.surety > 0.9
    assert tight.took_s <= 150 < loose.took_s <= 400


def test_a_straggler_and_a_killed_provider_are_repaired_in_time_and_paid_rightly():
    lab = MarketLab(fan(6), PRICED, within_s=260, budget=30)
    lab.grid.at(30.0, lambda: lab.grid.slow("m1", 0.02))
    killed = []

    def kill():
        """The first provider that has been paid for something."""
        for event in lab.of(Contracted):
            if not killed:
                killed.append(event.provider)
                lab.grid.kill(event.provider)

    lab.grid.at(75.0, kill)
    lab.grid.at(80.0, kill)
    lab.drive()
    lab.check()
    assert lab.took_s <= 260
    assert {e.action for e in lab.of(Repaired)} & {"duplicate", "substitute", "swap"}
    # nothing is owed to who lost what it was to do
    (gone,) = killed
    lost = {e.attempt for e in lab.of(TaskEnded) if e.outcome == "lost" and e.peer == gone}
    broken = [e for e in lab.of(Settled) if e.provider == gone and "lost" in e.reason]
    assert all(e.paid == 0 for e in broken)
    assert lost and broken
    for repair in lab.of(Repaired):
        assert repair.reason and 0 <= repair.surety_before <= 1 and 0 <= repair.surety_after <= 1


def test_without_repair_the_same_run_is_late():
    lab = MarketLab(fan(6), PRICED, within_s=260, budget=30, repair=False)
    lab.grid.at(30.0, lambda: lab.grid.slow("m1", 0.5))
    lab.drive()
    lab.check()
    assert lab.took_s > 260 and not lab.of(Repaired)


# -- going on after a crash --------------------------------------------------------------------


@pytest.mark.parametrize("at_s", [BEGIN_S + 0.0068, BEGIN_S + 30.0, BEGIN_S + 70.0])
def test_a_resumed_run_goes_on_with_the_same_book(at_s):
    lab = MarketLab(fan(8), PRICED, budget=16)
    lab.grid.at(at_s, lambda: lab.grid.crash(lab.home))
    lab.grid.at(at_s + 10.0, lambda: lab.grid.restart(lab.home))
    lab.drive()
    lab.check()
    assert len(lab.of(Opened)) == 2


# -- providers that do not do as they said -----------------------------------------------------


class Fickle(Provider):
    """Bids, but makes no contract."""

    @handles(Invoke)
    def on_invoke(self, sender, message):
        answer = Declined(message.run, message.deal, message.serial, "changed its mind")
        self.world.send(sender, answer)


class Silent(Provider):
    @handles(Invoke)
    def on_invoke(self, sender, message):
        pass


class Grasping(Provider):
    """Makes the contract dearer than its bid."""

    @handles(Invoke)
    def on_invoke(self, sender, message):
        dearer = msgspec.structs.replace(message.bid, cost=message.bid.cost * 100)
        self.world.send(sender, Invoked(message.run, message.deal, message.serial, "same", dearer))


class Repeating(Provider):
    """Gives all contracts one number."""

    @handles(Invoke)
    def on_invoke(self, sender, message):
        self.world.send(
            sender, Invoked(message.run, message.deal, message.serial, "same", message.bid)
        )


class Sold(Seller):
    kind: type[Provider] = Provider

    def _provider(self, machine, place, settings):
        return self.kind(
            at(node_of(machine.me), PART), place(PART), machine, self.tariff, self.speed
        )


@pytest.mark.parametrize("kind", [Fickle, Silent, Grasping, Repeating])
def test_a_task_whose_contract_cannot_be_had_goes_elsewhere(kind):
    lab = MarketLab(fan(6), PRICED, budget=20)
    lab.grid.boxes["m2"].seller = Sold(PRICED["m2"], kind=kind)
    lab.drive()
    lab.check()
    assert not [e for e in lab.of(TaskEnded) if e.peer == "m2" and e.outcome == "succeeded"]
    assert lab.took_s < 300


def test_lost_messages_only_delay_things():
    text = """
duration = "1h"
[grid]
machines = 4
cores = 2
price = "uniform(50, 150)"
cancel_fee = 0.2
[network]
loss = 0.05
duplication = 0.02
reordering = true
[workload]
kind = "fork-join"
width = 6
stages = 2
work = "lognormal(20s, 0.3)"
strategy = "surety"
budget = 60
[[faults.random]]
what = "crash"
whom = "submitter"
from = "20s"
every = "uniform(5s, 30s)"
for = "uniform(1s, 20s)"
times = 2
"""
    scenario = read_scenario(text.encode(), file="rough.toml", beside=None)
    for seed in (1, 2, 3):
        outcome = run_scenario(scenario, seed)
        broken = [(check.what, check.problems) for check in outcome.checks if not check.held]
        assert outcome.good, (seed, broken)


# -- plans -------------------------------------------------------------------------------------


def test_plans_get_dearer_and_quicker():
    graph = fan(8)
    services = Services(graph, {})
    offered = [
        TaskPrice("free", 0.0, 90.0),
        TaskPrice("cheap", 1.0, 60.0),
        TaskPrice("quick", 4.0, 20.0),
    ]
    market = Market([offered] * len(services), {"free": 1, "cheap": 2, "quick": 2}, [1.0, 1.0])
    found = plans(graph, list(range(len(graph))), services.of, market)
    assert len(found) > 2
    assert found[0].cost == 0 and found[0].providers == ["free"] and found[0].seconds == 9 * 90
    for cheaper, dearer in pairwise(found):
        assert dearer.cost > cheaper.cost and dearer.seconds < cheaper.seconds


def test_a_chain_is_given_to_the_quickest_when_time_is_dear():
    graph = chain(4)
    services = Services(graph, {})
    market = Market(
        [[TaskPrice("free", 0.0, 60.0), TaskPrice("quick", 2.0, 30.0)]],
        {"free": 2, "quick": 2},
        [1.0],
    )
    dear = assign(graph, range(4), services.of, market, 1.0)
    cheap = assign(graph, range(4), services.of, market, 0.01)
    assert dear is not None and dear.seconds == 120 and dear.cost == 8
    assert cheap is not None and cheap.seconds == 240 and cheap.cost == 0


def test_trust_follows_what_was_kept():
    trust = ProviderTrust()
    assert trust.factor("p") == 1
    for _ in range(20):
        trust.kept("p", 10.0, 30.0)
    assert 2.5 < trust.factor("p") < 3
    trust.broke("q")
    assert trust.factor("q") > 1 and trust.factor("r") == 1


def test_what_took_how_long_before_needs_a_few_observations():
    seen = [Observed(float(n), 0, float(n), "r") for n in range(1, 12)]
    found = took_before({"sort": seen, "rare": seen[:2]})
    assert set(found) == {"sort"}
    assert (found["sort"].optimistic_s, found["sort"].likely_s) == (2.0, 6.0)
