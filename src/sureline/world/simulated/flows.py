"""Bulk transfers: flows that share the machines' bandwidth max-min fairly.

Data moves like a fluid. At every moment each flow has the rate at which no flow can get more
without taking from one that has no more than it: what many long TCP streams come to. Rates change
only when a flow begins or ends, or a machine or a link changes; between two changes progress is a
straight line, so bytes are exact up to rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from sureline.world.address import Node
from sureline.world.simulated.calendar import SimTimer

if TYPE_CHECKING:
    from sureline.world.simulated.machine import Life, SimulatedMachine
    from sureline.world.simulated.simulation import Simulation


class Demand(NamedTuple):
    """A flow, as far as sharing goes: which resources it uses, and what it can take at most."""

    resources: tuple[str, ...]
    most: float


def fair_rates(demands: Sequence[Demand], capacities: dict[str, float]) -> list[float]:
    """The max-min fair rates: raise all alike; what meets a limit stays there; go on.

    >>> fair_rates([Demand(("a",), 9.0), Demand(("a",), 1.0)], {"a": 4.0})
    [3.0, 1.0]
    """
    rates = [0.0] * len(demands)
    left = dict(capacities)
    users: dict[str, list[int]] = {}
    for index, demand in enumerate(demands):
        for resource in demand.resources:
            users.setdefault(resource, []).append(index)
    count = {resource: len(indices) for resource, indices in users.items()}
    by_most = sorted(range(len(demands)), key=lambda index: demands[index].most, reverse=True)
    settled = [False] * len(demands)

    def settle(index: int, rate: float) -> None:
        settled[index] = True
        rates[index] = rate
        for resource in demands[index].resources:
            count[resource] -= 1
            if rate != math.inf:
                left[resource] = max(0.0, left[resource] - rate)

    while True:
        while by_most and settled[by_most[-1]]:
            by_most.pop()
        if not by_most:
            return rates
        share, tightest = math.inf, ""
        for resource, sharing in count.items():
            if sharing and left[resource] / sharing < share:
                share, tightest = left[resource] / sharing, resource
        if demands[by_most[-1]].most <= share:
            settle(by_most[-1], demands[by_most[-1]].most)
        else:
            for index in users[tightest]:
                if not settled[index]:
                    settle(index, share)


class Flow:
    """One flow. `cancel` stops it without a word."""

    __slots__ = (
        "_flows",
        "life",
        "on_done",
        "rate",
        "since_s",
        "size_bytes",
        "source",
        "source_life",
        "target",
        "timer",
        "unsent_bytes",
    )

    def __init__(
        self,
        flows: Flows,
        source: SimulatedMachine,
        target: SimulatedMachine,
        life: Life,
        size_bytes: int,
        on_done: Callable[[int], None],
    ) -> None:
        self._flows = flows
        self.source = source
        self.target = target
        self.source_life = source.life
        self.life = life
        self.size_bytes = size_bytes
        self.unsent_bytes = float(size_bytes)
        self.rate = 0.0
        self.since_s = 0.0
        self.timer: SimTimer | None = None
        self.on_done = on_done

    def cancel(self) -> None:
        self._flows.end(self, None)

    def arrived_bytes(self) -> int:
        """How much is there by now."""
        self.settle(self._flows.now_s())
        return math.floor(self.size_bytes - self.unsent_bytes + 1e-6)

    def settle(self, now_s: float) -> None:
        if self.rate == math.inf:
            self.unsent_bytes = 0.0
        else:
            done = self.rate * (now_s - self.since_s)
            self.unsent_bytes = max(0.0, self.unsent_bytes - done)
        self.since_s = now_s


class Flows:
    """All bulk transfers of a simulation."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._flows: dict[Flow, None] = {}
        self._of_node: dict[Node, dict[Flow, None]] = {}

    def now_s(self) -> float:
        return self._sim.time

    def start(
        self, source: Node, target: Node, size_bytes: int, on_done: Callable[[int], None]
    ) -> Flow:
        """Begin when the first byte can have arrived: one delay of the link later, or, when the
        source is down, end with nothing after two."""
        sim = self._sim
        here, there = sim.machine(source), sim.machine(target)
        if there.life is None:
            raise ValueError(f"{target} is down: it cannot fetch")
        flow = Flow(self, here, there, there.life, size_bytes, on_done)
        delay_s = 0.0 if here is there else sim.network.channel(source, target).draw()
        if here.life is None:
            delay_s += sim.network.channel(target, source).draw()
        flow.timer = sim.schedule(sim.time + delay_s, None, lambda: self._begin(flow))
        return flow

    def _begin(self, flow: Flow) -> None:
        if flow.life.over:
            return
        if flow.source.life is None or flow.source.life is not flow.source_life:
            flow.life.post(flow.on_done, 0)
            return
        flow.since_s = self._sim.time
        flow.timer = None
        self._flows[flow] = None
        for node in (flow.source.node, flow.target.node):
            self._of_node.setdefault(node, {})[flow] = None
        self._share(self._together([flow]))

    def end(self, flow: Flow, arrived_bytes: int | None) -> None:
        """Forget a flow; unless `arrived_bytes` is None, tell its owner."""
        if flow.timer is not None:
            flow.timer.cancel()
            flow.timer = None
        if flow not in self._flows:
            return
        flow.settle(self._sim.time)
        flow.rate = 0.0
        together = self._together([flow])
        del self._flows[flow]
        for node in (flow.source.node, flow.target.node):
            others = self._of_node.get(node)
            if others is not None:
                others.pop(flow, None)
                if not others:
                    del self._of_node[node]
        self._sim.counters.bulk(flow.source.node, flow.target.node, flow.arrived_bytes())
        if arrived_bytes is not None and not flow.life.over:
            flow.life.post(flow.on_done, arrived_bytes)
        self._share([other for other in together if other is not flow])

    def changed(self, node: Node) -> None:
        """A machine was frozen, thawed, slowed, or went down."""
        if node in self._of_node:
            self._see(list(self._of_node[node]))

    def all_changed(self) -> None:
        """The links may have changed."""
        if self._flows:
            self._see(list(self._flows))

    def _see(self, flows: list[Flow]) -> None:
        for flow in flows:
            if flow.life.over:
                self.end(flow, None)
            elif flow.source.life is not flow.source_life:
                self.end(flow, flow.arrived_bytes())
        alive = [flow for flow in flows if flow in self._flows]
        self._share(self._together(alive))

    def _together(self, flows: list[Flow]) -> list[Flow]:
        """These flows and all whose rates depend on theirs: linked by machines they share."""
        found = dict.fromkeys(flows)
        todo, nodes = list(flows), set[str]()
        while todo:
            flow = todo.pop()
            for node in (flow.source.node, flow.target.node):
                if node not in nodes:
                    nodes.add(node)
                    for other in self._of_node.get(node, ()):
                        if other not in found:
                            found[other] = None
                            todo.append(other)
        return list(found)

    def _share(self, flows: list[Flow]) -> None:
        """Give flows the rates that are fair from now on."""
        capacities: dict[str, float] = {}
        demands = []
        for flow in flows:
            if flow.source is flow.target:
                demands.append(Demand((), self._most(flow)))
                continue
            up, down = f"up {flow.source.node}", f"down {flow.target.node}"
            capacities[up] = flow.source.spec.up_bytes_per_s
            capacities[down] = flow.target.spec.down_bytes_per_s
            demands.append(Demand((up, down), self._most(flow)))
        for flow, rate in zip(flows, fair_rates(demands, capacities), strict=True):
            if rate != flow.rate or (rate and flow.timer is None):
                self._go_on(flow, rate)

    def _most(self, flow: Flow) -> float:
        network = self._sim.network
        source, target = flow.source, flow.target
        if source.frozen or target.frozen or network.cut(source.node, target.node):
            return 0.0
        if source is target:
            return math.inf
        bandwidth = network.channel(source.node, target.node).link.bandwidth_bytes_per_s
        return bandwidth or math.inf

    def _go_on(self, flow: Flow, rate: float) -> None:
        now_s = self._sim.time
        flow.settle(now_s)
        flow.rate = rate
        if flow.timer is not None:
            flow.timer.cancel()
            flow.timer = None
        if rate > 0:
            due_s = now_s + flow.unsent_bytes / rate
            flow.timer = self._sim.schedule(due_s, None, lambda: self._complete(flow))

    def _complete(self, flow: Flow) -> None:
        flow.settle(self._sim.time)
        flow.unsent_bytes = 0.0
        self.end(flow, flow.size_bytes)
