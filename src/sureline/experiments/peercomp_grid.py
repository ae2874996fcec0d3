"""Simulated peers that reserve time from each other: the agents of a live grid, in large numbers.

Every peer is one agent with a row in shared arrays: its queue, and what its branch knows. Up to
some thousands the tree may be driven message by message; beyond that summaries are swept. Lanes
work on their own; what is late is counted by the arithmetic that starts and ends tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from sureline.compiled import hasten
from sureline.experiments.peercomp_lane import Lane, SimulatedQueues
from sureline.experiments.peercomp_load import POWER_USUAL, POWERS, Drawn, WorkflowLoad
from sureline.experiments.peercomp_shape import ROOT, shape_of
from sureline.experiments.peercomp_sweeps import Sweeps, SweepSettings
from sureline.overlay.tree.agent import HEADER_BYTES, Tree, TreeSettings
from sureline.overlay.tree.leaf import HoleSought
from sureline.overlay.tree.messages import (
    Commit,
    Committed,
    Nowhere,
    Reserved,
    RollBack,
    TimeRequest,
    Update,
)
from sureline.overlay.tree.shape import Links, Ref
from sureline.overlay.tree.summary import Amounts
from sureline.strategies.peercomp.nearest import NearestDeadline, OnDone
from sureline.strategies.peercomp.owner import Booked, Booking, Desk, OwnerSettings
from sureline.strategies.peercomp.policy import Policy, Priority
from sureline.workflow.shapes import longest_s
from sureline.world.address import NO_AGENT, node_of
from sureline.world.protocol import AgentId, Message, World
from sureline.world.simulated import (
    Empirical,
    Exponential,
    Link,
    MachineSpec,
    Network,
    Simulation,
)

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

AIMS = (1.1,)
"""Before the deadline, a workflow is tried to be done in so many times what its longest chain takes
on a usual machine."""
DEPTH = 16
"""Tasks that one lane may have promised at a time."""
DELAY_MEAN_S, DELAY_LEAST_S, DELAY_MOST_S = 0.050, 0.020, 0.300
NEAR = Link(Exponential(0.002, least_s=0.001))
"""Between the peers of one site."""
EPOCH_S = 8 * 3600.0
"""When an experiment begins, by all clocks."""


def delays(values: int = 1000) -> Empirical:
    """A Pareto distribution between the least and the most, with the paper's mean."""
    low, high = DELAY_LEAST_S, DELAY_MOST_S
    shares = (np.arange(values) + 0.5) / values

    def draws(tail: float) -> Floats:
        found: Floats = low * (1 - shares * (1 - (low / high) ** tail)) ** (-1 / tail)
        return found

    least, most = 0.01, 20.0
    for _ in range(60):
        tail = (least + most) / 2
        least, most = (tail, most) if draws(tail).mean() > DELAY_MEAN_S else (least, tail)
    return Empirical(tuple(draws(least).tolist()))


PAPER = TreeSettings(bytes_per_s=1000.0, period_s=1.0, beat_max_s=10.0)
"""What the paper's nodes may send, on links of 1 Mbit/s."""


class BookingEnded(msgspec.Struct, frozen=True):
    """How the booking of one workflow went."""

    model: str
    size: int
    priority: float
    submitted_s: float
    alone_s: float
    """What its owner would need by itself."""
    deadline_s: float
    booked: Booked
    last: tuple[int, int]
    """The number and position of its last task, to find its end in a log."""
    owner: int
    rank: Priority
    """How much it matters, for machines that heed it."""


class _Tally:
    """Bytes and messages by peer, and in the busiest second of each."""

    def __init__(self, peers: int) -> None:
        self.peers = peers
        self._senders: list[int] = []
        self._to: list[int] = []
        self._sizes_bytes: list[int] = []
        self._many: list[tuple[Ints, Ints, Ints]] = []
        self.peak = np.zeros((4, peers), np.int32)
        """Bytes sent, bytes received, messages sent, messages received."""
        self.total = np.zeros((4, peers), np.int64)

    def count(self, sender: int, to: int, message: Message) -> None:
        self._senders.append(sender)
        self._to.append(to)
        self._sizes_bytes.append(size_of(message))

    def count_many(self, senders: Ints, to: Ints, sizes_bytes: Ints) -> None:
        self._many.append((senders, to, sizes_bytes))

    def next_second(self) -> None:
        single = [np.array(each, np.int64) for each in (self._senders, self._to, self._sizes_bytes)]
        self._senders, self._to, self._sizes_bytes = [], [], []
        parts = [*self._many, (single[0], single[1], single[2])]
        self._many = []
        senders, to, sizes_bytes = (np.concatenate(each) for each in zip(*parts, strict=True))
        for row, (who, weights) in enumerate(
            ((senders, sizes_bytes), (to, sizes_bytes), (senders, None), (to, None))
        ):
            second = np.bincount(who, weights=weights, minlength=self.peers)
            np.maximum(self.peak[row], second, out=self.peak[row], casting="unsafe")
            self.total[row] += second.astype(np.int64)


