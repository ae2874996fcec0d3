"""The states of a task in a run, and how they follow each other.

    waiting -> staging -> queued -> bound -> committed
                  |          ^        |
                  |          |        +-> retrying -> queued     (attempts left)
                  |          |        +-> failed                 (none left)
                  |          +--------+   lost, refused or withdrawn
                  +-> committed                                  (a past result is reused)
                  +-> failed                                     (an input cannot be had)

`staging` finds the inputs' identities and looks for a past result. A committed task waits again if
its result can no longer be had. A result may come late: of an attempt of an earlier process, or of
one that was believed lost; so a task may be committed from any state.
"""

from __future__ import annotations

from enum import IntEnum

from sureline.workflow.model import Graph


class State(IntEnum):
    WAITING = 0
    STAGING = 1
    QUEUED = 2
    BOUND = 3
    RETRYING = 4
    COMMITTED = 5
    FAILED = 6


_S = State
FOLLOWS: dict[State, frozenset[State]] = {
    _S.WAITING: frozenset({_S.STAGING, _S.COMMITTED}),
    _S.STAGING: frozenset({_S.QUEUED, _S.BOUND, _S.COMMITTED, _S.FAILED, _S.WAITING}),
    _S.QUEUED: frozenset({_S.BOUND, _S.RETRYING, _S.COMMITTED, _S.FAILED, _S.WAITING}),
    _S.BOUND: frozenset({_S.QUEUED, _S.RETRYING, _S.COMMITTED, _S.FAILED, _S.WAITING}),
    _S.RETRYING: frozenset({_S.QUEUED, _S.BOUND, _S.COMMITTED, _S.WAITING}),
    _S.COMMITTED: frozenset({_S.WAITING}),
    _S.FAILED: frozenset({_S.COMMITTED}),
}
"""Which states may follow which; nothing else ever happens to a task."""

OPEN = frozenset({_S.STAGING, _S.QUEUED, _S.BOUND, _S.RETRYING})
"""While a task is in one of these, its run is not over."""


class Tasks:
    """The state of every task of a graph, and what is counted of it."""

    def __init__(self, graph: Graph) -> None:
        self.state: list[State] = []
        self.missing_parents: list[int] = []
        self.attempt: list[int] = []
        """The number of the newest attempt."""
        self.failures: list[int] = []
        self.refusals: list[int] = []
        self.lacks: list[int] = []
        """How often a target could not get its inputs."""
        self.losses: list[int] = []
        self.open = 0
        """How many are in a state of OPEN."""
        self.failed = 0
        self.grow(graph)

    def grow(self, graph: Graph) -> None:
        """The graph has these tasks now; those that are new wait for their parents."""
        new = range(len(self.state), len(graph))
        for task in new:
            parents = graph.parents[task]
            waits = [p for p in parents if p >= new.start or self.state[p] is not _S.COMMITTED]
            self.missing_parents.append(len(waits))
        self.state.extend([_S.WAITING] * len(new))
        for counts in (self.attempt, self.failures, self.refusals, self.lacks, self.losses):
            counts.extend([0] * len(new))

    def move(self, task: int, state: State) -> None:
        before = self.state[task]
        if state is before:
            return
        assert state in FOLLOWS[before], f"{state.name} does not follow {before.name}"
        self.open += (state in OPEN) - (before in OPEN)
        self.failed += (state is _S.FAILED) - (before is _S.FAILED)
        self.state[task] = state

    def all_committed(self) -> bool:
        return all(state is _S.COMMITTED for state in self.state)
