"""The testbed of the paper: two sites of pilots, one queue, a workflow in two steps, or several.

The agents are the real ones: the queue, pilots and masters with their hash table and broadcast, the
half on each machine, and the half beside the run's writer. Simplified are what surrounds them: who
is a member does not change, the engine is a list of tasks, a machine runs one task at a time and
fetches its inputs in a fixed time, and what the hash table would answer is known at once.

What the paper does not tell is assumed, the same for all architectures: see the constants.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import msgspec

from sureline.overlay.kademlia import Kademlia
from sureline.overlay.membership import Member, Offer
from sureline.peer.admitting import Look
from sureline.peer.capacity import Capacity, Ledger
from sureline.peer.jobs import CommandJob, JobEnded
from sureline.peer.messages import AttemptMessage, Bind, Finished, Withdraw
from sureline.run.estimates import Estimate, EstimatesFound
from sureline.run.port import Bound, Over, Seat, Target
from sureline.strategies.latebinding.entry import QueueEntry
from sureline.strategies.latebinding.half import PilotHalf
from sureline.strategies.latebinding.messages import SetShare
from sureline.strategies.latebinding.pilot import PART, SITE, SITE_SETTINGS, PilotAgent
from sureline.strategies.latebinding.queue import PART as QUEUE
from sureline.strategies.latebinding.queue import TaskQueue
from sureline.strategies.latebinding.settings import Architecture, LateSettings, PilotHalfSettings
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Command, Graph, Task
from sureline.world.address import AgentId, Node, PeerName, at, name_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import World
from sureline.world.simulated import Simulation

Kind = Literal["serial", "splitting", "merging"]
KINDS: tuple[Kind, ...] = ("serial", "splitting", "merging")

JOB_S = 198.0
"""The mean job, 3.3 minutes; SPREAD is the width of their lognormal distribution."""
SPREAD = 0.25
UPLOAD_S = 2.0
DOWNLOAD_S = 2.0
"""The report of a job, and the next job: what is left of a delay where the queue answers at once
(the paper: about 5 s)."""
PEER_S = 1.0
"""A file from another pilot, and ELEMENT_S from the storage element, of which ELEMENT_READERS
are served at a time."""
ELEMENT_S = 5.0
ELEMENT_READERS = 100
FILE_BYTES = 100_000_000
BOOT_S = 10.0
BEGIN_S = 40.0
SAMPLE_S = 10.0
END_S = 40_000.0
SITES = ("infiniband", "grid")


class Sample(msgspec.Struct, frozen=True):
    """One instant of a run."""

    time_s: float
    running: int
    requests: int
    """So far."""
    pending: int
    """Requests that wait at the queue."""
    delay_s: float
    """Mean of the delays between tasks that ended since the last sample; 0 if there were none."""


class TestbedRun(msgspec.Struct, frozen=True):
    """What came of one workflow."""

    architecture: Architecture
    kind: Kind
    pilots: int
    tasks: int
    seed: int
    requests: int
    """That the queue had to process."""
    by_name: dict[str, int]
    files: int
    """Jobs downloaded and reports uploaded."""
    delay_s: float
    """Mean time between two tasks of a pilot."""
    median_delay_s: float
    turnaround_s: float
    startup_s: float
    """Until nine of ten pilots had their first task."""
    reads: int
    local: int
    from_peers: int
    broadcasts: int
    samples: tuple[Sample, ...]
    done: int
    dependent_delay_s: float
    """Mean time from the end of the last task that another waits for to that one's beginning."""


class _Element:
    """A storage element with a limit on its readers."""

    def __init__(self, sim: Simulation) -> None:
        self._sim = sim
        self._free = ELEMENT_READERS
        self._waiting: deque[Callable[[], None]] = deque()

    def read(self, then: Callable[[], None]) -> None:
        if not self._free:
            self._waiting.append(then)
            return
        self._free -= 1

        def over() -> None:
            self._free += 1
            then()
            if self._waiting:
                self.read(self._waiting.popleft())

        self._sim.at(self._sim.time + ELEMENT_S, over)


class _Everywhere:
    """In place of the membership: all know at once who has come."""

    def __init__(self) -> None:
        self.members: list[Member] = []
        self.there: set[Node] = set()
        self.hearers: list[Callable[[Member], None]] = []

    def come(self, node: Node, offer: Offer) -> None:
        member = Member(node, 1, 0, "alive", offer)
        self.members.append(member)
        self.there.add(node)
        for hear in self.hearers:
            hear(member)


