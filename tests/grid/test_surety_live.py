"""Peers that ask a price, as real processes: contracts, money, and runs that pay nobody."""

from __future__ import annotations

import json

import pytest
from grid_lab import GRID, GridLab
from surely import sureline

from sureline.journal.errors import NoJournalError
from sureline.journal.events import Noted, TaskEnded
from sureline.journal.store import Journal
from sureline.strategies.surety.contract import Contracted, Settled, entries_of

FLOW = """
name: paid
tasks:
  part:
    for: {i: [1, 2, 3, 4]}
    run: sleep 0.3; echo {{i}} > part.{{i}}
    outputs: ["part.{{i}}"]
    takes: 1s
  all:
    run: cat part.* > all.txt
    inputs: ["part.*"]
    outputs: [all.txt]
    takes: 1s
"""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with GridLab(tmp_path_factory.mktemp("lab")) as made:
        made.start(1)
        made.join("p1", "--price", "3600").ready()  # a second costs 1
        made.until_present({"p0", "p1"})
        yield made


@pytest.fixture
def where(tmp_path):
    (tmp_path / "flow.yaml").write_text(FLOW)
    return tmp_path


def events(where, run):
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        return [entry.event for entry in journal.events(run)]


def test_a_run_with_a_budget_pays_for_what_it_uses(lab, where):
    said = sureline(
        where, "run", "flow.yaml", "--grid", GRID, "--budget", "20", "--json", env=lab.env("p0")
    )
    assert said.code == 0, said
    assert (where / "all.txt").read_text() == "1\n2\n3\n4\n"
    found = events(where, json.loads(said.out)["run"])
    book = entries_of(e for e in found if isinstance(e, Noted))
    made = {e.contract: e for e in book if isinstance(e, Contracted)}
    settled = {e.contract: e for e in book if isinstance(e, Settled)}
    paid_for = {(e.task, e.attempt) for e in found if isinstance(e, TaskEnded) and e.peer == "p1"}
    assert made and made.keys() == settled.keys()
    assert {(e.task, e.attempt) for e in made.values()} >= paid_for
    assert sum(e.paid for e in settled.values()) <= 20


def test_without_a_budget_priced_peers_are_named_and_left_alone(lab, where):
    said = sureline(where, "run", "flow.yaml", "--grid", GRID, env=lab.env("p0"))
    assert said.code == 0, said
    assert said.err.count("p1 asks a price") == 1 and "--budget" in said.err
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        run = journal.runs()[-1].run
    peers = {e.peer for e in events(where, run) if isinstance(e, TaskEnded)}
    assert peers == {"p0"}


def runs_here(where):
    try:
        with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
            return [one.run for one in journal.runs()]
    except NoJournalError:
        return []


@pytest.mark.parametrize("command", ["run", "submit"])
def test_terms_that_cannot_be_met_are_refused_and_nothing_is_started(lab, where, command):
    before = runs_here(where)
    said = sureline(
        where,
        command,
        "flow.yaml",
        "--grid",
        GRID,
        "--budget",
        "20",
        "--within",
        "0.5s",
        env=lab.env("p0"),
    )
    assert said.code == 3, said
    assert "no plan meets the terms" in said.err and "--within" in said.err
    assert runs_here(where) == before, "a refused run leaves nothing behind"
    assert not (where / "part.1").exists()
