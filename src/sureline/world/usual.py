"""How long something takes lately: who waits for an answer before it does something costly learns
how long answers take, so that what is slow today is not made slower by asking others as well.
"""

from __future__ import annotations

MOST_S = 10.0
"""Nobody waits longer before something else is tried beside it."""


class Usual:
    """The mean and how far off that is, as TCP has it for round trips."""

    def __init__(self) -> None:
        self.mean_s = self._off_s = 0.0

    def took(self, seconds: float) -> None:
        if self.mean_s:
            self._off_s += (abs(seconds - self.mean_s) - self._off_s) / 4
            self.mean_s += (seconds - self.mean_s) / 8
        else:
            self.mean_s, self._off_s = seconds, seconds / 2

    def within_s(self, least_s: float) -> float:
        """Within this time it is nearly always over, if it ends at all."""
        return max(least_s, min(MOST_S, self.mean_s + 4 * self._off_s))