class _Host:
    """What a pilot sees of its node: all members that have come."""

    kademlia: Any = None

    def __init__(self, sim: Simulation, node: Node, grid: _Everywhere):
        self._sim, self.node, self._grid = sim, node, grid

    def place(self, part: str) -> World:
        return self._sim.place(at(self.node, part))

    def members(self) -> list[Member]:
        return self._grid.members

    def has(self, node: Node) -> bool:
        return node in self._grid.there

    def watch(self, hear: Callable[[Member], None]) -> None:
        self._grid.hearers.append(hear)

    def attending(self) -> bool:
        return True


_Given = tuple[AgentId, Bind]
"""A task, and the writer that bound it."""


def _made(run: str, task: str) -> FileRecord:
    return FileRecord(f"{task}.out", f"made by {task} of {run}", FILE_BYTES)


def _key(said: AttemptMessage) -> tuple[str, str, int]:
    return said.run, said.task, said.attempt


class _Bench(Agent):
    """A pilot's machine: one task at a time, the next one's inputs meanwhile."""

    def __init__(self, me: AgentId, world: World, bed: Testbed, site: str) -> None:
        super().__init__(me, world)
        self.capacity = Capacity(1.0, 8 << 30, 1 << 40)
        self.ledger = Ledger(self.capacity)
        self.leaving = False
        self._bed, self._site = bed, site
        self.half = PilotHalf(self, world, PilotHalfSettings())
        self.cache: dict[str, None] = {}
        self._waiting: dict[tuple[str, str, int], tuple[Bind, int]] = {}
        """What has not begun, and how many of its inputs had to be fetched."""
        self._ready: deque[_Given] = deque()
        self._running: _Given | None = None
        self._ended_s: float | None = None
        self._more = True
        """Whether tasks were ready when the last one ended here."""

    def look_again(self) -> None:
        """All that is ready may start."""

    def writer(self, run: str) -> AgentId | None:
        return None

    def look(self, key: tuple[str, str, int]) -> Look:
        return Look("waiting" if key in self._waiting else "running")

    def tell_again(self, key: tuple[str, str, int]) -> None:
        raise AssertionError("nobody asks here")

    end = tell_again

    @handles(Bind)
    def on_bind(self, sender: AgentId, bind: Bind) -> None:
        self.half.admitted(bind)
        self._waiting[_key(bind)] = bind, 0
        self._bed.files += 1
        self.world.after(DOWNLOAD_S, partial(self._fetch, (sender, bind)))

    @handles(Withdraw)
    def on_withdraw(self, sender: AgentId, asked: Withdraw) -> None:
        found, ended = self._waiting.pop(_key(asked), None), JobEnded("cancelled")
        if found is not None:
            self.half.over(found[0], ended, began=False)
            self.world.send(sender, Finished(*_key(asked), ended))

    def _fetch(self, given: _Given) -> None:
        bind = given[1]
        assert isinstance(bind.job, CommandJob)
        missing = [file.digest for file in bind.job.inputs if file.digest not in self.cache]
        if _key(bind) in self._waiting:
            self._waiting[_key(bind)] = bind, len(missing)
        left = len(missing)

        def come(digest: str) -> None:
            nonlocal left
            left -= 1
            self.cache[digest] = None
            if not left:
                self._is_ready(given)

        if not self._bed.shares_files:  # the job itself reads from the storage element
            self._is_ready(given)
            return
        for digest in missing:
            self.world.after(PEER_S, partial(come, digest))
        if not missing:
            self._is_ready(given)

    def _is_ready(self, given: _Given) -> None:
        self._ready.append(given)
        self._start()

    def _start(self) -> None:
        if self._running is not None or not self._ready:
            return
        given = self._ready.popleft()
        found = self._waiting.pop(_key(given[1]), None)
        if found is None:  # it was withdrawn
            self._start()
            return
        self._running, job = given, given[1].job
        delay_s = None if self._ended_s is None else self._bed.sim.time - self._ended_s
        assert isinstance(job, CommandJob)
        read = [file.digest for file in job.inputs]
        self._bed.began(given[1], len(read), found[1])
        self._tell_load(1.0)
        self._bed.started(delay_s, read, counts=self._more)
        self._read_and_run(given, [digest for digest in read if digest not in self.cache])

    def _read_and_run(self, given: _Given, missing: list[str]) -> None:
        """What no cache has is read from the storage element, one file after the other."""
        if missing:
            self.cache[missing.pop()] = None
            self._bed.elements[self._site].read(lambda: self._read_and_run(given, missing))
        else:
            self.world.after(self._bed.draw_s(), partial(self._end, given))

    def _tell_load(self, cores: float) -> None:
        """As membership does."""
        for engine in self._bed.engines:
            engine.entry.load(name_of(self.me), cores)

    def _end(self, given: _Given) -> None:
        writer, bind = given
        self._ended_s, self._running = self._bed.sim.time, None
        self._more = any(engine.has_ready(self._site) for engine in self._bed.engines)
        made = _made(bind.run, bind.task)
        self.cache[made.digest] = None
        self._bed.made_s[made.digest] = self._bed.sim.time
        ended = JobEnded("succeeded", 0, elapsed_s=JOB_S, cpu_s=JOB_S, outputs=(made,))
        self._bed.ended()
        self._tell_load(0.0)
        self._start()
        # An old pilot hands in its report before it asks for more; ours does so meanwhile.
        pause_s = 0.0 if self._bed.architecture == "event" else UPLOAD_S

        def handed_in() -> None:
            self._bed.files += 1
            self.half.over(bind, ended, began=True)
            self.world.send(writer, Finished(bind.run, bind.task, bind.attempt, ended))

        self.world.after(pause_s, handed_in)


