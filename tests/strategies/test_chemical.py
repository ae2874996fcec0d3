"""The chemical strategy's parts: its rules, who takes a resource, and holders that die.

Whole runs are in test_conformance; seeds are in the names of failing cases.
"""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from random import Random

import msgspec
import pytest
from chemical_net import ChemicalNet
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.assembly.node import GridNode
from sureline.experiments.drive import run_scenario
from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.scenario_reader import read_scenario
from sureline.overlay.kademlia.ids import key_of
from sureline.overlay.ring import ValueRange
from sureline.run.options import Options
from sureline.strategies import resolved, strategy
from sureline.strategies.chemical.messages import GiveBack, NotTaken, Take, Taken, id_of
from sureline.strategies.chemical.molecules import (
    level_key,
    needs_of,
    ready_molecule,
    resource_molecule,
    task_key,
    task_molecule,
)
from sureline.strategies.chemical.rulebook import ORDERS, book_of, usual_text
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Command, Graph, Needs, Task
from sureline.workflow.shapes import levels_from_exit
from sureline.world.address import at
from sureline.world.agent import Agent, handles

USUAL = book_of("", "rank")


def graph_of(parents: list[set[int]], needs: Needs | None = None) -> Graph:
    return Graph(
        "g",
        tuple(
            Task(
                name=f"t{i}",
                action=Command("true"),
                after=tuple(f"t{p}" for p in sorted(found)),
                needs=needs or Needs(),
            )
            for i, found in enumerate(parents)
        ),
    )


# Rules.


@settings(max_examples=30, deadline=None)
@given(st.data())
def test_levels_are_the_longest_way_to_the_exit(data):
    count = data.draw(st.integers(1, 12))
    parents = [
        data.draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set() for i in range(count)
    ]
    graph = graph_of(parents)
    seed = data.draw(st.integers(0, 1 << 30))
    found = USUAL.levels([task_molecule(graph, i) for i in range(count)], Random(seed))
    placed = {
        graph.index[id_of(task)]: level
        for level, molecule in found.items()
        for task in molecule[-1].molecules
    }
    assert placed == dict(enumerate(levels_from_exit(graph)))


def test_a_level_is_ready_when_the_one_before_is_done_and_falls_apart_once():
    graph = graph_of([set(), {0}, {0}])
    levels = USUAL.levels([task_molecule(graph, i) for i in range(3)], Random(1))
    assert USUAL.tasks(levels[0], Random(1))[1] == [], "it is not ready"
    assert USUAL.readied(2, levels[0], Random(1)) is None
    ready = USUAL.readied(1, levels[0], Random(1))
    rest, tasks = USUAL.tasks(ready, Random(1))
    assert sorted(map(id_of, tasks)) == ["t1", "t2"]
    assert USUAL.tasks(rest, Random(1))[1] == [], "a running level makes no tasks again"


def test_the_query_is_the_condition_of_the_rule():
    needs = Needs(cores=2, memory_bytes=4_000_000_000, tags=(("licence", 1),))
    task = task_molecule(graph_of([set()], needs), 0)
    assert needs_of(task) == needs
    limits = USUAL.limits(task, Random(1))
    assert limits["cores"] == ValueRange(low=2.0) and limits["memory"] == ValueRange(low=4e9)
    other = usual_text("rules").replace("if cores >= c and", "if 2 * c < cores and load <= 0.5 and")
    other = other.replace("GPUS:gpus, ?more", "GPUS:gpus, LOAD:load, ?more")
    picky = book_of(other, "first")
    limits = picky.limits(task, Random(1))
    assert limits["cores"] == ValueRange(low=4.0, low_open=True)
    assert limits["load"] == ValueRange(high=0.5)


@pytest.mark.parametrize(("cores", "fits"), [(1.0, False), (2.0, True), (64.0, True)])
def test_a_task_goes_to_a_resource_that_has_what_it_needs(cores, fits):
    task = task_molecule(graph_of([set()], Needs(cores=2)), 0)
    resource = resource_molecule("p", {"cores": cores, "memory": 1.0})
    assert USUAL.fits(task, resource, Random(1)) is fits


