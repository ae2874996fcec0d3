"""Small agents and shortcuts for tests of the simulated world."""

from __future__ import annotations

from collections.abc import Callable

from sureline.world.agent import Agent, handles
from sureline.world.protocol import Message, Recordable, Unreachable
from sureline.world.simulated import Constant, Link, Network, Simulation


class Note(Message, frozen=True, tag="lab.note"):
    number: int
    text: str = ""


class Mark(Recordable, frozen=True, tag="mark"):
    number: int


class Ear(Agent):
    """Keeps what it hears with the true time, and may do something about it."""

    def __init__(self, me, world, sim):
        super().__init__(me, world)
        self.sim = sim
        self.heard: list[tuple[float, str, int]] = []
        self.gone: list[tuple[float, str]] = []
        self.on_note: Callable[[int], None] = lambda number: None

    @handles(Note)
    def note(self, sender, message):
        self.heard.append((self.sim.time, sender, message.number))
        self.on_note(message.number)

    @handles(Unreachable)
    def unreachable(self, sender, message):
        self.gone.append((self.sim.time, message.node))

    @property
    def numbers(self):
        return [number for _, _, number in self.heard]

    @property
    def times(self):
        return [time for time, _, _ in self.heard]


def ear(sim: Simulation, me: str) -> Ear:
    agent = Ear(me, sim.place(me), sim)
    sim.join(agent)
    return agent


def constant(seconds: float = 0.01, **options) -> Network:
    return Network(Link(Constant(seconds), **options))
