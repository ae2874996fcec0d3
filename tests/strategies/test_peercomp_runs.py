"""Runs with time reserved: on this machine by the command, on simulated grids with faults."""

from __future__ import annotations

import pytest
from surely import sureline, write

from sureline.experiments.drive import run_scenario
from sureline.experiments.scenario_reader import read_scenario
from sureline.journal.events import Noted, Opened, PeerLeft, TaskEnded, TaskReady
from sureline.journal.export import exported_events
from sureline.journal.history import Observed
from sureline.run.estimates import Estimate, EstimatesFound
from sureline.strategies.peercomp import peercomp
from sureline.strategies.peercomp.lengths import Lengths, ReservingSettings
from sureline.strategies.peercomp.nearest import aheads_of, early_tries
from sureline.strategies.peercomp.notes import reservations_of
from sureline.workflow.model import Graph, Pause, Task
from sureline.workflow.terms import Terms

CHAIN = """
tasks:
  a: {run: "echo a > a.txt", outputs: a.txt, takes: 1min}
  b: {run: "cat a.txt > b.txt", inputs: a.txt, outputs: b.txt, takes: 1min}
  c: {run: "cat b.txt > c.txt", inputs: b.txt, outputs: c.txt, takes: 1min, needs: {memory: 1MB}}
"""


def test_a_run_here_has_its_time_reserved_and_explain_tells_where(tmp_path):
    write(tmp_path, "flow.yaml", CHAIN)
    line = ("flow.yaml", "--within", "1h", "--strategy", "peercomp", "--json")
    said = sureline(tmp_path, "run", *line)
    assert said.code == 0, said
    assert (tmp_path / "c.txt").read_text() == "a\n"
    told = sureline(tmp_path, "explain", said.json["run"], "b")
    assert "time is reserved for b: 60.2 s on" in told.out, told
    assert "holes)" in told.out


@pytest.mark.parametrize("within", ["20min", "1s"])
def test_refused_with_the_nearest_deadline_that_would_do(tmp_path, within):
    """Whether forecasts allow it or not, the deadline that is named is one for reservations."""
    write(tmp_path, "flow.yaml", CHAIN)
    line = ("flow.yaml", "--strategy", "peercomp", "--with", "margin_s=600", "--json")
    for verb in ("run", "submit"):
        said = sureline(tmp_path, verb, *line, "--within", within)
        assert said.code == 3, said
        within_s = int(said.err.split("--within ")[1].split("s would do")[0])
        assert 1980 <= within_s <= 2200
        assert not (tmp_path / ".sureline").exists() and not (tmp_path / "a.txt").exists()
    said = sureline(tmp_path, "run", *line, "--within", f"{within_s}s")
    assert said.code == 0, said


def test_many_short_tasks_are_not_refused_for_what_a_grid_would_take(tmp_path):
    """Here nothing is brought, nor told by a network: two seconds each would be a minute more."""
    steps = "\n".join(
        f"  t{n}: {{run: 'true', takes: 100ms{f', after: t{n - 1}' if n else ''}}}"
        for n in range(30)
    )
    write(tmp_path, "flow.yaml", "tasks:\n" + steps)
    line = ("run", "flow.yaml", "--strategy", "peercomp", "--json")
    said = sureline(tmp_path, *line, "--within", "1s")
    assert said.code == 3, said
    within_s = int(said.err.split("--within ")[1].split("s would do")[0])
    assert within_s <= 20
    assert sureline(tmp_path, *line, "--within", f"{within_s}s").code == 0


def test_what_a_task_takes_beside_its_command_is_learned():
    """A machine that is slow to start tasks gets larger margins, and smaller ones again."""
    graph = Graph("one", [Task("t", Pause(1.0))])
    lengths = Lengths(ReservingSettings())
    lengths.learn(graph, EstimatesFound((Estimate(1.0, (1.0,) * 7),)), {}, 0.9, here=True)
    (before_s,) = lengths.works()
    for _ in range(20):
        lengths.seen_beside(1.0)
    assert before_s < 2.0 <= lengths.works()[0] < 3.0
    for _ in range(60):
        lengths.seen_beside(0.01)
    assert 1.0 < lengths.works()[0] < before_s


@pytest.mark.parametrize(
    ("told", "before", "expected_s"),
    [({"f": 10**9}, [], 20.0), ({}, [5 * 10**8] * 3, 10.0), ({"f": 10**6}, [], 0.02)],
)
def test_what_is_to_be_brought_is_told_or_was_read_before(told, before, expected_s):
    graph = Graph("one", [Task("t", Pause(1.0), inputs=("f",))], file_sizes=told)
    lengths = Lengths(ReservingSettings())
    seen = {graph.tasks[0].kind_name: [Observed(1.0, size, 0.0, "r") for size in before]}
    lengths.learn(graph, EstimatesFound((Estimate(1.0, (1.0,) * 7),)), seen, 0.9, here=False)
    assert lengths.brought_s == [pytest.approx(expected_s)]
    assert lengths.works() == [pytest.approx(1.0 + 2.0 + expected_s)]


def test_what_cannot_be_reserved_is_refused(tmp_path):
    write(tmp_path, "flow.yaml", "tasks:\n  t: {run: 'true', needs: {licence: 1}, takes: 1s}\n")
    line = ("run", "flow.yaml", "--strategy", "peercomp", "--tag", "licence=1", "--within", "1h")
    said = sureline(tmp_path, *line)
    assert said.code != 0 and "Traceback" not in said.err


