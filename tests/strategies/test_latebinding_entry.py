"""The half beside the writer, by what it says to the queue and to its engine."""

from __future__ import annotations

import pytest

from sureline.experiments.latebinding_sites import BEGIN_S, Testbed
from sureline.overlay.membership import MembershipSettings
from sureline.strategies.latebinding.entry import BACK_S
from sureline.strategies.latebinding.messages import Advice, PlacedTask
from sureline.strategies.latebinding.settings import PAGE, STUCK_S, LateSettings


class Scene:
    """Pilots of two sites, and a run that is about to begin."""

    def __init__(self, tasks, monkeypatch, pilots=8, architecture="event"):
        self.bed = Testbed(architecture, "serial", pilots, tasks, 1)
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


@pytest.fixture
def behind(scene, monkeypatch):
    """Five tasks are bound to one pilot; the first lasts, and the other pilots are idle."""
    monkeypatch.setattr(scene.engine, "_missing", [1] * len(scene.engine.graph))
    scene.wait(1.0)
    bind(scene, scene.first[:5], "p2")
    return scene


def bind(scene, tasks, pilot):
    for task in tasks:
        scene.engine._ready(task)
        scene.engine.bind(task, pilot)


def attempts(scene):
    return scene.engine.attempts()


def test_what_waits_behind_a_long_task_is_taken_back_while_others_are_idle(behind):
    behind.wait(BACK_S)
    assert not behind.engine.taken_back
    behind.wait(BACK_S + 20.0)
    assert [bound.attempt for bound in attempts(behind)] == [1, 2, 2, 2, 2]
    assert all(bound.started for bound in attempts(behind))
    assert len({bound.target for bound in attempts(behind)}) == 5
    assert behind.engine.taken_back == 4


def test_nothing_is_taken_back_that_nobody_idle_could_run(behind):
    others = tuple(name for name in behind.bed.targets if name != "p2")
    behind.engine.unfit = lambda task: others
    behind.wait(30.0)
    assert not behind.engine.taken_back


def test_nothing_is_taken_back_from_a_pilot_that_gets_on(behind):
    behind.bed.draw_s = lambda: BACK_S - 2.0
    bind(behind, behind.first[5:10], "p4")  # the first on p2 is under way for long already
    behind.wait(40.0)
    assert all(bound.attempt == 1 for bound in attempts(behind)[5:])


def test_a_task_is_taken_back_once(behind):
    """Or it could go to and fro."""
    behind.entry._taken_back |= set(behind.first[1:4])
    behind.wait(30.0)
    assert [bound.attempt for bound in attempts(behind)] == [1, 1, 1, 1, 2]


def test_what_an_earlier_process_has_bound_is_left_alone(behind):
    """Nothing is known of its inputs before it is ready anew."""
    for task in behind.first[1:5]:
        del behind.entry._generations[task]
    behind.wait(30.0)
    assert not behind.engine.taken_back


def test_advice_waits_for_its_pilot_to_take_part_and_is_kept_once(scene, monkeypatch):
    """Whoever advises may say so again and again: one place for each task is enough."""
    engine, entry, wanted = scene.engine, scene.entry, []
    monkeypatch.setattr(engine, "_missing", [1] * len(engine.graph))
    monkeypatch.setattr(engine, "want", lambda name: wanted.append(name) or True)
    scene.wait(1.0)
    there = dict(scene.bed.targets)
    late = there.pop("p2")
    monkeypatch.setattr(engine, "targets", lambda: there)
    task = scene.first[0]
    engine._ready(task)
    placed = PlacedTask(
        engine.graph.tasks[task].name, entry._generations[task], "p2", 0.0, "", 0.0, False, 0, 0
    )
    for _ in range(50):
        entry._advice.append(Advice(engine.run, "north", 1, 1, (placed,)))
    entry.decide()
    assert set(wanted) == {"p2"} and len(entry._held) == 1 and not attempts(scene)
    there["p2"] = late
    entry.decide()
    assert [bound.target for bound in attempts(scene)] == ["p2"] and not entry._held


def test_a_queue_that_answers_is_not_gone_around_before_loads_can_have_been_told(monkeypatch):
    """In a large grid they are told rarely: who seems idle may be at work for others."""
    scene = Scene(1200, monkeypatch, pilots=600)
    monkeypatch.setattr(scene.entry, "_weigh", lambda *_, **__: None)
    news_s = MembershipSettings().report_s(600)
    assert news_s > 10.0
    scene.wait(STUCK_S + news_s - 3.0)
    assert not attempts(scene)
    scene.wait(STUCK_S + news_s + 10.0)
    assert attempts(scene)


def test_a_task_of_the_papers_architecture_does_not_wait_longer_for_its_site_in_a_large_grid(
    monkeypatch,
):
    scene = Scene(1200, monkeypatch, pilots=600, architecture="distributed")
    monkeypatch.setattr(scene.entry, "_weigh", lambda *_, **__: None)
    scene.wait(STUCK_S - 3.0)
    assert not attempts(scene)
    scene.wait(STUCK_S + 6.0)
    assert attempts(scene)
