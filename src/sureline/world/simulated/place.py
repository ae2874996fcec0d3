"""One agent's World in a simulation. See `protocol.World` for the contract."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TYPE_CHECKING

from sureline.world.address import NO_AGENT, Node, node_of
from sureline.world.agent import NO_HANDLERS, Agent, HandlerTable
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
from sureline.world.simulated.counters import size_of

if TYPE_CHECKING:
    from sureline.world.simulated.calendar import Calendar
    from sureline.world.simulated.machine import Life, SimulatedMachine
    from sureline.world.simulated.simulation import Simulation

ARRIVALS_TO_PRUNE = 64
"""At this size, and whenever it has doubled, a table of arrivals forgets those that are over."""


class _Used:
    """What every message makes use of. A class of its own, so that it lies together in memory."""

    __slots__ = ("_calendar", "agent", "handlers", "me", "quick", "received", "sent")

    def __init__(self, calendar: Calendar, me: AgentId) -> None:
        self._calendar = calendar
        self.me = me
        self.agent: Agent | None = None
        """The agent here while its machine is open: what is for it can be delivered at once."""
        self.handlers: HandlerTable = NO_HANDLERS
        """Its handlers, if finding the handler is all that it does with a message; else none."""
        self.quick = False
        """Whether a message from here needs nothing but the default link's delay."""
        self.sent = 0
        self.received = 0


class Place(_Used):
    """Belongs to one life of its machine; when that is over, nothing it is asked for happens."""

    __slots__ = ("_arrivals", "_arrives_s", "_arrives_to", "joined", "life", "machine")

    def __init__(self, sim: Simulation, machine: SimulatedMachine, life: Life, me: AgentId) -> None:
        super().__init__(sim.calendar, me)
        self.machine = machine
        self.life = life
        self.joined: Agent | None = None
        self._arrives_s = 0.0
        """When the last of the messages under way from here arrives."""
        self._arrives_to = NO_AGENT
        """To whom they are, while all are to one agent."""
        self._arrivals: dict[AgentId, float] | None = None
        """If not: when the last to each agent arrives."""

    @property
    def random(self) -> Random:
        return self.machine.sim.random

    def join(self, agent: Agent) -> None:
        self.joined = agent
        self.see_state()

    def leave(self) -> None:
        self.joined = None
        self.see_state()

    def see_state(self) -> None:
        """The machine, its network, or who is here has changed."""
        machine, is_open = self.machine, self.life.open
        self.agent = self.joined if is_open else None
        self.handlers = NO_HANDLERS if self.agent is None else self.agent.direct_handlers()
        self.quick = is_open and machine.sim.quick and len(machine.places) == 1

    def now(self) -> float:
        return self.machine.clock()

    def elapsed(self) -> float:
        machine = self.machine
        return (machine.moment_s() - self.life.began_s) * (1.0 + machine.spec.clock_drift)

    def awake(self) -> float:
        return self.elapsed() - self.life.frozen_s * (1.0 + self.machine.spec.clock_drift)

    def send(self, to: AgentId, message: Message) -> None:
        me = self.me
        if not self.quick or to == me:
            self._send_with_care(to, message)
            return
        calendar = self._calendar
        self.sent += 1
        try:
            arrives_s = calendar.delays.pop() + calendar.now
        except IndexError:
            calendar.delays = calendar.more_delays()
            arrives_s = calendar.delays.pop() + calendar.now
        if calendar.ordered:
            if self._arrives_s <= calendar.now:
                self._arrives_s = arrives_s
                self._arrives_to = to
                self._arrivals = None
            elif self._arrives_to is not to:
                arrives_s = self._in_order(to, arrives_s, 0.0)
            elif arrives_s < self._arrives_s:
                arrives_s = self._arrives_s
            else:
                self._arrives_s = arrives_s
        try:
            # int() would do the same and take five times as long.
            bucket = calendar.buckets[(arrives_s * calendar.per_s).__trunc__()]
        except KeyError:
            calendar.add((arrives_s, to, me, message))
        else:
            bucket.extend((arrives_s, to, me, message))

    def _send_with_care(self, to: AgentId, message: Message) -> None:
        """A message that may cost time, get lost, be doubled, or cross no network at all."""
        machine, life = self.machine, self.life
        if life.over:
            return
        sim, here, node = machine.sim, machine.node, node_of(to)
        leaves_s = machine.moment_s()
        if node == here:
            sim.schedule(leaves_s, life, partial(sim.hand_over, to, self.me, message))
            return
        counters, network = sim.counters, sim.network
        channel = network.channel(here, node)
        size_bytes = 0
        if counters.detail == "full" or channel.s_per_byte:
            size_bytes = size_of(message, self.me, to)
        counters.sent(self, message, size_bytes, leaves_s)
        if network.cut(here, node) or (channel.loss and network.random.random() < channel.loss):
            counters.dropped(here, message, arrived=False)
            return
        wire_s = size_bytes * channel.s_per_byte
        arrives_s = leaves_s + channel.draw() + wire_s
        if not channel.reorder:
            arrives_s = self._in_order(to, arrives_s, wire_s)
        self._calendar.add((arrives_s, to, self.me, message))
        if channel.duplication and network.random.random() < channel.duplication:
            counters.duplicated(message)
            again_s = max(arrives_s, leaves_s + channel.draw() + wire_s)
            self._calendar.add((again_s, to, self.me, message))

    def _in_order(self, to: AgentId, arrives_s: float, wire_s: float) -> float:
        """No earlier than the one before it to the same agent, which is on the wire first."""
        arrivals = self._arrivals
        if self._arrives_s <= self._calendar.now:
            arrivals = self._arrivals = {}
        elif arrivals is None:
            arrivals = self._arrivals = {self._arrives_to: self._arrives_s}
        before_s = arrivals.get(to)
        if before_s is not None:
            arrives_s = max(arrives_s, before_s + wire_s)
        elif len(arrivals) >= ARRIVALS_TO_PRUNE and len(arrivals).bit_count() == 1:
            now_s = self._calendar.now
            arrivals = self._arrivals = {to: s for to, s in arrivals.items() if s > now_s}
        arrivals[to] = arrives_s
        self._arrives_to = NO_AGENT
        self._arrives_s = max(arrives_s, self._arrives_s)
        return arrives_s

    def after(self, seconds: float, action: Action) -> Timer:
        machine = self.machine
        due_s = machine.moment_s() + machine.true_s(max(0.0, seconds))
        return machine.sim.schedule(due_s, self.life, action)

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        life = self.life
        return life.runner.start(job, lambda event: life.post(on_event, event), after=after)

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        if not self.life.over:
            self.life.runner.stop(handle, force=force)

    def fetch(
        self, wanted: Wanted, sources: Sequence[Node], on_done: Callable[[Fetched], None]
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