class _Engine(Agent):
    """A list of tasks in place of a run's engine, and the writer that pilots report to."""

    epoch = 1

    def __init__(self, me: AgentId, world: World, bed: Testbed, run: str) -> None:
        super().__init__(me, world)
        self._bed, self.run = bed, run
        self.bound_s: list[float] = []
        """When each of its tasks was."""
        self.graph = bed.graph
        self._missing = [len(parents) for parents in self.graph.parents]
        self._open: set[int] = set()
        self._open_at: Counter[str] = Counter()
        self._attempts: dict[int, Bound] = {}
        self._made_at: dict[int, PeerName] = {}
        self.entry: QueueEntry
        self.done = self.taken_back = 0
        self.end_s = 0.0

    def begin(self) -> None:
        self.entry.begin(self, (), self._go)  # type: ignore[arg-type]  # as much as it uses

    def _go(self) -> None:
        for target in self._bed.targets.values():
            self.entry.target(target)
        for task, missing in enumerate(self._missing):
            if not missing:
                self._ready(task)

    def _ready(self, task: int) -> None:
        self._open.add(task)
        self._open_at[self._home(task)] += 1
        self.entry.ready(task)

    def has_ready(self, site: str) -> bool:
        """Whether a task waits that may begin at this site."""
        return self._open_at[""] + self._open_at[site] > 0

    def _home(self, task: int) -> str:
        held = self.held(task)
        best = max(held, key=lambda pilot: held[pilot], default=None)
        return "" if best is None else self._bed.targets[best].site

    @handles(Finished)
    def on_finished(self, sender: AgentId, said: Finished) -> None:
        task = self.graph.index[said.task]
        bound = self._attempts[task]
        bound.withdrawn = True  # nothing of it is under way
        if said.ended.outcome == "cancelled":
            self.entry.over(Over(bound, "withdrawn", said))
            self._ready(task)
            return
        self.done += 1
        self.end_s = self._bed.sim.time - BEGIN_S
        self._made_at[task] = name_of(sender)
        self.entry.over(Over(bound, "succeeded", said))
        self.entry.stands(task, committed=True)
        for child in self.graph.children[task]:
            self._missing[child] -= 1
            if not self._missing[child]:
                self._ready(child)
        self.entry.decide()

    # -- as the entry sees it ----------------------------------------------------------------------

    def wanted(self, task: int) -> bool:
        return task in self._open

    def urgency(self, task: int) -> float:
        return 2.0 if self.graph.children[task] else 1.0

    def reads(self, task: int) -> list[FileRecord]:
        parents = [self.graph.tasks[parent].name for parent in self.graph.parents[task]]
        return [_made(self.run, name) for name in parents]

    def held(self, task: int) -> dict[PeerName, int]:
        found: Counter[PeerName] = Counter()
        for parent in self.graph.parents[task]:
            found[self._made_at[parent]] += FILE_BYTES
        return dict(found)

    def unfit(self, task: int) -> tuple[PeerName, ...]:
        return ()

    def targets(self) -> Mapping[PeerName, Target]:
        return self._bed.targets

    def want(self, target: PeerName) -> bool:
        return target in self.targets()

    def bind(self, task: int, target: PeerName, claim: bytes = b"") -> int:
        self._open.discard(task)
        self.bound_s.append(self._bed.sim.time)
        self._open_at[self._home(task)] -= 1
        name = self.graph.tasks[task].name
        number = self._attempts[task].attempt + 1 if task in self._attempts else 1
        job = CommandJob(name, name, number, "", inputs=tuple(self.reads(task)))
        needs = self.graph.tasks[task].needs
        bind = Bind(self.run, name, number, job, needs, strategy="latebinding", claim=claim)
        bound = self._attempts[task] = Bound(task, number, target, 0.0, claim)
        self.entry.bound(bound)
        self.world.send(self._bed.targets[target].agent, bind)
        return number

    def began(self, bind: Bind) -> None:
        self._attempts[self.graph.index[bind.task]].started = True

    def attempts(self) -> list[Bound]:
        return list(self._attempts.values())

    def withdraw(self, task: int, attempt: int) -> None:
        bound = self._attempts[task]
        bound.withdrawn = True
        self.taken_back += 1
        asked = Withdraw(self.run, self.graph.tasks[task].name, attempt)
        self.world.send(self._bed.targets[bound.target].agent, asked)

    def wake(self) -> None:
        self.entry.decide()

    def note(self, *said: Any, **more: Any) -> None:
        """Nobody reads it."""

    def tell(self, sentence: str) -> None:
        """Nobody reads it."""

    def estimates(self, on_done: Callable[[EstimatesFound], None]) -> None:
        guess = Estimate(JOB_S, (JOB_S,) * 7, guessed=True)
        on_done(EstimatesFound((guess,) * len(self.graph)))


