"""Copies of runs that a simulated machine keeps for others, on a disk that may be slow or full.

They outlive its processes, and a power cut: every change waits for the platter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sureline.run.keeping import NumberedEvent, Position
from sureline.run.kept import Done, KeptInMemory, Sealed, Term
from sureline.world.address import Node
from sureline.world.simulated.simulation import Simulation

FULL = "there is no room left on its disk"


class KeptOnDisk(KeptInMemory):
    def __init__(self, sim: Simulation, node: Node) -> None:
        super().__init__()
        self._sim = sim
        self._node = node

    def open(self, run: str, term: Term, base: Position, done: Done) -> None:
        self._aside(partial(super().open, run, term, base), done)

    def promise(self, run: str, term: Term, done: Done) -> None:
        self._aside(partial(super().promise, run, term), done)

    def keep_graph(self, run: str, graph: bytes, done: Done) -> None:
        self._aside(partial(super().keep_graph, run, graph), done)

    def add(self, run: str, events: Sequence[NumberedEvent], sealed: Sealed, done: Done) -> None:
        self._aside(partial(super().add, run, events, sealed), done)

    def _aside(self, change: Callable[[Done], None], done: Done) -> None:
        """Do it as soon as the disk can; if that is full, it is not done."""
        machine = self._sim.machine(self._node)
        assert machine.life is not None, "only a machine that is up is asked to keep anything"
        machine.life.after(
            machine.spec.sync_s * machine.disk.slowness,
            lambda: done(FULL) if machine.disk.full else change(done),
        )

    def copies(self) -> dict[str, list[NumberedEvent]]:
        """All that is kept, by run."""
        return {run: self.events(run) for run in self._batches}
