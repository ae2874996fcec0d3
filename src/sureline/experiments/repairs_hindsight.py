"""What a run would have cost whoever had known everything: a measure for what was paid.

The schedules that are looked at know how long each task takes, how many cores each machine truly
has, and which machines are never struck by a fault: only those are used, and none for more tasks
at once than it has cores. A task costs what the machine's provider bids for it. Commands that fail
are left out of account, and so are messages and files, for which ASIDE_S is set aside.

They are list schedules: of the cheapest machine alone, the two cheapest, and so on, at many prices
of time. The cheapest of them that is in time need not be the cheapest of all: what is found is an
upper bound of that, and one of what is possible.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sureline.experiments.machines import SimulatedPeer
from sureline.experiments.scenario import Scenario
from sureline.strategies.surety.planning.assignment import Market, TaskPrice, assign, prices_of_time
from sureline.strategies.surety.pricing import bid_for
from sureline.strategies.surety.provider.experience import scaled
from sureline.workflow.model import Graph
from sureline.workflow.shapes import topological_order, upward_ranks
from sureline.world.address import Node, name_of

ASIDE_S = 10.0


def least_in_hindsight(
    scenario: Scenario,
    estimated: Graph,
    seconds: Sequence[float],
    boxes: Mapping[Node, SimulatedPeer],
) -> float | None:
    """The money that the cheapest schedule costs which is in time; None if none is. `estimated` is
    the workflow as providers are told of it, and `seconds` is what its tasks really take."""
    within_s = scenario.workload.within_s
    assert within_s is not None, "a scenario of this experiment has a deadline"
    struck = {
        node for fault in scenario.faults for word in fault.whom for node in scenario.meant(word)
    }
    sound = [boxes[node] for node in scenario.machine_names() if node not in struck]
    sound.sort(key=lambda box: (box.seller.tariff.per_core_hour, box.node))
    ranks_s = upward_ranks(estimated, seconds)
    place = {task: number for number, task in enumerate(topological_order(estimated))}
    order = sorted(place, key=lambda task: (-ranks_s[task], place[task]))
    found = []
    for count in range(1, len(sound) + 1):
        market = _market(estimated, seconds, sound[:count])
        for price in prices_of_time(market):
            made = assign(estimated, order, range(len(estimated)), market, price)
            if made is not None and made.seconds <= within_s - ASIDE_S:
                found.append(made.cost)
    return min(found, default=None)


def _market(graph: Graph, seconds: Sequence[float], boxes: Sequence[SimulatedPeer]) -> Market:
    """Each task is a service of its own here: its true duration is known."""
    terms = [
        [_terms(graph, task, took_s, box) for box in boxes] for task, took_s in enumerate(seconds)
    ]
    lanes = {name_of(box.node): max(1, int(box.capacity.cores)) for box in boxes}
    return Market(terms, lanes, [task.needs.cores for task in graph.tasks])


def _terms(graph: Graph, task: int, took_s: float, box: SimulatedPeer) -> TaskPrice:
    said = graph.tasks[task].takes
    assert said is not None, "every task of the experiment has an estimate"
    takes, tariff, speed = scaled(said, box.seller.speed), box.seller.tariff, box.seller.speed
    bid = bid_for("", name_of(box.node), graph.tasks[task].needs, takes, tariff, 0.0)
    return TaskPrice(name_of(box.node), bid.cost, took_s / speed)
