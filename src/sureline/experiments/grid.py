"""A simulated grid: machines that boot, agents on them, and what faults do to them.

The agents are the real ones, put together by `assembly` as on a real network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from random import Random
from typing import NamedTuple

from sureline.assembly.driver import Charge, RunDriver, run_part
from sureline.assembly.node import GridNode
from sureline.assembly.peer import GridPeer, Workplace
from sureline.assembly.writer import make_writer
from sureline.experiments.distributions import constant
from sureline.experiments.driver import Driver, Sitting
from sureline.experiments.machine_journal import DiskRecorded, SimulatedRecorder
from sureline.experiments.machines import EPOCH_S, SimulatedPeer, make_machines, make_network
from sureline.experiments.scenario import Scenario
from sureline.experiments.work import Work
from sureline.journal.events import RunEnded
from sureline.overlay.kademlia import Kademlia
from sureline.overlay.membership import Offer
from sureline.peer.agent import PeerAgent
from sureline.run.copies import PART as READER
from sureline.run.copies import CopyReader
from sureline.run.engine import Hearers
from sureline.run.options import CancelRun
from sureline.run.port import Strategy, Target
from sureline.strategies import known, strategy
from sureline.world.address import Node, at, name_of, peer_of
from sureline.world.agent import Agent
from sureline.world.identity.signing import (
    DRIVE,
    Papers,
    RunSigner,
    begun,
    charter,
    delegated,
)
from sureline.world.protocol import Action, AgentId, World
from sureline.world.simulated.counters import Detail
from sureline.world.simulated.signing import Roll
from sureline.world.simulated.simulation import Simulation

FULL_DETAIL_MAX = 20_000
"""Of more machines, messages are counted by type only, to save memory."""
CONTACTS = 8
"""Through how many others a node tries to join."""


class SimulatedGround(NamedTuple):
    """One life of a simulated machine, for its agents to stand on. Messages of the types that are
    `unknown` to it reach nobody there: it is of another version."""

    sim: Simulation
    id: Node
    unknown: frozenset[str] = frozenset()

    def place(self, me: AgentId) -> World:
        return self.sim.place(me)

    def join(self, agent: Agent) -> None:
        agent.unlearn(self.unknown)
        self.sim.join(agent)

    def is_node(self, text: str) -> bool:
        return "/" not in text


class SimulatedGrid:
    """The machines of a scenario in a simulation, and what faults do to them."""

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        work: Work | None,
        strategies: Sequence[Strategy] | None = None,
    ) -> None:
        detail: Detail = "light" if len(scenario.machine_names()) > FULL_DETAIL_MAX else "full"
        self.sim = Simulation(seed, make_network(scenario), detail=detail, epoch_s=EPOCH_S)
        self.boxes = make_machines(scenario, seed, self.sim, work)
        self.roll = Roll(seed)
        """Whose signatures are good."""
        self._papers: dict[str, Papers] = {}
        self._history = {} if work is None else work.history
        self._peers = scenario.machine_names()
        self._known: list[Node] = []
        """The nodes that have ever been up, in the order in which they first were."""
        self.drivers: dict[str, Driver] = {}
        """Of the runs that peers may take over."""
        self._started: set[str] = set()
        """The same, to look one up."""
        self._random = Random(f"{seed}/grid")
        self._starts_within_s = scenario.starts_within_s
        self._strategies = strategies_of(scenario) if strategies is None else strategies

    # -- what lives on a node ------------------------------------------------------------------

    def boot_peers(self) -> None:
        self.boot_each(lambda node: self._boot_peer(self.boxes[node]))

    def boot_each(self, start: Callable[[Node], None]) -> None:
        """Have every machine run `start` when it starts, for the first time and ever after."""
        for number, node in enumerate(self._peers):
            at_s = self._starts_within_s * number / len(self._peers)
            self.at(at_s, partial(self.boot, node, partial(self._start, node, start)))

    def boot(self, node: Node, start: Callable[[], None]) -> None:
        """Start it now, and whenever it comes back; only then, if a fault has it down already."""
        if self.state(node) == "down":
            self.sim.machine(node).boot = start
        else:
            self.sim.boot(node, start)

    def _start(self, node: Node, start: Callable[[Node], None]) -> None:
        start(node)
        if node not in self._started:
            self._started.add(node)
            self._known.append(node)

    def _boot_peer(self, box: SimulatedPeer) -> None:
        node = self._node(box.node, offer_of(box, self.sim.machine(box.node).clock()))
        halves = [box.seller.half(strategy) for strategy in self._strategies]
        if box.others.any:
            halves.append(box.others.half())
        take_over = partial(self._relieve, box.node, node)
        workplace = Workplace(box.claimed, box.store, halves)
        peer = GridPeer(node, box.kept, self.roll, workplace, take_over=take_over)
        node.join(self._contacts(box.node), lambda others: None)
        peer.start()
        life = self.sim.machine(box.node).life
        assert life is not None, "it has just booted"
        box.store.serve(life, node.membership.knowledge.others_present)

    def _relieve(self, node: Node, met: GridNode, run: str, in_s: float, over: Action) -> None:
        """A peer has found a run without a writer that it keeps."""
        driver = self.drivers.get(run)
        if driver is None:
            over()
            return
        me = at(node, READER)
        reader = CopyReader(me, self.sim.place(me), met.kademlia, self.roll, keeps=True)
        self.sim.join(reader)
        driver.relieve(node, met, reader, over)

    def boot_kademlia(self, node: Node) -> Kademlia:
        me = at(node, "kademlia")
        made = Kademlia(me, self.sim.place(me))
        self.sim.join(made)
        made.join([at(other, "kademlia") for other in self._contacts(node)], lambda contacts: None)
        return made

    def _contacts(self, node: Node) -> list[Node]:
        """Some who are up; if hardly anybody is, some who may come back. The first node of all
        knows nobody."""
        tries = 4 * CONTACTS if self._known else 0
        drawn = dict.fromkeys(self._random.choice(self._known) for _ in range(tries))
        others = [other for other in drawn if other != node]
        up = [other for other in others if self.state(other) == "up"]
        return (up or others)[:CONTACTS]

    def drive(self, sitting: Sitting) -> None:
        """In a process that is no peer itself; or, where the strategy is for one machine, there."""
        if sitting.options.grid:
            self._drive_on_grid(sitting)
        else:
            self._drive_here(sitting)

    def _drive_on_grid(self, sitting: Sitting) -> None:
        machine = self.sim.machine(sitting.node)
        node = sitting.met or self._node(sitting.node, None)
        recorded = DiskRecorded(machine.disk, sitting.epoch.number)
        charge = Charge(
            sitting.run,
            sitting.graph,
            sitting.options,
            sitting.past,
            sitting.epoch.number,
            self._signer(sitting, recorded),
            lambda: self._history,
            sitting.epoch.number,
            sitting.epoch.writer,
            sitting.voters,
            sitting.vote,
            sitting.deciding,
        )

        def ended(how: RunEnded) -> None:
            sitting.on_end(how)
            made.say_last(lambda: None)

        hearers = Hearers(ended, sitting.on_fenced)
        made = RunDriver(node, charge, recorded, hearers)
        assert machine.life is not None and isinstance(machine.life.recorder, SimulatedRecorder)
        machine.life.recorder.on_record = made.mirror.recorded
        if sitting.met is None:
            node.join(self._contacts(sitting.node), lambda others: made.begin())
        else:
            made.begin()

    def _signer(self, sitting: Sitting, recorded: DiskRecorded) -> RunSigner:
        """The first process makes the run's papers, and lets everybody go on with it."""
        run = sitting.run
        if run not in self._papers:
            key, by = self.roll.new_key(), self.roll.certified(peer_of(sitting.node))
            now, first = self.sim.machine(sitting.node).clock(), recorded.after(0)[0][1]
            papers = charter(by, key, run, sitting.graph.created, first, now)
            self._papers[run] = delegated(papers, key, run, DRIVE, inf)
        return self._begun(sitting.node, run, sitting.epoch.number)

    def _begun(self, node: Node, run: str, number: int) -> RunSigner:
        by, now = self.roll.certified(peer_of(node)), self.sim.machine(node).clock()
        return begun(self._papers[run], by, self.roll.new_key(), run, number, now, self.roll)

    def papers(self, node: Node, run: str, number: int) -> bytes:
        """What a process there shows to be granted an epoch."""
        return self._begun(node, run, number).papers

    def _node(self, node: Node, offer: Offer | None) -> GridNode:
        box = self.boxes[node]
        ground = SimulatedGround(self.sim, node, frozenset(box.unknown))
        made = GridNode(ground, offer, strategies=self._strategies)
        box.store.places = made
        return made

    def visit(self, node: Node, on_met: Callable[[GridNode, CopyReader], None]) -> None:
        """Make the process on a machine a guest that can read copies of runs."""
        guest, me = self._node(node, None), at(node, READER)
        reader = CopyReader(me, self.sim.place(me), guest.kademlia, self.roll)
        self.sim.join(reader)
        guest.join(self._contacts(node), lambda others: on_met(guest, reader))

    def _drive_here(self, sitting: Sitting) -> None:
        """Writer and machine in one process."""
        sim, node = self.sim, sitting.node
        here, capacity = at(node, "peer"), self.boxes[node].capacity
        sim.join(PeerAgent(here, sim.place(here), capacity))
        engine, agents = make_writer(
            node,
            at(node, run_part(sitting.run)),
            sim.place,
            sitting.run,
            sitting.graph,
            sitting.options,
            sitting.past,
            lambda: self._history,
            Hearers(sitting.on_end),
        )
        for agent in agents:
            sim.join(agent)
        engine.start([Target(name_of(node), here, capacity)])

    # -- what users do -------------------------------------------------------------------------

    def cancel(self, node: Node, run: str) -> None:
        """Somebody at this machine cancels the run that is driven there."""
        if self.state(node) == "up":
            asked = CancelRun(reason="cancelled by its user")
            self.sim.place(at(node, "user")).send(at(node, run_part(run)), asked)

    # -- what faults do ------------------------------------------------------------------------

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        self.sim.at(time_s, action)

    def state(self, node: Node) -> str:
        machine = self.sim.machine(node)
        if machine.life is None:
            return "down"
        return "frozen" if machine.frozen else "up"

    def crash(self, node: Node) -> None:
        self.sim.crash(node)

    def kill(self, node: Node) -> None:
        self.sim.kill(node)

    def restart(self, node: Node) -> None:
        self.sim.restart(node)

    def freeze(self, node: Node) -> None:
        self.sim.freeze(node)

    def thaw(self, node: Node) -> None:
        self.sim.thaw(node)

    def slow(self, node: Node, factor: float) -> None:
        self.sim.slow(node, 1.0 / factor)

    def step_clock(self, node: Node, by_s: float) -> None:
        self.sim.step_clock(node, by_s)

    def slow_disk(self, node: Node, factor: float) -> None:
        self.sim.machine(node).disk.slowness = 1.0 / factor

    def fill_disk(self, node: Node, full: bool) -> None:
        self.sim.machine(node).disk.full = full

    def fill_cache(self, node: Node, full: bool) -> None:
        self.boxes[node].store.full = full

    def corrupt(self, node: Node, share: float, random: Random) -> None:
        self.boxes[node].store.damage(share, random)

    def partition(self, groups: Sequence[Sequence[Node]]) -> None:
        self.sim.partition(groups)

    def sever(self, some: Sequence[Node], others: Sequence[Node]) -> None:
        self.sim.sever(some, others)

    def heal(self) -> None:
        self.sim.heal()


def offer_of(box: SimulatedPeer, started_at: float) -> Offer:
    c = box.claimed
    return Offer(
        c.cores,
        c.memory_bytes,
        c.disk_bytes,
        c.gpus,
        c.tags,
        site=box.site,
        roles=("run", "drive"),
        started_at=started_at,
    )


def strategies_of(scenario: Scenario) -> list[Strategy]:
    """Whose halves nodes and machines have: of the strategy that runs are driven by, and of those
    that machines of the scenario deal by; others would only be idle."""
    named = [scenario.workload.strategy] if scenario.workload.strategy else []
    dealing = any(site.dealing.price != constant(0.0) for site in scenario.sites)
    spending = [s.name for s in known().values() if s.spends] if dealing else []
    return [strategy(name) for name in dict.fromkeys([*named, *spending])]
