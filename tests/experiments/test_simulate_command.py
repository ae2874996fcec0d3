"""The `simulate` command: what it prints, keeps and returns, and that a seed means the same run in
any process."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import cyclopts
import pytest

from sureline.cli.simulating import simulate
from sureline.journal.export import export_jsonl, import_jsonl
from sureline.journal.store import Journal
from sureline.journal.views import RunView
from sureline.workflow.mistakes import UserError

SMALL = """
name = "small"
duration = "1h"
[grid]
machines = 3
cores = 2
[workload]
kind = "chain"
tasks = 4
work = "5s"
retries = 0
[[faults.script]]
at = "12s"
what = "crash"
whom = "m1"
for = "10s"
"""


@pytest.fixture
def scenario(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text(SMALL)
    return path


def run(*tokens):
    app = cyclopts.App()
    app.command(simulate)
    words = ["simulate", *map(str, tokens)]
    return app(words, exit_on_error=False, print_error=False, result_action="return_value")


def test_what_happened_is_told(scenario, capsys):
    assert run(scenario, "--seed", 3) == 0
    said = capsys.readouterr().out
    assert "small, seed 3: all held" in said
    assert "small-s3 succeeded: 4 of 4 tasks in" in said
    assert "1 crash, 1 restart" in said
    assert "12 s: crash m1" in said
    assert "run.bind" in said or "membership.probe" in said
    assert "each task committed once" in said


def test_json_has_all_of_it(scenario, capsys):
    assert run(scenario, "--json") == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["scenario"], data["seed"], data["good"]) == ("small", 1, True)
    assert data["runs"][0]["tasks"]["succeeded"] == 4
    assert data["traffic"]["messages"] > 0
    assert [fault[1] for fault in data["fault_list"]] == ["crash", "restart"]
    assert all(not check["problems"] for check in data["checks"])


def test_several_seeds(scenario, capsys):
    assert run(scenario, "--seeds", "4-6") == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in said[:3]] == [f"small, seed {n}" for n in (4, 5, 6)]
    assert said[-1] == "3 of 3 seeds held"
    assert run(scenario, "--seeds", "4-5", "--json") == 0
    outcomes = json.loads(capsys.readouterr().out)["outcomes"]
    assert [outcome["seed"] for outcome in outcomes] == [4, 5]


def test_what_is_broken_is_told_with_the_seed(scenario, capsys):
    scenario.write_text(SMALL + '[checks]\nmakespan = "1s"\n')
    assert run(scenario, "--seed", 9, "--quiet") == 1
    said = capsys.readouterr().out
    assert "small, seed 9: BROKEN" in said
    assert "fast enough: small-s9 took" in said
    assert f"run it again: sureline simulate {scenario} --seed 9" in said


def test_a_failed_task_is_exit_code_1(scenario, capsys):
    scenario.write_text(SMALL.replace("retries = 0", "retries = 0\nfail = 1.0"))
    assert run(scenario) == 1
    assert "small-s1 failed: 0 of 4 tasks" in capsys.readouterr().out


def test_quiet_says_nothing_of_what_is_well(scenario, capsys):
    assert run(scenario, "--quiet") == 0
    assert capsys.readouterr().out == ""


def test_the_journal_is_written_and_kept(scenario, tmp_path, capsys):
    file = tmp_path / "run.jsonl"
    assert run(scenario, "--journal", file, "--into", tmp_path, "--quiet") == 0
    assert run(scenario, "--into", tmp_path, "--quiet") == 0  # the same again changes nothing
    with Journal.open(tmp_path / ".sureline") as kept:
        assert list(export_jsonl(kept, "small-s1")) == file.read_text().splitlines()
        view = RunView.of(entry.event for entry in kept.events("small-s1"))
        assert (view.ended_state, view.counts.succeeded) == ("succeeded", 4)
    other = tmp_path / "other"
    other.mkdir()
    with Journal.open(other / ".sureline") as fresh:
        assert import_jsonl(fresh, file.read_text().splitlines()) == "small-s1"
        assert fresh.summary("small-s1").succeeded == 4


def test_views_work_on_a_simulated_run(scenario, tmp_path):
    assert run(scenario, "--into", tmp_path, "--quiet") == 0
    for command in (["status", "last"], ["explain", "last", "step:2"], ["report", "last"]):
        done = subprocess.run(
            [sys.executable, "-m", "sureline", *command],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, (command, done.stderr)
    assert (tmp_path / "small-s1.html").stat().st_size > 10_000


def test_the_list_of_shipped_scenarios(capsys):
    assert run("--list") == 0
    said = capsys.readouterr().out
    assert "eight-two-killed" in said
    assert run("--list", "--json") == 0
    names = [one["name"] for one in json.loads(capsys.readouterr().out)["scenarios"]]
    assert "kademlia-1000" in names


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ([], "needs a scenario"),
        (["nowhere"], "there is no scenario 'nowhere'"),
        (["FILE", "--seeds", "5"], "is not a range"),
        (["FILE", "--seeds", "5-3"], "is not a range"),
        (["FILE", "--seed", "1", "--seeds", "1-2"], "exclude each other"),
        (["FILE", "--seed", "-1"], "negative"),
        (["FILE", "--seeds", "1-2", "--journal", "x"], "one run"),
        (["FILE", "--journal", "/nowhere/x"], "cannot be written"),
        (["FILE", "--into", "/nowhere"], "is not a directory"),
    ],
)
def test_mistakes_are_told_in_a_sentence(scenario, tokens, said):
    with pytest.raises(UserError, match=said):
        run(*(scenario if token == "FILE" else token for token in tokens))


PRINT = """
import hashlib, sys
from sureline.experiments.drive import run_scenario
from sureline.experiments.scenario_reader import find_scenario
for name, seed in (("eight-rough", 5), ("one-machine", 2)):
    outcome = run_scenario(find_scenario(name), seed)
    text = "\\n".join(line for lines in outcome.journals for line in lines)
    print(hashlib.sha256(text.encode()).hexdigest(), outcome.events, outcome.traffic.messages)
"""


def test_a_seed_gives_the_same_journal_in_any_process():
    printed = []
    for hash_seed in ("1", "2"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        done = subprocess.run(
            [sys.executable, "-c", PRINT],
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        printed.append(done.stdout)
    assert printed[0] == printed[1]
    assert len({line.split()[0] for line in printed[0].splitlines()}) == 2
    empty = hashlib.sha256(b"").hexdigest()
    assert empty not in printed[0]


def test_another_seed_gives_another_run(scenario, capsys):
    found = set()
    for seed in (1, 2):
        assert run(scenario, "--seed", seed, "--json") == 0
        found.add(json.loads(capsys.readouterr().out)["events"])
    assert len(found) == 2
