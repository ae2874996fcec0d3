"""Which provider each task would get at a price of time: a run's plan, and what it would cost.

The open tasks are gone through in the order in which the run would start them. Each is given to
the provider whose cost, and whose time at the price, are least, where the time includes the wait
for a free lane. Those that get something are the plan's providers: at a price of 0 the cheapest
only, the higher the price the more. Then it is gone through once more with these and the free ones,
as `placer` does it: no task waits while one of them has a free lane, unless it is done sooner so.

In a large graph only the TASKS_MAX most urgent tasks are gone through; the others are reckoned to
cost what those of their service do on average.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import NamedTuple

import msgspec

from sureline.workflow.model import Graph
from sureline.world.address import PeerName

TASKS_MAX = 1000
LANES_MAX = 256
"""Of one provider; more are not told apart."""
PRICES = 12
LOW, HIGH = 1e-3, 1e3
"""How far from one task's cost per second the prices of time reach that are tried."""


class TaskPrice(NamedTuple):
    """What one provider asks for one task of a service."""

    provider: PeerName
    cost: float
    seconds: float


class Market(msgspec.Struct, frozen=True):
    """What a plan is made on."""

    terms: Sequence[Sequence[TaskPrice]]
    """By service."""
    lanes: Mapping[PeerName, int]
    """By provider."""
    cores: Sequence[float]
    """That a task of each service needs."""


class Assignment(msgspec.Struct, frozen=True):
    price_of_time: float
    cost: float
    seconds: float
    """Until the last of the tasks that were gone through is expected to end."""
    provider_of: Mapping[int, TaskPrice]
    usual: Mapping[int, TaskPrice]
    """What the tasks of each service mostly get: for those that were not gone through."""

    @property
    def providers(self) -> list[PeerName]:
        return list(dict.fromkeys(terms.provider for terms in self.provider_of.values()))

    def terms_of(self, task: int, service: int) -> TaskPrice | None:
        return self.provider_of.get(task) or self.usual.get(service)

    def counts(self) -> dict[PeerName, int]:
        """How many tasks each provider gets."""
        return dict(Counter(terms.provider for terms in self.provider_of.values()))


def assign(
    graph: Graph,
    open_tasks: Sequence[int],
    service_of: Sequence[int],
    market: Market,
    price_of_time: float,
    only: Collection[PeerName] | None = None,
) -> Assignment | None:
    """`open_tasks` stand in the order in which they would start: parents before children. With
    `only`, those providers and the free ones are used, and nothing waits for a cheaper one. None if
    there is nobody for one of them."""
    lanes = {name: [0.0] * min(LANES_MAX, count) for name, count in market.lanes.items()}
    ends_s: dict[int, float] = {}
    chosen: dict[int, TaskPrice] = {}
    for task in open_tasks[:TASKS_MAX]:
        ready_s = max([ends_s.get(parent, 0.0) for parent in graph.parents[task]], default=0.0)
        service = service_of[task]
        width = max(1, math.ceil(market.cores[service]))
        best: tuple[float, float, TaskPrice] | None = None
        at_once: tuple[float, float, TaskPrice] | None = None
        for terms in market.terms[service]:
            free = lanes[terms.provider]
            if len(free) < width or not (only is None or not terms.cost or terms.provider in only):
                continue
            start_s = max(ready_s, _free_at(free, width))
            end_s = start_s + terms.seconds
            option = (terms.cost + price_of_time * (end_s - ready_s), end_s, terms)
            if best is None or option < best:
                best = option
            if start_s <= ready_s and (at_once is None or option < at_once):
                at_once = option
        if best is None:
            return None
        if only is not None and at_once is not None and best[1] > at_once[1]:
            best = at_once
        _, ends_s[task], chosen[task] = best
        free = lanes[chosen[task].provider]
        for _ in range(width):
            heapq.heapreplace(free, ends_s[task])
    usual = _usual(chosen, service_of)
    cost = _cost(open_tasks, service_of, chosen)
    return Assignment(price_of_time, cost, max(ends_s.values(), default=0.0), chosen, usual)


def plans(
    graph: Graph, open_tasks: Sequence[int], service_of: Sequence[int], market: Market
) -> list[Assignment]:
    """One for each price of time that makes a difference, the cheapest first; each that costs more
    ends earlier."""
    found = []
    for price in prices_of_time(market):
        wished = assign(graph, open_tasks, service_of, market, price)
        if wished is not None:
            used = frozenset(wished.providers)
            made = assign(graph, open_tasks, service_of, market, price, used)
            assert made is not None, "who was there for all tasks before still is"
            found.append(made)
    found.sort(key=lambda made: (made.cost, made.seconds))
    kept: list[Assignment] = []
    for made in found:
        if not kept or made.seconds < kept[-1].seconds:
            kept.append(made)
    return kept


def prices_of_time(market: Market) -> list[float]:
    """0, and prices around what a second of work costs anywhere."""
    rates = [
        terms.cost / max(1e-3, terms.seconds)
        for offered in market.terms
        for terms in offered
        if terms.cost > 0
    ]
    if not rates:
        return [0.0]
    low, high = LOW * min(rates), HIGH * max(rates)
    return [0.0, *(low * (high / low) ** (step / (PRICES - 1)) for step in range(PRICES))]


def _free_at(free: Sequence[float], width: int) -> float:
    return free[0] if width == 1 else heapq.nsmallest(width, free)[-1]


def _usual(chosen: Mapping[int, TaskPrice], service_of: Sequence[int]) -> dict[int, TaskPrice]:
    counts: dict[int, Counter[TaskPrice]] = {}
    for task, terms in chosen.items():
        counts.setdefault(service_of[task], Counter())[terms] += 1
    return {service: found.most_common(1)[0][0] for service, found in counts.items()}


def _cost(
    open_tasks: Sequence[int], service_of: Sequence[int], chosen: Mapping[int, TaskPrice]
) -> float:
    """Of all tasks; those that were not gone through cost what their service does on average."""
    counts: Counter[int] = Counter()
    sums: dict[int, float] = {}
    for task, terms in chosen.items():
        counts[service_of[task]] += 1
        sums[service_of[task]] = sums.get(service_of[task], 0.0) + terms.cost
    total = sum(terms.cost for terms in chosen.values())
    others = total / max(1, len(chosen))
    for task in open_tasks[TASKS_MAX:]:
        count = counts[service_of[task]]
        total += sums[service_of[task]] / count if count else others
    return total
