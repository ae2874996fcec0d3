"""Watching over a deadline, in the toy world: forecasts are the real ones."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_engine import drive
from toy_world import ToyWorld, succeed

from sureline.forecast.change import Change
from sureline.journal.events import Foreseen, Planned, Repaired, TaskBound, TaskEnded
from sureline.peer.capacity import Capacity
from sureline.peer.jobs import JobEnded
from sureline.run.free_repair import DUPLICATES_OF_TASK_MAX
from sureline.run.monitor import FORESEEN_MAX, Option, chosen, combined
from sureline.run.options import CancelRun, Options
from sureline.run.repair import Remedy
from sureline.workflow.model import Call, Command, Graph, Needs, Takes, Task

TEN = Takes(8.0, 10.0, 12.0)
FOR_EVER_S = 2000.0


def of(world, kind):
    return [event for event in world.records if isinstance(event, kind)]


def tasks(count, **extra):
    return [
        Task(f"t{i}", Command(f"do {i}"), outputs=(f"o{i}",), takes=TEN, **extra)
        for i in range(count)
    ]


def first_hangs(*names):
    """The first attempt of these never ends; all else takes ten seconds."""
    return lambda job: FOR_EVER_S if job.task in names and job.attempt == 1 else 10.0


def test_a_task_that_hangs_is_run_again_and_the_loser_stopped():
    world = ToyWorld(duration=first_hangs("t0"))
    last = Task("last", Command("join"), inputs=("o0", "o1"), outputs=("out",), takes=TEN)
    end = drive(Graph("g", [*tasks(2), last]), world, options=Options(deadline_at=90.0))
    assert end.state == "succeeded"
    assert end.at < 90.0
    (planned,) = of(world, Planned)
    assert planned.surety is not None and planned.surety > 0.9
    assert 18 < planned.middle_at < 24
    (repaired,) = of(world, Repaired)
    assert (repaired.action, repaired.task, repaired.attempt) == ("duplicate", "t0", 2)
    assert repaired.surety_before < 0.9 <= repaired.surety_after
    ends = [(e.attempt, e.outcome) for e in of(world, TaskEnded) if e.task == "t0"]
    assert ends == [(2, "succeeded"), (1, "cancelled")]
    assert not world.running, "the attempt that lost is stopped"


def test_a_result_of_the_first_attempt_counts_as_well():
    world = ToyWorld(duration=lambda job: 40.0 if job.attempt == 1 else FOR_EVER_S)
    end = drive(Graph("g", tasks(1)), world, options=Options(deadline_at=45.0))
    assert end.state == "succeeded"
    ends = [(e.attempt, e.outcome) for e in of(world, TaskEnded)]
    assert ends[0] == (1, "succeeded")
    assert set(ends[1:]) == {(n, "cancelled") for n in range(2, len(ends) + 1)}
    assert len(ends) > 1


def test_an_attempt_that_fails_leaves_the_other_going():
    def fails(job):
        return JobEnded("failed", exit_code=1) if job.attempt == 2 else succeed(job)

    world = ToyWorld(duration=lambda job: 60.0 if job.attempt == 1 else 1.0, outcome=fails)
    end = drive(Graph("g", tasks(1)), world, options=Options(deadline_at=62.0))
    assert end.state == "succeeded"
    outcomes = {(e.attempt, e.outcome) for e in of(world, TaskEnded)}
    assert {(2, "failed"), (1, "succeeded")} <= outcomes or (3, "succeeded") in outcomes


def test_several_that_hang_at_once_are_all_run_again():
    world = ToyWorld(duration=first_hangs("t0", "t1"))
    end = drive(Graph("g", tasks(2)), world, options=Options(deadline_at=60.0))
    assert end.at < 60.0
    assert {event.task for event in of(world, Repaired)} == {"t0", "t1"}


def test_without_room_one_that_plainly_hangs_is_started_anew():
    world = ToyWorld(duration=first_hangs("t5"))
    one = Capacity(cores=1.0, memory_bytes=10)
    end = drive(Graph("g", tasks(8)), world, one, Options(deadline_at=180.0))
    (swapped,) = [event for event in of(world, Repaired) if event.action != "none"]
    assert (swapped.action, swapped.task) == ("swap", "t5")
    assert end.state == "succeeded"
    assert end.at < 180.0


def test_without_a_deadline_nothing_is_watched():
    world = ToyWorld()
    drive(Graph("g", tasks(3)), world)
    assert not world.outlooks
    assert not of(world, Foreseen | Planned | Repaired)


def test_watching_only_changes_nothing():
    world = ToyWorld(duration=lambda job: 100.0)
    end = drive(Graph("g", tasks(2)), world, options=Options(deadline_at=50.0, repair=False))
    assert end.at > 50.0
    assert not of(world, Repaired)
    sureties = [event.surety for event in of(world, Foreseen)]
    assert sureties[0] > 0.9 and sureties[-1] == 0.0
    assert max(event.attempt for event in of(world, TaskBound)) == 1


def test_a_python_call_is_never_run_twice_at_once_and_that_is_told():
    call = Task("c", Call("f", b""), takes=TEN)
    world = ToyWorld(duration=lambda job: 100.0)
    drive(Graph("g", [call], functions={"f": b""}), world, options=Options(deadline_at=60.0))
    assert {event.action for event in of(world, Repaired)} == {"none"}
    assert max(event.attempt for event in of(world, TaskBound)) == 1


def test_repair_is_bounded():
    world = ToyWorld(duration=lambda job: 300.0)
    drive(Graph("g", tasks(3)), world, options=Options(deadline_at=200.0))
    made = Counter(event.task for event in of(world, TaskBound))
    assert max(made.values()) <= 1 + DUPLICATES_OF_TASK_MAX
    assert len(of(world, Foreseen)) < FORESEEN_MAX
    nones = [event for event in of(world, Repaired) if event.action == "none"]
    assert 1 <= len(nones) < 10, "told once, and again only when it changed"


def test_a_cancelled_run_stops_all_attempts():
    world = ToyWorld(duration=lambda job: FOR_EVER_S)
    end = drive(
        Graph("g", tasks(1)),
        world,
        options=Options(deadline_at=60.0),
        during=lambda engine: engine.world.after(
            55.0, lambda: engine.on_cancel("me", CancelRun(reason="enough"))
        ),
    )
    assert len(of(world, TaskBound)) > 1
    assert end.state == "cancelled"
    assert end.at < 56.0


def test_what_needs_more_than_is_free_is_not_duplicated():
    world = ToyWorld(duration=lambda job: 100.0)
    graph = Graph("g", tasks(1, needs=Needs(cores=3)))
    drive(graph, world, options=Options(deadline_at=50.0))
    assert max(event.attempt for event in of(world, TaskBound)) == 1


actions = st.lists(
    st.builds(
        lambda task, cost: Remedy("duplicate", (Change(task, "duplicate"),), task, cost=cost),
        st.integers(0, 4),
        st.sampled_from([0.0, 1.0, 2.5, 7.0]),
    ),
    max_size=10,
)


@given(actions, st.sampled_from([0.0, 2.0, 8.0, float("inf")]))
def test_options_never_cost_more_than_is_left_nor_do_two_things_to_one_task(found, left):
    for option in combined(found, left):
        assert option.cost == sum(action.cost for action in option.remedies) <= left
        assert len({action.task for action in option.remedies}) == len(option.remedies)


@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 1.0, 5.0]), st.sampled_from([0.1, 0.5, 0.9, 1.0])),
        min_size=1,
        max_size=8,
    )
)
def test_the_cheapest_that_restores_surety_is_chosen_or_else_the_surest(drawn):
    options = [Option((), cost) for cost, _ in drawn]
    sureties = [surety for _, surety in drawn]
    best = chosen(options, sureties, 0.9)
    restoring = [cost for cost, surety in drawn if surety >= 0.9]
    if restoring:
        assert sureties[best] >= 0.9 and options[best].cost == min(restoring)
    else:
        assert sureties[best] == max(sureties)


def test_nothing_is_run_twice_on_a_guess():
    """Nothing is known of these tasks, and the deadline is near: that they are late is a guess."""
    unknown = [Task(f"t{i}", Command(f"do {i}"), outputs=(f"o{i}",)) for i in range(2)]
    world = ToyWorld(duration=lambda job: 11.0)
    end = drive(Graph("g", unknown), world, options=Options(deadline_at=12.0))
    assert end.state == "succeeded"
    assert [e.attempt for e in of(world, TaskBound)] == [1, 1]
    assert {e.action for e in of(world, Repaired)} <= {"none"}


@pytest.mark.parametrize(("repeatable", "attempts"), [(True, [1, 1, 2]), (False, [1, 1])])
def test_what_is_not_repeatable_is_never_run_twice_at_once(repeatable, attempts):
    world = ToyWorld(duration=lambda job: 60.0 if job.task == "t0" else 10.0)
    graph = Graph("g", tasks(2, repeatable=repeatable))
    end = drive(graph, world, options=Options(deadline_at=40.0))
    assert end.state == "succeeded"
    bound = [e.attempt for e in of(world, TaskBound)]
    assert bound[:3] == attempts
