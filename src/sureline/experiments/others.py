"""Other people's jobs at a simulated site: how many of its processors are free changes with time.

What a site's batch queue is like for one user: the others use a share of its processors, drawn anew
now and then; what does not fit beside them waits. Jobs that run are never stopped for others.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sureline.experiments.distributions import Distribution, constant
from sureline.peer.admitting import Admitting, Machine, Waiting
from sureline.run.port import Deciding, Place, Seat, Strategy
from sureline.world.protocol import World


class OthersJobs(msgspec.Struct, frozen=True):
    """`share` of the processors is in use, for as long as `every_s` says, and then another."""

    share: Distribution = constant(0.0)
    every_s: Distribution = constant(600.0)

    @property
    def any(self) -> bool:
        return self.share != constant(0.0)

    def half(self) -> Strategy:
        """As the half of a strategy on a machine; it has no other."""
        return Strategy(name="others", summary="", deciding=_nobody, machine=self._on)

    def _on(self, machine: Machine, place: Place, settings: object) -> Admitting:
        return _SharedQueue(machine, place("others"), self)


class _SharedQueue(Admitting):
    def __init__(self, machine: Machine, world: World, jobs: OthersJobs) -> None:
        self._machine = machine
        self._world = world
        self._jobs = jobs
        self._in_use = 0.0

    def start(self) -> None:
        self._draw()

    def _draw(self) -> None:
        self._in_use = self._jobs.share.draw(self._world.random) * self._machine.capacity.cores
        self._machine.look_again()
        self._world.after(max(1.0, self._jobs.every_s.draw(self._world.random)), self._draw)

    def order(self, waiting: Sequence[Waiting], now: float) -> Sequence[int]:
        """First come, first served, with what the others leave."""
        free = self._machine.ledger.millicores / 1000 - self._in_use
        allowed = []
        for number, one in enumerate(waiting):
            free -= one.bind.needs.cores
            if free < 0:
                break
            allowed.append(number)
        return allowed


def _nobody(seat: Seat) -> Deciding:
    raise AssertionError("the jobs of others are driven elsewhere")
