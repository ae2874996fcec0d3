"""What the real agents of the chemical strategy do, for comparison with the model and the paper:
range queries on the ring, five tasks on four resources, and holders that are killed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import pairwise
from math import ceil, log2
from random import Random
from statistics import fmean

import msgspec
import numpy as np

from sureline.chemistry import Molecule, Solution, parse_molecules, show
from sureline.experiments.chemical_result import Crashed, Range, Reacted
from sureline.experiments.chemical_ring import make_ids, route
from sureline.experiments.drive import run_scenario
from sureline.experiments.scenario_reader import read_scenario
from sureline.overlay.ring import Feature, Query, Ring, ValueRange
from sureline.overlay.ring.lookup import OwnerLookup
from sureline.overlay.ring.places import SPACE, distance, place_of
from sureline.overlay.ring.ranges import MetasFound
from sureline.strategies.chemical.rulebook import book_of, is_tagged
from sureline.world.address import Node, at
from sureline.world.simulated import Simulation

QUERIES = 40
_CPU = Feature("cpu", 0.0, 1.0)
_MACHINES, _WORKFLOWS = 20, 3
_SCENARIO = """
duration = "4h"
[grid]
machines = {machines}
cores = 2
memory = "8GB"
[network]
delay = "lognormal(5ms, 0.5)"
[workload]
kind = "layered"
tasks = 30
levels = 5
work = "lognormal(20s, 0.5)"
retries = 3
strategy = "chemical"
runs = {workflows}
every = "1s"
{faults}
"""
_FAULT = """
[[faults.script]]
what = "crash"
whom = "peers"
count = 1
at = "{at}s"
"""


# Range queries.

Way = Callable[[Ring, ValueRange, Callable[[MetasFound], None]], None]
"""How a range is covered."""


def ranges(nodes: int, seed: int) -> Range:
    """Rings of real agents, asked as ours are and as the paper assumes; every answer is compared
    with a full scan. A question and its answer are two messages."""
    links, right, questions = _asked(nodes, seed, _walk)
    by_pieces, also_right, _ = _asked(nodes, seed, _look_up_pieces)
    ids, random = make_ids(nodes, seed), Random(seed)
    load = np.zeros(nodes, dtype=np.int64)
    hops = [
        route(ids, load, random.randrange(nodes), np.uint64(random.getrandbits(64)))
        for _ in range(1000)
    ]
    asked = 2 * QUERIES
    return Range(nodes, questions, fmean(hops), 2 * links, 2 * by_pieces, right + also_right, asked)


def _walk(ring: Ring, wanted: ValueRange, heard: Callable[[MetasFound], None]) -> None:
    ring.find(Query("cpu", {"cpu": wanted}, most=1), heard)


def _look_up_pieces(ring: Ring, wanted: ValueRange, heard: Callable[[MetasFound], None]) -> None:
    """In log2 n pieces that are looked up all at once, as in the model: O(log^2 n)."""
    after = ring.base.table.after()
    share = distance(ring.base.table.place, place_of(after[-1].agent)) / SPACE / len(after)
    count = max(1, ceil(-log2(share)))
    step = (wanted.high - wanted.low) / count
    ends = [wanted.low + step * number for number in range(count)] + [wanted.high]
    all_found: dict[float, MetasFound] = {}

    def then(low: float, found: MetasFound) -> None:
        all_found[low] = found
        if len(all_found) == count:
            in_order = [all_found[low] for low in ends[:-1]]
            metas = tuple(meta for one in in_order for meta in one.metas)
            whole = all(one.whole for one in in_order)
            heard(MetasFound(metas[:1], whole, sum(one.questions for one in in_order)))

    for low, high in pairwise(ends):
        _walk(ring, ValueRange(low, high, high_open=True), partial(then, low))


def _asked(nodes: int, seed: int, way: Way) -> tuple[float, int, float]:
    sim = Simulation(seed)
    rings: list[Ring] = []

    def boot(node: Node) -> None:
        me = at(node, "ring")
        ring = Ring(me, sim.place(me), (_CPU,))
        sim.join(ring)
        others = [other.me for other in rings]
        ring.join(sim.random.sample(others, min(3, len(others))), lambda known: None)
        rings.append(ring)

    for number in range(nodes):
        node = Node(f"n{number}")
        sim.at(0.05 * number, partial(sim.boot, node, partial(boot, node)))
    sim.run(until=0.05 * nodes + 20.0)
    values = {ring.me: sim.random.random() for ring in rings}
    for ring in rings:
        ring.publish({"cpu": values[ring.me]})
    sim.run(until=sim.time + 5.0)
    costs: list[int] = []
    right = 0

    def ask() -> None:
        low = sim.random.uniform(0.0, 0.4)
        wanted = ValueRange(low, low + sim.random.uniform(0.1, 0.5), high_open=True)

        def heard(found: MetasFound) -> None:
            nonlocal right
            scan = sorted((v, me) for me, v in values.items() if v in wanted)[:1]
            right += [meta.publisher for meta in found.metas] == [me for _, me in scan]
            costs.append(found.questions)

        way(sim.random.choice(rings), wanted, heard)

    def look_up() -> OwnerLookup:
        asker = sim.random.choice(rings)
        lookup = OwnerLookup(asker.base, sim.random.randrange(SPACE), lambda owners: None)
        lookup.start()
        return lookup

    for _ in range(QUERIES):
        ask()
    lookups = [look_up() for _ in range(QUERIES)]
    sim.run(until=sim.time + 5.0)
    assert len(costs) == QUERIES, "every query has an end"
    return fmean(costs), right, fmean(lookup.questions for lookup in lookups)


# Fig. 5.

_TASKS = {"A": 8, "B": 1, "C": 2, "D": 1, "E": 6}
_RESOURCES = {"R1": 1, "R2": 2, "R3": 1, "R4": 4}


def fig5(seed: int) -> list[Reacted]:
    """Workflow A has the tasks A, B and C, workflow B has D and E; there are four resources, and
    the last one that is left is too small for both that are left. Then larger ones come back."""
    book, random = book_of("", "first"), Random(seed)
    waiting = {name: _task(name, cores) for name, cores in _TASKS.items()}
    free = {name: _resource(name, cores) for name, cores in _RESOURCES.items()}
    steps = [Reacted("five tasks, four resources", _shown(waiting, free))]

    def match(order: str) -> None:
        for name in order:
            fitting = [r for r in sorted(free, key=_cores(free)) if name in waiting]
            found = next((r for r in fitting if book.fits(waiting[name], free[r], random)), None)
            if found is not None:
                del waiting[name], free[found]
                steps.append(Reacted(f"TASK:{name}, RES:{found} -> DEPLOY", _shown(waiting, free)))
            elif name in waiting:
                steps.append(Reacted(f"TASK:{name} finds none, and waits", _shown(waiting, free)))

    match("BCDAE")
    for name, cores in (("R5", 8), ("R2", 6)):
        free[name] = _resource(name, cores)
        steps.append(Reacted(f"RES:{name} with {cores} cores is published", _shown(waiting, free)))
        match("AE")
    return steps


def _cores(free: dict[str, Molecule]) -> Callable[[str], str]:
    return lambda name: show(free[name])


def _task(name: str, cores: int) -> Molecule:
    needs = f"<CORES:{cores}, MEMORY:0, DISK:0, GPUS:0>"
    return parse_molecules(f'TASK:"{name}":<"run":{needs}>:<>', {})[0]


def _resource(name: str, cores: int) -> Molecule:
    features = f"<CORES:{cores}, MEMORY:1, DISK:1, GPUS:0, LOAD:0>"
    return parse_molecules(f'RES:"{name}":{features}', {})[0]


def _shown(waiting: dict[str, Molecule], free: dict[str, Molecule]) -> str:
    assert all(is_tagged(task, "TASK") for task in waiting.values())
    names = [*(f"TASK:{name}" for name in waiting), *(f"RES:{name}" for name in free)]
    return f"<{', '.join(names)}>" if names else show(Solution(()))


# Holders that are killed.


def crashes(seed: int, kills: tuple[int, ...] = (0, 2, 5)) -> list[Crashed]:
    """Level by level, so that there are levels to lose; machines die for good, one after the other
    while the workflows run."""
    found = []
    for killed in kills:
        faults = "".join(_FAULT.format(at=20 + 12 * number) for number in range(killed))
        text = _SCENARIO.format(machines=_MACHINES, workflows=_WORKFLOWS, faults=faults)
        scenario = read_scenario(text.encode(), file="crashes.toml", beside=None)
        workload = msgspec.structs.replace(scenario.workload, settings={"barriers": "on"})
        outcome = run_scenario(msgspec.structs.replace(scenario, workload=workload), seed)
        found.append(
            Crashed(
                killed,
                _MACHINES,
                _WORKFLOWS,
                sum(run.state == "succeeded" for run in outcome.runs),
                max(run.makespan_s for run in outcome.runs),
                sum(len(check.problems) for check in outcome.checks),
            )
        )
    return found
