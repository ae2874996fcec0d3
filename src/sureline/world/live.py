"""The live world: real time, real processes, one event loop.

Messages between agents of this process go through memory. With a `Transport`, those for an agent
of another node go over the network, and what the network brings is put into the same queue: an
agent cannot tell the difference. While more than MAIL_MAX messages wait, nothing is read from the
network.

`LiveWorld` is shared by the agents of one process; `place(me)` gives each agent its World. What
touches the machine is injected: a `Runner` of jobs, a `Fetcher` of files, a `Recorder` of events.
All of it must be called, and calls back, on the loop's own thread.

Records are handed to the recorder at once and flushed in groups: at most FLUSH_S apart, or when a
`flush` or `sync` asks. That is the only buffering: what survives a crash is a prefix of what was
recorded.

An exception that an agent lets out is a mistake in the program and ends the world, but for one
case: the handler of a message that another node sent. Else whoever finds a message that some
handler cannot take could end every peer of a grid with it. Such a message is dropped, one line in
the log names its sender and type, and the traceback is there at the level of debugging. A recorder
that fails ends the world wherever that happens: nobody may go on as if something were on record.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from random import Random, SystemRandom
from typing import Protocol

from sureline.world.address import NO_NODE, Node, node_of
from sureline.world.agent import Agent
from sureline.world.awake import AwakeTime
from sureline.world.net.complaints import Complaints
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
    Unreachable,
    Wanted,
    World,
)

log = logging.getLogger("sureline.world")

FLUSH_S = 0.01
DELIVERIES_PER_TURN = 256
MAIL_MAX = 4096
"""What may wait before the network is held back; it goes on at half of that."""


class Runner(Protocol):
    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle: ...
    def stop(self, handle: JobHandle, *, force: bool = False) -> None: ...


class Fetcher(Protocol):
    def fetch(
        self, wanted: Wanted, sources: Sequence[Node], on_done: Callable[[Fetched], None]
    ) -> None: ...


class Recorder(Protocol):
    def record(self, event: Recordable) -> None: ...
    def flush(self) -> None: ...
    def sync(self, on_durable: Action) -> None: ...
    def put(self, key: str, value: bytes) -> None: ...
    def get(self, key: str) -> bytes | None: ...


class Transport(Protocol):
    """Carries messages between nodes; `world.net.transport` has the real one."""

    def attach(
        self,
        on_message: Callable[[AgentId, AgentId, Message], None],
        on_unreachable: Callable[[Node], None],
    ) -> None: ...
    def send(self, to: AgentId, sender: AgentId, message: Message) -> None: ...
    def hold(self) -> None:
        """Bring no more messages until `release`."""

    def release(self) -> None: ...


class LiveWorld:
    """Delivers messages, keeps time, groups flushes. `on_crash` hears of any exception that an
    agent or an injected part lets out, except as said in the module; the world stops delivering
    after the first. `node` is this process's node on the transport's network; both are given, or
    neither. `dropped` counts the messages of other nodes that no handler could take."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        runner: Runner,
        fetcher: Fetcher,
        recorder: Recorder,
        *,
        on_crash: Callable[[BaseException], None],
        random: Random | None = None,
        transport: Transport | None = None,
        node: Node = NO_NODE,
    ) -> None:
        self.loop = loop
        self.runner = runner
        self.fetcher = fetcher
        self.recorder = recorder
        self.random = random or SystemRandom()
        self._on_crash = on_crash
        self._agents: dict[AgentId, Agent] = {}
        self._mail: deque[tuple[AgentId, AgentId, Message]] = deque()
        self._delivering = False
        self._flush_due: asyncio.TimerHandle | None = None
        self._crashed = False
        self.node = node
        self.transport = transport
        self._holding = False
        self.dropped = 0
        self.awake = AwakeTime(loop.time)
        self._complaints = Complaints(loop.time, log)
        if transport is not None:
            transport.attach(self._hear, self._miss)

    def place(self, me: AgentId, runner: Runner | None = None) -> World:
        """The World of the agent at address `me`; its jobs are run by `runner`, if it has one of
        its own."""
        if self.transport is None:
            return _Place(self, me, runner or self.runner)
        return _PlaceOnNetwork(self, me, runner or self.runner, self.transport)

    def join(self, agent: Agent) -> None:
        """From now on messages to `agent.me` reach it."""
        self._agents[agent.me] = agent

    def leave(self, me: AgentId) -> None:
        self._agents.pop(me, None)

    def guard(self, action: Callable[..., None], *args: object) -> None:
        """Run an action; an exception ends this world, once, and reaches `on_crash`."""
        if self._crashed:
            return
        try:
            action(*args)
        except Exception as error:
            self.crash(error)

    def fire(self, due_s: float, action: Action) -> None:
        """Run what was due then."""
        self.awake.fired(due_s)
        self.guard(action)

    def crash(self, error: BaseException) -> None:
        if not self._crashed:
            self._crashed = True
            self._mail.clear()
            self._on_crash(error)

    def post(self, sender: AgentId, to: AgentId, message: Message) -> None:
        self._mail.append((sender, to, message))
        if not self._delivering:
            self._delivering = True
            self.loop.call_soon(self._deliver)

    def _hear(self, sender: AgentId, to: AgentId, message: Message) -> None:
        """A message from another node."""
        if self._crashed:
            return
        self.post(sender, to, message)
        if len(self._mail) > MAIL_MAX and not self._holding and self.transport is not None:
            self._holding = True
            self.transport.hold()

    def _miss(self, node: Node) -> None:
        """A node is gone: tell those who care, in the order in which they joined."""
        for me, agent in self._agents.items():
            if agent.hears(Unreachable):
                self.post(me, me, Unreachable(node))

    def _read_on(self) -> None:
        if len(self._mail) <= MAIL_MAX // 2 and self.transport is not None:
            self._holding = False
            self.transport.release()

    def _deliver(self) -> None:
        """Deliver what there is, and what that causes: an answer need not wait for the next turn
        of the loop, but the loop gets one after DELIVERIES_PER_TURN."""
        for _ in range(DELIVERIES_PER_TURN):
            if not self._mail:
                self._delivering = False
                return
            sender, to, message = self._mail.popleft()
            agent = self._agents.get(to)
            if agent is not None and not self._crashed:
                try:
                    agent.receive(sender, message)
                except Exception as error:
                    self._failed(sender, to, message, error)
        if self._holding:
            self._read_on()
        if not self._crashed:
            self.loop.call_soon(self._deliver)

    def _failed(self, sender: AgentId, to: AgentId, message: Message, error: Exception) -> None:
        """A handler let an exception out; see the module for what becomes of it."""
        if self.transport is None or node_of(sender) == self.node:
            self.crash(error)
        elif not self._crashed:
            self.dropped += 1
            kind = type(message).__name__
            self._complaints.say(
                "dropped",
                f"{node_of(sender)} {kind}",
                f"a {kind} from {sender} was dropped: {to} could not take it ({error!r:.200})",
            )
            log.debug("%s from %s", kind, sender, exc_info=error)

    @contextlib.contextmanager
    def or_crash(self) -> Iterator[None]:
        """Run what the recorder must not fail at: if it does, this world ends."""
        try:
            yield
        except Exception as error:
            self.crash(error)
            raise

    def record(self, event: Recordable) -> None:
        try:
            self.recorder.record(event)
        except Exception as error:
            self.crash(error)
            raise
        if self._flush_due is None:
            self._flush_due = self.loop.call_later(FLUSH_S, self._flush)

    def _flush(self) -> None:
        self._flush_due = None
        self.guard(self.recorder.flush)


