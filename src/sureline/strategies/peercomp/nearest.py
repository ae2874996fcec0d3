"""The nearest time by which all can be reserved.

Who is done early has time left when something goes wrong. So the first try is for little more than
the longest chain takes, then for more, up to the deadline. If that does not do either, later ones
are tried, to know which would. A booking gets time for all tasks or for none: every step of this
search is one booking, and what was reserved on the way is rolled back, but for the last.
"""

from __future__ import annotations

from collections.abc import Callable

from sureline.strategies.peercomp.owner import Booked, Booking
from sureline.world.protocol import World

GROWTH = 1.5
EARLY_MAX = 3
"""Times that are tried before the deadline..."""
EARLY_SHARE = 0.05
"""...as long as the pauses between them take no more than this share of the time that is left."""
LATE_MAX = 12
"""And after it: the last is about a hundred times as far away."""
PAUSE_S = 1.5
"""Between two tries: what the first one gave back must be known first."""
HALVINGS = 3
GRAIN_S = 1e-3
LEAST = 1.1
"""The first time tried is so many times as far away as the longest chain takes."""

OnDone = Callable[[Booking, Booked], None]
Book = Callable[[float, OnDone], None]
Found = Callable[[Booking | None, Booked, bool], None]


class NearestDeadline:
    """`book` tries to reserve by a time: by each of `aheads_s` from now, the last of which is the
    deadline if there is one. `found` hears of the booking, and whether it keeps the deadline;
    if not, why the deadline did not do (in `Booked.reason`). `late` is how many later times are
    tried, none before `least_s` from now."""

    def __init__(
        self,
        world: World,
        book: Book,
        aheads_s: list[float],
        deadline_s: float | None,
        found: Found,
        *,
        late: int = LATE_MAX,
        least_s: float = 1.0,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._world = world
        self._pause_s = pause_s
        self._book = book
        self._found = found
        self._late = late
        self._least_s = least_s
        self._begin_s = world.now()
        self._deadline_s = deadline_s
        self._aheads_s = aheads_s
        self._why = ""
        self._halvings = 0
        self._low_s = self._high_s = 0.0
        """Of the times from now on, one that does not do and one that does."""
        self._best: tuple[Booking, Booked] | None = None

    def begin(self) -> None:
        self._ahead_s = self._aheads_s.pop(0)
        self._book(self._begin_s + self._ahead_s, self._done)

    def _done(self, booking: Booking, booked: Booked) -> None:
        if booked.reason:
            self._low_s = self._ahead_s
            if self._best is not None:
                self._halve()
            else:
                self._why = booked.reason if not self._why or self._aheads_s else self._why
                self._further(booked)
        elif self._deadline_s is None or booked.end_s <= self._deadline_s + GRAIN_S:
            self._found(booking, booked, True)
        else:
            if self._best is not None:
                self._best[0].roll_back()
            self._best = (booking, booked)
            self._high_s = booked.end_s - self._begin_s
            self._halve()

    def _further(self, booked: Booked) -> None:
        if not self._aheads_s and self._late > 0:
            self._late -= 1
            self._aheads_s.append(max(self._least_s, GROWTH * self._ahead_s))
        if self._aheads_s:
            self._world.after(self._pause_s, self.begin)
        else:
            self._found(None, booked, False)

    def _halve(self) -> None:
        """Between one that does not do and one that does."""
        self._halvings += 1
        if self._halvings <= HALVINGS and self._high_s > self._low_s + 1.0:
            self._aheads_s = [(self._low_s + self._high_s) / 2]
            self._world.after(self._pause_s, self.begin)
            return
        assert self._best is not None
        booking, booked = self._best
        self._found(booking, booked._replace(reason=self._why), False)


def early_tries(last_s: float, pause_s: float) -> int:
    """How many times before a deadline are worth trying."""
    return min(EARLY_MAX, int(EARLY_SHARE * last_s / pause_s)) if pause_s else EARLY_MAX


def aheads_of(least_s: float, last_s: float | None, steps: int = EARLY_MAX) -> list[float]:
    """Ever longer times, if the longest chain takes `least_s`; the last is the deadline."""
    first_s = max(1.0, LEAST * least_s)
    if last_s is None:
        return [first_s]
    if first_s >= last_s or not steps:
        return [last_s]
    growth = max(GROWTH, (last_s / first_s) ** (1 / steps))
    found = [first_s]
    while found[-1] * growth < last_s * 0.99:
        found.append(found[-1] * growth)
    return [*found, last_s]
