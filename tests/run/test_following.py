"""Following a run: events taken in together say what they say one by one."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sureline.forecast.progress import Tracker
from sureline.journal.events import (
    CancelAsked,
    PeerJoined,
    TaskBound,
    TaskEnded,
    TaskProgressed,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.run.outlook import Following
from sureline.workflow.model import Command, Graph, Task

GRAPH = Graph("g", [Task(f"t{i}", Command("true")) for i in range(3)])
LOOK = "look"

names = st.sampled_from([task.name for task in GRAPH.tasks])
attempts = st.integers(1, 3)
steps = st.one_of(
    st.just(LOOK),
    st.builds(lambda t: TaskReady(0.0, t), names),
    st.builds(lambda t, n, ahead: TaskBound(0.0, t, n, "p", ahead), names, attempts, st.booleans()),
    st.builds(lambda t, n: TaskStarted(0.0, t, n, "p"), names, attempts),
    st.builds(lambda t, n: TaskProgressed(0.0, t, n, 0.5), names, attempts),
    st.builds(
        lambda t, n, how: TaskEnded(0.0, t, how, n, "p", elapsed_s=0.5, kind="k"),
        names,
        attempts,
        st.sampled_from(["succeeded", "succeeded", "failed", "cancelled", "lost"]),
    ),
    st.builds(lambda t: TaskEnded(0.0, t, "reused", kind="k"), names),
    st.builds(lambda t, n: TaskRetried(0.0, t, n, 1.0), names, attempts),
    st.builds(lambda t: TaskRevoked(0.0, t), names),
    st.just(CancelAsked(0.0)),
)


def sensible(drawn):
    """Without what no run records: a second result of a task that was not revoked, or an attempt
    that is bound after it is known."""
    done: set[str] = set()
    known: set[tuple[str, int]] = set()
    for number, step in enumerate(drawn):
        if step is LOOK:
            yield step
            continue
        task = getattr(step, "task", "")
        if isinstance(step, TaskBound) and (task, step.attempt) in known:
            continue
        known.add((task, getattr(step, "attempt", 0)))
        if isinstance(step, TaskEnded) and step.outcome in ("succeeded", "reused"):
            if task in done:
                continue
            done.add(task)
        elif isinstance(step, TaskRevoked):
            done.discard(task)
        yield type(step)(**{**{f: getattr(step, f) for f in step.__struct_fields__}, "at": number})


@given(st.lists(steps, max_size=40))
def test_together_as_one_by_one(drawn):
    following, tracker = Following("r", GRAPH), Tracker(GRAPH)
    for step in sensible(drawn):
        if step is LOOK:
            assert following.snapshot(1.0) == tracker.snapshot(1.0)
        else:
            following.hear(step)
            tracker.apply(step)
    assert following.snapshot(1.0) == tracker.snapshot(1.0)


def test_there_is_no_outlook_without_a_machine():
    following = Following("r", GRAPH)
    assert following.outlook(following.snapshot(0.0), 10.0, {}) is None
    following.hear(PeerJoined(0.0, "p", 2.0, 1000))
    wanted = following.outlook(following.snapshot(0.0), 10.0, {})
    assert wanted is not None
    assert wanted.machines.cores == 2.0
