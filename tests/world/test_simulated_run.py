"""The simulation as a whole: order, stopping, determinism, failures, counters, random faults."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sim_lab import Note, constant, ear

from sureline.world.agent import Agent, handles
from sureline.world.protocol import Message
from sureline.world.simulated import (
    Exponential,
    Link,
    Network,
    RandomFaults,
    Rates,
    Simulation,
    SimulationError,
)
from sureline.world.simulated.calendar import BUCKET_MANY, Calendar, SimTimer
from sureline.world.simulated.counters import size_of

# Order.


@settings(max_examples=40)
@given(
    data=st.data(),
    detail=st.sampled_from(["full", "light"]),
    per_bucket=st.sampled_from([0.001, 100.0, 1e6]),
)
def test_events_happen_in_order_of_time_and_then_of_being_added(data, detail, per_bucket):
    """Against a plain list; events add events, also for the very instant they happen in, and the
    calendar changes the width of its buckets in between."""
    sim = Simulation(1, detail=detail)
    gaps = st.one_of(st.just(0.0), st.floats(0, 0.002), st.floats(0, 3))
    expected: list[tuple[float, int]] = []
    happened: list[tuple[float, int]] = []

    def add(at_s: float, children: list[float]) -> None:
        number = len(expected)
        expected.append((at_s, number))

        def happen() -> None:
            happened.append((sim.time, number))
            for gap_s in children:
                add(sim.time + gap_s, [])

        sim.at(at_s, happen)

    for gap_s in data.draw(st.lists(gaps, max_size=30)):
        add(gap_s, data.draw(st.lists(gaps, max_size=3)))
    sim.run(until=1.0)
    sim.calendar.adapt(per_bucket)
    sim.run(events_max=5)
    sim.run()
    assert happened == sorted(expected)


@given(times_given=st.lists(st.floats(0, 50), max_size=200), per_bucket=st.floats(0.1, 1e5))
def test_a_calendar_keeps_everything_when_it_adapts(times_given, per_bucket):
    calendar = Calendar()
    for number, time_s in enumerate(times_given):
        calendar.add((time_s, None, None, number))
    calendar.adapt(per_bucket)
    found = []
    while (number := calendar.next_number()) is not None:
        entries = calendar.open()
        first, last = number / calendar.per_s, (number + 1) / calendar.per_s
        assert all(first <= entry[0] < last for entry in entries)
        found += [(entry[0], entry[3]) for entry in entries]
        calendar.close(number)
    assert found == sorted((t, n) for n, t in enumerate(times_given))


def test_buckets_follow_the_traffic():
    sim = Simulation(1, detail="light")
    for number in range(20_000):
        sim.at(number * 1e-6, lambda: None)
    for number in range(12_000):
        sim.at(10.0 + number, lambda: None)
    sim.run(until=0.011)
    dense = sim.calendar.per_s
    # A million events in a second, in buckets of no more than BUCKET_MANY and some.
    assert 1e6 / dense <= 2 * BUCKET_MANY
    sim.run()
    assert sim.calendar.per_s == 1.0


# Stopping.


def test_a_run_ends_at_its_time_and_goes_on_from_there():
    sim = Simulation(1)
    ran = []
    for at_s in (0.5, 1.0, 1.0 + 1e-9, 2.0):
        sim.at(at_s, lambda at_s=at_s: ran.append(at_s))
    sim.run(until=1.0)
    assert (ran, sim.time) == ([0.5, 1.0], 1.0)
    sim.run(until=1.5)
    assert (len(ran), sim.time) == (3, 1.5)
    sim.run(until=9.0)
    assert (len(ran), sim.time) == (4, 9.0)
    sim.run()
    assert sim.time == 9.0


@pytest.mark.parametrize("detail", ["full", "light"])
def test_a_condition_and_a_number_of_events_stop_a_run_exactly(detail):
    sim = Simulation(1, constant(0.01), detail=detail)
    a, b = ear(sim, "a/x"), ear(sim, "b/x")
    for number in range(100):
        a.world.send("b/x", Note(number))
    sim.run(condition=lambda: len(b.heard) == 7)
    assert len(b.heard) == 7
    assert sim.counters.by_type()["lab.note"].sent == 100
    sim.run(events_max=5)
    assert (len(b.heard), sim.events) == (12, 12)
    sim.run(condition=lambda: True)
    assert len(b.heard) == 12
    sim.run()
    assert b.numbers == list(range(100))


def test_progress_is_told_during_a_long_run(monkeypatch):
    monkeypatch.setattr("sureline.world.simulated.loop.EVENTS_PER_PROGRESS", 100)
    sim = Simulation(1, detail="light")

    def tick() -> None:
        if sim.events < 950:
            sim.at(sim.time + 0.01, tick)

    tick()
    told = []
    sim.run(progress=lambda sim: told.append(sim.events))
    assert len(told) >= 8
    assert told == sorted(told)


def test_the_collector_is_as_it_was_after_a_run():
    assert gc.isenabled()
    sim = Simulation(1)
    sim.at(0.0, lambda: seen.append(gc.isenabled()))
    seen: list[bool] = []
    sim.run()
    assert (seen, gc.isenabled(), gc.get_freeze_count()) == ([False], True, 0)


# Failures.


@pytest.mark.parametrize("detail", ["full", "light"])
@pytest.mark.parametrize("options", [{}, {"events_max": 1000}, {"until": 0.0101}])
def test_an_exception_names_the_seed_the_time_and_the_node(detail, options):
    sim = Simulation(4711, constant(0.01), detail=detail)
    a, b = ear(sim, "a/x"), ear(sim, "b/x")
    b.on_note = lambda number: 1 // 0
    a.world.send("b/x", Note(1))
    message = "seed 4711, at 0.010000 s on b: ZeroDivisionError"
    with pytest.raises(SimulationError, match=message) as raised:
        sim.run(**options)
    assert isinstance(raised.value.__cause__, ZeroDivisionError)
    assert (raised.value.seed, raised.value.node) == (4711, "b")
    with pytest.raises(SimulationError, match=message):
        sim.run()
    with pytest.raises(SimulationError, match=message):
        sim.boot("c", lambda: pytest.fail("the simulation is over"))


@pytest.mark.parametrize("detail", ["full", "light"])
def test_an_exception_out_of_a_timer_or_of_what_waited_names_its_node(detail):
    sim = Simulation(1, detail=detail)
    ear(sim, "a/x").world.after(1.0, lambda: 1 // 0)
    with pytest.raises(SimulationError, match="on a: ZeroDivisionError"):
        sim.run()
    sim = Simulation(1, detail=detail)
    frozen = ear(sim, "b/x")
    frozen.on_note = lambda number: 1 // 0
    sim.freeze("b")
    frozen.world.send("b/x", Note(1))
    sim.run()
    sim.thaw("b")
    with pytest.raises(SimulationError, match="on b: ZeroDivisionError"):
        sim.run()
    with pytest.raises(SimulationError, match="on c: ZeroDivisionError"):
        Simulation(1).boot("c", lambda: 1 // 0)


# Determinism.

STORY = """
import sys
from sim_lab import Note, ear
from sureline.world.simulated import *

