"""The half beside the writer, by what it says to the queue and to its engine."""

from __future__ import annotations

import pytest

from sureline.experiments.latebinding_sites import BEGIN_S, Testbed
from sureline.overlay.membership import MembershipSettings
from sureline.strategies.latebinding.entry import BACK_S, GENERATIONS, INPUTS_MAX, LOOK_S
from sureline.strategies.latebinding.messages import (
    MESSAGES,
    Advice,
    Enqueued,
    PlacedTask,
    TheQueue,
)
from sureline.strategies.latebinding.sense import is_sensible, is_short
from sureline.strategies.latebinding.settings import PAGE, STUCK_S, LateSettings
from sureline.workflow.files import FileRecord
from sureline.world.net.codec import Codec


class Scene:
    """Pilots of two sites, and a run that is about to begin."""

    def __init__(self, tasks, monkeypatch, pilots=8, architecture="event"):
        self.bed = Testbed(architecture, "serial", pilots, tasks, 1)
        (self.engine,) = self.bed.engines
        self.entry = self.engine.entry
        self.said = []
        """How many tasks each message to the queue told of."""
        self.first = [task for task, missing in enumerate(self.engine._missing) if not missing]
        self.gone = []
        """And what each told of as gone."""
        say = self.entry._say

        def told(tasks, gone, **others):
            self.said.append(len(tasks))
            self.gone.append(gone)
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


@pytest.fixture
def idle(scene, monkeypatch):
    """It knows the queue, and nothing is ready."""
    monkeypatch.setattr(scene.engine, "_missing", [1] * len(scene.engine.graph))
    scene.wait(1.0)
    return scene


def placed(scene, task, pilot="p2", generation=None):
    name = scene.engine.graph.tasks[task].name
    known = scene.entry._generations[task] if generation is None else generation
    return PlacedTask(name, known, pilot, 0.0, "", 0.0, False, 0, 0)


def advise(scene, task, **others):
    scene.entry._advice.append(
        Advice(scene.engine.run, "north", 1, 1, (placed(scene, task, **others),))
    )
    scene.entry.decide()


def told_gone(scene):
    return {name for gone in scene.gone for name in gone}


def test_tasks_with_many_inputs_are_told_in_messages_that_travel(idle, monkeypatch):
    """A page of them that no frame held was thrown away, and nobody noticed."""
    many = [FileRecord(f"data/sample-{n:060d}.fastq", "d" * 64, 100 + n) for n in range(1000)]
    monkeypatch.setattr(idle.engine, "reads", lambda task: many)
    for task in idle.first[:PAGE]:
        idle.engine._ready(task)
    idle.entry._tell()
    pages = [said for _, _, said in idle.entry._unanswered.values()]
    assert sum(len(page.tasks) for page in pages) == PAGE
    for page in pages:
        Codec(MESSAGES).encode("ann/run", "p0/queue", page)
        assert all(map(is_sensible, page.tasks)) and all(map(is_short, page.tasks))
    told = pages[0].tasks[0].inputs
    assert 50 < len(told) <= INPUTS_MAX and told[0][2] == 1099, "the largest"


def test_advice_for_a_task_that_waits_no_more_is_answered(idle):
    """A queue that was started again may give out what was bound before."""
    task = idle.first[0]
    idle.engine._ready(task)
    idle.wait(20.0)
    name = idle.engine.graph.tasks[task].name
    assert idle.gone.count((name,)) == 1
    advise(idle, task)
    idle.wait(40.0)
    assert idle.gone.count((name,)) == 2
    assert idle.entry._generations[task] == 1 + GENERATIONS * idle.engine.epoch


def test_what_reads_a_result_that_is_gone_waits_no_more(idle, monkeypatch):
    monkeypatch.setattr(idle.entry, "_weigh", lambda *_, **__: None)
    parent = idle.first[0]
    (child,) = idle.engine.graph.children[parent]
    idle.engine._made_at[parent] = "p2"
    idle.engine._ready(child)
    idle.wait(2.0)
    before = idle.entry._generations[child]
    idle.entry.stands(parent, False)
    idle.wait(20.0)
    assert idle.engine.graph.tasks[child].name in told_gone(idle)
    idle.engine._ready(child)
    assert idle.entry._generations[child] > before


def test_a_task_that_is_ready_anew_is_another_generation(idle, monkeypatch):
    """Its inputs may be others: who was told of the earlier one forgets that."""
    monkeypatch.setattr(idle.entry, "_weigh", lambda *_, **__: None)
    task = idle.first[0]
    idle.engine._ready(task)
    before = idle.entry._generations[task]
    idle.entry.ready(task)
    assert idle.entry._generations[task] > before


def test_a_priority_that_was_changed_is_told_to_the_next_queue(idle):
    idle.entry.on_enqueued(idle.entry._queue, Enqueued(idle.engine.run, 1, 7, 0, priority=50))
    idle.entry._tell_all()
    assert [said.priority for _, _, said in idle.entry._unanswered.values()] == [50]


def test_where_the_queue_is_says_who_was_asked(idle):
    queue, entry = idle.entry._queue, idle.entry
    assert queue is not None
    for _ in range(3):
        entry.on_the_queue("guest/x", TheQueue("guest/x"))
    assert entry._queue == queue
    idle.wait(1.0 + 2 * LOOK_S)
    assert entry._queue == queue


def test_advice_of_pilots_that_nobody_knows_does_not_keep_a_task_from_being_placed(
    idle, monkeypatch
):
    """Each has it enqueued anew; the run places it by itself all the same when that is time."""
    monkeypatch.setattr(idle.engine, "want", lambda name: name in idle.bed.targets)
    task, entry = idle.first[0], idle.entry
    idle.engine._ready(task)
    weigh = entry._weigh
    monkeypatch.setattr(entry, "_weigh", lambda *_, **__: None)
    for second in range(int(STUCK_S) + 10):
        idle.wait(1.0 + second)
        nobody = placed(idle, task, f"nobody{second}")
        if task in entry._out:
            weigh(idle.engine.targets(), Advice(idle.engine.run, "n", 1, 1, (nobody,)), nobody)
    assert [bound.task for bound in attempts(idle)] == [task]


@pytest.mark.parametrize("there", [True, False])
def test_a_queue_is_missed_only_where_somebody_could_run_tasks(idle, monkeypatch, there):
    """Without pilots nobody can say where it is, and nothing could be placed."""
    told = []
    monkeypatch.setattr(idle.engine, "tell", told.append, raising=False)
    for name in () if there else list(idle.bed.targets):
        idle.entry.gone(name)
    idle.engine._ready(idle.first[0])
    idle.entry._by_itself(idle.entry.world.elapsed(), silent=True)
    assert bool(told) == there
