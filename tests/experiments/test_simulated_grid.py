"""Whole simulated grids: the real agents, many seeds, faults; all that must hold is checked apart
from the code. A failing seed is printed with the command that repeats it."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest

from sureline.experiments.distributions import constant
from sureline.experiments.drive import run_scenario
from sureline.experiments.grid import SimulatedGrid
from sureline.experiments.scenario import Fault
from sureline.experiments.scenario_reader import find_scenario, read_scenario, shipped
from sureline.experiments.work import Work
from sureline.peer.jobs import Blob, FileMissing, FileReady
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Command, Graph, Task

KILLED, ROUGH = "eight-two-killed", "eight-rough"


def assert_good(name, seed, outcome):
    broken = [(check.what, check.problems) for check in outcome.checks if not check.held]
    told = f"seed {seed}: {broken}; repeat it: sureline simulate {name} --seed {seed}"
    assert outcome.good, told


def sweep(name, seeds):
    scenario = find_scenario(name)
    outcomes = []
    for seed in seeds:
        outcomes.append(run_scenario(scenario, seed))
        assert_good(name, seed, outcomes[-1])
    return outcomes


def test_eight_peers_two_killed():
    outcomes = sweep(KILLED, range(1, 9))
    assert all(outcome.faults == {"crash": 2} for outcome in outcomes)
    # the faults must hurt, or nothing is shown
    assert sum('"outcome":"lost"' in "".join(o.journals[0]) for o in outcomes) >= 3


def test_processes_that_stand_still_blame_nobody():
    for outcome in sweep("starved", range(1, 6)):
        assert outcome.faults["freeze"] >= 18
        assert [run.epochs for run in outcome.runs] == [1]
        assert '"outcome":"lost"' not in "".join(outcome.journals[0])


@pytest.mark.soak
def test_very_many_that_stand_still():
    sweep("starved", range(1000, 1300))


@pytest.mark.soak
def test_a_storm():
    (outcome,) = sweep("storm", [3])
    assert all(run.epochs > 1 for run in outcome.runs)


@pytest.mark.soak
def test_eight_peers_in_rough_weather():
    outcomes = sweep(ROUGH, range(1, 9))
    assert sum(run.epochs > 1 for o in outcomes for run in o.runs) >= 5
    assert {"crash", "kill", "freeze", "restart", "thaw"} <= set().union(
        *(o.faults for o in outcomes)
    )


@pytest.mark.soak
@pytest.mark.parametrize(
    ("name", "seeds"), [(KILLED, 1000), (ROUGH, 1000), ("storm", 150), ("pilots", 1000)]
)
def test_thousands_of_seeds(name, seeds):
    sweep(name, range(1000, 1000 + seeds))


@pytest.mark.soak
@pytest.mark.parametrize("name", ["lab-churn", "market", "two-sites", "partition", "quiet-lab"])
def test_other_shipped_scenarios_over_many_seeds(name):
    sweep(name, range(1000, 1010))


@pytest.mark.soak
@pytest.mark.parametrize("name", ["kademlia-1000", "broadcast-500"])
def test_shipped_protocol_scenarios(name):
    sweep(name, range(1000, 1003))


@pytest.mark.parametrize("name", [name for name in shipped() if name not in (KILLED, "starved")])
def test_shipped_scenarios_hold(name):
    """One seed of each; that of KILLED is a test of its own."""
    sweep(name, [find_scenario(name).seed])


def small(**changes):
    """A chain on two machines, changed as the test wants it."""
    text = """