def story(seed, detail):
    sim = Simulation(seed, Network(Link(Exponential(0.1), loss=0.02, duplication=0.02)),
                     detail=detail)
    names = [f"n{number}" for number in range(12)]
    ears, told = {}, []
    def start(name):
        one = ears[name] = ear(sim, f"{name}/x")
        def pass_on(number):
            told.append((round(sim.time, 9), name, number))
            if number < 60:
                one.world.send(f"{sim.random.choice(names)}/x", Note(number + 1))
        one.on_note = pass_on
        one.world.after(0.1, lambda: pass_on(0))
    for name in names:
        sim.boot(name, lambda name=name: start(name))
    faults = RandomFaults(sim, names)
    faults.begin(Rates(crashes_per_s=0.5, kills_per_s=0.2, freezes_per_s=0.5, down_s=1.0,
                       slow_downs_per_s=0.2, partitions_per_s=0.2, parted_s=1.0))
    faults.churn(30.0, 2.0)
    sim.run(until=15.0)
    faults.stop()
    traffic = {tag: t.sent for tag, t in sim.counters.by_type().items()}
    return [sim.events, sim.time, len(told), faults.struck, traffic, told[-50:]]

if __name__ == "__main__":
    for detail in ("full", "light"):
        print(story(int(sys.argv[1]), detail))
