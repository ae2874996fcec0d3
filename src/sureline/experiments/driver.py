"""The processes that drive a simulated run: who submits it, and who takes it over.

What outlives a process is the journal on its machine's disk. Each life of the machine boots anew:
the process reads the journal, opens it under the next epoch, and goes on. At other machines there
may be *standbys*: people who look after the run through the copies that its keepers have, and take
it over when nobody seems to drive it. They may be wrong: it is enough that nobody answers them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import fsum
from random import Random
from typing import NamedTuple

import msgspec

from sureline.assembly.node import GridNode
from sureline.experiments.distributions import Distribution
from sureline.experiments.machine_journal import entries, epoch_of, past_of, write_now
from sureline.experiments.outcome import RunResult
from sureline.journal.events import (
    AnyEvent,
    Noted,
    Opened,
    RunEnded,
    Submitted,
    decode,
    with_growth,
)
from sureline.journal.export import export_entries
from sureline.journal.store import Entry
from sureline.journal.views import RunView
from sureline.run.copies import Copy, CopyReader, RunCopy, next_epoch
from sureline.run.keeping import NumberedEvent
from sureline.run.options import Options, Past
from sureline.run.port import Deciding, Seat
from sureline.run.presence import DriverHere
from sureline.workflow.model import Graph
from sureline.world.address import NO_NODE, Node
from sureline.world.simulated.disk import Disk
from sureline.world.simulated.simulation import Simulation

MISSES = 2
"""So often in a row a standby finds nobody before it takes the run over."""
LINGER_S = 30.0
"""After its end, a run with standbys goes on for so long: others may still think that they drive
it."""


class Sitting(NamedTuple):
    """One process's work on a run."""

    node: Node
    run: str
    graph: Graph
    options: Options
    epoch: int
    past: Past
    on_end: Callable[[RunEnded], None]
    on_fenced: Callable[[str], None]
    deciding: Callable[[Seat], Deciding] | None = None
    met: GridNode | None = None
    """Its node, if that has met the grid already."""


Drive = Callable[[Sitting], None]
"""Makes and joins the agents that drive a run."""
Visit = Callable[[Node, Callable[[GridNode, CopyReader], None]], None]
"""Makes a machine's process a guest of the grid that can read copies; calls back when it has met
the grid."""


