"""The ring of a grid follows its membership, and sleeps while nobody uses it."""

from __future__ import annotations

from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.scenario_reader import read_scenario
from sureline.overlay.membership import Member, Offer, settle_s
from sureline.overlay.ring import Ring, RingSettings
from sureline.overlay.ring.following import follow
from sureline.overlay.ring.places import distance, place_of
from sureline.strategies import strategy
from sureline.world.address import Node, at
from sureline.world.simulated.simulation import Simulation

MACHINES = 40
SCENARIO = f"""
duration = "1h"
[grid]
machines = {MACHINES}
cores = 2
memory = "8GB"
[workload]
kind = "layered"
tasks = 1
"""
OFFER = Offer(1.0, 1 << 30)
SETTLE_S = settle_s(200)


def member(number: int, state: str = "alive", load: float = 0.0) -> Member:
    return Member(Node(f"n{number}@h:1"), 1, 0, state, OFFER, load)


def test_of_many_members_the_nearest_are_met_and_those_that_help_to_get_about():
    sim = Simulation(seed=1)
    me = at(Node("n0@h:1"), "ring")
    ring = Ring(me, sim.place(me), (), RingSettings(leaves=3))
    sim.join(ring)
    heard = []
    follow(ring, heard.append)
    met: list[str] = []
    ring.meet = met.append
    for number in range(200):
        heard[0](member(number))
    sim.run(until=2 * SETTLE_S)
    others = [at(Node(f"n{number}@h:1"), "ring") for number in range(1, 200)]
    others.sort(key=lambda agent: distance(place_of(me), place_of(agent)))
    assert {*others[:3], *others[-3:]} <= set(met)
    assert len(met) <= 3 + 3 + 8
    met.clear()
    for number in range(200):
        heard[0](member(number, load=0.5))  # how busy somebody is does not matter
    sim.run(until=6 * SETTLE_S)
    assert met == []
    heard[0](member(int(others[0].split("@")[0][1:]), "dead"))
    sim.run(until=9 * SETTLE_S)
    assert others[0] not in met
    assert others[3] in met


def chemical_grid() -> SimulatedGrid:
    scenario = read_scenario(SCENARIO.encode(), file="s.toml", beside=None)
    grid = SimulatedGrid(scenario, 1, None, [strategy("chemical")])
    grid.boot_peers()
    grid.sim.run(until=60.0)
    return grid


def rings_of(grid: SimulatedGrid) -> list[Ring]:
    agents = [place.agent for place in grid.sim.places.values()]
    return [agent for agent in agents if isinstance(agent, Ring)]


def test_who_wakes_knows_its_neighbours_before_anything_is_stored():
    """Asleep it knows those next to it; woken, as many as it is to know, and only then may
    something be put into the ring."""
    grid = chemical_grid()
    rings = rings_of(grid)
    assert len(rings) == MACHINES
    agents = sorted((ring.base.table.place, ring.me) for ring in rings)
    following = {one[1]: two[1] for one, two in zip(agents, agents[1:] + agents[:1], strict=True)}
    for ring in rings:
        assert ring.asleep
        assert ring.base.table.after(1)[0].agent == following[ring.me]
        assert len(ring.base.table) < 2 * ring.base.settings.leaves
    roused: list[float] = []
    for ring in rings:
        ring.wake()
    first = rings[0]
    first.when_roused(lambda: roused.append(grid.sim.time))
    assert not roused
    grid.sim.run(until=grid.sim.time + 10.0)
    assert roused
    leaves = first.base.settings.leaves
    for ring in rings:
        wanted, agent = [], ring.me
        for _ in range(leaves):
            agent = following[agent]
            wanted.append(agent)
        assert [contact.agent for contact in ring.base.table.after()] == wanted
    first.when_roused(lambda: roused.append(grid.sim.time))
    assert len(roused) == 2, "one that is awake is not waited for"


def test_a_ring_that_nobody_uses_says_next_to_nothing():
    grid = chemical_grid()

    def sent(which: tuple[str, ...] = ("ring.", "chemical.")) -> int:
        by_type = grid.sim.counters.by_type()
        return sum(one.sent for tag, one in by_type.items() if tag.startswith(which))

    joined = sent()
    assert joined / MACHINES < 20  # to greet all whom it should know when awake takes more
    grid.sim.run(until=360.0)
    assert (sent() - joined) / MACHINES / 5.0 < 10.0  # of each, in a minute
    assert sent(("ring.publish",)) == 0
