"""Bulk transfers: bandwidth shared max-min fairly, exactly, whatever begins, ends or breaks."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_lab import constant

from sureline.world.simulated import Constant, Link, MachineSpec, Simulation
from sureline.world.simulated.flows import Demand, fair_rates

INF = math.inf


@pytest.mark.parametrize(
    ("demands", "capacities", "rates"),
    [
        ([], {}, []),
        ([(("a",), INF)], {"a": 5.0}, [5.0]),
        ([(("a",), 2.0)], {"a": 5.0}, [2.0]),
        ([((), INF)], {}, [INF]),
        ([(("a",), INF), (("a",), INF)], {"a": INF}, [INF, INF]),
        # What one cannot take, the others get.
        ([(("a",), 1.0), (("a",), INF), (("a",), INF)], {"a": 9.0}, [1.0, 4.0, 4.0]),
        # The classic line: one long flow over two links, one short flow on each.
        (
            [(("a", "b"), INF), (("a",), INF), (("b",), INF)],
            {"a": 10.0, "b": 4.0},
            [2.0, 8.0, 2.0],
        ),
        ([(("a",), 0.0), (("a",), INF)], {"a": 4.0}, [0.0, 4.0]),
    ],
)
def test_fair_rates_by_hand(demands, capacities, rates):
    made = [Demand(resources, most) for resources, most in demands]
    assert fair_rates(made, capacities) == pytest.approx(rates)


@given(data=st.data())
def test_fair_rates_are_feasible_and_nobody_could_have_more(data):
    names = ["a", "b", "c", "d"]
    capacities = {name: data.draw(st.floats(0.5, 100.0)) for name in names}
    demands = [
        Demand(tuple(resources), most)
        for resources, most in data.draw(
            st.lists(
                st.tuples(
                    st.lists(st.sampled_from(names), min_size=1, max_size=2, unique=True),
                    st.one_of(st.just(INF), st.floats(0.0, 50.0)),
                ),
                max_size=12,
            )
        )
    ]
    rates = fair_rates(demands, capacities)
    used = dict.fromkeys(names, 0.0)
    for demand, rate in zip(demands, rates, strict=True):
        assert 0 <= rate <= demand.most
        for name in demand.resources:
            used[name] += rate
    assert all(used[name] <= capacities[name] * (1 + 1e-9) for name in names)
    for demand, rate in zip(demands, rates, strict=True):
        # Max-min: it has all it can take, or a full resource on which nobody has more than it.
        assert rate >= demand.most * (1 - 1e-9) or any(
            used[name] >= capacities[name] * (1 - 1e-9)
            and rate
            >= max(r for d, r in zip(demands, rates, strict=True) if name in d.resources)
            * (1 - 1e-9)
            for name in demand.resources
        )


class Lab:
    """Machines with 100 bytes/s up and down, no delay, and a note of what arrived when."""

    def __init__(self, nodes="abcd", **link):
        self.sim = Simulation(1, constant(0.0, **link))
        self.arrived: list[tuple[str, float, int]] = []
        for node in nodes:
            self.sim.machine(node, MachineSpec(up_bytes_per_s=100.0, down_bytes_per_s=100.0))

    def move(self, pair: str, size_bytes: int, at_s: float = 0.0) -> None:
        def done(arrived_bytes: int) -> None:
            self.arrived.append((pair, round(self.sim.time, 6), arrived_bytes))

        self.sim.at(at_s, lambda: self.sim.network.transfer(pair[0], pair[1], size_bytes, done))

    def run(self):
        self.sim.run()
        return self.arrived


def test_a_transfer_alone_takes_its_bytes_over_the_bandwidth():
    lab = Lab()
    lab.move("ab", 1000)
    assert lab.run() == [("ab", 10.0, 1000)]


def test_two_transfers_from_one_machine_share_and_the_longer_one_speeds_up():
    lab = Lab()
    lab.move("ab", 500)
    lab.move("ac", 1000)
    # Both at 50 until 10 s; the other 500 bytes at 100.
    assert lab.run() == [("ab", 10.0, 500), ("ac", 15.0, 1000)]


def test_one_that_begins_later_takes_its_share_from_then_on():
    lab = Lab()
    lab.move("ab", 1000)
    lab.move("cb", 200, at_s=4.0)
    # ab: 400 by 4 s, then both at 50 until cb has 200 at 8 s (ab 600), then 400 more at 100.
    assert lab.run() == [("cb", 8.0, 200), ("ab", 12.0, 1000)]


def test_the_way_up_and_the_way_down_are_apart():
    lab = Lab()
    lab.move("ab", 1000)
    lab.move("ba", 1000)
    assert lab.run() == [("ab", 10.0, 1000), ("ba", 10.0, 1000)]


def test_a_links_bandwidth_bounds_each_transfer():
    lab = Lab(bandwidth_bytes_per_s=20.0)
    lab.move("ab", 100)
    lab.move("ac", 100)
    assert lab.run() == [("ab", 5.0, 100), ("ac", 5.0, 100)]


def test_the_first_byte_takes_the_links_delay():
    lab = Lab()
    lab.sim.network.set_link("a", "b", Link(Constant(0.5)))
    lab.move("ab", 100)
    assert lab.run() == [("ab", 1.5, 100)]


def test_within_one_machine_and_without_limits_data_is_there_at_once():
    lab = Lab()
    lab.move("aa", 10**9)
    lab.move("xy", 10**9)
    assert lab.run() == [("aa", 0.0, 10**9), ("xy", 0.0, 10**9)]


def test_a_source_that_crashes_leaves_what_has_arrived():
    lab = Lab()
    lab.move("ab", 1000)
    lab.move("cb", 1000)
    lab.sim.at(4.0, lambda: lab.sim.crash("a"))
    # 200 each by 4 s; then cb has the way down to itself.
    assert lab.run() == [("ab", 4.0, 200), ("cb", 12.0, 1000)]


def test_a_source_that_is_down_gives_nothing():
    lab = Lab()
    lab.sim.crash("a")
    lab.move("ab", 1000)
    assert lab.run() == [("ab", 0.0, 0)]


def test_a_target_that_crashes_never_hears_of_it_and_gives_way():
    lab = Lab()
    lab.move("ab", 1000)
    lab.move("ac", 1000)
    lab.sim.at(4.0, lambda: lab.sim.crash("b"))
    lab.sim.at(5.0, lambda: lab.sim.restart("b"))
    assert lab.run() == [("ac", 12.0, 1000)]


@pytest.mark.parametrize("how", ["freeze", "partition"])
def test_a_frozen_or_cut_off_machine_makes_transfers_wait(how):
    lab = Lab()
    lab.move("ab", 1000)
    lab.move("ac", 1000)
    begin = {"freeze": lambda: lab.sim.freeze("b"), "partition": lambda: lab.sim.partition(["b"])}
    end = {"freeze": lambda: lab.sim.thaw("b"), "partition": lab.sim.heal}
    lab.sim.at(4.0, begin[how])
    lab.sim.at(10.0, end[how])
    # By 4 s 200 each; ac alone until 10 s has 800; then 200 more at 50; ab the last 600 at 100.
    assert lab.run() == [("ac", 14.0, 1000), ("ab", 20.0, 1000)]


def test_a_cancelled_transfer_says_nothing_and_gives_way():
    lab = Lab()
    lab.move("ac", 1000)
    moving = lab.sim.network.transfer("a", "b", 1000, lambda arrived: pytest.fail("not asked"))
    lab.sim.at(4.0, moving.cancel)
    assert lab.run() == [("ac", 12.0, 1000)]
    assert moving.arrived_bytes() == 200


def test_progress_can_be_asked_for():
    lab = Lab()
    moving = lab.sim.network.transfer("a", "b", 1000, lambda arrived: None)
    lab.sim.run(until=2.5)
    assert moving.arrived_bytes() == 250


NODES = "abcde"


@settings(max_examples=60)
@given(
    moves=st.lists(
        st.tuples(
            st.sampled_from(NODES),
            st.sampled_from(NODES),
            st.integers(0, 5000),
            st.integers(0, 30),
        ),
        max_size=12,
    ),
    troubles=st.lists(
        st.tuples(st.integers(1, 60), st.sampled_from(["freeze", "crash"]), st.sampled_from(NODES)),
        max_size=4,
    ),
)
def test_bytes_are_conserved_and_no_machine_exceeds_its_bandwidth(moves, troubles):
    """Sampled every second: what has arrived grows by no more than the bandwidth of any machine,
    and what was told at the end is what had arrived; without crashes, everything does."""
    lab = Lab(NODES)
    sim = lab.sim
    under_way = []
    told: dict[int, int] = {}

    def begin(number: int, source: str, target: str, size_bytes: int) -> None:
        if sim.machine(target).life is not None:
            moving = sim.network.transfer(
                source, target, size_bytes, lambda arrived: told.__setitem__(number, arrived)
            )
            under_way.append((number, source, target, size_bytes, moving))

    for number, (source, target, size_bytes, at_s) in enumerate(moves):
        sim.at(float(at_s), lambda n=number, s=source, t=target, b=size_bytes: begin(n, s, t, b))
    for at_s, what, node in troubles:
        sim.at(at_s + 0.5, lambda what=what, node=node: getattr(sim, what)(node))
        undo = "thaw" if what == "freeze" else "restart"
        sim.at(at_s + 7.5, lambda undo=undo, node=node: getattr(sim, undo)(node))
    before: dict[int, int] = {}
    for second in range(1, 80):
        sim.run(until=float(second))
        grown = {n: moving.arrived_bytes() - before.get(n, 0) for n, *_, moving in under_way}
        for node in NODES:
            up = sum(grown[n] for n, s, t, *_ in under_way if s == node and t != node)
            down = sum(grown[n] for n, s, t, *_ in under_way if t == node and s != node)
            # Arrived bytes are whole: one may round up in each of at most twelve flows.
            assert up <= 100 + 12
            assert down <= 100 + 12
        before = {n: moving.arrived_bytes() for n, *_, moving in under_way}
    sim.run()
    for number, _, _, size_bytes, moving in under_way:
        if number in told:
            assert told[number] == moving.arrived_bytes() <= size_bytes
        if not any(what == "crash" for _, what, _ in troubles):
            assert told[number] == size_bytes
