"""How long a process has been awake: time, but for what it was late with what was due.

A process that is short of CPU, or was stopped, finds its timers due and the answers of others still
unread. By the clock they are overdue; by the time in which it could have heard them they are not.
Who concludes something from silence counts by this time, so that nobody is blamed for a slowness
that is here, and nothing is asked again that is about to be answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

SLACK_S = 0.05
"""A timer that comes later than this was kept waiting by more than the usual turn of a loop."""
BEFORE_S = 0.5
"""What kept a timer waiting began before it was due, by up to as long as it waited then; so much of
that is counted at most."""
COUNTED = 0.25
"""Of each delay, of its first second, this share counts as awake all the same: one who is always
late must come to an end with those who are really gone, four times later."""
REMEMBERED_S = 10.0
"""So long a delay counts as one of late."""
SLICE_S = 1.0
"""Of one long delay, a wait loses no more than this."""


class AwakeTime:
    """Call it for the time; `time_s` is a clock that never jumps."""

    def __init__(self, time_s: Callable[[], float]) -> None:
        self._time_s = time_s
        self._lost_s = 0.0
        self._seen_s = time_s()
        """Then it was awake: two timers that waited for the same are one delay."""
        self._late_s, self._late_at_s = 0.0, self._seen_s

    def __call__(self) -> float:
        return self._time_s() - self._lost_s

    def fired(self, due_s: float) -> None:
        """Something that was due then begins now."""
        now_s = self._time_s()
        late_s = now_s - due_s
        if late_s > SLACK_S:
            self._late_s, self._late_at_s = max(self.lag_s, late_s), now_s
            since_s = max(due_s - min(late_s, BEFORE_S), self._seen_s)
            gap_s = max(0.0, now_s - since_s)
            self._lost_s += gap_s - COUNTED * min(gap_s, 1.0)
        self._seen_s = now_s

    @property
    def lag_s(self) -> float:
        """How late it was of late; 0 when all is well."""
        since_s = self._time_s() - self._late_at_s
        return self._late_s * max(0.0, 1.0 - since_s / REMEMBERED_S)

    async def within(self, seconds: float, work: Awaitable[T]) -> T:
        """What comes of the work while this process is awake for so many seconds; else it is
        cancelled. Raises TimeoutError."""
        future = asyncio.ensure_future(work)
        until_s = self() + seconds
        try:
            while not future.done() and (left_s := until_s - self()) > 0:
                due_s = self._time_s() + min(left_s, SLICE_S)
                await asyncio.wait([future], timeout=min(left_s, SLICE_S))
                if not future.done():
                    self.fired(due_s)
            if not future.done():
                raise TimeoutError
            return future.result()
        finally:
            future.cancel()
