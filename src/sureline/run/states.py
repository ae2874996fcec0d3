"""The states of a task in a run; `submitter` has the picture of how they follow each other."""

from __future__ import annotations

from enum import IntEnum


class State(IntEnum):
    WAITING = 0
    STAGING = 1
    QUEUED = 2
    BOUND = 3
    RETRYING = 4
    COMMITTED = 5
    FAILED = 6


OPEN = frozenset({State.STAGING, State.QUEUED, State.BOUND, State.RETRYING})
"""While a task is in one of these, its run is not over."""
