"""Machines, firewalls and TCP, simulated below the real transport: time is the loop's own.

What runs on it is the code that runs live, from TLS to the relays and the agents above: only the
loop is another one. Its clock goes on when nothing is left to do, its connections deliver in order,
each after a delay that the seed draws, and what a network does to them happens on demand:

    town.cut(a, b)          packets between two machines vanish, in both directions
    machine.kill()          its process ends: others are told by its system at once
    machine.vanish()        it loses its power: nobody is told anything
    machine.firewall = ...  who is not of its site cannot dial it: in silence, or refused

As live, a connection whose packets vanish is broken by the sender's system after UNACKNOWLEDGED_S,
and one end that says nothing does not notice. A seed draws everything, so a run can be repeated;
only keys and certificates differ, and nothing depends on what they are.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from sureline.world.net.limits import UNACKNOWLEDGED_S

BEGINNING_S = 1000.0
"""What the clock says when a story begins."""
CONNECT_GIVEN_UP_S = 120.0
STUCK_LOOK_S = 0.25
TURNS_MAX = 5_000_000
"""So many turns of the loop without an end are taken for a storm."""


class _Clock:
    """In the place of a selector: waiting is what makes time pass."""

    def __init__(self) -> None:
        self.now = BEGINNING_S
        self.turns = 0

    def select(self, timeout_s: float | None) -> list[Any]:
        self.turns += 1
        if timeout_s is None:
            raise AssertionError("everybody waits, and nothing will ever happen")
        assert self.turns < TURNS_MAX, f"no end after {self.turns} turns, at {self.now:.1f} s"
        self.now += timeout_s
        return []


class WireLoop(asyncio.BaseEventLoop):
    """The loop of a whole town; each machine has a view of it, by which it dials and listens."""

    def __init__(self) -> None:
        super().__init__()
        self._selector = self.clock = _Clock()

    def time(self) -> float:
        return self.clock.now

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class Machine:
    """One address. The loop of its process is the machine itself: what a process that is over had
    still to do is not done."""

    def __init__(self, town: Town, host: str, site: str) -> None:
        self.town = town
        self.host = host
        self.site = site
        self.firewall: Literal["", "silent", "refuses"] = ""
        self.has_power = True
        self._life = 0
        self._servers: dict[int, _Server] = {}
        # in the order in which they began: that of a set would be another each time
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.ends: dict[_End, None] = {}
        self._ports = iter(range(40_000, 60_000))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.town.loop, name)

    # What a process asks of its loop.

    def _while_alive(self, callback: Callable[..., object]) -> Callable[..., None]:
        life = self._life

        def call(*args: object) -> None:
            if self._life == life:
                callback(*args)

        return call

    def call_soon(self, callback: Callable[..., object], *args: object) -> asyncio.Handle:
        return self.town.loop.call_soon(self._while_alive(callback), *args)

    def call_later(
        self, delay_s: float, callback: Callable[..., object], *args: object
    ) -> asyncio.TimerHandle:
        return self.town.loop.call_later(delay_s, self._while_alive(callback), *args)

    def call_at(
        self, when: float, callback: Callable[..., object], *args: object
    ) -> asyncio.TimerHandle:
        return self.town.loop.call_at(when, self._while_alive(callback), *args)

    def create_task(self, work: Any) -> asyncio.Task[Any]:
        task = self.town.loop.create_task(work)
        self._tasks[task] = None
        task.add_done_callback(lambda over: self._tasks.pop(over, None))
        return task

    async def create_server(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int, **_: object
    ) -> _Server:
        port = port or next(self._ports)
        if port in self._servers:
            raise OSError(98, "Address already in use")
        server = self._servers[port] = _Server(self, port, factory)
        return server

    async def create_connection(
        self, factory: Callable[[], asyncio.Protocol], host: str, port: int
    ) -> tuple[_End, asyncio.Protocol]:
        town, life = self.town, self._life
        town.dials += 1
        there = town.machines.get(host)
        delay_s = town.delay_s()
        await asyncio.sleep(2 * delay_s)
        if there is None:
            raise OSError(113, "No route to host")
        if not there.has_power or not town.passes(self, there):
            await asyncio.sleep(CONNECT_GIVEN_UP_S)
            raise TimeoutError
        if there.firewall and there.site != self.site and there is not self:
            if there.firewall == "silent":
                await asyncio.sleep(CONNECT_GIVEN_UP_S)
            raise ConnectionRefusedError(111, "Connection refused")
        server = there._servers.get(port)
        if server is None or life != self._life:
            raise ConnectionRefusedError(111, "Connection refused")
        ours, theirs = _End(self, delay_s), _End(there, delay_s)
        ours.other, theirs.other = theirs, ours
        theirs.begin(server.factory())
        ours.begin(factory())
        return ours, ours.protocol

    # What befalls it.

    def kill(self) -> None:
        """Its process ends; its system tells all who are connected with it."""
        self._forget_process(tell=True)

    def vanish(self) -> None:
        """Its power is off; `kill` and `has_power` make it a machine without a process again."""
        self.has_power = False
        self._forget_process(tell=False)

    def _forget_process(self, *, tell: bool) -> None:
        self._life += 1
        self._servers.clear()
        for end in list(self.ends):
            end.die(tell=tell)
        for task in list(self._tasks):
            task.cancel()


class _Server:
    def __init__(
        self, machine: Machine, port: int, factory: Callable[[], asyncio.Protocol]
    ) -> None:
        self.factory = factory
        self.sockets = [self]
        self._machine = machine
        self._port = port

    def getsockname(self) -> tuple[str, int]:
        return self._machine.host, self._port

    def close(self) -> None:
        if self._machine._servers.get(self._port) is self:
            del self._machine._servers[self._port]


EOF, RESET = object(), object()


class _End(asyncio.Transport):
    """One end of a connection: what is written here arrives at the other, in order."""

    other: _End
    protocol: asyncio.Protocol

    def __init__(self, machine: Machine, delay_s: float) -> None:
        super().__init__()
        self._machine = machine
        self._town = machine.town
        self._delay_s = delay_s
        self._out: deque[tuple[float, Any]] = deque()
        """What is under way, and when it would be there; what nobody has taken yet stays here."""
        self._out_bytes = 0
        self._high, self._low = 1 << 16, 1 << 14
        self._paused = self._reading_paused = self._closing = self._over = False
        self._dead = False
        """The process or the machine is gone: nobody here hears anything any more."""
        self._pump_due: asyncio.TimerHandle | None = None
        self._stuck_since: float | None = None

    def begin(self, protocol: asyncio.Protocol) -> None:
        self.protocol = protocol
        self._machine.ends[self] = None
        protocol.connection_made(self)

    # What its user calls.

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self.other._machine.host, 0) if name == "peername" else default

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        assert isinstance(protocol, asyncio.Protocol)
        self.protocol = protocol

    def is_closing(self) -> bool:
        return self._closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high, self._low = high or 1 << 16, low or 1 << 14

    def get_write_buffer_size(self) -> int:
        return self._out_bytes

    def pause_reading(self) -> None:
        self._reading_paused = True

    def resume_reading(self) -> None:
        self._reading_paused = False
        self.other._pump_soon(0.0)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if self._closing or self._dead or not data:
            return
        self._put(bytes(data))
        self._out_bytes += len(data)
        if self._out_bytes > self._high and not self._paused:
            self._paused = True
            self.protocol.pause_writing()

    def close(self) -> None:
        if not self._closing and not self._dead:
            self._closing = True
            self._put(EOF)

    def abort(self) -> None:
        if not self._over and not self._dead:
            self._reset()
            self._lost(None)

    # Within.

    def die(self, *, tell: bool) -> None:
        """The process at this end is gone."""
        self._dead = True
        self._machine.ends.pop(self, None)
        if tell:
            self._reset()
        else:
            self._out.clear()

    def _reset(self) -> None:
        self._out.clear()
        self._put(RESET)

    def _put(self, what: Any) -> None:
        due = self._town.loop.time() + self._delay_s * self._town.rng.uniform(1.0, 1.2)
        if self._out:
            due = max(due, self._out[-1][0])
        self._out.append((due, what))
        self._pump_soon(due - self._town.loop.time())

    def _pump_soon(self, seconds: float) -> None:
        if self._pump_due is None and self._out:
            self._pump_due = self._town.loop.call_later(max(0.0, seconds), self._pump)

    def _pump(self) -> None:
        """Hand over what is due."""
        self._pump_due = None
        now, other = self._town.loop.time(), self.other
        while self._out:
            due, what = self._out[0]
            if due > now:
                self._pump_soon(due - now)
                return
            if other._machine.has_power is False or not self._town.passes(
                self._machine, other._machine
            ):
                self._stuck(now)
                return
            if other._dead or other._over:
                self._out.clear()
                if what is not RESET and what is not EOF:
                    self._lost(ConnectionResetError(104, "Connection reset by peer"))
                elif self._closing:
                    self._lost(None)
                return
            if other._reading_paused and what is not RESET:
                return  # its system confirms what nobody reads: nothing breaks
            self._stuck_since = None
            self._out.popleft()
            self._arrived(what, other)

    def _arrived(self, what: Any, other: _End) -> None:
        if what is RESET:
            other._lost(ConnectionResetError(104, "Connection reset by peer"))
        elif what is EOF:
            self._lost(None)
            other.protocol.eof_received()
            other._lost(None)
        else:
            self._out_bytes -= len(what)
            other.protocol.data_received(what)
            if self._paused and self._out_bytes < self._low and not self._over:
                self._paused = False
                if not self._dead:
                    self.protocol.resume_writing()

    def _stuck(self, now: float) -> None:
        if self._stuck_since is None:
            self._stuck_since = now
        if self._dead or self._over or now - self._stuck_since > UNACKNOWLEDGED_S:
            self._out.clear()
            self._lost(TimeoutError(110, "Connection timed out"))
        else:
            self._pump_soon(STUCK_LOOK_S)

    def _lost(self, error: Exception | None) -> None:
        if self._over:
            return
        self._over = self._closing = True
        self._machine.ends.pop(self, None)
        if not self._dead:
            self._machine.call_soon(self.protocol.connection_lost, error)


class Town:
    """All machines, what lies between them, and the seed that draws it."""

    def __init__(self, loop: WireLoop, seed: int) -> None:
        self.loop = loop
        self.rng = random.Random(seed)
        self.machines: dict[str, Machine] = {}
        self.dials = 0
        self._cuts: set[frozenset[str]] = set()

    def machine(self, site: str) -> Machine:
        host = f"10.0.{len(self.machines) // 250}.{len(self.machines) % 250 + 1}"
        found = self.machines[host] = Machine(self, host, site)
        return found

    def delay_s(self) -> float:
        return self.rng.choice((0.0002, 0.001, 0.02)) * self.rng.uniform(0.5, 1.5)

    def passes(self, one: Machine, other: Machine) -> bool:
        return frozenset((one.host, other.host)) not in self._cuts

    def cut(self, one: Machine, other: Machine) -> None:
        self._cuts.add(frozenset((one.host, other.host)))

    def heal(self) -> None:
        self._cuts.clear()


def simulate(seed: int, test: Callable[[Town], Any]) -> Town:
    """Run a coroutine function on a town of its own; the network's own draws are of the seed."""
    random.seed(seed)
    with asyncio.Runner(loop_factory=WireLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, WireLoop)
        town = Town(loop, seed)
        runner.run(test(town))
    return town
