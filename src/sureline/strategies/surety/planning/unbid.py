"""Plans where nobody bids: on one machine, or on peers that ask so much for a core-hour.

How long tasks take comes from history and `takes`, as in every forecast. On a grid the choice is
which peers to use: the cheapest one, the two cheapest, and so on. Tasks are expected to spread over
them evenly, so a plan costs its expected core-hours times the mean price of the cores it uses.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import msgspec
import numpy as np

from sureline.forecast.durations import Durations, durations_of
from sureline.forecast.finish import basis_of, finish_times
from sureline.forecast.machines import MachinePart, together
from sureline.forecast.methods import CriticalPath, critical_path, pert_variances_s2
from sureline.forecast.pools import Offers, pools_for
from sureline.forecast.progress import untouched
from sureline.forecast.result import basis_words
from sureline.forecast.shape import Floats, Shape
from sureline.journal.history import Observed
from sureline.strategies.surety.planning.exact import Nearest
from sureline.strategies.surety.planning.judging import Method
from sureline.strategies.surety.planning.pert import (
    TIES,
    at_least,
    at_most,
    deviations_for,
    surety_of,
)
from sureline.strategies.surety.planning.plan import (
    QUANTILE_SHARES,
    FrontPoint,
    Plan,
    Step,
    error_of,
)
from sureline.strategies.surety.planning.refusal import not_met
from sureline.workflow.model import Graph
from sureline.workflow.terms import Terms

SAMPLES = 2_000
SUBSETS_MAX = 12
STEPS_MAX = 20_000
"""For more tasks than this no timetable is made."""
CORES_LEAST = 0.1


class Peer(NamedTuple):
    """A machine that could be used, '' for this one. `price` is for a core-hour."""

    name: str
    offer: Offers
    price: float = 0.0


class _Way(NamedTuple):
    """One set of peers, and what to expect of it. `ends` is None for pert and cpm."""

    peers: tuple[str, ...]
    machine: Offers
    cost: float
    mean: float
    sigma: float
    ends: Floats | None


def plan_on(
    graph: Graph,
    peers: Sequence[Peer],
    history: Mapping[str, Sequence[Observed]],
    terms: Terms,
    method: Method = "montecarlo",
    seed: int = 0,
) -> Plan:
    """The cheapest set of peers that meets the terms. There must be one peer at least; equal
    arguments give equal plans. Times are seconds from now, so is the deadline of the terms."""
    shape = Shape(graph)
    durations = durations_of(shape, history, {})
    ways = [_judged(shape, durations, chosen, method, seed) for chosen in _subsets(peers)]
    source = basis_words(basis_of(durations, np.arange(len(graph), dtype=np.int64)))
    front = _front(ways, terms)
    meets = [way for way in front if _meets(way, terms)]
    points = [_point(way, terms) for way in front]
    if not meets:
        why = not_met(terms, _near(ways, terms), True, " s")
        none = Plan.without(graph.name, method, terms, why, points)
        return msgspec.structs.replace(none, source=source)
    best = min(meets, key=lambda way: (way.cost, -(_surety(way, terms) or 0.0), way.mean))
    path = _path(shape, durations.means_s, pert_variances_s2(durations)).tasks
    return msgspec.structs.replace(
        _plan(graph, terms, method, best, points),
        source=source,
        critical_path=[graph.tasks[i].name for i in path],
        tasks=_steps(shape, durations, best, set(path)),
    )


def _subsets(peers: Sequence[Peer]) -> list[list[Peer]]:
    """The cheapest one, the cheapest two, ... all; not more than SUBSETS_MAX of them."""
    ordered = sorted(peers, key=lambda peer: (peer.price, -peer.offer.cores, peer.name))
    count = len(ordered)
    sizes = sorted({math.ceil(count * k / SUBSETS_MAX) for k in range(1, SUBSETS_MAX + 1)} | {1})
    # peers of one price are taken together: more of them cost nothing
    return [
        ordered[:size]
        for size in sizes
        if size == count or ordered[size].price > ordered[size - 1].price
    ]


def _judged(
    shape: Shape, durations: Durations, peers: Sequence[Peer], method: Method, seed: int
) -> _Way:
    machine = _together(peers)
    means = durations.means_s
    cores = np.array([max(CORES_LEAST, need.cores) for need in shape.needs])[shape.needs_class]
    price = sum(p.price * p.offer.cores for p in peers) / sum(p.offer.cores for p in peers)
    # what is common to the tasks of a kind in one run does not cancel out: it raises the mean
    busy_s = means * np.exp(durations.shift**2 / 2)
    cost = float((busy_s * cores).sum()) / 3600 * price
    names = tuple(peer.name for peer in peers if peer.name)
    if method == "montecarlo":
        progress = untouched(shape.graph, 0.0)
        ends = finish_times(shape, progress, durations, machine, SAMPLES, seed)
        return _Way(names, machine, cost, float(ends.mean()), 0.0, ends)
    if method == "pert":
        path = _path(shape, means, pert_variances_s2(durations))
    else:
        path = _path(shape, durations.middles_s, np.zeros(len(means)))
    return _Way(names, machine, cost, path.end_s, math.sqrt(path.variance_s2), None)


def _path(shape: Shape, means: Floats, variances: Floats) -> CriticalPath:
    return critical_path(shape, np.ones(len(means), dtype=bool), means, variances)


def _together(peers: Sequence[Peer]) -> Offers:
    if len(peers) == 1:
        return peers[0].offer
    return together(
        MachinePart(p.name, p.offer.cores, p.offer.memory_bytes, p.offer.gpus, p.offer.tags)
        for p in peers
    )


def _surety(way: _Way, terms: Terms) -> float | None:
    if terms.deadline_at is None:
        return None
    if way.ends is not None:
        return float((way.ends <= terms.deadline_at * (1 + TIES)).mean())
    return surety_of(terms.deadline_at, way.mean, way.sigma**2)


def _needed(way: _Way, wanted: float) -> float:
    if wanted <= 0:
        return 0.0
    if way.ends is not None:
        rank = max(1, math.ceil(wanted * len(way.ends) - TIES))
        return float(np.sort(way.ends)[rank - 1])
    return max(0.0, way.mean + deviations_for(wanted) * way.sigma)


def _meets(way: _Way, terms: Terms) -> bool:
    payable = terms.budget is None or at_most(way.cost, terms.budget)
    surety = _surety(way, terms)
    return payable and (surety is None or at_least(surety, terms.surety))


def _front(ways: Sequence[_Way], terms: Terms) -> list[_Way]:
    """Those that none is cheaper, quicker and surer than; more peers cost more and are quicker."""
    kept = []
    for way in ways:
        mine = (way.cost, way.mean, -(_surety(way, terms) or 0.0))
        others = [(o.cost, o.mean, -(_surety(o, terms) or 0.0)) for o in ways if o is not way]
        if not any(o != mine and all(a <= b for a, b in zip(o, mine, strict=True)) for o in others):
            kept.append(way)
    return kept


def _point(way: _Way, terms: Terms) -> FrontPoint:
    return FrontPoint(way.cost, way.mean, _surety(way, terms), {}, peers=list(way.peers))


def _plan(graph: Graph, terms: Terms, method: Method, way: _Way, front: list[FrontPoint]) -> Plan:
    surety = _surety(way, terms)
    error = 0.0 if way.ends is None else error_of(surety, way.ends)
    low, high = max(0.0, way.mean - 3 * way.sigma), way.mean + 3 * way.sigma
    if way.ends is not None:
        low, high = float(way.ends.min()), float(way.ends.max())
    return Plan(
        name=graph.name,
        method=method,
        terms=terms,
        cost=way.cost,
        reserve=None if terms.budget is None else max(0.0, terms.budget - way.cost),
        expected=way.mean,
        earliest=low,
        latest=high,
        surety=surety,
        surety_error=error,
        critical_path=[],
        assignment={},
        front=front,
        refused=None,
        quantiles=_quantiles(way),
        peers=list(way.peers),
    )


def _near(ways: Sequence[_Way], terms: Terms) -> Nearest:
    near = Nearest()
    for way in ways:
        payable = terms.budget is None or at_most(way.cost, terms.budget)
        surety = _surety(way, terms)
        sure = surety is None or at_least(surety, terms.surety)
        near = near.better_of(
            Nearest(
                _needed(way, terms.surety) if payable else math.inf,
                way.cost if sure else math.inf,
                surety if payable and surety is not None else -math.inf,
            )
        )
    return near


def _quantiles(way: _Way) -> list[tuple[float, float]]:
    if way.ends is not None:
        ats = np.quantile(way.ends, QUANTILE_SHARES).tolist()
    elif way.sigma > 0:
        ats = [max(0.0, NormalDist(way.mean, way.sigma).inv_cdf(q)) for q in QUANTILE_SHARES]
    else:
        ats = [way.mean] * len(QUANTILE_SHARES)
    return list(zip(QUANTILE_SHARES, ats, strict=True))


def _steps(shape: Shape, durations: Durations, way: _Way, critical: set[int]) -> list[Step]:
    """A timetable, if every task takes its mean: the most urgent that fits starts first."""
    graph = shape.graph
    if len(graph) > STEPS_MAX:
        return []
    means = durations.means_s.tolist()
    starts = _list_scheduled(shape, means, way.machine)
    ends = [start + mean for start, mean in zip(starts, means, strict=True)]
    last = max(ends, default=0.0)
    latest = [last] * len(graph)
    for i in sorted(range(len(graph)), key=lambda i: -starts[i]):
        for child in graph.children[i]:
            latest[i] = min(latest[i], latest[child] - means[child])
    return [
        Step(
            task=task.name,
            service=task.kind_name,
            provider="",
            line=0,
            cost=0.0,
            time=means[i],
            early=means[i],
            late=means[i],
            start=starts[i],
            end=ends[i],
            slack=max(0.0, latest[i] - ends[i]),
            critical=i in critical,
        )
        for i, task in enumerate(graph.tasks)
    ]


def _list_scheduled(shape: Shape, means: Sequence[float], machine: Offers) -> list[float]:
    graph, pools = shape.graph, pools_for(shape.needs, machine)
    free = list(pools.lanes)
    taking = [pools.taking[need] for need in shape.needs_class.tolist()]
    missing = [len(parents) for parents in graph.parents]
    urgency = shape.urgency.tolist()
    ready = [(-urgency[i], i) for i in range(len(graph)) if not missing[i]]
    heapq.heapify(ready)
    running: list[tuple[float, int]] = []
    starts, now = [0.0] * len(graph), 0.0
    while ready or running:
        waiting = []
        while ready and any(free):
            urgent = heapq.heappop(ready)
            i = urgent[1]
            if any(free[pool] < lanes for pool, lanes in taking[i]):
                waiting.append(urgent)
                continue
            for pool, lanes in taking[i]:
                free[pool] -= lanes
            starts[i] = now
            heapq.heappush(running, (now + means[i], i))
        for urgent in waiting:
            heapq.heappush(ready, urgent)
        now, i = heapq.heappop(running)
        for pool, lanes in taking[i]:
            free[pool] += lanes
        for child in graph.children[i]:
            missing[child] -= 1
            if not missing[child]:
                heapq.heappush(ready, (-urgency[child], child))
    return starts
