"""The model of links: delays, order, loss, duplication, bandwidth, partitions, overrides."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_lab import Ear, Note, constant, ear

from sureline.world.simulated import (
    Constant,
    Delay,
    Empirical,
    Exponential,
    Link,
    LogNormal,
    MachineSpec,
    Network,
    Simulation,
    Uniform,
)
from sureline.world.simulated.counters import size_of
from sureline.world.simulated.delays import DRAWS_PER_BLOCK

DELAYS = [
    # distribution, mean, variance, least
    (Constant(0.3), 0.3, 0.0, 0.3),
    (Uniform(0.1, 0.5), 0.3, 0.4**2 / 12, 0.1),
    (Exponential(0.2), 0.2, 0.04, 0.0),
    (Exponential(0.2, least_s=0.1), 0.3, 0.04, 0.1),
    (
        LogNormal(0.1, 0.5),
        0.1 * math.exp(0.125),
        0.01 * (math.exp(0.25) - 1) * math.exp(0.25),
        0.0,
    ),
    (Empirical((0.1, 0.2, 0.6)), 0.3, (0.04 + 0.01 + 0.09) / 3, 0.1),
]
DRAWS = 40 * DRAWS_PER_BLOCK


@pytest.mark.parametrize(("delay", "mean", "variance", "least"), DELAYS)
def test_delays_have_the_moments_of_their_distribution(delay, mean, variance, least):
    draw = delay.draw_from(np.random.RandomState(1))
    drawn = [draw() for _ in range(DRAWS)]
    assert delay.mean_s == pytest.approx(mean)
    # Five standard errors of the mean; the seed is fixed, so this either holds or does not.
    assert np.mean(drawn) == pytest.approx(mean, abs=5 * math.sqrt(variance / DRAWS) + 1e-12)
    assert np.var(drawn) == pytest.approx(variance, rel=0.05, abs=1e-12)
    assert min(drawn) >= least


def test_an_exponential_delay_has_its_tail():
    draw = Exponential(2.0).draw_from(np.random.RandomState(2))
    drawn = [draw() for _ in range(DRAWS)]
    for beyond_s in (1.0, 4.0, 8.0):
        share = sum(value > beyond_s for value in drawn) / DRAWS
        expected = math.exp(-beyond_s / 2)
        error = math.sqrt(expected * (1 - expected) / DRAWS)
        assert share == pytest.approx(expected, abs=5 * error)


def test_successive_draws_are_independent():
    draw = Exponential(1.0).draw_from(np.random.RandomState(3))
    drawn = np.array([draw() for _ in range(DRAWS)])
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 5 / math.sqrt(DRAWS)


@pytest.mark.parametrize("delay", [row[0] for row in DELAYS])
def test_a_delay_can_stand_in_a_file(delay):
    assert msgspec.json.decode(msgspec.json.encode(delay), type=Delay) == delay


@pytest.mark.parametrize(
    "make",
    [
        lambda: Constant(-1.0),
        lambda: Uniform(0.5, 0.1),
        lambda: Exponential(-0.1),
        lambda: LogNormal(0.0, 1.0),
        lambda: Empirical(()),
        lambda: Empirical((0.1, -0.1)),
        lambda: Link(loss=1.5),
        lambda: Link(bandwidth_bytes_per_s=0.0),
    ],
)
def test_an_impossible_link_is_refused(make):
    with pytest.raises(ValueError, match=r"\w+ \w+"):
        make()


def two(network: Network, seed: int = 1, detail: str = "full") -> tuple[Simulation, Ear, Ear]:
    sim = Simulation(seed, network, detail=detail)
    return sim, ear(sim, "a/x"), ear(sim, "b/x")


@pytest.mark.parametrize("detail", ["full", "light"])
def test_a_message_takes_the_links_delay(detail):
    sim, a, b = two(constant(0.25), detail=detail)
    sim.run(until=1.0)
    a.world.send("b/x", Note(1))
    sim.run()
    assert b.heard == [(1.25, "a/x", 1)]


@pytest.mark.parametrize("detail", ["full", "light"])
def test_delays_of_messages_follow_the_links_distribution(detail):
    sim, a, b = two(Network(Link(Exponential(0.2), reorder=True)), detail=detail)
    for number in range(20_000):
        a.world.send("b/x", Note(number))
    sim.run()
    assert np.mean(b.times) == pytest.approx(0.2, rel=0.04)
    assert np.var(b.times) == pytest.approx(0.04, rel=0.08)


@pytest.mark.parametrize("detail", ["full", "light"])
@given(gaps=st.lists(st.floats(0, 0.3), min_size=2, max_size=40), seed=st.integers(0, 99))
def test_messages_between_two_agents_keep_their_order(detail, gaps, seed):
    sim = Simulation(seed, Network(Link(Exponential(0.2))), detail=detail)
    a, b, c = ear(sim, "a/x"), ear(sim, "b/x"), ear(sim, "c/x")
    at_s = 0.0
    for number, gap_s in enumerate(gaps):
        at_s += gap_s
        to = "b/x" if number % 3 else "c/x"
        sim.at(at_s, lambda to=to, number=number: a.world.send(to, Note(number)))
    sim.run()
    assert b.numbers == [number for number in range(len(gaps)) if number % 3]
    assert c.numbers == [number for number in range(len(gaps)) if not number % 3]


@pytest.mark.parametrize("detail", ["full", "light"])
def test_a_message_to_one_agent_does_not_wait_for_those_to_others(detail):
    """Order is kept between two agents, not among all that one agent sends."""
    sim = Simulation(3, Network(Link(Exponential(1.0))), detail=detail)
    sender = ear(sim, "a/x")
    ears = [ear(sim, f"n{number}/x") for number in range(2000)]
    for other in ears:
        sender.world.send(other.me, Note(0))
    sim.run()
    times = [other.times[0] for other in ears]
    assert np.mean(times) == pytest.approx(1.0, rel=0.1)
    assert times != sorted(times)


@pytest.mark.parametrize("detail", ["full", "light"])
def test_with_reordering_messages_overtake(detail):
    sim, a, b = two(Network(Link(Exponential(0.2), reorder=True)), detail=detail)
    for number in range(100):
        a.world.send("b/x", Note(number))
    sim.run()
    assert b.numbers != sorted(b.numbers)
    assert sorted(b.numbers) == list(range(100))


def test_loss_and_duplication_have_their_rates():
    link = Link(Constant(0.01), loss=0.2, duplication=0.1)
    sim, a, b = two(Network(link))
    count = 20_000
    for number in range(count):
        a.world.send("b/x", Note(number))
    sim.run()
    once = len(set(b.numbers))
    twice = len(b.numbers) - once
    assert once == pytest.approx(0.8 * count, abs=5 * math.sqrt(count * 0.16))
    assert twice == pytest.approx(0.08 * count, abs=5 * math.sqrt(count * 0.08 * 0.92))
    assert b.numbers == sorted(b.numbers), "a message or its double has overtaken another"
    traffic = sim.counters.by_type()["lab.note"]
    assert (traffic.sent, traffic.received) == (count, len(b.numbers))
    assert traffic.dropped == count - once


def test_a_message_is_charged_for_its_bytes():
    sim, a, b = two(constant(0.5, bandwidth_bytes_per_s=1000.0))
    note = Note(1, "x" * 2000)
    wire_s = size_of(note, "a/x", "b/x") / 1000
    assert 2.0 < wire_s < 2.1
    for _ in range(3):
        a.world.send("b/x", note)
    sim.run()
    # One after the other through the same pipe.
    assert b.times == pytest.approx([0.5 + wire_s, 0.5 + 2 * wire_s, 0.5 + 3 * wire_s])


@pytest.mark.parametrize("detail", ["full", "light"])
def test_a_partition_cuts_both_ways_and_heals(detail):
    sim = Simulation(1, constant(0.01), detail=detail)
    ears = {node: ear(sim, f"{node}/x") for node in "abcde"}

    def everyone_to_everyone(number: int) -> None:
        for sender in ears.values():
            for other in ears.values():
                if other is not sender:
                    sender.world.send(other.me, Note(number))

    def reached(number: int) -> set[str]:
        return {
            sender[0] + node
            for node, one in ears.items()
            for _, sender, heard in one.heard
            if heard == number
        }

    sim.partition([["a", "b"], ["c"]])
    everyone_to_everyone(1)
    sim.run()
    assert reached(1) == {"ab", "ba", "de", "ed"}
    sim.heal()
    everyone_to_everyone(2)
    sim.run()
    assert len(reached(2)) == 20
    assert all(one.gone == [] for one in ears.values())
    traffic = sim.counters.by_type()["lab.note"]
    assert (traffic.sent, traffic.received, traffic.dropped) == (40, 24, 16)


def test_a_message_under_way_when_a_partition_begins_still_arrives():
    sim, a, b = two(constant(0.1))
    a.world.send("b/x", Note(1))
    sim.at(0.05, lambda: sim.partition([["a"], ["b"]]))
    sim.run()
    assert b.numbers == [1]


def test_links_by_pair_go_before_links_by_site_before_the_default():
    sim = Simulation(1, constant(0.1))
    for node, site in (("a", "s"), ("b", "t"), ("c", "t"), ("d", "s")):
        sim.machine(node, MachineSpec(site=site))
    ears = {node: ear(sim, f"{node}/x") for node in "abcd"}
    sim.network.set_site_link("s", "t", Link(Constant(0.2)))
    sim.network.set_link("a", "b", Link(Constant(0.3)), both_ways=False)

    def delay(source: str, target: str) -> float:
        before = sim.time
        ears[source].world.send(f"{target}/x", Note(0))
        sim.run()
        return sim.time - before

    found = {pair: delay(*pair) for pair in ("ab", "ba", "ac", "ca", "ad", "bc")}
    wanted = {"ab": 0.3, "ba": 0.2, "ac": 0.2, "ca": 0.2, "ad": 0.1, "bc": 0.1}
    assert found == pytest.approx(wanted)
    sim.network.set_link("a", "b", None)
    sim.network.set_site_link("s", "t", None)
    assert delay("a", "b") == pytest.approx(0.1)
    sim.network.set_default(Link(Constant(0.7)))
    assert delay("a", "b") == pytest.approx(0.7)


def test_agents_of_one_node_need_no_link():
    sim = Simulation(1, constant(5.0, loss=1.0))
    a, b = ear(sim, "n/a"), ear(sim, "n/b")
    a.world.send("n/b", Note(1))
    a.world.send("n/a", Note(2))
    assert b.heard == []
    sim.run()
    assert (b.heard, a.heard) == ([(0.0, "n/a", 1)], [(0.0, "n/a", 2)])
    assert sim.counters.by_type() == {}


def test_a_network_belongs_to_one_simulation():
    network = constant()
    Simulation(1, network)
    with pytest.raises(ValueError, match="one Simulation"):
        Simulation(2, network)
