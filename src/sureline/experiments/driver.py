"""The processes that drive a simulated run: who submits it, and who takes it over.

What outlives a process is the journal on its machine's disk. Each life of the machine boots anew:
the process asks the grid for the run (`run.claiming`), as `sureline resume` does, and goes on if it
is granted its next epoch. At other machines there may be *standbys*: people who do the same now and
then. They may be wrong: it is enough that its writer does not answer them. And peers that keep a
copy take it over by themselves (`assembly.relief`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import fsum
from random import Random
from typing import NamedTuple

import msgspec

from sureline.assembly.claims import make_claimant, node_called
from sureline.assembly.node import GridNode
from sureline.experiments.distributions import Distribution, constant
from sureline.experiments.machine_journal import entries, epoch_of, past_of, write_now
from sureline.experiments.outcome import RunResult
from sureline.journal.events import (
    AnyEvent,
    Noted,
    Opened,
    RunEnded,
    Submitted,
    with_growth,
)
from sureline.journal.export import export_entries
from sureline.journal.store import Entry
from sureline.journal.views import RunView
from sureline.run.claiming import Claim, Claimed, Driven, LineFound, Own, voters_of
from sureline.run.copies import CopyReader
from sureline.run.fetching import Fetching
from sureline.run.grant import OWN, Epoch
from sureline.run.options import Options, Past
from sureline.run.port import Deciding, Seat
from sureline.workflow.model import Graph
from sureline.world.address import NO_NODE, Node, PeerName
from sureline.world.protocol import Action, World
from sureline.world.simulated.disk import Disk
from sureline.world.simulated.simulation import Simulation

LOOK_S = 10.0
"""Between two looks of somebody whose run is driven elsewhere."""
LINGER_S = 30.0
"""After its end, a run with standbys goes on for so long: others may still think that they drive
it."""


class Sitting(NamedTuple):
    """One process's work on a run."""

    node: Node
    run: str
    graph: Graph
    options: Options
    epoch: Epoch
    voters: tuple[str, ...]
    vote: str
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


