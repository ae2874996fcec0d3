"""The engine of a run, in the toy world: order, capacity, commit once, retries, reuse, cancel."""

from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_world import ToyWorld, succeed

from sureline.journal.events import (
    RunEnded,
    TaskBound,
    TaskEnded,
    TaskReady,
    TaskRetried,
    TaskRevoked,
)
from sureline.peer.agent import PeerAgent
from sureline.peer.capacity import Capacity
from sureline.peer.jobs import CommandJob, JobEnded
from sureline.run.engine import Hearers, RunEngine
from sureline.run.options import CancelRun, Options, Past
from sureline.run.past import PastFound
from sureline.run.port import Target
from sureline.strategies.embedded import Embedded
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Call, Command, Graph, Needs, Task

BIG = Capacity(cores=4, memory_bytes=1000)


def drive(graph, world, capacity=BIG, options=None, past=None, during=None):
    """Run a graph in the toy world; the RunEnded it announced."""
    ends: list[RunEnded] = []
    engine = RunEngine(
        "writer",
        world.place("writer"),
        "run-1",
        graph,
        options or Options(),
        Embedded(),
        Hearers(ends.append),
        past=past,
    )
    world.join(engine)
    world.join(PeerAgent("here", world.place("here"), capacity))
    engine.start([Target("here", "here", capacity)])
    if during is not None:
        during(engine)
    world.run()
    assert len(ends) == 1
    assert world.records[-1] == ends[0]
    assert not world.running
    return ends[0]


def chain(length, **extra):
    return Graph(
        "chain",
        [
            Task(
                f"t{i}",
                Command(f"make {i}"),
                inputs=(f"f{i - 1}",) if i else ("source",),
                outputs=(f"f{i}",),
                **extra,
            )
            for i in range(length)
        ],
    )


def ended(world):
    return [e for e in world.records if isinstance(e, TaskEnded)]


@st.composite
def graphs(draw):
    """Random graphs: each task reads outputs of earlier ones and needs something of a machine."""
    size = draw(st.integers(1, 25))
    tasks = []
    for i in range(size):
        parents = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        after = draw(st.sets(st.integers(0, i - 1), max_size=1)) if i else set()
        tasks.append(
            Task(
                f"t{i}",
                Command("x"),
                inputs=tuple(f"f{p}" for p in sorted(parents)),
                outputs=(f"f{i}",),
                after=tuple(f"t{p}" for p in sorted(after)),
                needs=Needs(
                    cores=draw(st.sampled_from([0.5, 1, 2, 4])),
                    memory_bytes=draw(st.sampled_from([0, 300, 1000])),
                ),
            )
        )
    return Graph("random", tasks)


@given(graphs(), st.integers(0, 2**32))
@settings(max_examples=80, deadline=None)
def test_order_and_capacity_hold_for_random_graphs(graph, seed):
    world = ToyWorld(seed)
    world.duration = lambda job: world.random.choice([0.1, 1.0, 1.0, 5.0])
    assert drive(graph, world).state == "succeeded"
    finish = {e.task: e.at for e in ended(world)}
    start = {job.task: at for at, job in world.started}
    assert Counter(e.task for e in ended(world)) == Counter(t.name for t in graph.tasks)
    for i, task in enumerate(graph.tasks):
        for parent in graph.parents[i]:
            assert finish[graph.tasks[parent].name] <= start[task.name]
    moments = sorted({at for at, _ in world.started})
    for moment in moments:
        live = [t for t in graph.tasks if start[t.name] <= moment < finish[t.name]]
        assert sum(t.needs.cores for t in live) <= BIG.cores
        assert sum(t.needs.memory_bytes for t in live) <= BIG.memory_bytes


def test_a_failure_stops_only_what_depends_on_it():
    tasks = [*chain(3).tasks, Task("other", Command("y"), outputs=("o",))]
    world = ToyWorld(
        outcome=lambda job: (
            JobEnded("failed", 1, reason="exit code 1") if job.task == "t1" else succeed(job)
        )
    )
    assert drive(Graph("g", tasks), world).state == "failed"
    assert {e.task: e.outcome for e in ended(world)} == {
        "t0": "succeeded",
        "t1": "failed",
        "other": "succeeded",
    }


