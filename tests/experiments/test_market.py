"""Providers of simulated grids: what they ask, and how some of them break their word."""

from __future__ import annotations

import msgspec
import pytest

from sureline.experiments.drive import run_scenario
from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.scenario import Dealing
from sureline.experiments.scenario_reader import read_scenario
from sureline.experiments.toml_table import ScenarioError
from sureline.experiments.work import Work
from sureline.journal.events import Noted
from sureline.peer.jobs import CommandJob
from sureline.peer.messages import Attach, Attached, Bind, Finished, Started
from sureline.strategies.surety import surety
from sureline.strategies.surety.contract import Contracted, Settled
from sureline.strategies.surety.invocation import (
    EstimateCall,
    Invoke,
    Invoked,
    Offered,
    Parameters,
    SetParam,
    Setup,
)
from sureline.workflow.model import Command, Graph, Needs, Takes, Task
from sureline.workflow.terms import Terms
from sureline.world.address import at
from sureline.world.agent import Agent
from sureline.world.identity.signing import begun, charter

WORK_S = 100.0


def read(text: str):
    return read_scenario(text.encode(), file="x.toml", beside=None)


def seller(behaviour: str, more: str = ""):
    return read(
        f"""
[grid]
machines = 1
cores = 2
price = 36
behaviour = "{behaviour}"
overbook = 2
{more}
[workload]
kind = "chain"
strategy = "surety"
"""
    )


class Buyer(Agent):
    """Deals with the one provider there is, task by task, and notes when each result came."""

    def __init__(self, grid):
        me = at("submitter", "run.r")
        super().__init__(me, grid.sim.place(me))
        grid.sim.join(self)
        self.sim, self.started, self.ended, self.numbers = grid.sim, {}, {}, {}
        by, key = grid.roll.certified("submitter"), grid.roll.new_key()
        papers = charter(by, key, "r", b"a graph", b"an event", 0.0)
        self.papers = begun(papers, by, key, "r", 1, 0.0, grid.roll).papers
        self.offers = {}

    def attach(self):
        self.world.send("m1/peer", Attach("r", 1, 1, self.papers))

    def buy(self, *tasks: str, takes_s: float = WORK_S):
        """The first letter of a task is its kind; all of a kind are bought at once."""
        for task in tasks:
            deal = ord(task[0])
            takes = Takes(takes_s, takes_s, takes_s)
            for number, (kind, argument) in enumerate(
                [
                    (Setup, task[0]),
                    (SetParam, Parameters(Needs(), takes=takes)),
                    (EstimateCall, None),
                ]
            ):
                self.world.send("m1/market", kind("r", deal, number, argument))
            self.numbers[deal] = [*self.numbers.get(deal, []), task]

    def receive(self, sender, message):
        match message:
            case Offered(deal=deal, bid=bid):
                for task in self.numbers.pop(deal, []):
                    self.offers[task] = bid
                    serial = 1000 + len(self.offers)
                    self.world.send(sender, Invoke("r", deal, serial, bid, task, 1))
                    self.numbers[serial] = task
            case Invoked(serial=serial, contract=contract):
                task = self.numbers.pop(serial)
                job = CommandJob(f"{task}.1", task, 1, task)
                bind = Bind(
                    "r", task, 1, job, Needs(), epoch=1, strategy="surety", claim=contract.encode()
                )
                self.world.send("m1/peer", bind)
            case Started(task=task):
                self.started[task] = self.sim.time
            case Finished(task=task):
                self.ended.setdefault(task, self.sim.time - self.started[task])
            case Attached():
                pass


def bought(behaviour: str, tasks: dict[str, float], more: str = ""):
    """What became of tasks of WORK_S each that were bought at these times."""
    scenario = seller(behaviour, more)
    graph = Graph("g", [Task(t, Command(t), takes=Takes(*[WORK_S] * 3)) for t in tasks])
    grid = SimulatedGrid(scenario, 1, Work(graph, 1))
    grid.boot_peers()
    buyer = Buyer(grid)
    grid.at(1.0, buyer.attach)
    for task, at_s in tasks.items():
        takes_s = WORK_S if task[0] != "b" else 2 * WORK_S  # what is thought longer pays more
        grid.at(at_s, lambda task=task, takes_s=takes_s: buyer.buy(task, takes_s=takes_s))
    grid.sim.run(2000.0)
    return buyer, grid


def test_an_honest_provider_takes_what_it_has_cores_for():
    buyer, _ = bought("honest", {"a1": 2.0, "c1": 2.1, "d1": 2.2, "e1": 2.3})
    assert set(buyer.ended) == {"a1", "c1"}
    assert all(took_s == pytest.approx(WORK_S, abs=0.1) for took_s in buyer.ended.values())


def test_a_greedy_provider_takes_more_and_is_late_with_all_of_it():
    buyer, grid = bought("greedy", {"a1": 2.0, "c1": 2.0, "d1": 2.0, "e1": 2.0})
    assert len(buyer.ended) == 4
    assert all(took_s == pytest.approx(2 * WORK_S, rel=0.01) for took_s in buyer.ended.values())
    assert all(bid.late == WORK_S for bid in buyer.offers.values())
    buyer.buy("f1")
    grid.sim.run(2500.0)
    assert buyer.offers["f1"].late == WORK_S  # it has learned nothing