class Testbed:
    """One workflow on one testbed; made and run once."""

    __test__ = False

    def __init__(
        self,
        architecture: Architecture,
        kind: Kind,
        pilots: int,
        tasks: int,
        seed: int,
        outage: tuple[float, float] | None = None,
        bulk_s: float = LateSettings().bulk_s,
        runs: int = 1,
    ) -> None:
        """With an `outage`, the queue is killed so long after the beginning, for so long. `runs`
        workflows of one user go on at once."""
        self.architecture, self.kind, self.seed = architecture, kind, seed
        self.sim = Simulation(seed, detail="light")
        self.graph = workflow(kind, tasks)
        self.shares_files = architecture != "pre-dht"
        assignment: Literal["exact", "greedy"] = "exact" if architecture == "event" else "greedy"
        self._settings = LateSettings(architecture, assignment, bulk_s=bulk_s)
        self.submitter = Node("submitter")
        self.targets: dict[PeerName, Target] = {}
        self.elements = {site: _Element(self.sim) for site in SITES}
        self.made_s: dict[str, float] = {}
        """When each file was made."""
        self._dependent: list[float] = []
        self.files = self.reads = self.local = self.from_peers = 0
        self._running = self._first = 0
        self._startup_s = 0.0
        self._delays: list[float] = []
        self._fresh: list[float] = []
        self._samples: list[Sample] = []
        self._pilots = pilots
        self._agents: list[PilotAgent] = []
        self.engines: list[_Engine] = []
        self._boot(pilots, runs)
        if outage is not None:
            at_s, for_s = outage
            queue = Node("queue")
            self.sim.at(BEGIN_S + at_s, lambda: self.sim.kill(queue))
            self.sim.at(BEGIN_S + at_s + for_s, lambda: self.sim.restart(queue))

    def _boot(self, pilots: int, runs: int) -> None:
        sim = self.sim
        queue = Node("queue")
        nodes = [(Node(f"p{n}"), SITES[n % len(SITES)]) for n in range(pilots)]
        grid = _Everywhere()
        grid.come(queue, Offer(0.0, 0, extras={"queue": 1.0}))
        sim.boot(queue, partial(self._boot_queue, queue))
        for number, (node, site) in enumerate(nodes):
            boot = partial(self._boot_pilot, node, site, grid)
            sim.at(BOOT_S * number / pilots, partial(sim.boot, node, boot))
        for number in range(1, runs + 1):
            self._boot_run(f"workflow-{number}")

    def _boot_run(self, run: str) -> None:
        sim = self.sim
        me = at(self.submitter, run)
        engine = _Engine(me, sim.place(me), self, run)
        sim.join(engine)
        me = at(self.submitter, f"{run}.entry")
        engine.entry = QueueEntry(Seat(me, sim.place(me), run, self._settings, dict))
        sim.join(engine.entry)
        sim.at(BEGIN_S, engine.begin)
        self.engines.append(engine)

    def _boot_queue(self, node: Node) -> None:
        me = at(node, QUEUE)

        def site_of(agent: AgentId) -> str | None:
            pilot = self.targets.get(name_of(agent))
            return None if pilot is None else pilot.site

        self.queue = TaskQueue(me, self.sim.place(me), lambda agent: True, site_of)
        self.sim.join(self.queue)

    def _boot_pilot(self, node: Node, site: str, grid: _Everywhere) -> None:
        sim = self.sim
        grid.come(node, Offer(1.0, 8 << 30, site=site, roles=("run",)))
        host = _Host(sim, node, grid)
        kademlia = Kademlia(at(node, SITE), sim.place(at(node, SITE)), SITE_SETTINGS)
        sim.join(kademlia)
        agent = PilotAgent(at(node, PART), sim.place(at(node, PART)), host, kademlia)
        sim.join(agent)
        bench = _Bench(at(node, "peer"), sim.place(at(node, "peer")), self, site)
        sim.join(bench)
        bench.half.beside([agent])
        self._agents.append(agent)
        name = name_of(node)
        self.targets[name] = Target(name, bench.me, bench.capacity, site)

    # -- what happens ------------------------------------------------------------------------------

    def set_priority(self, run: str, priority: int) -> None:
        """As its user does."""
        me = self.sim.place(at(self.submitter, "user"))
        me.send(at(Node("queue"), QUEUE), SetShare(1, run=run, priority=priority))

    def draw_s(self) -> float:
        return JOB_S * self.sim.random.lognormvariate(-(SPREAD**2) / 2, SPREAD)

    def started(self, delay_s: float | None, read: Sequence[str], *, counts: bool) -> None:
        """A delay counts if there was anything to begin, as always in the paper."""
        self._running += 1
        if read:
            self._dependent.append(self.sim.time - max(self.made_s[digest] for digest in read))
        if delay_s is not None:
            if counts:
                self._delays.append(delay_s)
                self._fresh.append(delay_s)
            return
        self._first += 1
        if self._first == max(1, min(self._pilots, len(self.graph)) * 9 // 10):
            self._startup_s = self.sim.time - BEGIN_S

    def began(self, bind: Bind, reads: int, fetched: int) -> None:
        self.reads += reads
        self.local += reads - fetched
        self.from_peers += fetched if self.shares_files else 0
        next(engine for engine in self.engines if engine.run == bind.run).began(bind)

    def ended(self) -> None:
        self._running -= 1

    def _sample(self) -> None:
        if self._done < self._tasks:
            self.sim.at(self.sim.time + SAMPLE_S, self._sample)
        fresh, self._fresh = self._fresh, []
        self._samples.append(
            Sample(
                self.sim.time - BEGIN_S,
                self._running,
                sum(self.queue.counts.values()),
                self.sim.machine(Node("queue")).waiting,
                sum(fresh) / len(fresh) if fresh else 0.0,
            )
        )

    @property
    def _tasks(self) -> int:
        return len(self.engines) * len(self.graph)

    @property
    def _done(self) -> int:
        return sum(engine.done for engine in self.engines)

    def run(self) -> TestbedRun:
        sim = self.sim
        sim.at(BEGIN_S, self._sample)
        step_s = BEGIN_S
        while self._done < self._tasks and sim.time < END_S:
            sim.run(until=sim.time + step_s)
        delays = sorted(self._delays)
        return TestbedRun(
            self.architecture,
            self.kind,
            self._pilots,
            self._tasks,
            self.seed,
            sum(self.queue.counts.values()),
            dict(self.queue.counts),
            self.files,
            sum(delays) / len(delays) if delays else 0.0,
            delays[len(delays) // 2] if delays else 0.0,
            max(engine.end_s for engine in self.engines),
            self._startup_s,
            self.reads,
            self.local,
            self.from_peers,
            sum(agent.speaks.broadcasts for agent in self._agents if agent.speaks is not None),
            tuple(self._samples),
            self._done,
            sum(self._dependent) / max(1, len(self._dependent)),
        )


def workflow(kind: Kind, tasks: int) -> Graph:
    """Two steps. Each task makes a file; those of the second step read what the first made: one
    file each (serial), one that another reads too (splitting), or two (merging)."""
    first = {"serial": tasks // 2, "splitting": tasks // 3, "merging": tasks * 2 // 3}[kind]
    reads: Sequence[tuple[int, ...]]
    if kind == "merging":
        reads = [(2 * n, 2 * n + 1) for n in range(first // 2)]
    else:
        reads = [(n % first,) for n in range(tasks - first)]
    made = [Task(f"a{n}", Command("a"), (), (f"a{n}.out",)) for n in range(first)]
    made += [
        Task(f"b{n}", Command("b"), tuple(f"a{k}.out" for k in of), (f"b{n}.out",))
        for n, of in enumerate(reads)
    ]
    return Graph(kind, made)
