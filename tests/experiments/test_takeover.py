"""Simulated runs taken over on other machines, while keepers, disks and clocks misbehave."""

from __future__ import annotations

import json
import os

import msgspec
import pytest

from sureline.experiments import invariants
from sureline.experiments.distributions import constant
from sureline.experiments.drive import run_scenario
from sureline.experiments.scenario import Fault
from sureline.experiments.scenario_reader import find_scenario, read_scenario
from sureline.experiments.toml_table import ScenarioError
from sureline.journal.events import Opened, TaskReady, encode
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry
from sureline.run.claiming import Claimant
from sureline.run.grant import Candidacy

TAKEOVER = "takeover"
SMALL = """
duration = "1h"
[grid]
machines = 4
cores = 2
[workload]
kind = "fork-join"
width = 4
stages = 2
work = "20s"
begin = "10s"
standbys = 1
look = "5s"
"""


def small(*faults, text=SMALL):
    scenario = read_scenario(text.encode(), file="small.toml", beside=None)
    return msgspec.structs.replace(scenario, faults=faults)


def hosts(outcome):
    """Where the run was opened, in the journal of who ended it."""
    events = [msgspec.json.decode(line).get("event", {}) for line in outcome.journals[0]]
    return [event["host"] for event in events if event.get("event") == "opened"]


def assert_good(seed, outcome):
    broken = [(check.what, check.problems) for check in outcome.checks if not check.held]
    told = f"seed {seed}: {broken}; repeat it: sureline simulate {TAKEOVER} --seed {seed}"
    assert outcome.good, told


class Rivals:
    """Counts how often somebody who resumes a run asks for an epoch that another one, who has not
    given up, has asked for."""

    def __init__(self, monkeypatch):
        self._under_way, self._found = {}, 0
        stand = Claimant._stand

        def noted(claimant):
            number = claimant._position() // POSITIONS_PER_EPOCH
            if not claimant._relief:
                under_way = {c: n for c, n in self._under_way.items() if not c._is_over}
                self._found += any(c is not claimant and n == number for c, n in under_way.items())
                self._under_way = under_way | {claimant: number}
            stand(claimant)

        monkeypatch.setattr(Claimant, "_stand", noted)

    def count(self):
        found, self._under_way, self._found = self._found, {}, 0
        return found


def sweep(seeds):
    outcomes = []
    for seed in seeds:
        outcomes.append(run_scenario(find_scenario(TAKEOVER), seed))
        assert_good(seed, outcomes[-1])
    return outcomes


@pytest.mark.limit_s(600)  # also on a busy machine
@pytest.mark.parametrize("first", [1, 6])
def test_runs_are_taken_over_and_each_task_commits_once(first, monkeypatch):
    rivals = Rivals(monkeypatch)
    outcomes = sweep(range(first, first + 5))
    assert rivals.count(), "two must have resumed it at once"
    assert any(len(set(hosts(outcome))) > 1 for outcome in outcomes), "the faults must hurt"
    struck = set().union(*(outcome.faults for outcome in outcomes))
    assert {"clock", "full_disk", "slow_disk", "crash", "partition"} <= struck


@pytest.mark.soak
@pytest.mark.limit_s(36_000)
def test_thousands_of_takeovers(monkeypatch):
    """SURELINE_SEEDS says which (10000-12000, the last one not); a line about each is printed, and
    all are tried before a bad one is told."""
    first, last = map(int, os.environ.get("SURELINE_SEEDS", "10000-12000").split("-"))
    rivals, bad = Rivals(monkeypatch), []
    for seed in range(first, last):
        outcome = run_scenario(find_scenario(TAKEOVER), seed)
        broken = {check.what: check.problems for check in outcome.checks if not check.held}
        told = {
            "seed": seed,
            "broken": broken,
            "epochs": outcome.runs[0].epochs,
            "hosts": len(set(hosts(outcome))),
            "rivals": rivals.count(),
            "faults": dict(outcome.faults),
        }
        print(json.dumps(told), flush=True)
        bad += [seed] if broken else []
    assert not bad, f"repeat them: sureline simulate {TAKEOVER} --seed N"


def test_a_driver_that_dies_for_good_is_followed_by_another_machine():
    outcome = run_scenario(small(Fault("crash", ("submitter",), at_s=25.0)), 1)
    assert outcome.good
    assert hosts(outcome) == ["submitter", "standby1"]
    assert outcome.runs[0].epochs == 2