@pytest.mark.parametrize(
    ("order", "first"), [("first", "early"), ("shortest", "short"), ("rank", "long"),
                         ("deadline", "due")]
)  # fmt: skip
def test_an_order_says_who_goes_first(order, first):
    """(since, takes, rank, due): each is the lowest in one of them; of the rank, the highest."""
    tasks = {
        "early": (1.0, 50.0, 60.0, 900.0),
        "short": (5.0, 1.0, 2.0, 900.0),
        "long": (5.0, 50.0, 600.0, 900.0),
        "due": (5.0, 50.0, 60.0, 100.0),
    }
    book = book_of("", order)
    keys = {name: book.key(ready_molecule(name, *of), Random(1)) for name, of in tasks.items()}
    assert min(keys, key=keys.__getitem__) == first


def test_the_order_of_the_page_is_one():
    page = (Path(__file__).parents[2] / "docs" / "chemical.md").read_text()
    (text,) = re.findall(r"^    (let order = .*)$", page, re.MULTILINE)
    ready = ready_molecule("t", since=1.0, takes_s=5.0, rank_s=60.0, due=9.0)
    assert book_of("", text).key(ready, Random(1)) == 5.0 - 60.0


def test_every_order_has_its_file():
    assert len({usual_text(order) for order in ORDERS}) == len(ORDERS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"rules": "nowhere.chem"}, "rules=nowhere.chem of chemical cannot be read"),
        ({"order": "longest"}, "one of first, shortest, rank, deadline"),
        ({"rules": "let a = replace\n"}, "rules, line 1"),
        ({"rules": "let a = replace x by x\n"}, "the rules have no workflowDecomp"),
        ({"order": "let other = replace x by x\n"}, "the order has no rule of that name"),
        ({"barriers": "of"}, r"barriers=of of chemical .* on or off \(did you mean off\?\)"),
    ],
)
def test_a_mistake_in_a_setting_is_told_before_anything_runs(given, said):
    with pytest.raises(UserError, match=said):
        resolved(Options(grid="lab", strategy="chemical", settings=given))


@pytest.mark.parametrize("setting", ["rules", "order"])
def test_a_mistake_in_a_file_says_which_file_and_where(tmp_path, setting):
    file = tmp_path / "my.chem"
    file.write_text("let order = replace x by\n  y + 1\n")
    with pytest.raises(UserError, match=rf"my.chem: .*{setting}, line 2, column 3: 'y' is not"):
        resolved(Options(grid="g", strategy="chemical", settings={setting: str(file)}))


def test_a_file_of_rules_travels_with_the_run(tmp_path):
    file = tmp_path / "my.chem"
    file.write_text(usual_text("rules"))
    options = resolved(Options(grid="g", strategy="chemical", settings={"rules": str(file)}))
    assert options.settings["rules"] == usual_text("rules")
    file.unlink()
    assert resolved(options) == options, "whoever takes the run over has no such file"


def test_a_molecule_brings_the_rules_that_it_is_reacted_with_by():
    net = ChemicalNet(7, nodes=6)
    rules = usual_text("rules").replace("memory >= m", "memory >= m + 2000000000")
    net.enter_task("bad", rules="let a = replace")
    net.enter_task("own", rules=rules)
    net.enter_task("usual")
    assert net.until(lambda: len(net.writer.bound) == 2)
    asked = dict(zip(net.writer.order, net.writer.said, strict=True))
    assert "memory >= 2GB" in asked["own"] and "memory" not in asked["usual"]
    net.pass_time(10.0)
    assert set(net.writer.bound) == {"own", "usual"}  # one that makes no sense harms nobody


# Resources.


@pytest.mark.parametrize("seed", range(6))
def test_a_resource_is_taken_by_as_many_as_it_has_room_for(seed):
    """More tasks than places: all are placed, never two in one place at a time."""
    net = ChemicalNet(seed, 4)
    for number in range(9):
        net.enter_task(f"t{number}")
    in_use: dict[str, int] = {}
    for owner in net.owners.values():
        _watch(owner, in_use)
    assert net.until(lambda: len(net.writer.bound) == 9, 200.0), seed
    assert net.writer.advice >= 9


def _watch(owner, in_use):
    take, give_back = owner._free.take, owner._free.give_back

    def taken(needs):
        take(needs)
        in_use[owner.me] = in_use.get(owner.me, 0) + 1
        assert in_use[owner.me] <= owner._machine.capacity.cores

    def given(needs):
        give_back(needs)
        in_use[owner.me] -= 1

    owner._free.take, owner._free.give_back = taken, given