SCENARIO = """
duration = "2h"
[grid]
machines = 4
cores = 2
memory = "4GB"
[network]
delay = "lognormal(5ms, 0.5)"
[workload]
kind = "layered"
tasks = 16
levels = 4
work = "lognormal(30s, 0.3)"
retries = 3
strategy = "peercomp"
within = "15min"
"""
DIES = """
[[faults.script]]
what = "crash"
whom = "m2"
at = "40s"
"""


def simulated(text: str, seed: int):
    outcome = run_scenario(read_scenario(text.encode(), file="s.toml", beside=None), seed)
    assert not [check for check in outcome.checks if not check.held], (seed, outcome.checks)
    (lines,) = outcome.journals
    return outcome, exported_events(lines)


@pytest.mark.parametrize("seed", [1, 2])
def test_every_task_is_done_in_the_time_that_was_promised(seed):
    """Nobody failed: a promise that is missed is a mistake."""
    outcome, events = simulated(SCENARIO, seed)
    assert outcome.runs[0].on_time
    due = {}
    for event in events:
        if isinstance(event, Noted):
            due[event.task] = reservations_of([event])[0].due_s
    ended = [event for event in events if isinstance(event, TaskEnded)]
    assert len(due) == len(ended) == 16
    assert [e.task for e in ended if e.at > due[e.task] + 1.0] == []


LINK = """
[[network.link]]
between = ["m", "m"]
bandwidth = "55MB/s"
[workload]
output = "500MB"
"""


def test_large_inputs_have_their_time_too():
    """Each takes nine seconds: without them promises are void while their inputs are on the way,
    and reserved elsewhere, where these are not either; 77 reservations for 16 tasks (on a
    faster, shared network)."""
    text = SCENARIO.replace("[network]", '[network]\nbandwidth = "10GB/s"')
    text = text.replace("[workload]", LINK).replace("lognormal(30s, 0.3)", "10s")
    outcome, events = simulated(text, 1)
    noted = [event for event in events if isinstance(event, Noted)]
    assert outcome.runs[0].on_time and len(noted) == 16
    ended = {event.task: event for event in events if isinstance(event, TaskEnded)}
    for note in noted:
        begin_s, due_s = note.window
        assert ended[note.task].at <= due_s
        assert due_s - begin_s >= 10.0 + len(ended[note.task].inputs) * 10.0


@pytest.mark.parametrize("seed", [1, 2])
def test_what_a_dead_machine_had_promised_is_reserved_again_and_the_deadline_kept(seed):
    outcome, events = simulated(SCENARIO + DIES, seed)
    assert outcome.runs[0].on_time
    noted = [event for event in events if isinstance(event, Noted)]
    first = {event.task: event.peer for event in reversed(noted)}
    last = {event.task: event.peer for event in noted}
    lost = [task for task, peer in first.items() if peer == "m2"]
    assert lost and any(last[task] != "m2" for task in lost)
    assert len(noted) > 16


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({}, ["t ended 5.0 s after the promised deadline"]),
        ({"at": 100.5}, []),
        ({"elapsed_s": 41.0}, []),
        ({"outcome": "lost"}, []),
        ({"window": (70.0, 110.0)}, []),
        ({"besides": PeerLeft(50.0, "p")}, []),
        ({"besides": Opened(50.0, 1, "host", 1)}, []),
    ],
)
def test_a_promised_deadline_that_is_missed_though_nothing_failed_is_found(other, told):
    events = [
        Opened(0.0, 1, "host", 1),
        Noted(1.0, "peercomp", "reserved", task="t", window=other.get("window", (60.0, 100.0))),
        other.get("besides", TaskReady(2.0, "t")),
        TaskEnded(
            other.get("at", 105.0), "t", other.get("outcome", "succeeded"), 1,
            elapsed_s=other.get("elapsed_s", 39.0),
        ),
    ]  # fmt: skip
    audit = peercomp.audits["promised deadline kept"]
    assert list(audit(events, Terms(deadline_at=100.0))) == told
    assert not list(audit(events, Terms()))


def test_many_runs_share_the_machines_and_all_is_given_back():
    """Several runs at once on one grid: what one of them has is not promised to another."""
    text = SCENARIO.replace("tasks = 16", "tasks = 8").replace(
        'strategy = "peercomp"', 'strategy = "peercomp"\nruns = 3\nevery = "5s"'
    )
    outcome = run_scenario(read_scenario(text.encode(), file="s.toml", beside=None), 1)
    assert [run.state for run in outcome.runs] == ["succeeded"] * 3


@pytest.mark.parametrize(
    ("least_s", "last_s", "expected"),
    [
        (10.0, None, [11.0]),
        (10.0, 5.0, [5.0]),
        (10.0, 12.0, [11.0, 12.0]),
        (10.0, 88.0, [11.0, 22.0, 44.0, 88.0]),
    ],
)
def test_first_little_time_then_more_up_to_the_deadline(least_s, last_s, expected):
    assert aheads_of(least_s, last_s) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("last_s", "pause_s", "tries"), [(20.0, 1.5, 0), (60.0, 1.5, 2), (900.0, 1.5, 3), (1.0, 0, 3)]
)
def test_little_time_is_not_spent_on_trying_for_less(last_s, pause_s, tries):
    assert early_tries(last_s, pause_s) == tries
