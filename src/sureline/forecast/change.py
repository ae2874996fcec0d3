"""A change to a run that has not been made: what a forecast is asked about before it is."""

from __future__ import annotations

from typing import Literal

import msgspec

from sureline.workflow.model import Takes


class Change(msgspec.Struct, frozen=True):
    """What if, from now on, this were otherwise.

    duplicate: the task also runs as a fresh copy, which may start after `delay_s` and needs room
    like any other; whichever of them ends first counts, and the other one is ended.
    replace: a running attempt is forgotten and the task starts anew; a task that has not started
    is done on other terms. `delay_s` is when it may start.
    """

    task: int
    how: Literal["duplicate", "replace"]
    takes: Takes | None = None
    """What is promised for it; None for what is known of the task itself."""
    speed: float = 1.0
    """How fast the machine is that does it; without `takes`."""
    delay_s: float = 0.0
