"""A run on this machine whose graph grows while it runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from sureline import Workflow
from sureline.compose import Capacity, run_workflow, session
from sureline.journal.events import Event, TaskEnded
from sureline.run.engine import RunEngine


def first() -> int:
    return 1


def second() -> int:
    return 2


def test_a_grown_calls_function_reaches_slots_that_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    flow = Workflow("growing")
    flow.call(first)
    begun = flow.graph()
    flow.call(second)
    whole = flow.graph()
    made: list[RunEngine] = []
    make_writer = session.make_writer

    def kept(*arguments):
        engine, agents = make_writer(*arguments)
        engine.stays_open = True
        made.append(engine)
        return engine, agents

    class Grower(session.Watcher):
        def event(self, event: Event) -> None:
            if isinstance(event, TaskEnded) and not grown:
                grown.append(event)
                asyncio.get_running_loop().call_soon(self.grow)

        def grow(self) -> None:
            made[0].grow(whole)
            made[0].close()

    grown: list[Event] = []
    monkeypatch.setattr(session, "make_writer", kept)
    outcome = run_workflow(begun, tmp_path, Capacity(1, 1 << 30), watcher=Grower())
    assert (outcome.state, outcome.tasks.succeeded) == ("succeeded", 2)
