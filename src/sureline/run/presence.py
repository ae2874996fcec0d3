"""Whether somebody drives a run just now, and who: asked by those who look at it from elsewhere."""

from __future__ import annotations

from typing import ClassVar

from sureline.world.agent import Agent, handles
from sureline.world.protocol import WRITES, AgentId, Message, World


class DriverAsk(Message, frozen=True, tag="run.driver_ask"):
    """Do you drive this run? Answered by DriverHere, or by nobody."""

    needs_role: ClassVar[str] = WRITES

    serial: int
    run: str


class DriverHere(Message, frozen=True, tag="run.driver_here"):
    serial: int
    run: str
    epoch: int
    pid: int


MESSAGES = (DriverAsk, DriverHere)


def part(run: str) -> str:
    """The part of a node that answers for the run driven there."""
    return f"driver.{run}"


class Presence(Agent):
    """Answers while the run is driven here."""

    def __init__(self, me: AgentId, world: World, run: str, epoch: int, pid: int) -> None:
        super().__init__(me, world)
        self._run = run
        self._epoch = epoch
        self._pid = pid

    @handles(DriverAsk)
    def on_ask(self, sender: AgentId, message: DriverAsk) -> None:
        if message.run == self._run:
            here = DriverHere(message.serial, self._run, self._epoch, self._pid)
            self.world.send(sender, here)