"""


def test_the_same_seed_gives_the_same_events_in_any_process():
    def told(seed: int, hash_seed: str) -> str:
        support = str(Path(__file__).parents[1] / "support")
        return subprocess.run(
            [sys.executable, "-c", STORY, str(seed)],
            env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": support},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout

    first = told(5, "1")
    assert first == told(5, "2")
    assert first != told(6, "1")
    assert "'crash'" in first


# Counters.


def exchange(detail: str) -> tuple[Simulation, int]:
    sim = Simulation(1, constant(0.01), detail=detail)
    a, _, c = ear(sim, "a/x"), ear(sim, "b/x"), ear(sim, "c/x")
    for number in range(10):
        a.world.send("b/x", Note(number))
    sim.at(1.5, lambda: [a.world.send(to, Note(1)) for to in ("b/x", "c/x", "b/x")])
    sim.at(2.5, lambda: c.world.send("a/x", Note(1)))
    sim.run()
    return sim, size_of(Note(1), "a/x", "b/x")


def test_full_counters_know_every_type_at_every_node():
    sim, size = exchange("full")
    counters = sim.counters
    note = counters.by_type()["lab.note"]
    assert (note.sent, note.received, note.sent_bytes) == (14, 14, 14 * size)
    nodes = counters.by_node_and_type()
    assert (nodes["a"]["lab.note"].sent, nodes["a"]["lab.note"].received) == (13, 1)
    assert counters.by_node()["b"].received_bytes == 12 * size
    assert counters.peaks()["a"].messages == 10
    assert counters.peaks()["c"].second == 2
    assert (counters.peak().second, counters.peak().messages) == (0, 10)
    assert counters.peak().size_bytes == 10 * size


def test_light_counters_agree_with_full_ones():
    sim, size = exchange("light")
    full, _ = exchange("full")
    light = sim.counters.by_type()["lab.note"]
    exact = full.counters.by_type()["lab.note"]
    assert (light.sent, light.received, light.dropped) == (14, 14, 0)
    assert light.sent_bytes == exact.sent_bytes == 14 * size
    assert [sim.places[f"{n}/x"].sent for n in "abc"] == [13, 0, 1]
    assert [sim.places[f"{n}/x"].received for n in "abc"] == [1, 12, 1]
    assert (sim.counters.peak().second, sim.counters.peak().messages) == (0, 10)


def test_a_size_is_the_encoded_message_with_its_frame():
    long, short = Note(1, "x" * 1000), Note(1)
    assert size_of(long, "a/x", "b/x") - size_of(short, "a/x", "b/x") == pytest.approx(1000, abs=3)
    assert size_of(short, "a/x", "b/long") - size_of(short, "a/x", "b/x") == 3


# Random faults.


def test_faults_strike_at_their_rates_and_end():
    sim = Simulation(3)
    nodes = [f"n{number}" for number in range(20)]
    boots = []
    for node in nodes:
        sim.boot(node, lambda node=node: boots.append(node))
    faults = RandomFaults(sim, nodes)
    rates = Rates(
        crashes_per_s=0.2,
        kills_per_s=0.1,
        down_s=3.0,
        freezes_per_s=0.1,
        slow_downs_per_s=0.1,
        slow_s=3.0,
        partitions_per_s=0.02,
        parted_s=3.0,
    )
    faults.begin(rates)
    sim.run(until=2000.0)
    faults.stop()
    wanted = {"crash": 400, "kill": 200, "freeze": 200, "slow-down": 200}
    for kind, count in wanted.items():
        assert faults.struck[kind] == pytest.approx(count, abs=5 * count**0.5)
    assert 15 < faults.struck["partition"] < 65
    assert len(boots) > 20 + 500
    sim.run()
    assert not sim.network.parted
    machines = sim.machines()
    assert all(m.life is not None and not m.frozen and m.slowness == 1 for m in machines)


def test_churn_gives_sessions_of_the_length_asked_for():
    sim = Simulation(4)
    nodes = [f"n{number}" for number in range(50)]
    for node in nodes:
        sim.machine(node)
    faults = RandomFaults(sim, nodes, seed=9)
    faults.churn(session_s=30.0, pause_s=10.0)
    up = 0
    for second in range(1, 1001):
        sim.run(until=float(second))
        up += sum(machine.life is not None for machine in sim.machines())
    assert up / 50_000 == pytest.approx(30 / 40, abs=0.03)
    assert faults.struck["churn"] == pytest.approx(50 * 1000 / 40, rel=0.1)


# Size.


class Ping(Message, frozen=True, tag="lab.ping"):
    pass


class Small(Agent):
    __slots__ = ()

    @handles(Ping)
    def ping(self, sender, message):
        pass


def test_an_agent_at_rest_takes_less_than_a_kibibyte():
    count = 3000
    names = [f"node{number}" for number in range(count)]
    tracemalloc.start()
    try:
        sim = Simulation(1, detail="light")
        for name in names:
            sim.join(Small(name, sim.place(name)))
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held / count < 1024


def test_a_busy_sender_forgets_arrivals_that_are_over():
    sim = Simulation(1, Network(Link(Exponential(0.01))), detail="light")
    sender = ear(sim, "a/x")
    others = [ear(sim, f"n{number}/x") for number in range(3000)]
    for number, other in enumerate(others):
        sim.at(number * 0.001, lambda other=other: sender.world.send(other.me, Note(0)))
    sizes = []
    while len(sizes) < 28:
        sim.run(until=sim.time + 0.1)
        sizes.append(len(sim.places["a/x"]._arrivals or ()))
    assert max(sizes) <= 256


def test_a_cancelled_timer_lets_go_of_its_action():
    timer = SimTimer(lambda: None)
    timer.cancel()
    assert timer.action is None