class Driver:
    """One run, over all processes that drive it. `node` is the machine on which it is submitted."""

    def __init__(
        self,
        sim: Simulation,
        node: Node,
        run: str,
        graph: Graph,
        drive: Drive,
        options: Options,
        deciding: Callable[[Seat], Deciding] | None = None,
    ) -> None:
        self.sim = sim
        self.node = node
        self.run = run
        self.graph = graph
        self.options = options
        self.deciding = deciding
        """In place of the strategy that the options name, to compare it with."""
        self._drive = drive
        self._visit: Visit | None = None
        self._look_s: Distribution | None = None
        self.machines = [node]
        """All on which the run is or may be driven."""
        self._fenced: set[Node] = set()
        """Machines whose last process heard that another has taken the run over."""
        self.submitted_s = 0.0
        self.ended_s: float | None = None
        self.ended_on = node
        self.problems: list[str] = []
        """What must not happen to a driver."""

    def look_after(self, standbys: Sequence[Node], visit: Visit, look_s: Distribution) -> None:
        """Have people at these machines, too, see to it that the run is driven."""
        self.machines += standbys
        self._visit, self._look_s = visit, look_s

    def boot(self, node: Node = NO_NODE) -> None:
        """A process starts on one of its machines: it submits the run, goes on with it, or, with
        nothing of it on the disk, looks after it."""
        node = node or self.node
        if self._is_ended(node):
            self._end(node)
        elif node in self._fenced or (node != self.node and not self.events(node)):
            self._look_after_from(node)
        else:
            self._sit_down(node)

    def _is_ended(self, node: Node) -> bool:
        return any(isinstance(event, RunEnded) for event in self.events(node)[-1:])

    def _sit_down(
        self, node: Node, graph: Graph | None = None, met: GridNode | None = None
    ) -> None:
        machine = self.sim.machine(node)
        found = self.events(node)
        if not found:
            self.submitted_s = self.sim.time
            write_now(machine.disk, self._submitted(machine.clock()))
        epoch = next_epoch(epoch_of(found), self.sim.random.randrange)
        write_now(machine.disk, Opened(machine.clock(), epoch, node, epoch))
        self._fenced.discard(node)
        sitting = Sitting(
            node,
            self.run,
            graph or self.graph,
            self.options,
            epoch,
            past_of(found),
            lambda ended: self._end(node),
            partial(self._taken_over, node),
            self.deciding,
            met,
        )
        self._drive(sitting)

    def _submitted(self, at: float) -> Submitted:
        options = msgspec.to_builtins(self.options)
        graph = self.graph
        return Submitted(at, self.run, graph.name, len(graph), graph.source, {}, options)

    def _end(self, node: Node) -> None:
        if self.ended_s is None:
            self.ended_s, self.ended_on = self.sim.time, node

    def _taken_over(self, node: Node, reason: str) -> None:
        if self._visit is None:
            self.problems.append(reason)
            return
        self._fenced.add(node)
        life = self.sim.machine(node).life

        def start_again() -> None:
            if self.sim.machine(node).life is life:
                self.sim.kill(node)
                self.sim.restart(node)

        self.sim.at(self.sim.time, start_again)  # its process ends, and somebody looks on

    # -- looking after it ----------------------------------------------------------------------

    def _look_after_from(self, node: Node) -> None:
        if self._visit is not None:
            self._visit(node, lambda met, reader: _Standby(self, node, met, reader).later())

    def next_look_s(self, random: Random) -> float:
        assert self._look_s is not None
        return self._look_s.draw(random)

    def take_over(self, node: Node, copy: Sequence[Entry], graph: Graph, met: GridNode) -> None:
        """Go on from what keepers had; what the machine itself had of the run is of an old line."""
        self.sim.machine(node).disk.replace([entry.event for entry in copy])
        self._sit_down(node, graph, met)

    # -- what came of it -----------------------------------------------------------------------

    @property
    def over(self) -> bool:
        if self.ended_s is None:
            return False
        return self._visit is None or self.sim.time >= self.ended_s + LINGER_S

    def disk(self, node: Node) -> Disk:
        return self.sim.machine(node).disk

    def events(self, node: Node = NO_NODE) -> list[AnyEvent]:
        return [entry.event for entry in self.entries(node)]

    def entries(self, node: Node = NO_NODE) -> list[Entry]:
        return entries(self.disk(node or self.ended_on))

    def lines(self) -> tuple[str, ...]:
        """The run as canonical JSON lines."""
        return tuple(export_entries(self.run, self.graph.to_bytes(), self.entries()))

    def result(self) -> RunResult:
        events = self.events()
        view = RunView.of(events, [task.name for task in self.graph.tasks])
        end_s = self.sim.time if self.ended_s is None else self.ended_s
        return RunResult(
            self.run,
            view.state(alive=True),
            view.counts,
            round(end_s - self.submitted_s, 6),
            sum(isinstance(event, Opened) for event in events),
            view.reason,
            round(fsum(event.paid for event in events if isinstance(event, Noted)), 6),
            self._on_time(),
        )

    def _on_time(self) -> bool | None:
        """By the true time, whatever its machine's clock says."""
        deadline_at = self.options.deadline_at
        if deadline_at is None:
            return None
        return self.ended_s is not None and self.sim.epoch_s + self.ended_s <= deadline_at


class _Standby:
    """Somebody at a machine who looks at the run now and then, in one life of that machine."""

    def __init__(self, driver: Driver, node: Node, met: GridNode, reader: CopyReader) -> None:
        self._driver = driver
        self._node = node
        self._met = met
        self._reader = reader
        self._random = Random(f"{driver.sim.seed}/{node}/{driver.sim.time}")
        self._misses = 0
        self._copy: RunCopy
        self._read: list[Entry] = []

    def later(self) -> None:
        if not self._driver.over:
            self._reader.world.after(self._driver.next_look_s(self._random), self._look)

    def _look(self) -> None:
        self._reader.find(self._driver.run, self._found)

    def _found(self, copies: list[Copy]) -> None:
        of_it = [copy for copy in copies if copy.about.run == self._driver.run]
        if not of_it:
            self.later()
            return
        self._read.clear()
        self._copy = RunCopy(of_it, self._take, self._read.clear)
        self._reader.read(self._copy, self._has_read)

    def _take(self, graph: bytes, events: Sequence[NumberedEvent]) -> None:
        self._read += [Entry(position, decode(body)) for position, body in events]

    def _has_read(self, whole: bool) -> None:
        if not whole or not self._read or isinstance(self._read[-1].event, RunEnded):
            self.later()
        else:
            self._reader.look_for_driver(self._copy, self._asked)

    def _asked(self, here: DriverHere | None) -> None:
        self._misses = self._misses + 1 if here is None else 0
        if self._misses < MISSES:
            self.later()
        else:
            events = [entry.event for entry in self._read]
            graph = with_growth(Graph.from_bytes(self._copy.graph), events)
            self._driver.take_over(self._node, self._read, graph, self._met)
