"""Real runs feed the history, and the next forecast rests on it."""

from __future__ import annotations

import time
from pathlib import Path

from forecast_support import GB

from sureline.compose import HOME, run_workflow
from sureline.forecast.follow import Forecaster, kinds_of
from sureline.forecast.progress import DONE, Tracker, untouched
from sureline.forecast.result import Basis
from sureline.journal.store import Journal
from sureline.peer.capacity import Capacity
from sureline.run.options import Options
from sureline.workflow.model import Command, Graph, Pause, Task

MACHINE = Capacity(2, 8 * GB, 10 * GB)


def test_every_run_feeds_history_and_a_tracker_sees_it_done(tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("12345")
    copies = [
        Task(f"copy:{i}", Command(f"cp in.txt out.{i}"), ("in.txt",), (f"out.{i}",))
        for i in range(3)
    ]
    graph = Graph("copies", copies)
    runs = [run_workflow(graph, tmp_path, MACHINE, Options(fresh=True)).run for _ in range(2)]
    with Journal.open(tmp_path / HOME) as journal:
        history = journal.durations(kinds_of(graph))
        tracker = Tracker(graph)
        for entry in journal.events(runs[1]):
            tracker.apply(entry.event)
    assert [seen.run for seen in history["copy"]] == [runs[1]] * 3 + [runs[0]] * 3
    assert all(seen.input_bytes == 5 and seen.elapsed_s > 0 for seen in history["copy"])
    done = tracker.snapshot(time.time())
    assert done.states == bytes([DONE] * 3) and len(done.observed_s["copy"]) == 3
    found = Forecaster(graph, MACHINE, history).forecast(untouched(graph, 0.0))
    assert found.basis == Basis(history=3, earlier_runs=2, kinds=1)


def test_pretended_tasks_feed_nothing(tmp_path: Path) -> None:
    graph = Graph("pretended", [Task("wait_1", Pause(0.0))])
    assert run_workflow(graph, tmp_path, MACHINE).state == "succeeded"
    with Journal.open(tmp_path / HOME) as journal:
        assert journal.durations(["wait", ""]) == {}
