"""A machine's slots, shared by what runs on them.

Work is measured in seconds of one slot of an idle reference machine, and asks for a number of
cores. While the cores asked for do not exceed the slots, everything proceeds at the machine's
speed; beyond that, all of it slows down alike. A frozen machine does nothing.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sureline.world.protocol import Action, Timer

if TYPE_CHECKING:
    from sureline.world.simulated.machine import SimulatedMachine


class SlotWork:
    """Something under way on a machine's slots."""

    __slots__ = ("_timer", "action", "cores", "left_s", "processor")

    def __init__(self, processor: Processor, seconds: float, cores: float, action: Action) -> None:
        self.processor = processor
        self.left_s = seconds
        """Reference seconds still to do, as of the processor's last change."""
        self.cores = cores
        self.action = action
        self._timer: Timer | None = None

    def cancel(self) -> None:
        """It stops, and its action never runs. Idempotent."""
        self.processor.remove(self)


class Processor:
    """All the work of one life of a machine."""

    def __init__(self, machine: SimulatedMachine) -> None:
        self._machine = machine
        self._works: list[SlotWork] = []
        self._rate = 0.0
        self._since_s = 0.0

    def work(self, seconds: float, action: Action, *, cores: float = 1.0) -> SlotWork:
        """Run the action when so many reference seconds of work are done."""
        made = SlotWork(self, max(0.0, seconds), cores, action)
        self._settle()
        self._works.append(made)
        self._proceed()
        return made

    def remove(self, work: SlotWork) -> None:
        if work in self._works:
            self._settle()
            self._forget(work)
            self._proceed()

    def changed(self) -> None:
        """The machine's speed has changed."""
        self._settle()
        self._proceed()

    def abandon(self) -> None:
        """The machine has gone down: nothing ever ends."""
        for work in self._works:
            if work._timer is not None:
                work._timer.cancel()
        self._works = []

    def left_s(self, work: SlotWork) -> float:
        """Reference seconds that it has still to do."""
        self._settle()
        return work.left_s

    def _settle(self) -> None:
        now_s = self._machine.sim.time
        done_s = (now_s - self._since_s) * self._rate
        self._since_s = now_s
        for work in self._works:
            work.left_s = max(0.0, work.left_s - done_s)

    def _proceed(self) -> None:
        """Everything goes on at the rate that is right from now on."""
        machine = self._machine
        asked = sum(work.cores for work in self._works)
        self._rate = machine.speed * min(1.0, machine.spec.slots / asked if asked else 1.0)
        life = machine.life
        for work in self._works:
            if work._timer is not None:
                work._timer.cancel()
                work._timer = None
            if self._rate > 0 and life is not None:
                due_s = machine.sim.time + work.left_s / self._rate
                work._timer = machine.sim.schedule(due_s, None, partial(self._end, work))

    def _end(self, work: SlotWork) -> None:
        self._settle()
        self._forget(work)
        self._proceed()
        life = self._machine.life
        if life is not None:
            life.post(work.action)

    def _forget(self, work: SlotWork) -> None:
        self._works.remove(work)
        if work._timer is not None:
            work._timer.cancel()
            work._timer = None
