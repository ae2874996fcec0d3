"""The simulation itself: virtual time, machines, and the loop that makes things happen.

Time is true time, in seconds from 0; machines have clocks of their own. Everything random comes
from the seed, so the same seed gives the same events in the same order in any process. The first
exception out of an agent, or out of anything else that runs in the simulation, ends it.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any, NoReturn, cast

from sureline.world.address import NO_NODE, Node, node_of
from sureline.world.agent import Agent
from sureline.world.protocol import Action, AgentId, Message, Unreachable, World
from sureline.world.simulated import loop
from sureline.world.simulated.calendar import Calendar, Entry, SimTimer
from sureline.world.simulated.counters import Counters, Detail
from sureline.world.simulated.machine import Life, MachineParts, MachineSpec, SimulatedMachine
from sureline.world.simulated.network import Network
from sureline.world.simulated.place import Place

IDEAL = MachineSpec()
PLAIN_PARTS = MachineParts()


class SimulationError(Exception):
    """Something in the simulation raised an exception. The seed reproduces it."""

    def __init__(self, seed: int, time_s: float, node: Node, error: BaseException) -> None:
        self.seed = seed
        self.time_s = time_s
        self.node = node
        where = f" on {node}" if node else ""
        what = f"{type(error).__name__}: {error}"
        super().__init__(f"seed {seed}, at {time_s:.6f} s{where}: {what}")


class Simulation:
    """A world of many machines in one process. `detail` says how finely messages are counted."""

    def __init__(
        self,
        seed: int = 0,
        network: Network | None = None,
        *,
        detail: Detail = "full",
        epoch_s: float = 0.0,
    ) -> None:
        self.seed = seed
        self.random = Random(f"{seed} agents")
        self.calendar = Calendar()
        self.epoch_s = epoch_s
        """What an exact clock says at time 0."""
        self.events = 0
        """How many have happened."""
        self.places: dict[AgentId, Place] = {}
        self.counters = Counters(detail, self.calendar)
        self.failed: SimulationError | None = None
        self._machines: dict[str, SimulatedMachine] = {}
        self.network = network or Network()
        self.network.bind(self, seed)
        self.quick = False
        """Whether a message needs nothing but the default link's delay."""
        self.network_changed()

    @property
    def time(self) -> float:
        """True virtual seconds."""
        return self.calendar.now

    # Machines and agents.

    def machine(
        self, node: Node, spec: MachineSpec | None = None, parts: MachineParts | None = None
    ) -> SimulatedMachine:
        """The machine of a node; made when it is first asked for. What it is like can be said
        only then."""
        found = self._machines.get(node)
        if found is None:
            found = SimulatedMachine(self, node, spec or IDEAL, parts or PLAIN_PARTS)
            self._machines[node] = found
        elif spec is not None or parts is not None:
            raise ValueError(f"{node} is there already: describe a machine before its first use")
        return found

    def machines(self) -> list[SimulatedMachine]:
        """In the order in which they were made."""
        return list(self._machines.values())

    def site_of(self, node: Node) -> str:
        found = self._machines.get(node)
        return found.spec.site if found is not None else ""

    def boot(self, node: Node, start: Action) -> None:
        """Run `start` now, and again on every restart of the node. It makes and joins agents."""
        machine = self.machine(node)
        machine.boot = start
        self.guard(node, start)

    def place(self, me: AgentId) -> World:
        """The World of the agent at address `me`, in the current life of its machine."""
        machine = self.machine(node_of(me))
        if machine.life is None:
            raise ValueError(f"{machine.node} is down: no agent can be placed there")
        made = Place(self, machine, machine.life, me)
        self.places[me] = made
        machine.add(made)
        return cast(World, made)  # its `random` is a property: nobody sets it

    def join(self, agent: Agent) -> None:
        """From now on messages to `agent.me` reach it."""
        place = self.places.get(agent.me)
        if place is None or place.life.over:
            raise ValueError(f"{agent.me} has no place: ask for one before its agent joins")
        place.join(agent)

    def leave(self, me: AgentId) -> None:
        place = self.places.get(me)
        if place is not None:
            place.leave()

    # Faults.

    def crash(self, node: Node) -> None:
        """The machine loses power: its agents are gone, and what was not synced."""
        self._end(node, power=True)

    def kill(self, node: Node) -> None:
        """Its process dies: its agents are gone, and what was not flushed."""
        self._end(node, power=False)

    def _end(self, node: Node, *, power: bool) -> None:
        self.machine(node).end("crash" if power else "kill")
        self.network.flows.changed(node)

    def restart(self, node: Node) -> None:
        """A machine that is down comes up again and boots; one that is up is left alone."""
        machine = self.machine(node)
        if machine.life is None:
            machine.begin()
            if machine.boot is not None:
                self.guard(node, machine.boot)

    def freeze(self, node: Node) -> None:
        """Stop the process, as SIGSTOP does: all that is due waits. Its clock goes on."""
        self.machine(node).freeze()

    def thaw(self, node: Node) -> None:
        """Go on: all that waited comes at once."""
        self.machine(node).thaw()

    def slow(self, node: Node, factor: float) -> None:
        """Everything takes `factor` times as long on this machine; 1 for normal."""
        self.machine(node).slow(factor)

    def step_clock(self, node: Node, seconds: float) -> None:
        """Somebody sets its clock forward, or back (below 0). What waits is not disturbed."""
        self.machine(node).stepped_s += seconds

    def partition(self, groups: Sequence[Collection[Node]]) -> None:
        """See Network.partition."""
        self.network.partition(groups)

    def sever(self, some: Collection[Node], others: Collection[Node]) -> None:
        """See Network.sever."""
        self.network.sever(some, others)

    def heal(self) -> None:
        self.network.heal()

    def at(self, time_s: float, action: Action) -> SimTimer:
        """Do something to the world at a moment of true time: a scripted fault, a submission."""
        return self.schedule(max(self.time, time_s), None, action)

    # Time.

    def run(
        self,
        until: float | None = None,
        condition: Callable[[], bool] | None = None,
        events_max: int | None = None,
        progress: Callable[[Simulation], None] | None = None,
    ) -> None:
        """Let things happen: until the time `until` (which it then is), or the condition holds
        (asked after every event), or so many events are over, or nothing is left to happen.
        `progress` is called every so many events."""
        if self.failed is not None:
            raise self.failed
        if condition is not None and condition():
            return
        with _quiet_collector():
            stopped = loop.run(self, loop.StopCondition(until, condition, events_max), progress)
        if until is not None and not stopped:
            self.calendar.now = max(self.calendar.now, until)

    def count_and_perform(self, entry: Entry) -> None:
        """Perform an entry that has not been counted with its bucket."""
        if self.counters.detail == "light" and entry[1] is not None:
            self.counters.arrived(int(entry[0]), [entry])
        self.perform(entry)

    def perform(self, entry: Entry) -> None:
        """Let one entry happen, or wait, or come to nothing."""
        _, to, sender, what = entry
        if to is None:
            loop.fire(entry)
            return
        place = self.places.get(to)
        if place is not None and place.agent is not None:
            self.counters.received(place, what, sender)
            place.agent.receive(sender, what)
        elif place is not None and place.joined is not None:
            place.machine.hold(entry)
        else:
            self.counters.dropped(node_of(sender), what, arrived=True)
            self._refuse(node_of(to), sender)

    def _refuse(self, node: Node, sender: AgentId) -> None:
        """If nobody listens at the node, whoever tried to reach it hears so, if it wants to."""
        machine = self._machines.get(node)
        if machine is not None and machine.life is not None:
            return
        origin = self.places.get(sender)
        if origin is None or origin.joined is None or not origin.joined.hears(Unreachable):
            return
        here = origin.machine.node
        if not self.network.cut(node, here):
            back_s = self.time + self.network.channel(node, here).draw()
            tell = partial(self.hand_over, sender, sender, Unreachable(node))
            self.schedule(back_s, origin.life, tell)

    def hand_over(self, to: AgentId, sender: AgentId, message: Message) -> None:
        """Deliver a message that crosses no network."""
        place = self.places.get(to)
        if place is not None and place.agent is not None:
            place.agent.receive(sender, message)

    def schedule(self, time_s: float, life: Life | None, action: Action) -> SimTimer:
        """Run the action at a moment of true time, in this life only; with None, in any case."""
        timer = SimTimer(action)
        self.calendar.add((time_s, None, life, timer))
        return timer

    def network_changed(self) -> None:
        """The network's links are others from now on."""
        link = self.network.default
        self.calendar.delays, self.calendar.more_delays = [], link.block
        self.calendar.ordered = not link.reorder
        quick = self.network.plain and self.counters.detail == "light"
        if quick != self.quick:
            self.quick = quick
            for machine in self._machines.values():
                machine.see_places()

    def guard(self, node: Node, action: Callable[..., None], *args: Any) -> None:
        """Do something on a node; an exception ends the simulation."""
        if self.failed is not None:
            raise self.failed
        try:
            action(*args)
        except Exception as error:
            self._end_with(node, error)

    def fail(self, entry: Entry | None, error: Exception) -> NoReturn:
        """The entry raised an exception: the simulation ends with it."""
        node = NO_NODE
        if entry is not None and entry[1] is not None:
            node = node_of(entry[1])
        elif entry is not None and entry[2] is not None:
            node = entry[2].machine.node
        self._end_with(node, error)

    def _end_with(self, node: Node, error: Exception) -> NoReturn:
        if self.failed is None:
            self.failed = SimulationError(self.seed, self.time, node, error)
            raise self.failed from error
        raise self.failed


@contextmanager
def _quiet_collector() -> Iterator[None]:
    """A collector of cycles that is not woken by every few allocations: what exists now is not
    looked at, what comes is looked at every EVENTS_PER_COLLECTION events."""
    was_enabled = gc.isenabled()
    gc.disable()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        if was_enabled:
            gc.enable()
