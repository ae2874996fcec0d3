"""The search for the nearest deadline, with bookings of our own making."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from toy_world import ToyWorld

from sureline.strategies.peercomp.nearest import NearestDeadline
from sureline.strategies.peercomp.owner import Booked


class Booking(NamedTuple):
    deadline_s: float

    def roll_back(self) -> None:
        """Nobody else wants the time."""


@pytest.mark.parametrize(("end_s", "kept"), [(95.0, True), (130.0, False)])
def test_what_is_promised_by_the_deadline_keeps_it_whatever_was_asked_for(end_s, kept):
    """By the deadline nothing was found, but a search for later found what is done before it."""
    world = ToyWorld()
    begin_s = world.now()
    told = []

    def book(by_s, on_done):
        found = by_s - begin_s > 100.5
        booked = Booked("" if found else "full", 0.0, begin_s + end_s, end_s, 1, 0, 1, 1, 1)
        on_done(Booking(by_s), booked)

    search = NearestDeadline(
        world,
        book,
        [50.0, 100.0],
        begin_s + 100.0,
        lambda booking, booked, in_time: told.append(in_time),
        pause_s=0.0,
    )
    search.begin()
    world.run()
    assert told == [kept]
