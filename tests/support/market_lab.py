"""A simulated grid whose machines ask prices, and one run with terms on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sureline.experiments import invariants
from sureline.experiments.driver import Driver
from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.machines import EPOCH_S
from sureline.experiments.market import Seller
from sureline.experiments.scenario_reader import read_scenario
from sureline.experiments.work import Work
from sureline.journal.events import Event, Noted
from sureline.run.options import Options
from sureline.strategies import strategy
from sureline.strategies.surety.contract import Contracted, Settled, entries_of
from sureline.strategies.surety.pricing import Tariff
from sureline.workflow.model import Command, Graph, Needs, Takes, Task

BEGIN_S = 5.0
SCENARIO = """
duration = "2h"
[grid]
machines = {machines}
cores = 2
[workload]
kind = "chain"
tasks = 2
"""


class MarketLab:
    """`tariffs` by machine m1, m2, ...; a machine without one is free. The run begins at BEGIN_S;
    `within_s` counts from there."""

    def __init__(
        self,
        graph: Graph,
        tariffs: Mapping[str, Tariff],
        machines: int = 4,
        *,
        within_s: float | None = None,
        budget: float | None = None,
        surety: float = 0.9,
        repair: bool = True,
        seed: int = 1,
    ) -> None:
        text = SCENARIO.format(machines=machines)
        scenario = read_scenario(text.encode(), file="market.toml", beside=None)
        self.graph = graph
        self.work = Work(graph, seed)
        self.grid = SimulatedGrid(scenario, seed, self.work, [strategy("surety")])
        self.budget = budget
        self.nodes = scenario.machine_names()
        deadline_at = None if within_s is None else EPOCH_S + BEGIN_S + within_s
        options = Options(
            grid="simulated",
            strategy="surety",
            deadline_at=deadline_at,
            budget=budget,
            surety=surety,
            repair=repair,
        )
        (self.home,) = scenario.submitter_names()
        self.driver = Driver(self.grid.sim, self.home, "lab", graph, self.grid.drive, options)
        for node, tariff in tariffs.items():
            self.grid.boxes[node].seller = Seller(tariff)
        self.grid.boot_peers()
        self.grid.at(BEGIN_S, lambda: self.grid.boot(self.home, self.driver.boot))

    def drive(self, until_s: float = 7200.0) -> Driver:
        self.grid.sim.run(until_s, lambda: self.driver.over)
        return self.driver

    @property
    def took_s(self) -> float:
        assert self.driver.ended_s is not None
        return self.driver.ended_s - BEGIN_S

    @property
    def events(self) -> Sequence[Event]:
        return self.driver.events()

    @property
    def book(self) -> Sequence[Contracted | Settled]:
        """What was agreed and paid, in order."""
        return entries_of(event for event in self.events if isinstance(event, Noted))

    def of(self, *kinds: type) -> list:
        return [event for event in (*self.events, *self.book) if isinstance(event, kinds)]

    def check(self) -> None:
        """The run is done and right, its money adds up at every moment, and nothing is open."""
        graph, events = self.graph, self.events
        assert self.driver.over and self.driver.result().state == "succeeded"
        store = self.grid.boxes[self.home].store
        assert not invariants.commits_once(events)
        assert not invariants.order_respected(graph, events)
        assert not invariants.outputs_right(graph, events)
        assert not invariants.delivered(graph, events, store.published)
        self.check_money()
        assert not self.open()

    def check_money(self) -> None:
        bound: dict[tuple[str, str], float] = {}
        spent = 0.0
        for event in self.book:
            if isinstance(event, Contracted):
                assert (event.provider, event.contract) not in bound
                bound[event.provider, event.contract] = event.cost
            elif isinstance(event, Settled):
                cost = bound.pop((event.provider, event.contract))
                assert 0 <= event.paid <= cost + 1e-9
                spent += event.paid
            if self.budget is not None:
                assert spent + sum(bound.values()) <= self.budget + 1e-9

    def open(self) -> set[tuple[str, str]]:
        made = {(e.provider, e.contract) for e in self.book if isinstance(e, Contracted)}
        return made - {(e.provider, e.contract) for e in self.book if isinstance(e, Settled)}

    @property
    def spent(self) -> float:
        return sum(e.paid for e in self.book if isinstance(e, Settled))


def fan(width: int, seconds: float = 60.0, spread: float = 0.1) -> Graph:
    """`width` tasks alike, and one that joins them."""
    takes = Takes(seconds * (1 - spread), seconds, seconds * (1 + spread))
    parts = [
        Task(
            f"part_{n}",
            Command(f"work {n}"),
            outputs=(f"part{n}",),
            needs=Needs(cores=1),
            takes=takes,
        )
        for n in range(width)
    ]
    join = Task(
        "join",
        Command("join"),
        inputs=tuple(f"part{n}" for n in range(width)),
        outputs=("joined",),
        takes=takes,
    )
    return Graph("fan", [*parts, join])


def chain(length: int, seconds: float = 60.0, spread: float = 0.1) -> Graph:
    takes = Takes(seconds * (1 - spread), seconds, seconds * (1 + spread))
    return Graph(
        "chain",
        [
            Task(
                f"link_{n}",
                Command(f"link {n}"),
                inputs=(f"out{n - 1}",) if n else (),
                outputs=(f"out{n}",),
                takes=takes,
            )
            for n in range(length)
        ],
    )
