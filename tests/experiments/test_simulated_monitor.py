"""The monitor in the simulator: the same agent, forecasts in virtual time, repairs that help."""

from __future__ import annotations

import msgspec

from sureline.experiments.drive import run_scenario
from sureline.experiments.scenario_reader import read_scenario

STRAGGLER = b"""
name = "straggler"
seed = 1
duration = "2h"

[grid]
machines = 6
cores = 2

[workload]
kind = "layered"
tasks = 16
levels = 2
work = "uniform(50s, 70s)"
within = "6min"
begin = "30s"

[[faults.script]]
at = "50s"
what = "slow"
whom = "peers"
count = 1
factor = 0.01
"""


def straggler(**workload):
    found = read_scenario(STRAGGLER, file="straggler.toml", beside=None)
    return msgspec.structs.replace(
        found, workload=msgspec.structs.replace(found.workload, **workload)
    )


def events(outcome):
    (lines,) = outcome.journals
    return "\n".join(lines)


def test_a_machine_that_becomes_slow_is_worked_around():
    outcome = run_scenario(straggler(), 1)
    assert outcome.good, outcome.checks
    assert outcome.runs[0].on_time
    assert '"action":"duplicate"' in events(outcome)
    unwatched = run_scenario(straggler(repair=False), 1)
    assert not unwatched.runs[0].on_time
    assert '"event":"repaired"' not in events(unwatched)
    assert '"event":"foreseen"' in events(unwatched)


def test_what_is_watched_is_the_same_again():
    assert events(run_scenario(straggler(), 3)) == events(run_scenario(straggler(), 3))