duration = "1h"
[grid]
machines = 2
cores = 2
[workload]
kind = "fork-join"
width = 4
stages = 2
work = "10s"
begin = "5s"
"""
    scenario = read_scenario(text.encode(), file="small.toml", beside=None)
    return msgspec.structs.replace(scenario, **changes)


def test_an_embedded_run_is_resumed_after_its_machine_crashed():
    scenario = find_scenario("one-machine")
    crash = Fault("crash", ("m1",), at_s=120.0, lasts_s=constant(30.0))
    outcome = run_scenario(msgspec.structs.replace(scenario, faults=(crash,)), 1)
    assert_good("one-machine", 1, outcome)
    assert outcome.runs[0].epochs == 2


def test_two_machines_take_half_as_long_as_the_work():
    (run,) = run_scenario(small(), 1).runs
    assert run.state == "succeeded"
    # (4 tasks, then a join), twice, on four cores: four rounds of 10 s, and little beside them
    assert 40.0 <= run.makespan_s < 42.0


def test_a_slow_machine_makes_it_longer():
    slow = Fault("slow", ("m1", "m2"), at_s=5.0, factor=0.5)
    (run,) = run_scenario(small(faults=(slow,)), 1).runs
    assert 80.0 <= run.makespan_s < 83.0


def test_clocks_of_peers_that_are_set_hold_nothing_up():
    """Forward and back, while one of them dies: its death is noticed, and the run goes on."""
    steps = tuple(
        Fault("clock", ("m1", "m2"), at_s=at_s, by_s=constant(by_s))
        for at_s, by_s in ((10.0, -3600.0), (20.0, 7200.0), (30.0, -86_400.0))
    )
    crash = Fault("crash", ("m1",), at_s=15.0, lasts_s=constant(60.0))
    undisturbed = run_scenario(small(faults=(crash,)), 1)
    outcome = run_scenario(small(faults=(*steps, crash)), 1)
    assert_good("small", 1, outcome)
    assert outcome.faults["clock"] == 6
    assert outcome.runs[0].makespan_s < undisturbed.runs[0].makespan_s + 60.0


def test_runs_may_arrive_one_after_the_other():
    workload = msgspec.structs.replace(small().workload, runs=3, every_s=constant(7.0))
    outcome = run_scenario(small(workload=workload), 1)
    assert_good("small", 1, outcome)
    begun = [
        next(line for line in lines if '"event":"submitted"' in line) for lines in outcome.journals
    ]
    times = [msgspec.json.decode(line)["event"]["at"] for line in begun]
    assert [round(b - a, 6) for a, b in pairwise(times)] == [7.0, 7.0]
    assert len({run.run for run in outcome.runs}) == 3


def test_a_command_that_always_fails_ends_the_run_and_that_is_no_broken_invariant():
    workload = msgspec.structs.replace(small().workload, fail_kinds={"join": 1.0}, retries=1)
    outcome = run_scenario(small(workload=workload), 1)
    assert outcome.runs[0].state == "failed"
    assert outcome.runs[0].tasks.failed == 1
    assert all(check.held for check in outcome.checks)
    assert not outcome.good


def test_a_run_without_anybody_to_run_it_is_told():
    crash = Fault("crash", ("peers",), at_s=20.0)
    outcome = run_scenario(small(faults=(crash,), duration_s=300.0), 1)
    assert not outcome.good
    broken = {check.what: check.problems for check in outcome.checks if not check.held}
    assert list(broken) == ["finished"]
    assert "the run did not end" in broken["finished"][0]


def test_a_task_that_fits_nowhere_is_a_mistake_of_the_scenario():
    workload = msgspec.structs.replace(small().workload, cores=constant(3.0))
    with pytest.raises(UserError, match="work:1-1 needs more than any machine"):
        run_scenario(small(workload=workload), 1)


def test_wrong_outputs_are_noticed(monkeypatch):
    right = Work.outputs

    def wrong(self, job):
        made = right(self, job)
        if job.task == "join:1":
            return tuple(msgspec.structs.replace(file, digest="0" * 64) for file in made)
        return made

    monkeypatch.setattr(Work, "outputs", wrong)
    outcome = run_scenario(small(), 1)
    broken = {check.what for check in outcome.checks if not check.held}
    assert broken == {"outputs right", "outputs delivered"}


def test_an_agent_that_raises_is_told_with_its_line(monkeypatch):
    def broken(self, job):
        raise KeyError("lost it")

    monkeypatch.setattr(Work, "outputs", broken)
    outcome = run_scenario(small(), 7)
    problem = next(c.problems for c in outcome.checks if c.what == "no agent failed")[0]
    assert "seed 7, at " in problem
    assert "KeyError: 'lost it', in test_simulated_grid.py:" in problem
    assert not outcome.good


def test_traffic_is_counted():
    outcome = run_scenario(small(), 1)
    traffic = outcome.traffic
    assert traffic.messages == sum(count for count, _ in traffic.by_type.values())
    assert traffic.bytes == sum(size for _, size in traffic.by_type.values())
    assert traffic.by_type["run.bind"][0] >= 10
    assert traffic.messages_per_task == pytest.approx(traffic.messages / 10, abs=0.01)
    assert 0 < traffic.peak_per_second <= traffic.busiest_messages <= traffic.messages
    assert traffic.bulk_bytes >= 9e6  # ten outputs of 1 MB come home


def protocol(kind, **changes):
    text = f"""
duration = "20min"
[grid]
machines = 60
starts_within = "5s"
[workload]
kind = "{kind}"
count = 30
begin = "20s"
every = "100ms"
"""
    scenario = read_scenario(text.encode(), file="p.toml", beside=None)
    return msgspec.structs.replace(scenario, **changes)


def test_lookups_find_what_is_stored_also_after_a_third_has_crashed():
    quiet = run_scenario(protocol("lookups"), 1)
    assert (quiet.good, quiet.protocol.share, quiet.protocol.answered) == (True, 1.0, 30)
    crash = Fault("crash", ("peers",), at_s=30.0, count=20)
    hurt = run_scenario(protocol("lookups", faults=(crash,)), 1)
    assert_good("lookups", 1, hurt)
    assert hurt.faults == {"crash": 20}


def test_broadcasts_reach_everybody():
    outcome = run_scenario(protocol("broadcasts"), 1)
    assert_good("broadcasts", 1, outcome)
    assert outcome.protocol.share == 1.0
    assert outcome.journals == ()


def test_a_file_is_found_through_the_hash_table_and_not_where_it_is_gone():
    scenario = small()
    graph = Graph("none", [Task("t", Command("t"), outputs=("o",))])
    grid = SimulatedGrid(scenario, 1, Work(graph, 1))
    grid.boot_peers()
    file, other = FileRecord("data", "a" * 64, 1000), FileRecord("gone", "b" * 64, 1000)
    came = []

    def fetch():
        life = grid.sim.machine("m2").life
        for wanted in (file, other):
            life.fetcher.fetch(Blob(wanted), [], came.append)

    store = grid.boxes["m1"].store
    grid.at(5.0, lambda: (store.add(file), store.add(other)))
    grid.at(9.0, lambda: store.forget(other.digest))
    grid.at(21.0, fetch)
    grid.sim.run(60.0, lambda: len(came) == 2)
    assert FileReady(file, "m1") in came
    assert [one.path for one in came if isinstance(one, FileMissing)] == ["gone"]
    assert other.digest not in grid.boxes["m2"].store
