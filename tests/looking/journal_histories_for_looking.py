"""Random histories of a run, in any order that a journal could hold and some that it could not."""

from __future__ import annotations

from hypothesis import strategies as st

from sureline.journal.events import (
    AnyEvent,
    CancelAsked,
    Opened,
    RunEnded,
    TaskBound,
    TaskEnded,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)

_at = st.floats(101, 190)
_attempt = st.integers(1, 3)
_outcome = st.sampled_from(["succeeded", "reused", "failed", "timeout", "cancelled", "lost"])


def histories_of(tasks: list[str]) -> st.SearchStrategy[list[AnyEvent]]:
    name = st.sampled_from(tasks)
    event: st.SearchStrategy[AnyEvent] = st.one_of(
        st.builds(TaskReady, _at, name),
        st.builds(TaskBound, _at, name, _attempt, st.just("vm")),
        st.builds(TaskStarted, _at, name, _attempt, st.just("vm")),
        st.builds(TaskEnded, _at, name, _outcome, st.integers(0, 3)),
        st.builds(TaskRetried, _at, name, _attempt, st.floats(0, 5)),
        st.builds(TaskRevoked, _at, name, st.just("its files are gone")),
        st.builds(CancelAsked, _at, st.booleans(), st.just("told so")),
        st.builds(Opened, _at, st.just(2), st.just("vm"), st.just(8)),
        st.builds(RunEnded, _at, st.sampled_from(["succeeded", "failed", "cancelled"])),
    )
    return st.lists(event, max_size=15)
