"""Sites with queues of their own as a lean simulated world, around the real engine of one run.

The whole grid in the simulator (`grid`) costs half a minute for 300 jobs at twelve sites, most of
it for keepers and gossip that a site's queue does not have. Here the engine of a run, its strategy
and an agent for each site run as they are, from the same code as live; what is modelled is the
sites: their processors, what others leave of them, transfers, failures, times of being down.

The same seed gives the same run, and all strategies meet the same history of a site: what happens
there is drawn from a source of its own.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from itertools import count
from random import Random
from typing import Any

import msgspec

from sureline.experiments.site_model import SimulatedSite, SiteTrait
from sureline.journal.events import Event, RunEnded, TaskBound, TaskEnded
from sureline.peer.agent import PeerAgent
from sureline.peer.capacity import Capacity
from sureline.peer.jobs import FileReady, JobEnded, PublishJob, UserFile
from sureline.run.engine import Hearers, RunEngine
from sureline.run.estimates import Estimates
from sureline.run.options import Options
from sureline.run.outlook import Seer
from sureline.run.past import KeptAnswer, KeptFiles, PastUnknown
from sureline.run.port import Seat, Target
from sureline.strategies import settings_of, strategy
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Graph
from sureline.world.address import Node, PeerName
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
    Wanted,
)

EPOCH_S = 1.7e9
DAY_S = 86_400.0
WRITER = AgentId("writer")
ROOM = Capacity(1e6, 1 << 60)
"""Of a site's agent: whatever is sent goes into the site's queue."""


class _Timer:
    __slots__ = ("action",)

    def __init__(self, action: Action) -> None:
        self.action: Action | None = action

    def cancel(self) -> None:
        self.action = None


class SiteWorld:
    """Virtual time, and messages that take none."""

    def __init__(self, seed: int) -> None:
        self.random = Random(f"{seed} strategy")
        self.time = 0.0
        self._heap: list[tuple[float, int, _Timer]] = []
        self._number = count()
        self._mail: deque[tuple[AgentId, AgentId, Message]] = deque()
        self._agents: dict[AgentId, Agent] = {}
        self.records: list[Event] = []

    def join(self, agent: Agent) -> None:
        self._agents[agent.me] = agent

    def after(self, seconds: float, action: Action) -> _Timer:
        timer = _Timer(action)
        heapq.heappush(self._heap, (self.time + max(0.0, seconds), next(self._number), timer))
        return timer

    def post(self, sender: AgentId, to: AgentId, message: Message) -> None:
        self._mail.append((sender, to, message))

    def run(self, until: Callable[[], bool], limit_s: float) -> None:
        while not until():
            while self._mail:
                sender, to, message = self._mail.popleft()
                if to in self._agents:
                    self._agents[to].receive(sender, message)
            if until() or not self._heap or self._heap[0][0] > limit_s:
                return
            self.time, _, timer = heapq.heappop(self._heap)
            if timer.action is not None:
                timer.action()


class _Place:
    """The World of one agent; `site` runs its jobs."""

    def __init__(self, world: SiteWorld, me: AgentId, site: SimulatedSite | None = None) -> None:
        self._world = world
        self._me = me
        self._site = site
        self.random = world.random

    def now(self) -> float:
        return EPOCH_S + self._world.time

    def elapsed(self) -> float:
        return self._world.time

    def awake(self) -> float:
        return self._world.time

    def send(self, to: AgentId, message: Message) -> None:
        self._world.post(self._me, to, message)

    def after(self, seconds: float, action: Action) -> _Timer:
        return self._world.after(seconds, action)

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        if isinstance(job, PublishJob):
            self._world.after(0.0, lambda: on_event(JobEnded("succeeded")))
            return object()
        assert self._site is not None, "only sites run jobs here"
        return self._site.start(job, on_event)

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        assert self._site is not None, "only sites run jobs here"
        self._site.stop(handle)

    def fetch(
        self, wanted: Wanted, sources: Sequence[Node], on_done: Callable[[Fetched], None]
    ) -> None:
        answer: Fetched = PastUnknown()
        if isinstance(wanted, UserFile):
            answer = FileReady(FileRecord(wanted.path, f"given {wanted.path}", 0))
        elif isinstance(wanted, KeptFiles):
            answer = KeptAnswer(True)
        elif isinstance(wanted, Estimates):
            answer = Seer({}).estimates(wanted)
        self._world.after(0.0, lambda: on_done(answer))

    def record(self, event: Recordable) -> None:
        if isinstance(event, (TaskBound, TaskEnded, RunEnded)):
            self._world.records.append(event)

    def flush(self) -> None: ...

    def sync(self, on_durable: Action) -> None:
        self._world.after(0.0, on_durable)

    def put(self, key: str, value: bytes) -> None: ...

    def get(self, key: str) -> bytes | None:
        return None

    def busy(self, seconds: float) -> None: ...


class SiteRunFound(msgspec.Struct, frozen=True):
    """One run: when each task was done, in order; empty if it did not end well within a day."""

    done_s: tuple[float, ...]
    withdrawn: int
    sent: dict[str, int]
    """How many attempts each site was given."""
    failed: int

    @property
    def makespan_s(self) -> float:
        return self.done_s[-1] if self.done_s else DAY_S


def run_at_sites(
    graph: Graph,
    sites: Sequence[SiteTrait],
    settings: dict[str, Any],
    seed: int,
    name: str = "opportunistic",
) -> SiteRunFound:
    """One run of a graph by a strategy at these sites."""
    world = SiteWorld(seed)
    options = Options(strategy=name, retry_delay_s=1.0)
    chosen = strategy(name)
    seat_at = AgentId("seat")
    seat = Seat(seat_at, _Place(world, seat_at), "run", settings_of(chosen, settings), dict)
    over: list[RunEnded] = []
    engine = RunEngine(
        WRITER, _Place(world, WRITER), "run", graph, options, chosen.deciding(seat),
        Hearers(over.append),
    )  # fmt: skip
    world.join(engine)
    targets = []
    for trait in sites:
        me = AgentId(trait.name)
        site = SimulatedSite(trait, graph, world.after, Random(f"{seed} {trait.name}"))
        world.join(PeerAgent(me, _Place(world, me, site), ROOM))
        capacity = Capacity(trait.processors, 1 << 60)
        targets.append(Target(PeerName(trait.name), me, capacity, site=trait.name))
    engine.start(targets)
    world.run(lambda: bool(over), DAY_S)
    return _found(world.records, over)


def _found(records: Sequence[Event], over: Sequence[RunEnded]) -> SiteRunFound:
    ends = [event for event in records if isinstance(event, TaskEnded)]
    good = [event for event in ends if event.outcome == "succeeded"]
    sent: dict[str, int] = {}
    for event in records:
        if isinstance(event, TaskBound):
            sent[event.peer] = sent.get(event.peer, 0) + 1
    whole = bool(over) and over[0].state == "succeeded"
    return SiteRunFound(
        tuple(sorted(event.at - EPOCH_S for event in good)) if whole else (),
        sum(event.outcome == "cancelled" for event in ends),
        sent,
        sum(event.outcome in ("failed", "lost") for event in ends),
    )
