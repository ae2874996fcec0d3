"""The nearest deadline by which all can be reserved: the wanted one, or a later one that does.

A booking either gets time for all, or for nothing, so every step of the search is one booking;
what was reserved on the way is rolled back, but for the last.
"""

from __future__ import annotations

from collections.abc import Callable

from sureline.strategies.peercomp.owner import Booked, Booking
from sureline.world.protocol import World

GROWTH = 1.4
ROUNDS_MAX = 20
"""So the last one tried is about a thousand times as far away."""
HALVINGS = 3
LEAST = 1.05
"""Without a deadline, the first one tried is so many times as far away as the longest chain."""

OnDone = Callable[[Booking, Booked], None]
Book = Callable[[float, bool, OnDone], None]
Found = Callable[[Booking | None, Booked, bool], None]


class Nearest:
    """`book` tries to reserve by a time, or afresh; `found` hears the booking, why the wanted
    deadline did not do (in `Booked.reason`), and whether it did."""

    def __init__(
        self, world: World, book: Book, least_s: float, wanted_s: float | None, found: Found
    ) -> None:
        self._world = world
        self._book = book
        self._found = found
        self._wanted_s = wanted_s
        self._least_s = least_s
        self._why = ""
        self._rounds = self._halvings = 0
        self._afresh = False
        self._low_s = self._high_s = 0.0
        self._best: tuple[Booking, Booked] | None = None

    def begin(self) -> None:
        now_s = self._world.now()
        self._begin_s = now_s
        self._low_s = self._wanted_s or now_s + LEAST * self._least_s + 1.0
        self._try(self._low_s)

    def _try(self, by_s: float) -> None:
        self._by_s = by_s
        self._book(by_s, self._afresh, self._done)

    def _done(self, booking: Booking, booked: Booked) -> None:
        if not booked.reason:
            self._had(booking, booked)
        elif self._best is not None:
            self._low_s = self._by_s
            self._halve()
        else:
            self._why = self._why or booked.reason
            self._had_not(booked)

    def _had_not(self, booked: Booked) -> None:
        if not self._afresh:
            # What stays may be in the way: the same again, with all that has not begun.
            self._afresh = True
            self._try(self._by_s)
            return
        self._rounds += 1
        if self._rounds > ROUNDS_MAX:
            self._found(None, booked, False)
            return
        self._low_s = self._by_s
        ahead_s = max(self._by_s - self._begin_s, self._least_s, 1.0)
        self._try(self._begin_s + GROWTH * ahead_s)

    def _had(self, booking: Booking, booked: Booked) -> None:
        if not self._rounds:
            self._found(booking, booked, True)
        elif self._wanted_s is None:
            self._found(booking, booked._replace(reason=self._why), False)
        else:
            if self._best is not None:
                self._best[0].roll_back()
            self._best = (booking, booked)
            self._high_s = booked.end_s
            self._halve()

    def _halve(self) -> None:
        """Between one that does not do and one that does."""
        self._halvings += 1
        assert self._best is not None
        if self._halvings > HALVINGS or self._high_s <= self._low_s + 1.0:
            booking, booked = self._best
            self._found(booking, booked._replace(reason=self._why), False)
            return
        self._try((self._low_s + self._high_s) / 2)
