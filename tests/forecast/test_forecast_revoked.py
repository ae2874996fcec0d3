"""A task that runs while what it was made of is made again: after a crash, that happens."""

from __future__ import annotations

import pytest
from forecast_support import exactly, forecast, task

from sureline.forecast.progress import OPEN, RUNNING, Progress
from sureline.workflow.model import Graph


def test_a_child_that_runs_before_its_parent_waits_for_nobody() -> None:
    """The parent waits for the child's slot; the child ends before its parent begins."""
    graph = Graph("g", [task("parent", takes=exactly(5)), task("child", ["parent"], exactly(10))])
    progress = Progress(100.0, bytes([OPEN, RUNNING]), started={1: 96.0})
    found = forecast(graph, 1, samples=20, progress=progress)
    assert found.p50_s == pytest.approx(6 + 5)