def test_retries_wait_longer_each_time_and_then_give_up():
    world = ToyWorld(outcome=lambda job: JobEnded("failed", 1, reason="exit code 1"))
    end = drive(chain(1, retries=3), world, options=Options(retry_delay_s=1.0))
    assert end.state == "failed"
    assert [e.attempt for e in ended(world)] == [1, 2, 3, 4]
    delays = [e.delay_s for e in world.records if isinstance(e, TaskRetried)]
    assert len(delays) == 3
    for k, delay in enumerate(delays):
        assert 0.75 * 2**k <= delay <= 1.25 * 2**k


def test_a_retry_that_works_commits_once():
    tries: Counter[str] = Counter()

    def outcome(job):
        tries[job.task] += 1
        return JobEnded("lost", reason="killed") if tries[job.task] < 3 else succeed(job)

    world = ToyWorld(outcome=outcome)
    assert drive(chain(2, retries=2), world).state == "succeeded"
    assert [e.task for e in ended(world) if e.outcome == "succeeded"] == ["t0", "t1"]


def test_stop_on_failure_starts_nothing_more():
    tasks = [Task(f"t{i}", Command("x"), needs=Needs(cores=4)) for i in range(10)]
    world = ToyWorld(outcome=lambda job: JobEnded("failed", 1, reason="no"))
    end = drive(Graph("g", tasks), world, options=Options(stop_on_failure=True))
    assert end.state == "failed"
    assert len(world.started) == 1


def test_a_past_result_is_reused_and_its_children_see_it():
    class FirstPast(dict):
        def get(self, key, default=None):
            self.asked = getattr(self, "asked", 0) + 1
            if self.asked == 1:
                return PastFound("run-0", (FileRecord("f0", "old", 1),))
            return default

    world = ToyWorld()
    world.past = FirstPast()
    assert drive(chain(2), world).state == "succeeded"
    assert [(e.task, e.outcome) for e in ended(world)] == [("t0", "reused"), ("t1", "succeeded")]
    (_, job) = world.started[0]
    assert isinstance(job, CommandJob)
    assert job.inputs == (FileRecord("f0", "old", 1),)


def test_fresh_looks_for_no_past_result():
    class Forbidden(dict):
        def get(self, key, default=None):
            raise AssertionError("looked for a past result")

    world = ToyWorld()
    world.past = Forbidden()
    assert drive(chain(2), world, options=Options(fresh=True)).state == "succeeded"


def test_an_input_that_vanished_fails_the_tasks_that_read_it():
    world = ToyWorld()
    world.missing_files = {"source"}
    assert drive(chain(2), world).state == "failed"
    assert [(e.task, e.outcome, e.reason) for e in ended(world)] == [
        ("t0", "failed", "source is gone")
    ]


def past_of(graph, names):
    return Past(
        committed={
            n: TaskEnded(0.0, n, "succeeded", 1, outputs=(FileRecord(f"f{n[1:]}", "kept", 1),))
            for n in names
        },
        attempts=dict.fromkeys(names, 1),
    )


def test_resuming_runs_only_what_is_left_and_publishes_again():
    world = ToyWorld()
    graph = chain(4)
    assert drive(graph, world, past=past_of(graph, ["t0", "t1"])).state == "succeeded"
    assert [job.task for _, job in world.started] == ["t2", "t3"]
    assert {f.path for f in world.published} == {"f0", "f1", "f2", "f3"}


def test_resuming_makes_damaged_results_again():
    world = ToyWorld()
    world.kept_paths = set()
    graph = chain(2)
    assert drive(graph, world, past=past_of(graph, ["t0"])).state == "succeeded"
    assert [e.task for e in world.records if isinstance(e, TaskRevoked)] == ["t0"]
    assert [job.label for _, job in world.started] == ["0.2", "1.1"]


def test_a_committed_child_of_a_damaged_result_is_not_run_again():
    world = ToyWorld()
    world.kept_paths = {"f1"}
    graph = chain(3)
    assert drive(graph, world, past=past_of(graph, ["t0", "t1"])).state == "succeeded"
    assert sorted(job.label for _, job in world.started) == ["0.2", "2.1"]


@pytest.mark.parametrize("drain", [True, False])
def test_cancelling(drain):
    world = ToyWorld(duration=lambda job: 10.0)
    tasks = [Task(f"t{i}", Command("x")) for i in range(20)]

    def during(engine):
        world.after(5.0, lambda: engine.receive("console", CancelRun(drain=drain)))

    assert drive(Graph("g", tasks), world, during=during).state == "cancelled"
    expected = "succeeded" if drain else "cancelled"
    assert Counter(e.outcome for e in ended(world)) == {expected: 4}
    assert world.time == pytest.approx(10.0)  # the cancelled jobs' own timers still run out


