"""How many pilots to ask for now: pressure between a floor and a ceiling, and a stop to it.

The first submission is of one pilot, as a test; only when the engine has taken it the others
follow. What fails is tried again after pauses that double. Ten failed submissions in a row, three
pilots in a row that ended before they served, a submission that can never succeed, or pilots that
fit nowhere pause it: then it asks for nothing more, and says why. Pure: time is an argument.
"""

from __future__ import annotations

SUBMISSIONS_FAILED_MAX = 10
STARTS_FAILED_MAX = 3
PAUSE_S_FIRST, PAUSE_S_MAX = 2.0, 300.0


class PilotFactory:
    """`paused` is why it asks for nothing more; '' while it may."""

    def __init__(self, floor: int, ceiling: int) -> None:
        if not 0 <= floor <= ceiling:
            raise ValueError(f"a floor of {floor} and a ceiling of {ceiling}")
        self._floor = floor
        self._ceiling = ceiling
        self._is_tested = False
        self._submissions_failed = 0
        self._starts_failed = 0
        self._not_before = 0.0
        self.paused = ""

    def to_submit(self, now: float, wanted: int, there: int) -> int:
        """How many to ask for, if so many would be of use, and so many wait or run already."""
        if self.paused or now < self._not_before:
            return 0
        missing = max(0, min(max(wanted, self._floor), self._ceiling) - there)
        return missing if self._is_tested else min(1, missing)

    def submitted(self) -> None:
        self._is_tested = True
        self._submissions_failed = 0

    def refused(self, now: float, why: str, *, again: bool) -> None:
        """The engine did not take a submission; `again`: it may later."""
        self._submissions_failed += 1
        self._back_off(now, self._submissions_failed)
        if not again:
            self.paused = f"no pilot can be started: {why}"
        elif self._submissions_failed >= SUBMISSIONS_FAILED_MAX:
            self.paused = f"{self._submissions_failed} submissions failed, the last: {why}"

    def began(self) -> None:
        """A pilot serves."""
        self._starts_failed = 0

    def start_failed(self, now: float, why: str) -> None:
        """A pilot ended before it served."""
        self._starts_failed += 1
        self._back_off(now, self._starts_failed)
        if self._starts_failed >= STARTS_FAILED_MAX:
            self.paused = f"{self._starts_failed} pilots ended before they served, the last: {why}"

    def fits_nowhere(self, why: str) -> None:
        self.paused = f"the pilots that are asked for fit nowhere: {why}"

    def _back_off(self, now: float, failures: int) -> None:
        self._not_before = now + min(PAUSE_S_MAX, PAUSE_S_FIRST * 2 ** (failures - 1))