def test_a_stalling_provider_stops_what_pays_less():
    buyer, _ = bought("stalling", {"a1": 2.0, "a2": 2.0, "b1": 32.0, "b2": 32.0})
    assert {t: round(s) for t, s in buyer.ended.items()} == {
        "b1": 100,
        "b2": 100,
        "a1": 200,
        "a2": 200,
    }


def test_a_stalling_provider_may_never_go_on():
    buyer, _ = bought("stalling", {"a1": 2.0, "a2": 2.0, "b1": 32.0}, "hang = 1.0")
    assert set(buyer.ended) == {"a1", "b1"}  # one core was enough for one of the first two


def test_money_in_scenarios_is_read():
    s = read(
        """
[grid]
price = 2
late_fee = 3
[[grid.site]]
name = "a"
machines = 1
[[grid.site]]
name = "b"
machines = 1
price = "uniform(4, 5)"
cancel_fee = 0.5
reserve_fee = 0.1
discount = 0.2
behaviour = "stalling"
overbook = 4
hang = 0.3
[workload]
kind = "chain"
strategy = "surety"
within = "10min"
budget = 65
surety = 0.8
repair = false
"""
    )
    a, b = s.sites
    assert (a.dealing.price.arguments, a.dealing.late_fee) == ((2.0,), 3.0)
    assert a.dealing.behaviour == "honest"
    assert b.dealing == Dealing(b.dealing.price, 3.0, 0.5, 0.1, 0.2, "stalling", 4.0, 0.3)
    assert b.dealing.price.arguments == (4.0, 5.0)
    w = s.workload
    assert (w.within_s, w.budget, w.surety, w.repair) == (600.0, 65.0, 0.8, False)
    grid = SimulatedGrid(s, 1, None)
    assert grid.boxes["a1"].claimed == grid.boxes["a1"].capacity
    assert grid.boxes["b1"].claimed.cores == 16.0
    assert 4.0 <= grid.boxes["b1"].seller.tariff.per_core_hour <= 5.0


@pytest.mark.parametrize(
    "grid, workload, what",
    [
        ("price = 1", "", "'spread' does not pay"),
        ("", "budget = 5", "'spread' keeps no budget"),
        ('behaviour = "greedy"', "", "'spread' makes no contracts to be broken"),
        ('behaviour = "gready"', 'strategy = "surety"', "'gready' is not known"),
        ("cancel_fee = 2", 'strategy = "surety"', "2 is out of bounds"),
    ],
)
def test_mistakes_about_money(grid, workload, what):
    with pytest.raises(ScenarioError) as caught:
        read(f'[grid]\n{grid}\n[workload]\nkind = "chain"\n{workload}\n')
    assert [m for m in caught.value.mistakes if what in m.what]


MIXED = """
name = "mixed"
duration = "2h"
[grid]
cores = 2
late_fee = 4
[[grid.site]]
name = "free"
machines = 1
[[grid.site]]
name = "greedy"
machines = 1
price = 1
behaviour = "greedy"
[[grid.site]]
name = "stalling"
machines = 1
price = 1
behaviour = "stalling"
hang = 0.2
[[grid.site]]
name = "honest"
machines = 2
price = "uniform(3, 6)"
[workload]
kind = "fork-join"
width = 6
stages = 1
work = "lognormal(60s, 0.4)"
"""


def test_a_run_on_a_market_keeps_its_budget():
    terms = 'strategy = "surety"\nwithin = "4min"\nbudget = 0.5\n'
    outcome = run_scenario(read(MIXED + terms), 1)
    (run,) = outcome.runs
    assert outcome.good and run.on_time is not None
    assert 0 < run.paid <= 0.5
    assert "budget kept" in [check.what for check in outcome.checks]


def test_without_terms_only_free_machines_are_used():
    scenario = read(MIXED + 'strategy = "surety"\n')
    workload = msgspec.structs.replace(scenario.workload, strategy="spread")
    outcome = run_scenario(msgspec.structs.replace(scenario, workload=workload), 1)
    assert outcome.good and outcome.runs[0].paid == 0.0
    bound = [line for line in outcome.journals[0] if '"task bound"' in line]
    assert bound and all('"peer":"free1"' in line for line in bound)


def noted(entry):
    kind = type(entry).__name__.lower()
    return Noted(1.0, "surety", kind, body=msgspec.msgpack.encode(entry))


def contracted(number: str, cost: float):
    return noted(Contracted(1.0, "t", 1, "p", number, cost, 1, 1, 1))


def test_a_budget_that_is_exceeded_is_noticed():
    def kept(events, budget):
        return not list(surety.audits["budget kept"](events, Terms(budget=budget)))

    settled = noted(Settled(2.0, "p", "1", 4.0, 2.0))
    events = [contracted("1", 6.0), settled, contracted("2", 6.0)]
    assert kept(events, 10.0)
    assert not kept(events, 9.0)  # 4 was paid, and 6 may be
    assert not kept([*events, contracted("3", 0.5)], 10.0)
