"""Directories that an older version made: they are shown, told and gone on with as if ours.

`older/2026-11-16.tar.gz` was made by the version of that day (commit 9f27d7a, before strategies
were plug-ins and runs were signed): a run here and a run with a deadline and a budget on a grid of
two peers, of the same workflow. In both, `picky` has failed: `mended` says no.
"""

from __future__ import annotations

import tarfile
from pathlib import Path
from typing import Any

import pytest
from surely import events, show, sureline

from sureline.journal.events import TaskStarted, Unknown
from sureline.journal.store import Journal

OLDER = Path(__file__).parent / "older" / "2026-11-16.tar.gz"


@pytest.fixture
def made(tmp_path: Path) -> Path:
    with tarfile.open(OLDER) as packed:
        packed.extractall(tmp_path, filter="data")
    return tmp_path


def states(shown: Any) -> dict[str, str]:
    return {task["task"]: task["state"] for task in shown["listed"]}


BEFORE = {f"part:{n}": "succeeded" for n in (1, 2, 3)} | {
    "sum": "succeeded",
    "picky": "failed",
    "last": "cancelled",
}


@pytest.mark.parametrize("place", ["here", "grid"])
def test_runs_of_an_older_version_are_shown_and_told(made: Path, place: str) -> None:
    where = made / place
    shown = show(where)
    assert shown["state"] == "failed" and states(shown) == BEFORE
    said = sureline(where, "explain", "last", "picky")
    assert said.code == 0 and "'retries: 1' allows no more" in said.out
    said = sureline(where, "story", "last", "sum")
    assert said.code == 0 and "sum" in said.out


def test_a_failed_run_of_an_older_version_goes_on_where_it_was(made: Path) -> None:
    where = made / "here"
    before = len(events(where))
    (where / "mended").write_text("yes\n")
    said = sureline(where, "resume", "--quiet")
    assert said.code == 0, said
    assert (where / "last.txt").read_text().strip() == "4"
    ran = [e.task for e in events(where)[before:] if isinstance(e, TaskStarted)]
    assert ran == ["picky", "last"], "what was done is not done again"


def test_contracts_of_an_older_version_are_kept_and_what_they_cost_is_told(made: Path) -> None:
    where = made / "grid"
    shown = show(where)
    assert shown["terms"]["spent"] == pytest.approx(0.039168)
    with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
        run = journal.runs()[-1].run
        unknown = [e.event for e in journal.events(run) if isinstance(e.event, Unknown)]
    assert {event.kind for event in unknown} == {"contracted", "settled"}


def test_a_run_of_an_older_version_on_a_grid_that_this_home_has_not_is_told(made: Path) -> None:
    said = sureline(made / "grid", "resume", env={"SURELINE_HOME": str(made / "home")})
    assert said.code == 2
    assert "there is no grid 'lab'" in said.err and "sureline peer --join" in said.err