class Taker(Agent):
    def __init__(self, me, world):
        super().__init__(me, world)
        self.taken: list[Taken] = []
        self.refused: list[NotTaken] = []

    @handles(Taken)
    def on_taken(self, sender, said):
        self.taken.append(said)

    @handles(NotTaken)
    def on_not_taken(self, sender, said):
        self.refused.append(said)


def test_of_those_who_wait_the_first_by_their_order_is_served_and_hears_who_else_wanted_it():
    net = ChemicalNet(3, 1)
    owner = net.owners["n0"].me
    me = at("desk", "taker")
    taker = Taker(me, net.sim.place(me))
    net.sim.join(taker)
    wanted = {1: ("now", 9.0), 2: ("late", 3.0), 3: ("first", 1.0), 4: ("second", 2.0)}
    for number, (task, key) in wanted.items():
        taker.world.send(owner, Take("run", number, task, Needs(), key, 30.0))
        net.pass_time(0.1)
    taker.world.send(owner, Take("run", 5, "huge", Needs(cores=9), 0.0, 30.0))
    taker.world.send(owner, Take("run", 2, "late", Needs(), 3.0, 30.0))  # said twice: asked once
    for _ in range(3):
        net.pass_time(0.1)
        taker.world.send(owner, GiveBack("run", taker.taken[-1].token))
    net.pass_time(60.0)
    assert [said.number for said in taker.taken] == [1, 3, 4, 2]
    assert set(taker.taken[1].others) >= {"late of run", "second of run"}
    assert [(said.number, said.why) for said in taker.refused] == [(5, "it is too small")]
    for number, task in ((6, "now"), (7, "again")):
        taker.world.send(owner, Take("run", number, task, Needs(), 1.0, 0.1))
        net.pass_time(0.5)
    taker.world.send(owner, GiveBack("run", taker.taken[-1].token))
    taker.world.send(owner, Take("run", 8, "again", Needs(), 1.0, 0.1))
    net.pass_time(0.5)
    assert taker.taken[-1].number == 8 and not taker.taken[-1].others, "it is no rival of its own"


def test_a_task_that_nobody_is_large_enough_for_waits_for_one_that_is():
    net = ChemicalNet(4, 3)
    net.enter_task("large", cores=8.0)
    net.pass_time(10.0)
    assert not net.writer.bound
    net.cores = 16.0
    large = net.add()
    assert net.until(lambda: net.writer.bound.get("large") == large, 60.0)


# Levels, and holders that die.

FLOW = [["a"], ["b", "c", "d"], ["e", "f"], ["g"]]


def finished(net) -> bool:
    return net.until(lambda: len(net.writer.done) == sum(map(len, FLOW)), 300.0)


def in_levels(net) -> bool:
    """Whether tasks were bound level by level."""
    level = {task: n for n, tasks in enumerate(FLOW) for task in tasks}
    bound = [level[task] for task in net.writer.order]
    return bound == sorted(bound)


@pytest.mark.parametrize("seed", range(3))
def test_levels_follow_one_another(seed):
    net = ChemicalNet(seed, 6)
    net.enter_levels(FLOW)
    assert finished(net) and in_levels(net), seed
    assert net.until(lambda: not any(h._levels for h in net.holders.values())), "none is left"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("moment", ["tending", "before", "after"])
def test_a_level_goes_on_when_its_holder_dies(seed, moment):
    """While its tasks run; before the next level is made ready; and just after."""
    net = ChemicalNet(10 + seed, 8)
    net.writer.takes_s = 5.0
    died: list[str] = []
    if moment != "tending":
        for node, ring in net.live.items():
            _die_at(net, node, ring, level_key("run", 1, 2), died, moment == "after")
    net.enter_levels(FLOW)
    if moment == "tending":
        assert net.until(lambda: 3 in net.writer.tenders)
        died.append(net.crash_holder_of(level_key("run", 1, 3)))
    assert net.until(lambda: bool(died)), "somebody makes the next level ready"
    assert finished(net) and in_levels(net), (seed, moment)