def size_of(message: Message) -> int:
    """Header and body, as the paper counts them."""
    if type(message) is TimeRequest:
        return HEADER_BYTES + 56 + 16 * len(message.ask.works)
    if isinstance(message, Reserved | Committed):
        return HEADER_BYTES + 24 + 16 * len(message.slots)
    if isinstance(message, Commit):
        return HEADER_BYTES + 16 + 8 * len(message.startlines_s)
    if isinstance(message, Update):
        return HEADER_BYTES + 16 + len(message.cells)
    assert isinstance(message, Nowhere | RollBack)
    return HEADER_BYTES + 24


class Counted:
    """A peer's world that counts what it sends."""

    __slots__ = ("_row", "_tally", "_world", "after", "now")

    def __init__(self, world: World, row: int, tally: _Tally) -> None:
        self._world = world
        self._row = row
        self._tally = tally
        self.now = world.now
        self.after = world.after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)

    def send(self, to: AgentId, message: Message) -> None:
        there = int(to[1:])
        if there != self._row:
            self._tally.count(self._row, there, message)
        self._world.send(to, message)


class Grid:
    """`state`, if given, is what the lanes have promised already: a warm start. `sites`, if given,
    says where each peer is: those of one site are near each other."""

    def __init__(
        self,
        peers: int,
        seed: int,
        *,
        swept: bool = True,
        state: SimulatedQueues | None = None,
        epoch_s: float = EPOCH_S,
        sweeping: SweepSettings | None = None,
        shortfall: float = 1.0,
        settings: TreeSettings | None = None,
        logged: int = 0,
        aims: Sequence[float] = AIMS,
        sites: Sequence[str] = (),
        policy: Policy = "deadline",
    ) -> None:
        self._aims = aims
        self._policy: Policy = policy
        hasten()
        network = Network(Link(delays()))
        for site in sorted(set(sites)):
            network.set_site_link(site, site, NEAR)
        self.sim = Simulation(seed, network, detail="light", epoch_s=epoch_s)
        self.peers = peers
        self.load = WorkflowLoad(seed)
        draw = np.random.RandomState(seed)
        self.shape = shape_of(draw.randint(0, 1 << 55, peers))
        self.queues = state or SimulatedQueues(draw.choice(POWERS, peers), DEPTH, logged)
        self.tally = _Tally(peers)
        self.sweeps: Sweeps | None = None
        if swept:
            self.sweeps = Sweeps(self.shape, self.queues, LIMITS, sweeping or SweepSettings())
        self.settings = settings or PAPER
        self.finished: list[BookingEnded] = []
        self.submitted = 0
        self.under_way = 0
        self._owner_settings = OwnerSettings()
        self._desks: dict[int, Desk] = {}
        for row, site in enumerate(sites):
            self.sim.machine(node_of(_name(row)), MachineSpec(site=site))
        self.agents = [self._agent(row, shortfall) for row in range(peers)]

    def _agent(self, row: int, shortfall: float) -> Tree:
        name = _name(row)
        world: Any = Counted(self.sim.place(name), row, self.tally)
        lane = Lane(self.queues, row, LIMITS, shortfall=shortfall, policy=self._policy)
        agent = Tree(name, world, lane, self.settings, self.sweeps, row)
        shape = self.shape
        kids = None
        if shape.depth[row] >= 0:
            left, right = shape.children[row].tolist()
            kids = (self._ref(left), self._ref(right))
        parents = _name(shape.leaf_parent[row]), _name(shape.branch_parent[row])
        agent.placed(Links(*parents, kids))
        self.sim.join(agent)
        return agent

    def _ref(self, child: int) -> Ref:
        peers = self.peers
        return Ref(_name(child % peers), child < peers)

    @property
    def now_s(self) -> float:
        return self.sim.epoch_s + self.sim.time

    # WorkflowLoad.

    def per_s(self, load: float) -> float:
        """How many workflows arrive in a second at this load."""
        return load * float(self.queues.power.sum()) / self.load.mean_work()

    def begin(self, load: float, until_s: float) -> None:
        """Have workflows arrive from now on, so many seconds long."""
        if self.sweeps is not None:
            self.sweeps.sweep(self.now_s, whole=True)
            self._count_updates()
            self._again(self.sweeps.settings.every_s, self._sweep)
        else:
            for agent in self.agents:
                agent.begin()
        self._again(1.0, self.tally.next_second)
        self._until_s = self.sim.time + until_s
        self._per_s = self.per_s(load)
        if load > 0:
            self._next_arrival()

    def _sweep(self) -> None:
        assert self.sweeps is not None
        self.sweeps.sweep(self.now_s)
        self._count_updates()

    def _count_updates(self) -> None:
        assert self.sweeps is not None
        for senders, to, sizes_bytes in self.sweeps.updated:
            self.tally.count_many(senders, to, sizes_bytes)

    def _again(self, every_s: float, action: Callable[[], None]) -> None:
        def act() -> None:
            action()
            self.sim.at(self.sim.time + every_s, act)

        self.sim.at(self.sim.time + every_s, act)

    def _next_arrival(self) -> None:
        at_s = self.sim.time + self.load.gap_s(self._per_s)
        if at_s < self._until_s:
            self.sim.at(at_s, self._arrive)

    def _arrive(self) -> None:
        self.submit(self.load.choice(self.peers), self.load.draw())
        self._next_arrival()

    def desk(self, row: int) -> Desk:
        return Desk(self.agents[row])

    def asker(self, row: int) -> Callable[[HoleSought], None] | None:
        """How a peer asks for time; None for by way of the tree."""
        return None

    def submit(self, row: int, drawn: Drawn, rank: Priority = "normal") -> None:
        tree = self.agents[row]
        desk = self._desks.get(row)
        if desk is None:
            desk = self._desks[row] = self.desk(row)
        asker = self.asker(row)
        alone_s = math.fsum(drawn.works) / float(self.queues.power[row])
        deadline_s = self.now_s + alone_s / drawn.priority
        submitted_s = self.now_s
        self.submitted += 1
        self.under_way += 1

        model, aims = drawn.model, self._aims

        def book(by_s: float, on_done: OnDone) -> None:
            desk.book(
                Booking(
                    tree, model.graph, model.order, drawn.works, by_s, on_done,
                    self._owner_settings, ask=asker, tight=by_s < deadline_s, priority=rank,
                )
            )  # fmt: skip

        def found(booking: Booking | None, booked: Booked, kept: bool) -> None:
            self.under_way -= 1
            names = {} if booking is None else booking.names()
            took_s = self.now_s - submitted_s
            self.finished.append(
                BookingEnded(
                    model.name, model.size, drawn.priority, submitted_s, alone_s, deadline_s,
                    booked._replace(took_s=took_s), names.get(len(drawn.works) - 1, (0, 0)), row,
                    rank,
                )
            )  # fmt: skip

        left_s = deadline_s - submitted_s
        tasks = range(len(model.graph))
        chain_s = longest_s(model.graph, drawn.works, model.order, tasks) / POWER_USUAL
        aheads_s = [aim * chain_s for aim in aims if aim * chain_s < left_s]
        NearestDeadline(
            tree.world, book, [*aheads_s, left_s], deadline_s, found, late=0, pause_s=0.0
        ).begin()

    def run(self, seconds: float, progress: Callable[[Simulation], None] | None = None) -> None:
        self.sim.run(until=self.sim.time + seconds, progress=progress)

    def ends_s(self) -> dict[tuple[int, int], float]:
        """When the tasks that were logged ended, by number and position."""
        self.queues.advance_all(self.now_s)
        rows = self.queues.log[1:]
        return {(int(number), int(unit)): end_s for number, unit, end_s in rows.tolist() if number}

    def missed(self) -> int:
        """Tasks that ended later than promised, so far. No node fails by itself here: none may."""
        self.queues.advance_all(self.now_s)
        return int(self.queues.busy[:, 3].sum())


LIMITS = Amounts(30, 30, 30)


def _name(row: int) -> AgentId:
    return NO_AGENT if row == ROOT else AgentId(f"n{row}")
