"""Questions that only a world can answer: to a program of the user's, and of her earlier runs.

What decides does no I/O; a program that has a say in it is therefore asked by the world, in a
process of its own, and the answer is an event like any other.
"""

from __future__ import annotations

from sureline.journal.control import Sending
from sureline.world.protocol import Fetched, Wanted


class ProgramAsked(Wanted, frozen=True):
    """Run the program with `text` on its standard input, for `limit_s` at most."""

    program: str
    text: str
    limit_s: float


class ProgramSaid(Fetched, frozen=True):
    """What it printed; or `trouble`, in one sentence, if it did not end well and in time."""

    text: str = ""
    trouble: str = ""


class SentEarlier(Wanted, frozen=True):
    """What so many earlier runs of the same directory, the newest ones, have sent where."""

    runs: int


class SentFound(Fetched, frozen=True):
    """The oldest first; times are seconds since the epoch."""

    rows: tuple[Sending, ...] = ()