def _die_at(net, node, ring, next_key, died, after):
    put_back = ring.captures.put_back

    def dying(held, value, on_done):
        if held.key != next_key or died:
            put_back(held, value, on_done)
            return
        died.append(node)
        if after:
            put_back(held, value, lambda done: net.sim.at(net.sim.time, lambda: net.crash(node)))
        else:
            net.sim.at(net.sim.time, lambda: net.crash(node))

    ring.captures.put_back = dying


@pytest.mark.parametrize("seed", range(3))
def test_a_task_finds_its_resource_when_its_holder_dies(seed):
    net = ChemicalNet(20 + seed, 8)
    for owner in net.owners.values():
        owner._machine.leaving = True  # nobody gives it a place yet
    net.enter_task("t")
    key = task_key("run", 1, "t", 1)
    assert net.until(lambda: net.is_held(key) is not None)
    net.crash_holder_of(key)
    for owner in net.owners.values():
        owner._machine.leaving = False
        owner.start()
    assert net.until(lambda: "t" in net.writer.bound, 120.0), seed
    assert net.writer.bound["t"] in net.live


def test_nothing_is_bound_to_a_resource_that_is_gone():
    net = ChemicalNet(30, 6)
    best = min(net.owners, key=lambda n: (net.owners[n].features()["load"], n))
    net.pass_time(2.0)
    net.crash(best)
    for number in range(4):
        net.enter_task(f"t{number}")
    assert net.until(lambda: len(net.writer.bound) == 4, 120.0)
    assert best not in net.writer.bound.values()


GRID = """
duration = "1h"
[grid]
machines = 8
[workload]
kind = "layered"
tasks = 1
"""


def test_a_node_that_leaves_in_order_hands_its_molecules_over():
    """All three holders go, one after the other, each as soon as the one before has gone."""
    scenario = read_scenario(GRID.encode(), file="grid.toml", beside=None)
    grid = SimulatedGrid(scenario, 1, None, [strategy("chemical")])
    nodes: dict[str, GridNode] = {}
    make = grid._node
    grid._node = lambda node, offer: nodes.setdefault(node, make(node, offer))
    grid.boot_peers()
    grid.sim.run(until=30.0)
    rings = {node: one.halves["chemical"][0] for node, one in nodes.items()}
    key, kept = key_of("molecule"), []
    next(iter(rings.values())).store(key, b"molecule", kept.append)
    grid.sim.run(until=35.0)
    holders = [node for node, ring in rings.items() if key in ring.captures.registers.records]
    assert kept == [True] and len(holders) == 3
    for node in holders:
        for parting in nodes[node].partings():
            part(grid, parting)
        grid.crash(node)
        del rings[node]
    had: list[bytes] = []
    asked = next(iter(rings.values()))
    asked.capture(key, lambda held, why: had.append(held.value if held else why))
    wait(grid, lambda: bool(had))
    assert had == [b"molecule"]


def part(grid, parting):
    done: list[bool] = []
    parting(lambda: done.append(True))
    wait(grid, lambda: bool(done))


def wait(grid, condition):
    give_up_s = grid.sim.time + 60.0
    while not condition():
        assert grid.sim.time < give_up_s
        grid.sim.run(until=grid.sim.time + 0.1)


# Whole runs, with holders, resources and writers that fail.

SCENARIO = read_scenario(
    (files("sureline.experiments") / "scenarios" / "molecules.toml").read_bytes(),
    file="molecules.toml",
    beside=None,
)


def runs_of(seed: int) -> None:
    """One seed of the scenario `molecules`; level by level if it is odd."""
    settings = {"barriers": "on" if seed % 2 else "off"}
    workload = msgspec.structs.replace(SCENARIO.workload, settings=settings)
    outcome = run_scenario(msgspec.structs.replace(SCENARIO, workload=workload), seed)
    broken = [check for check in outcome.checks if not check.held]
    assert not broken, f"seed {seed}: {broken}"
    assert [run.state for run in outcome.runs] == ["succeeded"] * 3, f"seed {seed}"


@pytest.mark.parametrize("seed", [1, 2])
def test_all_runs_finish_right_while_everything_fails(seed):
    runs_of(seed)


@pytest.mark.soak
@pytest.mark.limit_s(7200)
def test_all_runs_finish_right_in_a_thousand_seeds():
    for seed in range(1, 1001):
        runs_of(seed)