ALONE = SMALL.replace('standbys = 1\nlook = "5s"', 'takeover = "30s"').replace(
    "machines = 4", "machines = 6"
)


@pytest.mark.parametrize("seed", range(1, 4))
def test_a_run_whose_driver_is_gone_is_driven_on_by_a_peer_that_keeps_it(seed):
    """The submitter is back only when all is done: its results come home."""
    crash = Fault("crash", ("submitter",), at_s=25.0, lasts_s=constant(400.0))
    outcome = run_scenario(small(crash, text=ALONE), seed)
    assert_good(seed, outcome)
    first, second = hosts(outcome)
    assert first == "submitter" and second.startswith("m"), "nobody but a peer could"
    quiet = run_scenario(small(text=ALONE), seed).runs[0].makespan_s
    assert outcome.runs[0].makespan_s < quiet + 60.0, "half a minute and what was under way"


def test_deadline_budget_and_repair_go_on_under_a_new_writer():
    """The submitter is gone for good after two minutes, and machines slow down before and after."""
    scenario = find_scenario("repair-stragglers")
    scenario = msgspec.structs.replace(
        scenario,
        workload=msgspec.structs.replace(scenario.workload, takeover_s=30.0),
        faults=(*scenario.faults, Fault("crash", ("submitter",), at_s=120.0)),
    )
    outcome = run_scenario(scenario, 2)
    assert outcome.good
    first, second = hosts(outcome)
    assert first == "submitter" and second.startswith("cheap")
    lines = [msgspec.json.decode(line).get("event", {}) for line in outcome.journals[0]]
    taken_at = max(n for n, event in enumerate(lines) if event.get("event") == "opened")
    before, after = lines[:taken_at], lines[taken_at:]
    assert {"foreseen", "planned", "repaired"} <= {event.get("event") for event in after}
    paid = [sum(event.get("paid", 0.0) for event in part) for part in (before, after)]
    assert all(paid), "contracts of both were kept"
    assert sum(paid) <= scenario.workload.budget
    assert outcome.runs[0].on_time


def test_what_is_told_after_the_end_of_a_run_does_not_open_it_again():
    """A peer had left after the run's end: that was its last event, and a peer took it over."""
    outcome = run_scenario(find_scenario(TAKEOVER), 1049)
    assert_good(1049, outcome)


def test_results_whose_only_holder_is_away_come_home_when_it_is_back():
    """The peer that had driven the run to its end was down when they were asked for."""
    outcome = run_scenario(find_scenario(TAKEOVER), 10174)
    assert_good(10174, outcome)
    assert "results come home" in {check.what for check in outcome.checks}


def test_in_its_first_moments_a_run_is_gone_on_with_where_it_was_submitted():
    """Nobody else could know whether it is still written: no peer votes on it yet."""
    crash = Fault("crash", ("submitter",), at_s=10.1, lasts_s=constant(100.0))
    outcome = run_scenario(small(crash), 1)
    assert outcome.good
    assert hosts(outcome) == ["submitter", "submitter"]


@pytest.mark.parametrize("seed", [6, 12])
def test_peers_whose_votes_were_split_ask_for_the_next_number(seed):
    """Three of five voters are left, and hear each other late: each had promised the epoch to
    another, and they asked for that one for ever."""
    slow = '[network]\ndelay = "uniform(0.5s, 1s)"\n[workload]'
    text = ALONE.replace("machines = 6", "machines = 5").replace("[workload]", slow)
    text = text.replace('duration = "1h"', 'duration = "10min"')
    assert_good(
        seed, run_scenario(small(Fault("crash", ("submitter", "m2"), at_s=40.0), text=text), seed)
    )


def test_every_driver_in_turn_is_gone():
    """Each for good, and each after the one before it was relieved."""
    crashes = [
        Fault("crash", (who,), at_s=at_s) for who, at_s in (("submitter", 25.0), ("m1", 70.0))
    ]
    assert_good(1, run_scenario(small(*crashes, text=ALONE), 1))


