"""The model of machines: clocks, handler cost, freezing, slots, disks, and what a crash loses."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sim_lab import Ear, Mark, Note, constant, ear

from sureline.world.agent import Agent
from sureline.world.protocol import Fetched, Job, JobEvent, Wanted
from sureline.world.simulated import (
    Link,
    MachineParts,
    MachineSpec,
    Network,
    Simulation,
    SimulationError,
    Uniform,
)


def lab(*specs: MachineSpec) -> tuple[Simulation, list[Ear]]:
    sim = Simulation(1, constant(0.01))
    for node, spec in zip("abcdef", specs, strict=False):
        sim.machine(node, spec)
    return sim, [ear(sim, f"{node}/x") for node in "abcdef"[: max(2, len(specs))]]


# Clocks.


@given(
    offset_s=st.floats(-1e4, 1e4),
    drift=st.floats(-0.5, 0.5),
    wait_s=st.floats(0, 1e4),
    timer_s=st.floats(0, 1e4),
)
def test_a_clock_is_ahead_by_its_offset_and_gains_its_drift(offset_s, drift, wait_s, timer_s):
    sim, (a, _) = lab(MachineSpec(clock_offset_s=offset_s, clock_drift=drift))
    sim.run(until=wait_s)
    assert a.world.now() == pytest.approx(offset_s + wait_s * (1 + drift), abs=1e-6)
    set_at = a.world.now()
    fired = []
    a.world.after(timer_s, lambda: fired.append((sim.time, a.world.now())))
    sim.run()
    [(true_s, clock_s)] = fired
    # By its own clock the timer is exact; in true time, the drift is in it.
    assert clock_s - set_at == pytest.approx(timer_s, abs=1e-6)
    assert true_s - wait_s == pytest.approx(timer_s / (1 + drift), abs=1e-6)


def test_an_epoch_can_be_given():
    sim = Simulation(1, epoch_s=1.7e9)
    assert sim.place("a/x").now() == 1.7e9


def test_a_clock_goes_on_over_a_restart():
    sim = Simulation(1)
    sim.machine("a", MachineSpec(clock_offset_s=100.0, clock_drift=0.1))
    sim.crash("a")
    sim.run(until=10.0)
    sim.restart("a")
    assert sim.place("a/x").now() == pytest.approx(111.0)


# What handlers cost.


def test_busy_delays_what_the_machine_does_next():
    sim, (a, b) = lab()
    seen = []
    b.on_note = lambda number: (b.world.busy(1.0), b.world.send("a/x", Note(number)))
    b.world.after(0.5, lambda: seen.append(("timer", sim.time)))
    for number in range(3):
        a.world.send("b/x", Note(number))
    sim.run()
    # Each begins when the one before is done, and its answer leaves when it is done itself.
    assert b.times == pytest.approx([0.01, 1.01, 2.01])
    assert a.times == pytest.approx([1.02, 2.02, 3.02])
    assert seen == [("timer", pytest.approx(3.01))]


def test_busy_takes_longer_on_a_slow_machine_and_sets_the_clock_forward():
    sim, (a, _) = lab(MachineSpec(power=0.5, background_load=0.5))
    sim.slow("a", 2.0)
    a.world.busy(1.0)
    assert a.world.now() == pytest.approx(8.0)
    done = []
    a.world.after(1.0, lambda: done.append(sim.time))
    sim.run()
    assert done == [pytest.approx(9.0)]


def test_all_agents_of_a_machine_wait_for_the_one_that_is_busy():
    sim = Simulation(1, constant(0.01))
    one, two = ear(sim, "n/one"), ear(sim, "n/two")
    one.on_note = lambda number: one.world.busy(2.0)
    one.world.send("n/one", Note(1))
    one.world.send("n/two", Note(2))
    sim.run()
    assert two.times == [2.0]


# Freezing.


def test_what_is_due_on_a_frozen_machine_comes_at_once_when_it_goes_on():
    sim, (a, b) = lab()
    order = []
    b.on_note = lambda number: order.append((number, sim.time))
    b.world.after(0.5, lambda: order.append(("timer", sim.time)))
    cancelled = b.world.after(0.6, lambda: order.append(("cancelled", sim.time)))
    sim.freeze("b")
    a.world.send("b/x", Note(1))
    sim.at(0.7, lambda: a.world.send("b/x", Note(2)))
    sim.at(0.8, cancelled.cancel)
    sim.run(until=1.0)
    assert order == []
    assert a.gone == []
    sim.thaw("b")
    sim.run()
    assert order == [(1, 1.0), ("timer", 1.0), (2, 1.0)]
    a.world.send("b/x", Note(3))
    sim.run()
    assert order[3:] == [(3, pytest.approx(1.01))]


def test_a_machine_frozen_while_busy_has_the_rest_still_to_do():
    sim, (a, b) = lab()
    b.on_note = lambda number: b.world.busy(1.0)
    a.world.send("b/x", Note(1))
    a.world.send("b/x", Note(2))
    sim.at(0.5, lambda: sim.freeze("b"))
    sim.at(5.0, lambda: sim.thaw("b"))
    sim.run()
    assert b.times == pytest.approx([0.01, 5.51])


def test_a_machine_that_crashes_while_frozen_loses_what_waited():
    sim, (a, b) = lab()
    sim.freeze("b")
    a.world.send("b/x", Note(1))
    b.world.after(0.1, lambda: pytest.fail("of a life that is over"))
    sim.run(until=1.0)
    sim.crash("b")
    sim.restart("b")
    again = ear(sim, "b/x")
    sim.run()
    assert (b.heard, again.heard) == ([], [])
    a.world.send("b/x", Note(2))
    sim.run()
    assert again.numbers == [2]


# Crashes and restarts.


def test_nothing_of_a_former_life_ever_runs():
    made: dict[int, list] = {}

    class Part:
        def __init__(self, life):
            self.life = life

        def start(self, job, on_event, *, after=None):
            made.setdefault("events", []).append(on_event)
            self.life.after(1.0, lambda: on_event(JobEvent()))
            return 1

        def stop(self, handle, *, force=False):
            raise AssertionError

        def fetch(self, wanted, sources, on_done):
            made.setdefault("events", []).append(on_done)
            self.life.after(1.0, lambda: on_done(Fetched()))

    sim = Simulation(1, constant(0.01))
    sim.machine("a", parts=MachineParts(runner=Part, fetcher=Part))
    other = ear(sim, "b/x")
    stale = []

    def fail(*_):
        stale.append(sim.time)

    a = ear(sim, "a/x")
    world = a.world
    world.after(1.0, fail)
    world.sync(fail)
    world.start(Job(), fail)
    world.fetch(Wanted(), [], fail)
    a.on_note = fail
    other.world.send("a/x", Note(1))
    sim.crash("a")
    sim.restart("a")
    for callback in made["events"]:
        callback(None)  # a part that does not know that its life is over
    world.send("b/x", Note(2))
    world.after(0.0, fail)
    world.sync(fail)
    world.busy(10.0)
    world.put("key", b"value")
    sim.run()
    assert (stale, a.heard, other.heard) == ([], [], [])
    assert sim.place("a/y").get("key") is None


def test_boot_runs_now_and_on_every_restart_and_parts_hear_of_the_end():
    sim = Simulation(1)
    lives = []
    ended = []

    class Watching:
        def __init__(self, life):
            self.life = life
            life.on_end(lambda how: ended.append((how, life.over)))

    sim.machine("a", parts=MachineParts(recorder=Watching))

    def start():
        agent = Agent("a/x", sim.place("a/x"))
        sim.join(agent)
        lives.append(agent.world.life.recorder.life)

    sim.boot("a", start)
    sim.crash("a")
    sim.crash("a")
    sim.restart("a")
    sim.restart("a")
    sim.kill("a")
    sim.restart("a")
    assert len(lives) == len(set(map(id, lives))) == 3
    assert ended == [("crash", True), ("kill", True)]
    with pytest.raises(ValueError, match="is down"):
        sim.crash("a") or sim.place("a/x")


@pytest.mark.parametrize("end", ["crash", "kill"])
@pytest.mark.parametrize("detail", ["full", "light"])
def test_whoever_writes_to_a_machine_that_is_down_is_told_after_a_round_trip(end, detail):
    sim = Simulation(1, constant(0.1), detail=detail)
    a, b = ear(sim, "a/x"), ear(sim, "b/x")
    getattr(sim, end)("b")
    a.world.send("b/x", Note(1))
    a.world.send("never/x", Note(2))
    sim.run()
    assert a.gone == [(pytest.approx(0.2), "b"), (pytest.approx(0.2), "never")]
    assert a.unhandled == b.unhandled == 0
    assert sim.counters.by_type()["lab.note"].dropped == 2
    sim.restart("b")
    a.world.send("b/x", Note(3))
    sim.run()
    assert len(a.gone) == 2, "the machine is up: an agent that is not there says nothing"


def test_no_word_comes_from_a_frozen_or_cut_off_machine():
    sim, (a, _) = lab()
    sim.freeze("b")
    a.world.send("b/x", Note(1))
    sim.run()
    sim.partition([["a"], ["b"]])
    sim.crash("b")
    a.world.send("b/x", Note(2))
    sim.run()
    assert a.gone == []


def test_an_agent_that_does_not_listen_for_it_is_not_told():
    sim = Simulation(1)
    quiet = Agent("a/x", sim.place("a/x"))
    sim.join(quiet)
    quiet.world.send("b/x", Note(1))
    sim.run()
    assert quiet.unhandled == 0


# The disk.


def disk_lab() -> tuple[Simulation, Ear]:
    sim = Simulation(1)
    sim.machine("a", MachineSpec(sync_s=0.05))
    return sim, ear(sim, "a/x")


@pytest.mark.parametrize("end", ["crash", "kill"])
def test_what_a_crash_and_what_a_kill_loses(end):
    sim, a = disk_lab()
    durable = []
    for number in range(3):
        a.world.record(Mark(number))
    a.world.put("k", b"synced")
    a.world.sync(lambda: durable.append(sim.time))
    sim.run(condition=lambda: bool(durable))
    a.world.record(Mark(3))
    a.world.put("k", b"flushed")
    a.world.flush()
    a.world.record(Mark(4))
    a.world.put("k", b"neither")
    assert a.world.get("k") == b"neither"
    getattr(sim, end)("a")
    sim.restart("a")
    disk = sim.machine("a").disk
    kept = [0, 1, 2] if end == "crash" else [0, 1, 2, 3]
    assert durable == [pytest.approx(0.05)]
    assert [mark.number for mark in disk.recorded()] == kept
    assert sim.place("a/x").get("k") == (b"synced" if end == "crash" else b"flushed")


def test_a_crash_during_a_sync_loses_and_later_syncs_count_right():
    sim, a = disk_lab()
    a.world.record(Mark(0))
    a.world.sync(lambda: pytest.fail("its life is over"))
    sim.run(until=0.03)
    sim.crash("a")
    sim.restart("a")
    assert sim.machine("a").disk.recorded() == []
    world = sim.place("a/x")
    done = []
    world.record(Mark(1))
    world.sync(lambda: done.append(1))
    world.record(Mark(2))
    sim.run(condition=lambda: bool(done))
    sim.crash("a")
    assert [mark.number for mark in sim.machine("a").disk.recorded()] == [1]


def test_records_are_flushed_without_being_asked():
    sim, a = disk_lab()
    a.world.record(Mark(1))
    sim.run(until=0.02)
    a.world.record(Mark(2))
    sim.kill("a")
    assert [mark.number for mark in sim.machine("a").disk.recorded()] == [1]


@given(steps=st.lists(st.sampled_from(["record", "put", "flush", "sync", "wait"]), max_size=25))
def test_what_survives_is_a_prefix_and_no_less_than_promised(steps):
    for end in ("crash", "kill"):
        sim, a = disk_lab()
        written, promised = 0, {"crash": 0, "kill": 0}

        def durable(upto, promised=promised):
            promised["crash"] = max(promised["crash"], upto)
            promised["kill"] = max(promised["kill"], upto)

        for step in steps:
            match step:
                case "record":
                    a.world.record(Mark(written))
                    written += 1
                case "put":
                    a.world.put("last", str(written).encode())
                case "flush":
                    a.world.flush()
                    promised["kill"] = written
                case "sync":
                    a.world.sync(lambda upto=written: durable(upto))
                case "wait":
                    sim.run(until=sim.time + 0.04)
        getattr(sim, end)("a")
        left = [mark.number for mark in sim.machine("a").disk.recorded()]
        assert left == list(range(len(left)))
        assert promised[end] <= len(left) <= written


# Slots.


def finish_times(spec: MachineSpec, works, troubles=()) -> dict[int, float]:
    """When each of the works (begins, seconds, cores) is done."""
    sim = Simulation(1)
    machine = sim.machine("m", spec)
    done: dict[int, float] = {}

    def begin(number, seconds, cores):
        machine.processor.work(seconds, lambda: done.__setitem__(number, sim.time), cores=cores)

    for number, (at_s, seconds, cores) in enumerate(works):
        sim.at(at_s, lambda n=number, s=seconds, c=cores: begin(n, s, c))
    for at_s, trouble in troubles:
        sim.at(at_s, lambda trouble=trouble: trouble(sim))
    sim.run()
    return done


def test_work_takes_its_time_over_the_machines_speed():
    assert finish_times(MachineSpec(), [(1.0, 4.0, 1)]) == {0: 5.0}
    assert finish_times(MachineSpec(power=2.0), [(0.0, 4.0, 1)]) == {0: 2.0}
    half = MachineSpec(power=2.0, background_load=0.75)
    assert finish_times(half, [(0.0, 4.0, 1)]) == {0: 8.0}


def test_work_beyond_the_slots_slows_down_alike():
    spec = MachineSpec(slots=2)
    # Two fit; a third from 1 s on makes all run at 2/3 until the first two end.
    found = finish_times(spec, [(0.0, 3.0, 1), (0.0, 3.0, 1), (1.0, 4.0, 1)])
    assert found == pytest.approx({0: 4.0, 1: 4.0, 2: 6.0})
    assert finish_times(spec, [(0.0, 3.0, 2), (0.0, 3.0, 2)]) == pytest.approx({0: 6.0, 1: 6.0})


def test_a_slow_down_a_freeze_and_a_crash_reach_work_under_way():
    slow = [(1.0, lambda sim: sim.slow("m", 4.0)), (5.0, lambda sim: sim.slow("m", 1.0))]
    assert finish_times(MachineSpec(), [(0.0, 4.0, 1)], slow) == pytest.approx({0: 7.0})
    freeze = [(1.0, lambda sim: sim.freeze("m")), (5.0, lambda sim: sim.thaw("m"))]
    assert finish_times(MachineSpec(), [(0.0, 4.0, 1)], freeze) == pytest.approx({0: 8.0})
    crash = [(1.0, lambda sim: sim.crash("m")), (2.0, lambda sim: sim.restart("m"))]
    assert finish_times(MachineSpec(), [(0.0, 4.0, 1)], crash) == {}


def test_cancelled_work_gives_way():
    sim = Simulation(1)
    processor = sim.machine("m").processor
    done = []
    processor.work(4.0, lambda: done.append(sim.time))
    other = processor.work(4.0, lambda: pytest.fail("cancelled"))
    sim.at(2.0, other.cancel)
    sim.run(until=2.0)
    assert processor.left_s(other) == pytest.approx(3.0)
    sim.run()
    assert done == [pytest.approx(5.0)]


@pytest.mark.parametrize(
    "options",
    [
        {"power": 0.0},
        {"slots": 0},
        {"background_load": 1.0},
        {"clock_drift": -1.0},
        {"up_bytes_per_s": 0.0},
        {"sync_s": -1.0},
    ],
)
def test_an_impossible_machine_is_refused(options):
    with pytest.raises(ValueError, match=r"machine|clock"):
        MachineSpec(**options)


def test_a_machine_is_described_before_its_first_use():
    sim = Simulation(1)
    sim.place("a/x")
    with pytest.raises(ValueError, match="before its first use"):
        sim.machine("a", MachineSpec(slots=4))


def test_a_missing_part_is_told_by_name():
    sim, (a, _) = lab()
    a.on_note = lambda number: a.world.start(Job(), lambda event: None)
    a.world.send("a/x", Note(1))
    with pytest.raises(SimulationError, match="a has no runner among its MachineParts"):
        sim.run()


def test_a_place_that_is_taken_again_belongs_to_the_new_agent():
    sim = Simulation(1, Network(Link(Uniform(0.0, 0.1))))
    old, other = ear(sim, "a/x"), ear(sim, "b/x")
    other.world.send("a/x", Note(1))
    new = ear(sim, "a/x")
    sim.run()
    assert (old.numbers, new.numbers) == ([], [1])
    sim.leave("a/x")
    other.world.send("a/x", Note(2))
    sim.run()
    assert new.numbers == [1]
