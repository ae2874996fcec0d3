"""The half beside the writer, by what it says to the queue and to its engine."""

from __future__ import annotations

import pytest

from sureline.experiments.latebinding_sites import BEGIN_S, Testbed
from sureline.strategies.latebinding.settings import PAGE, LateSettings


class Scene:
    """Eight pilots of two sites, and a run that is about to begin."""

    def __init__(self, tasks, monkeypatch):
        self.bed = Testbed("event", "serial", 8, tasks, 1)
        (self.engine,) = self.bed.engines
        self.entry = self.engine.entry
        self.said = []
        """How many tasks each message to the queue told of."""
        self.first = [task for task, missing in enumerate(self.engine._missing) if not missing]
        say = self.entry._say

        def told(tasks, gone, **others):
            self.said.append(len(tasks))
            say(tasks, gone, **others)

        monkeypatch.setattr(self.entry, "_say", told)

    def wait(self, seconds):
        self.bed.sim.run(until=BEGIN_S + seconds)


@pytest.fixture
def scene(monkeypatch):
    return Scene(3 * PAGE, monkeypatch)


def test_the_queue_is_found_though_the_answer_came_before_the_run_had_begun(scene):
    """Forecasts take a while, and nobody asked again for two seconds."""
    engine, estimates = scene.engine, scene.engine.estimates
    scene.wait(-0.1)
    for target in scene.bed.targets.values():
        scene.entry.target(target)
    engine.estimates = lambda on_done: engine.world.after(0.5, lambda: estimates(on_done))
    engine._go = lambda: None
    scene.wait(0.9)
    assert scene.entry._queue is not None


def test_a_full_page_does_not_wait_for_more(scene, monkeypatch):
    monkeypatch.setattr(scene.entry, "_settings", LateSettings(bulk_s=5.0))
    monkeypatch.setattr(scene.engine, "_missing", [1] * len(scene.engine.graph))
    scene.wait(1.0)  # it knows the queue by now, and nothing is ready
    for task in scene.first[: PAGE - 1]:
        scene.engine._ready(task)
    scene.wait(2.0)
    assert not any(scene.said)
    scene.engine._ready(scene.first[PAGE])
    scene.wait(2.1)
    assert sum(scene.said) == PAGE