class _Place:
    """One agent's World. See `protocol.World` for the contract."""

    __slots__ = ("_live", "_me", "_runner", "random")

    def __init__(self, live: LiveWorld, me: AgentId, runner: Runner) -> None:
        self._live = live
        self._me = me
        self._runner = runner
        self.random = live.random

    def now(self) -> float:
        return time.time()

    def elapsed(self) -> float:
        return self._live.loop.time()

    def awake(self) -> float:
        return self._live.awake()

    def send(self, to: AgentId, message: Message) -> None:
        self._live.post(self._me, to, message)

    def after(self, seconds: float, action: Action) -> Timer:
        loop = self._live.loop
        due_s = loop.time() + max(0.0, seconds)
        return loop.call_at(due_s, self._live.fire, due_s, action)

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        guard = self._live.guard
        return self._runner.start(job, lambda event: guard(on_event, event), after=after)

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        self._runner.stop(handle, force=force)

    def fetch(
        self, wanted: Wanted, sources: Sequence[Node], on_done: Callable[[Fetched], None]
    ) -> None:
        guard = self._live.guard
        self._live.fetcher.fetch(wanted, sources, lambda fetched: guard(on_done, fetched))

    def record(self, event: Recordable) -> None:
        self._live.record(event)

    def flush(self) -> None:
        with self._live.or_crash():
            self._live.recorder.flush()

    def sync(self, on_durable: Action) -> None:
        with self._live.or_crash():
            self._live.recorder.sync(lambda: self._live.guard(on_durable))

    def put(self, key: str, value: bytes) -> None:
        with self._live.or_crash():
            self._live.recorder.put(key, value)

    def get(self, key: str) -> bytes | None:
        with self._live.or_crash():
            return self._live.recorder.get(key)

    def busy(self, seconds: float) -> None:
        """A live handler has already cost what it costs."""


class _PlaceOnNetwork(_Place):
    """Likewise, where there are other nodes."""

    __slots__ = ("_node", "_transport")

    def __init__(self, live: LiveWorld, me: AgentId, runner: Runner, transport: Transport) -> None:
        super().__init__(live, me, runner)
        self._node = live.node
        self._transport = transport

    def send(self, to: AgentId, message: Message) -> None:
        node = node_of(to)
        if node == self._node or "@" not in node:
            self._live.post(self._me, to, message)
        else:
            self._transport.send(to, self._me, message)
