"""Copies of runs that a simulated machine keeps for others, on a disk that may be slow or full.

They outlive its processes. What was appended last goes with the power, as on a real machine: only
the opening of a term waits for the platter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from sureline.run.keeper import Done, KeptInMemory, Sealed, Term
from sureline.run.keeping import NumberedEvent, Position
from sureline.world.address import Node
from sureline.world.simulated.simulation import Simulation

UNSYNCED_S = 2.0
"""What was appended so shortly before a crash is lost."""
FULL = "there is no room left on its disk"


class KeptOnDisk(KeptInMemory):
    def __init__(self, sim: Simulation, node: Node) -> None:
        super().__init__()
        self._sim = sim
        self._node = node
        self._appended: dict[str, list[tuple[float, Position]]] = {}
        """By run: when something was appended lately, and the last position before it."""

    def open(self, run: str, term: Term, base: Position, done: Done) -> None:
        self._aside(partial(super().open, run, term, base), done)

    def keep_graph(self, run: str, graph: bytes, done: Done) -> None:
        self._aside(partial(super().keep_graph, run, graph), done)

    def add(self, run: str, events: Sequence[NumberedEvent], sealed: Sealed, done: Done) -> None:
        append = super().add

        def work(done: Done) -> None:
            now_s = self._sim.time
            fresh = [one for one in self._appended.get(run, []) if one[0] > now_s - UNSYNCED_S]
            self._appended[run] = [*fresh, (now_s, self._states[run].position)]
            append(run, events, sealed, done)

        self._aside(work, done)

    def _aside(self, change: Callable[[Done], None], done: Done) -> None:
        """Do it as soon as the disk can; if that is full, it is not done."""
        machine = self._sim.machine(self._node)
        assert machine.life is not None, "only a machine that is up is asked to keep anything"
        machine.life.after(
            machine.spec.sync_s * machine.disk.slowness,
            lambda: done(FULL) if machine.disk.full else change(done),
        )

    def power_lost(self) -> None:
        for run, appended in self._appended.items():
            lost = [last for at_s, last in appended if at_s > self._sim.time - UNSYNCED_S]
            if lost:
                self._cut(run, lost[0])
        self._appended.clear()

    def copies(self) -> dict[str, list[NumberedEvent]]:
        """All that is kept, by run."""
        return {run: self.events(run) for run in self._batches}