def test_without_anybody_who_looks_after_it_the_run_stays_where_it_was():
    text = SMALL.replace("standbys = 1", "standbys = 0").replace(
        'duration = "1h"', 'duration = "5min"'
    )
    outcome = run_scenario(small(Fault("crash", ("submitter",), at_s=25.0), text=text), 1)
    assert [check.what for check in outcome.checks if not check.held] == ["finished"]


@pytest.mark.parametrize("seed", range(1, 4))
@pytest.mark.parametrize(("text", "lasts_s"), [(SMALL, 40.0), (ALONE, 35.0)])
def test_a_driver_that_was_cut_off_looks_on_when_it_comes_back(seed, text, lasts_s):
    """It took the run back by a grant: while it asked it could not see its successor yet."""
    cut = Fault(
        "partition",
        at_s=25.0,
        lasts_s=constant(lasts_s),
        groups=(("submitter",), ("peers", "standby")),
    )
    outcome = run_scenario(small(cut, text=text.replace('"20s"', '"60s"')), seed)
    assert_good(seed, outcome)
    first, second = hosts(outcome)
    assert first == "submitter" != second


def test_takers_that_ask_nobody_are_noticed(monkeypatch):
    """What a majority is for."""
    monkeypatch.setattr(Candidacy, "is_granted", property(lambda asking: bool(asking.voters)))
    found = [run_scenario(find_scenario(TAKEOVER), seed) for seed in range(1, 4)]
    broken = {check.what for outcome in found for check in outcome.checks if not check.held}
    assert "one line of epochs" in broken


def test_a_run_outlives_keepers_with_full_disks_and_old_versions():
    """Of four machines, one can keep copies: it must be found, and is enough to take over from."""
    text = SMALL.replace(
        "[grid]\nmachines = 4\ncores = 2",
        "[grid]\ncores = 2\n[[grid.site]]\nname = 'new'\nmachines = 2\n"
        "[[grid.site]]\nname = 'old'\nmachines = 2\nunknown = ['keeper.keep_run']",
    ).replace('work = "20s"', 'work = "60s"')
    full = Fault("full_disk", ("new1",), at_s=0.0)
    crash = Fault("crash", ("submitter",), at_s=65.0)
    outcome = run_scenario(small(full, crash, text=text), 1)
    assert outcome.good
    assert hosts(outcome) == ["submitter", "standby1"]


def test_clocks_that_are_set_move_times_in_the_journal_and_nothing_else():
    quiet = run_scenario(small(), 1)
    step = Fault("clock", ("peers", "submitter"), at_s=20.0, by_s=constant(-7200.0))
    outcome = run_scenario(small(step), 1)
    assert outcome.good and outcome.faults == {"clock": 5}
    assert outcome.runs[0].makespan_s < quiet.runs[0].makespan_s + 10.0


def test_mistakes_in_such_scenarios_are_told():
    def told(change, to):
        with pytest.raises(ScenarioError) as error:
            small(text=SMALL.replace(change, to))
        return str(error.value)

    unknown = told("cores = 2", 'cores = 2\nunknown = ["keeper.keep_runs"]')
    assert "there is no message 'keeper.keep_runs'" in unknown and "keeper.keep_run" in unknown
    end = 'look = "5s"\n'
    assert "does not last" in told(
        end, end + '[[faults.script]]\nwhat = "clock"\nat = "1s"\nby = "1h"\nfor = "1s"'
    )


def entry(epoch, number, event):
    return Entry(epoch * POSITIONS_PER_EPOCH + number, event)


def test_lines_that_contradict_each_other_are_noticed():
    ours = [entry(1, 1, Opened(1.0, 1, "a", 1)), entry(1, 2, TaskReady(1.0, "t"))]
    theirs = [entry(1, 1, Opened(1.0, 1, "b", 1))]
    assert invariants.one_line({"a": ours, "b": ours[:1]}) == []
    assert "epoch 1 was opened on a and, otherwise, on b" in invariants.one_line(
        {"a": ours, "b": theirs}
    )
    copy = [(one.position, encode(one.event)) for one in ours]
    assert invariants.copies_true({"a": ours[:1]}, [copy, copy[:1], []]) == []
    assert invariants.copies_true({"a": ours}, [copy[::-1]]) == ["a copy is out of order"]
    wrong = [(ours[1].position, encode(TaskReady(1.0, "u")))]
    assert len(invariants.copies_true({"a": ours}, [wrong])) == 1