def test_cancelling_twice_stops_what_drained():
    world = ToyWorld(duration=lambda job: 10.0)

    def during(engine):
        world.after(1.0, lambda: engine.receive("console", CancelRun(drain=True)))
        world.after(2.0, lambda: engine.receive("console", CancelRun(force=True)))

    end = drive(chain(3), world, during=during)
    assert end.state == "cancelled"
    assert end.at < 10.0


def test_every_task_is_announced_ready_once():
    world = ToyWorld()
    graph = chain(30)
    drive(graph, world)
    ready = Counter(e.task for e in world.records if isinstance(e, TaskReady))
    assert ready == Counter(t.name for t in graph.tasks)


def test_a_child_starts_only_when_its_parents_records_would_survive_a_kill():
    world = ToyWorld()
    survives: dict[str, bool] = {}

    def note(job):
        kept = {e.task for e in world.records[: world.flushed] if isinstance(e, TaskEnded)}
        number = int(job.task[1:])
        survives[job.task] = number == 0 or f"t{number - 1}" in kept
        return 1.0

    world.duration = note
    drive(chain(5), world)
    assert survives == {f"t{i}": True for i in range(5)}


def test_a_call_starts_when_the_files_it_follows_are_in_place():
    world = ToyWorld()
    world.publishing_s = 7.0
    made = Task("make", Command("x"), outputs=("f",))
    graph = Graph("g", [made, Task("use", Call("digest", b""), after=("make",))])
    assert drive(graph, world).state == "succeeded"
    start = {job.task: at for at, job in world.started}
    assert start == {"make": 0.0, "use": 8.0}


@pytest.mark.parametrize("follows", [True, False])
@given(graphs(), st.integers(0, 2**32))
@settings(max_examples=50, deadline=None)
def test_order_and_capacity_hold_when_tasks_are_bound_ahead(follows, graph, seed):
    world = ToyWorld(seed)
    world.follows = follows
    world.duration = lambda job: world.random.choice([0.001, 0.002, 0.01])
    world.outcome = lambda job: msgspec.structs.replace(succeed(job), elapsed_s=0.001)
    assert drive(graph, world).state == "succeeded"
    finish = {e.task: e.at for e in ended(world)}
    start = {job.task: at for at, job in world.started}
    assert Counter(e.task for e in ended(world)) == Counter(t.name for t in graph.tasks)
    for i, task in enumerate(graph.tasks):
        for parent in graph.parents[i]:
            assert finish[graph.tasks[parent].name] <= start[task.name]
    for moment in sorted({at for at, _ in world.started}):
        live = [t for t in graph.tasks if start[t.name] <= moment < finish[t.name]]
        assert sum(t.needs.cores for t in live) <= BIG.cores
        assert sum(t.needs.memory_bytes for t in live) <= BIG.memory_bytes


def short_tasks(count):
    return Graph("short", [Task(f"t{i}", Command("x")) for i in range(count)])


def test_short_tasks_are_bound_ahead_and_long_ones_are_not():
    for elapsed_s, expected in ((0.001, True), (1.0, False)):
        world = ToyWorld(duration=lambda job, s=elapsed_s: s)
        world.outcome = lambda job, s=elapsed_s: JobEnded("succeeded", 0, elapsed_s=s)
        followed = []
        begin = world._begin
        world._begin = lambda handle, b=begin, f=followed: f.append(handle.job.task) or b(handle)
        bound_at = {}

        def note(event, seen=bound_at, world=world):
            if isinstance(event, TaskBound):
                seen[event.task] = world.now()
            world.records.append(event)

        world.record = note
        assert drive(short_tasks(100), world).state == "succeeded"
        start = {job.task: at for at, job in world.started}
        ahead = [task for task in start if bound_at[task] < start[task]]
        assert bool(ahead) == expected


def test_cancelling_stops_what_was_bound_ahead():
    world = ToyWorld()
    world.duration = lambda job: 0.001 if world.now() < 0.02 else 50.0
    world.outcome = lambda job: JobEnded("succeeded", 0, elapsed_s=0.001)

    def during(engine):
        world.after(1.0, lambda: engine.receive("console", CancelRun()))

    assert drive(short_tasks(500), world, during=during).state == "cancelled"
    outcomes = Counter(e.outcome for e in ended(world))
    assert set(outcomes) == {"succeeded", "cancelled"}
    assert 4 <= outcomes["cancelled"] <= 8


def test_an_empty_graph_succeeds():
    assert drive(Graph("empty", []), ToyWorld()).state == "succeeded"
