"""The checkers themselves: each finds what it is there to find, and says nothing of a good run."""

from __future__ import annotations

import pytest

from sureline.experiments import invariants
from sureline.experiments.distributions import constant
from sureline.experiments.invariants import Ran
from sureline.experiments.scenario import Workload
from sureline.experiments.workloads import workload_graph
from sureline.journal.events import (
    Opened,
    RunEnded,
    TaskBound,
    TaskEnded,
    TaskReady,
    TaskRevoked,
    TaskStarted,
)
from sureline.workflow.files import FileRecord

GRAPH = workload_graph(Workload("chain", tasks=3, work_s=constant(1.0)), seed=1)
RIGHT = invariants.right_outputs(GRAPH)


def ended(number, attempt=1, outcome="succeeded", digest=None, peer="p"):
    path = f"step{number}.dat"
    made = (FileRecord(path, digest or RIGHT[path], 1),) if outcome == "succeeded" else ()
    return TaskEnded(number, f"step:{number}", outcome, attempt, peer, outputs=made)


def good_run():
    events = []
    for number in (1, 2, 3):
        events += [
            TaskReady(number, f"step:{number}"),
            TaskBound(number, f"step:{number}", 1, "p"),
            TaskStarted(number, f"step:{number}", 1, "p"),
            ended(number),
        ]
    return [*events, RunEnded(9.0, "succeeded")]


def problems(events):
    return (
        invariants.commits_once(events)
        + invariants.order_respected(GRAPH, events)
        + invariants.attempts_bound_once(events)
        + invariants.outputs_right(GRAPH, events)
        + invariants.finished(GRAPH, events, invariants.failed_for_good(GRAPH, events))
        + invariants.delivered(GRAPH, events, RIGHT)
    )


def test_nothing_is_said_of_a_good_run():
    assert problems(good_run()) == []


def test_a_second_commit_is_found_unless_the_first_was_revoked():
    events = good_run()
    again = [TaskReady(8, "step:3"), TaskBound(8, "step:3", 2, "q"), ended(3, 2, peer="q")]
    twice = [*events[:-1], *again, events[-1]]
    assert problems(twice) == ["step:3 committed twice, the second time by q"]
    revoked = [*events[:-1], TaskRevoked(8, "step:3"), *again, events[-1]]
    assert problems(revoked) == []


def test_a_child_before_its_parent_is_found():
    events = good_run()
    early = [*events[4:6], *events[:4], *events[6:]]
    assert problems(early) == [
        "step:2 was ready before step:1 had committed",
        "step:2 was bound before step:1 had committed",
    ]
    unready = [*events[:4], *events[5:]]
    assert problems(unready) == ["step:2 was bound before it was ready"]
    revoked = [*events[:5], TaskRevoked(2, "step:1"), *events[5:]]
    assert problems(revoked) == ["step:2 was bound before step:1 had committed"]


def test_an_attempt_that_is_under_way_may_be_bound_again_at_any_time():
    events = good_run()
    back = [*events[:7], TaskRevoked(2, "step:1"), events[5], *events[:4], *events[7:]]
    back[9:13] = [TaskReady(3, "step:1"), TaskBound(3, "step:1", 2, "p"), ended(1, 2)]
    assert problems(back) == []
    taken_over = [*events[:4], Opened(3, 2, "m", 1), *events[5:]]
    assert problems(taken_over) == []


def test_attempts_that_nobody_bound_or_that_two_peers_were_given_are_found():
    events = good_run()
    other = TaskBound(0, "step:1", 1, "q")
    assert problems([*events[:2], other, *events[2:]]) == [
        "attempt 1 at step:1 was bound to p and to q"
    ]
    assert "attempt 1 at step:1 was never bound" in problems([events[0], *events[2:]])


def test_wrong_and_missing_outputs_are_found():
    events = good_run()
    events[7] = ended(2, digest="0" * 64)
    assert problems(events) == ["step:2 made a wrong step2.dat"]
    events[7] = TaskEnded(2, "step:2", "succeeded", 1, "p")
    assert problems(events) == ["step:2 made [] instead of ['step2.dat']"]


def test_outputs_that_did_not_reach_the_user_are_found():
    events = good_run()
    lacking = {path: digest for path, digest in RIGHT.items() if path != "step1.dat"}
    assert invariants.delivered(GRAPH, events, lacking) == [
        "step1.dat is missing in the user's directory"
    ]
    wrong = {**RIGHT, "step1.dat": "0"}
    assert "step1.dat is wrong" in invariants.delivered(GRAPH, events, wrong)[0]


def test_a_run_that_did_not_end_is_found_but_not_one_that_could_not():
    events = good_run()
    assert problems(events[:8]) == ["the run did not end: 2 of 3 tasks are done"]
    retries = GRAPH.tasks[2].retries
    failing = [
        event
        for attempt in range(1, retries + 2)
        for event in (TaskBound(7, "step:3", attempt, "p"), ended(3, attempt, "failed"))
    ]
    failed = [*events[:8], TaskReady(7, "step:3"), *failing, RunEnded(9.0, "failed")]
    assert problems(failed) == []
    assert problems([*failed[:-3], failed[-1]]) == ["the run failed: no reason was given"]


def test_more_cores_than_there_are_is_found_at_any_moment():
    log = [Ran("a", 1, 1.0, 0.0, 10.0), Ran("b", 1, 1.0, 5.0, 8.0), Ran("c", 1, 0.5, 10.0, 11.0)]
    assert invariants.never_overcommitted("m", 2.0, log) == []
    assert invariants.never_overcommitted("m", 1.5, log) == [
        "m ran 2 cores' worth of jobs on 1.5 at 5.000 s"
    ]
    assert invariants.never_overcommitted("m", 2.0, [*log, Ran("d", 1, 0.5, 7.9, 7.95)])


def test_storms_are_found():
    assert invariants.no_storm({"a": 10, "b": 99}, 99) == []
    assert invariants.no_storm({"a": 10, "b": 99}, 50) == [
        "b sent 99 messages in one second, more than 50"
    ]


@pytest.mark.parametrize(("share", "broken"), [(1.0, True), (0.5, False)])
def test_lost_keys_count_only_if_somebody_holds_them(share, broken):
    held = {"k1": ["a"], "k2": ["b", "c"], "gone": []}
    assert invariants.nothing_lost(held, {"k1": True, "k2": True}, 1.0) == []
    found = invariants.nothing_lost(held, {"k1": True}, share)
    assert bool(found) is broken
    if broken:
        assert found[0] == "1 of 2 keys with a live replica were not found"
        assert found[1] == "k2 is held by b, c"