Where = Callable[[str], Node | None]
"""Where a peer is, by its name."""


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
        visit: Visit | None = None,
        papers: Callable[[Node, str, int], bytes] | None = None,
    ) -> None:
        self.sim = sim
        self.node = node
        self.run = run
        self.graph = graph
        self.options = options
        self.deciding = deciding
        """In place of the strategy that the options name, to compare it with."""
        self._drive = drive
        self._visit = visit
        """None for a run that nobody takes over."""
        self._papers = papers
        self._look_s: Distribution = constant(LOOK_S)
        self.machines = [node]
        """All on which the run is or may be driven."""
        self._persons = [node]
        """Those of them that are somebody's own."""
        self.submitted_s = 0.0
        self.ended_s: float | None = None
        self.ended_on = node
        self.problems: list[str] = []
        """What must not happen to a driver."""
        self.missing: dict[Node, list[str]] = {}
        """Of results that are still to come to a machine, what could not be had there last."""

    def look_after(self, standbys: Sequence[Node], look_s: Distribution) -> None:
        """Have people at these machines, too, see to it that the run is driven."""
        self.machines += standbys
        self._persons += standbys
        self._look_s = look_s

    def boot(self, node: Node = NO_NODE) -> None:
        """A process starts on one of its machines: it submits the run, or somebody there has it
        gone on with, if nobody else drives it."""
        node = node or self.node
        if self._is_ended(node):
            self._end(node)
        elif node == self.node and not self.events(node):
            self.submitted_s = self.sim.time
            machine = self.sim.machine(node)
            write_now(machine.disk, self._submitted(machine.clock()))
            self._sit_down(node, Epoch(1, writer_at(node)))
        elif self._visit is None:
            epoch = Epoch(1 + epoch_of(self.events(node)), writer_at(node))
            self._sit_down(node, epoch, voters_of(self.events(node)))
        else:
            self._visit(node, lambda met, reader: _Attendant(self, node, met, reader).look())

    def _is_ended(self, node: Node) -> bool:
        return any(isinstance(event, RunEnded) for event in self.events(node)[-1:])

    def _sit_down(
        self,
        node: Node,
        epoch: Epoch,
        voters: Sequence[str] = (),
        graph: Graph | None = None,
        met: GridNode | None = None,
    ) -> None:
        machine = self.sim.machine(node)
        past = past_of(self.events(node))
        write_now(machine.disk, Opened(machine.clock(), epoch.number, node, epoch.number))
        sitting = Sitting(
            node,
            self.run,
            graph or self.graph,
            self.options,
            epoch,
            tuple(voters),
            vote_of(node),
            past,
            lambda ended: self._end(node),
            partial(self._lost, node),
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

    def _lost(self, node: Node, reason: str) -> None:
        """Its process may write no more; it ends, and the next one looks on."""
        if self._visit is None:
            self.problems.append(reason)
            return
        life = self.sim.machine(node).life

        def start_again() -> None:
            if self.sim.machine(node).life is life:
                self.sim.kill(node)
                self.sim.restart(node)

        self.sim.at(self.sim.time, start_again)

    # -- looking after it ----------------------------------------------------------------------

    def next_look_s(self, random: Random) -> float:
        return self._look_s.draw(random)

    def own(self, node: Node) -> Own:
        """What is on this machine's disk of the run."""
        found = self.entries(node)
        if not found:
            return Own(vote=vote_of(node))
        events = [entry.event for entry in found]
        return Own(found[-1].position, epoch_of(events), voters_of(events), vote_of(node))

    def granted(self, node: Node, claimed: Claimed, met: GridNode) -> None:
        """Go on from what the grid has; what the machine had beyond it never happened."""
        graph = self._adopt(node, claimed.found)
        if node not in self.machines:
            self.machines.append(node)
        self._sit_down(node, claimed.epoch, claimed.voters, graph, met)

    def came_home(
        self, node: Node, found: LineFound, world: World, where: Where, again: Action
    ) -> None:
        """The run has ended elsewhere: its results come to this machine, unless they went to
        somebody's own. Who has them may be away: `again` is called to try it later."""

        def done(missing: list[str]) -> None:
            self.missing.pop(node, None)
            if not missing:
                self._adopt(node, found)
                self._end(node)
            elif not set(writers) & set(self._persons):
                self.missing[node] = missing
                again()

        events = [entry.event for entry in found.entries]
        past = past_of(events)
        writers = [PeerName(e.host) for e in events if isinstance(e, Opened)][-1:]
        Fetching(world, node, where, writers, done).start(past.committed.values())

    def _adopt(self, node: Node, found: LineFound) -> Graph | None:
        if not found.graph:
            return None
        events = [entry.event for entry in found.entries]
        self.sim.machine(node).disk.replace(events)
        return with_growth(Graph.from_bytes(found.graph), events)

    def relieve(self, node: Node, met: GridNode, reader: CopyReader, over: Action) -> None:
        """A peer has found the run without a writer."""

        def done(claim: Claim) -> None:
            if isinstance(claim, Claimed):
                self.granted(node, claim, met)
            else:
                over()

        papers = self.papers_for(node)
        claimant = make_claimant(
            met, reader, self.run, writer_at(node), Own(), done, relief=True, papers=papers
        )
        claimant.start()

    def papers_for(self, node: Node) -> Callable[[bytes, int], bytes]:
        assert self._papers is not None, "who visits has papers"
        made = self._papers
        return lambda papers, number: made(node, self.run, number)

    # -- what came of it -----------------------------------------------------------------------

    @property
    def over(self) -> bool:
        if self.ended_s is None or self.missing:
            return False
        return len(self.machines) == 1 or self.sim.time >= self.ended_s + LINGER_S

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


def writer_at(node: Node) -> str:
    """In the simulator there is one process of a machine at a time."""
    return f"{node}:"


def vote_of(node: Node) -> str:
    return f"{OWN}{node}"


class _Attendant:
    """Somebody at a machine who looks at the run now and then, in one life of that machine."""

    def __init__(self, driver: Driver, node: Node, met: GridNode, reader: CopyReader) -> None:
        self._driver = driver
        self._node = node
        self._met = met
        self._reader = reader
        self._random = Random(f"{driver.sim.seed}/{node}/{driver.sim.time}")

    def look(self) -> None:
        driver = self._driver
        own = driver.own(self._node)
        if driver.over:
            return
        if not own.position:
            self._later()
        else:
            self._ask(own)

    def _later(self) -> None:
        wait_s = self._driver.next_look_s(self._random)
        self._reader.world.after(wait_s, lambda: self._ask(self._driver.own(self._node)))

    def _ask(self, own: Own) -> None:
        driver, writer = self._driver, writer_at(self._node)
        if not driver.over:
            claimant = make_claimant(
                self._met,
                self._reader,
                driver.run,
                writer,
                own,
                self._answered,
                papers=driver.papers_for(self._node),
            )
            claimant.start()

    def _answered(self, claim: Claim) -> None:
        match claim:
            case Claimed():
                self._driver.granted(self._node, claim, self._met)
            case Driven(here=None, found=found) if found.graph and self._driver.events(self._node):
                where = partial(node_called, self._met)
                world = self._reader.world
                self._driver.came_home(self._node, found, world, where, self._later)
            case _:
                self._later()
