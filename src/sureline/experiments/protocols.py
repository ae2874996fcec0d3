"""Protocol workloads: what a grid's overlay does by itself, without any workflow.

`lookups`: random nodes store `count` keys, faults strike, then random live nodes look all of them
up. `broadcasts`: random live nodes broadcast `count` times, `every` apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from statistics import median

from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.outcome import Protocol
from sureline.experiments.scenario import Scenario
from sureline.overlay.kademlia import Aggregate, Kademlia, key_of
from sureline.world.address import Node

SETTLE_S = 30.0
"""After the last scripted fault, before keys are looked up."""
TRIES_MAX = 100
TOPIC = "experiment"


class ProtocolRun:
    """Boots Kademlia alone on every machine, and asks it things. Nothing is asked of a node that
    is down: its callbacks would never come."""

    def __init__(self, scenario: Scenario, seed: int, grid: SimulatedGrid) -> None:
        self._scenario = scenario
        self._grid = grid
        self._random = Random(f"{seed}/protocol")
        self._names = scenario.machine_names()
        self._nodes: dict[Node, Kademlia] = {}
        self.keys = [f"key {number}" for number in range(scenario.workload.count)]
        self.found: dict[str, bool] = {}
        self.held: dict[str, list[Node]] = {}
        """Which nodes held a key when the looking up began and are still up at its end."""
        self._took_s: list[float] = []
        self._shares: list[float] = []
        self._holders: dict[bytes, list[Node]] = {}

    def schedule(self) -> None:
        self._grid.boot_each(self._boot)
        begin_s = self._scenario.workload.begin_s
        if self._scenario.workload.kind == "broadcasts":
            self._each(begin_s, self._scenario.workload.count, self._broadcast)
            return
        stored_s = self._each(begin_s, len(self.keys), self._store)
        faults = [fault.at_s for fault in self._scenario.faults if fault.every_s is None]
        self._each(max([stored_s, *faults]) + SETTLE_S, len(self.keys), self._find)

    def _boot(self, node: Node) -> None:
        made = self._nodes[node] = self._grid.boot_kademlia(node)
        made.on_broadcast(TOPIC, lambda origin, payload: None, lambda replies: b"")

    def _each(self, from_s: float, count: int, ask: Callable[[int], None]) -> float:
        """Ask `count` times, the workload's gap apart; when the last one is due."""
        at_s = from_s
        for number in range(count):
            self._grid.at(at_s, partial(ask, number))
            at_s += self._scenario.workload.every_s.draw(self._random)
        return at_s

    def _someone(self) -> Node | None:
        """A live node; None if hardly any is."""
        for _ in range(TRIES_MAX):
            node = self._random.choice(self._names)
            if node in self._nodes and self._grid.state(node) == "up":
                return node
        return None

    def _store(self, number: int) -> None:
        node = self._someone()
        if node is not None:
            key = self.keys[number]
            self._nodes[node].store(key_of(key), node.encode(), lambda replicas: None)

    def _find(self, number: int) -> None:
        node, key, began_s = self._someone(), self.keys[number], self._grid.sim.time
        if not self._holders:
            self._holders = self._who_holds()
        if node is None:
            return

        def done(values: tuple[bytes, ...]) -> None:
            self._took_s.append(self._grid.sim.time - began_s)
            self.found[key] = bool(values)
            holders = self._holders.get(key_of(key), ())
            self.held[key] = [h for h in holders if self._grid.state(h) == "up"]

        self._nodes[node].find(key_of(key), done)

    def _who_holds(self) -> dict[bytes, list[Node]]:
        """All live holders of every key, right now."""
        found: dict[bytes, list[Node]] = {}
        for node, kademlia in self._nodes.items():
            if self._grid.state(node) == "up":
                for key in kademlia.base.storage:
                    found.setdefault(key, []).append(node)
        return found

    def _broadcast(self, number: int) -> None:
        node, began_s = self._someone(), self._grid.sim.time
        if node is None:
            return
        others = sum(self._grid.state(other) == "up" for other in self._nodes) - 1

        def done(aggregate: Aggregate) -> None:
            self._shares.append(min(1.0, aggregate.reached / others) if others else 1.0)
            self._took_s.append(self._grid.sim.time - began_s)

        self._nodes[node].broadcast(TOPIC, b"hello", done)

    @property
    def over(self) -> bool:
        return len(self._took_s) >= self._scenario.workload.count

    def result(self) -> Protocol:
        took = sorted(self._took_s)
        if self._scenario.workload.kind == "broadcasts":
            share = sum(self._shares) / len(self._shares) if self._shares else 0.0
        else:
            share = sum(self.found.values()) / len(self.keys)
        return Protocol(
            self._scenario.workload.count,
            len(took),
            round(median(took), 6) if took else 0.0,
            round(took[-1], 6) if took else 0.0,
            share,
        )
