"""What a user asks of a run: done by when, for how much, and how surely."""

from __future__ import annotations

import msgspec

SURETY_WANTED = 0.9
"""Where a deadline is given and no surety."""


class Terms(msgspec.Struct, frozen=True, omit_defaults=True):
    """Any of the three may be left out; a surety without a deadline says nothing."""

    deadline_at: float | None = None
    """Seconds since the epoch."""
    budget: float | None = None
    """Money, in whatever the providers count in; None is no limit, 0 is free peers only."""
    surety: float = SURETY_WANTED
    """The least chance of being done by the deadline that is good enough, in 0..1."""

    @property
    def any(self) -> bool:
        return self.deadline_at is not None or self.budget is not None
