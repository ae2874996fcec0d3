"""One agent's World in a simulation. See `protocol.World` for the contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sureline.world.address import node_of
from sureline.world.agent import Agent
from sureline.world.protocol import (
    Action,
    AgentId,
    Fetched,
    Job,
    JobEvent,
    JobHandle,
    Message,
    Recordable,
    Timer,
    Wanted,
)

if TYPE_CHECKING:
    from sureline.world.simulated.machine import Life, Machine
    from sureline.world.simulated.simulation import Simulation


class Place:
    """Belongs to one life of its machine; when that is over, nothing it is asked for happens."""

    __slots__ = (
        "_arrivals",
        "_joined",
        "_last_arrival_s",
        "agent",
        "life",
        "machine",
        "me",
        "random",
        "received",
        "sent",
        "sim",
    )

    def __init__(self, sim: Simulation, machine: Machine, life: Life, me: AgentId) -> None:
        self.sim = sim
        self.machine = machine
        self.life = life
        self.me = me
        self.random = sim.random
        self.agent: Agent | None = None
        """The agent here, while its machine is open; what is for it can be delivered at once."""
        self._joined: Agent | None = None
        self._last_arrival_s = 0.0
        """When the last of the messages under way from here arrives."""
        self._arrivals: dict[AgentId, float] | None = None
        """When the last of the messages under way to each agent arrives."""
        self.sent = 0
        self.received = 0

    def join(self, agent: Agent) -> None:
        self._joined = agent
        self.agent = agent if self.life.open else None

    def leave(self) -> None:
        self._joined = self.agent = None

    def set_open(self, is_open: bool) -> None:
        self.agent = self._joined if is_open else None

    close = leave

    @property
    def joined(self) -> Agent | None:
        return self._joined

    def now(self) -> float:
        return self.machine.clock()

    def send(self, to: AgentId, message: Message) -> None:
        life = self.life
        if life.over:
            return
        sim, machine = self.sim, self.machine
        there = sim.places.get(to)
        node = there.machine.node if there is not None else node_of(to)
        leaves_s = machine.moment_s()
        if node == machine.node:
            sim.deliver(leaves_s, there, to, self.me, message, -1)
            return
        counters, network = sim.counters, sim.network
        size_bytes = counters.size_of(message, self.me, to)
        counters.sent(self, message, size_bytes, leaves_s)
        channel = network.channel(machine.node, node)
        if network.cut(machine.node, node) or (
            channel.loss and network.random.random() < channel.loss
        ):
            counters.dropped(machine.node, message)
            return
        wire_s = size_bytes * channel.s_per_byte
        arrives_s = leaves_s + channel.draw() + wire_s
        if not channel.reorder:
            arrives_s = self._in_order(to, arrives_s, wire_s)
        sim.deliver(arrives_s, there, to, self.me, message, size_bytes)
        if channel.duplication and network.random.random() < channel.duplication:
            again_s = max(arrives_s, leaves_s + channel.draw() + wire_s)
            sim.deliver(again_s, there, to, self.me, message, size_bytes)

    def _in_order(self, to: AgentId, arrives_s: float, wire_s: float) -> float:
        """No earlier than the one before it to the same agent, which was on the wire first."""
        arrivals = self._arrivals
        if self._last_arrival_s <= self.sim.time or arrivals is None:
            arrivals = self._arrivals = {}
        arrives_s = max(arrives_s, arrivals.get(to, 0.0) + wire_s)
        arrivals[to] = arrives_s
        if arrives_s > self._last_arrival_s:
            self._last_arrival_s = arrives_s
        return arrives_s

    def after(self, seconds: float, action: Action) -> Timer:
        machine = self.machine
        due_s = machine.moment_s() + machine.true_s(max(0.0, seconds))
        return self.sim.schedule(due_s, self.life, action)

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        life = self.life
        return life.runner.start(job, lambda event: life.post(on_event, event), after=after)

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        if not self.life.over:
            self.life.runner.stop(handle, force=force)

    def fetch(
        self, wanted: Wanted, sources: Sequence[AgentId], on_done: Callable[[Fetched], None]
    ) -> None:
        life = self.life
        if not life.over:
            life.fetcher.fetch(wanted, sources, lambda fetched: life.post(on_done, fetched))

    def record(self, event: Recordable) -> None:
        if not self.life.over:
            self.life.record(event)

    def flush(self) -> None:
        if not self.life.over:
            self.life.recorder.flush()

    def sync(self, on_durable: Action) -> None:
        life = self.life
        if not life.over:
            life.recorder.sync(lambda: life.post(on_durable))

    def put(self, key: str, value: bytes) -> None:
        if not self.life.over:
            self.life.recorder.put(key, value)

    def get(self, key: str) -> bytes | None:
        return self.life.recorder.get(key)

    def busy(self, seconds: float) -> None:
        if not self.life.over:
            self.machine.busy(seconds)
