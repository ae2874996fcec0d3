"""Results of runs that others have driven: they come home, also if a peer was away at first."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

from sureline.compose import grid_run, returning
from sureline.compose.fetched import LOCK_S
from sureline.compose.grid_run import BRINGS_MAX, BroughtHome, GridRun
from sureline.compose.returning import left, note_run
from sureline.compose.session import lock_run
from sureline.journal.events import Opened, RunEnded, Submitted, TaskEnded
from sureline.journal.store import Journal
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import SurelineError, UserError
from sureline.workflow.model import Command, Graph, Task
from sureline.world.address import PeerName
from sureline.world.identity.home import GridHome


class Place:
    """A directory from which a run was submitted, and the home that has a note of it."""

    def __init__(self, path: Path) -> None:
        self.directory = path / "work"
        self.directory.mkdir()
        self.home = GridHome(path / "home", "lab")
        with Journal.open(self.directory / ".sureline") as journal:
            graph = Graph("flow", [Task("make", Command("make"), outputs=("made",))])
            self.run = journal.create_run(
                "flow", graph.to_bytes(), lambda run: Submitted(1.0, run, "flow", 1)
            )
        note_run(self.home, self.run, self.directory)

    def learn_end(self) -> None:
        record = FileRecord("made", "d" * 64, 5, 0)
        with Journal.open(self.directory / ".sureline") as journal:
            writer = journal.take(self.run, lambda epoch: Opened(2.0, epoch, "p1", 1))
            writer.record(TaskEnded(3.0, "make", "succeeded", 1, PeerName("p1"), outputs=(record,)))
            writer.record(RunEnded(4.0, "succeeded"))
            writer.close()

    def left(self) -> list[str]:
        return [run for run, _ in left(self.home, time.time() + returning.YOUNG_S)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_run_is_left_until_its_results_are_here_whatever_the_journal_says(place: Place) -> None:
    """The note was thrown away when the journal had learned of the end: results that could not be
    had at that moment never came."""
    assert place.left() == [place.run]
    place.learn_end()
    assert place.left() == [place.run]
    (place.directory / "made").write_text("made\n")
    assert place.left() == []
    os.unlink(place.directory / "made")
    assert place.left() == [], "what the user removes is not brought again"


def test_who_fetches_waits_for_another_who_does(place: Place) -> None:
    """The home's peer was just bringing the results: the user was told to cancel the run."""
    with Journal.open(place.directory / ".sureline") as journal:
        other = lock_run(journal, place.run)
        with pytest.raises(UserError, match="still running in another process"):
            lock_run(journal, place.run)
        threading.Timer(0.1, other.release).start()
        lock_run(journal, place.run, LOCK_S).release()


def bring(monkeypatch: pytest.MonkeyPatch, misses: int) -> list[int]:
    """Have the results come after so many tries; the tries."""
    tries: list[int] = []

    def bring_home(*_: object) -> BroughtHome:
        tries.append(len(tries))
        return BroughtHome(1, ["nobody has made any more"] if len(tries) <= misses else [])

    monkeypatch.setattr(grid_run, "bring_home", bring_home)
    monkeypatch.setattr(grid_run, "AGAIN_S", 0.0)
    return tries


def follow(place: Place) -> str:
    with Journal.open(place.directory / ".sureline") as journal:
        found = GridRun(journal, place.run, place.directory, place.home, None)._over()
        return found.state


def test_who_follows_a_run_asks_again_for_results_of_peers_that_are_away(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.learn_end()
    tries = bring(monkeypatch, 2)
    assert follow(place) == "succeeded" and len(tries) == 3


def test_results_that_cannot_be_had_are_told_and_are_no_success(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command ended well, without them."""
    place.learn_end()
    tries = bring(monkeypatch, 100)
    with pytest.raises(SurelineError, match=r"nobody has made any more; try again .*fetch flow-"):
        follow(place)
    assert len(tries) == BRINGS_MAX
