"""Several small machines for testing agents over a network: virtual time, modelled content.

A machine has a disk (values put, files by digest, the journals of runs) that survives a crash as
far as it was synced, and memory that does not. Messages may be lost, repeated and late. What a
command makes is a hash of its text and of the digests it reads, so a wrong input shows in every
result that follows from it. Commands check that their inputs are on their machine.
"""

from __future__ import annotations

import hashlib
import heapq
from collections.abc import Callable, Sequence
from random import Random

from sureline.journal.events import Event
from sureline.peer.jobs import (
    Blob,
    CommandJob,
    FileMissing,
    FileReady,
    JobEnded,
    JobStarted,
    PauseJob,
    PublishJob,
    UserFile,
)
from sureline.run.estimates import Estimate, Estimates, EstimatesFound
from sureline.run.past import PastResult, PastUnknown
from sureline.workflow.files import FileRecord, result_path
from sureline.world.address import node_of
from sureline.world.agent import Agent
from sureline.world.protocol import Job


def digest_of(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def made(command: str, path: str, inputs: Sequence[FileRecord]) -> str:
    """The digest of what a command makes at `path`."""
    return digest_of("made", command, path, *(f"{r.path}={r.digest}" for r in sorted_(inputs)))


def sorted_(records: Sequence[FileRecord]) -> list[FileRecord]:
    return sorted(records, key=lambda record: record.path)


class Timer:
    def __init__(self, action: Callable[[], None] | None) -> None:
        self.action = action

    def cancel(self) -> None:
        self.action = None


class Running:
    def __init__(self, job: Job, on_event: Callable[..., None]) -> None:
        self.job = job
        self.on_event = on_event
        self.over = False


class Machine:
    def __init__(self, node: str) -> None:
        self.node = node
        self.life = 0
        """Raised by every crash: what belongs to an earlier life is not heard any more."""
        self.up = True
        self.frozen = False
        self.clock_ahead_s = 0.0
        self.held_back: list[Callable[[], None]] = []
        self.agents: dict[str, Agent] = {}
        self.files: set[str] = set()
        self.puts: dict[str, bytes] = {}
        self.synced_puts: dict[str, bytes] = {}
        self.events: list[Event] = []
        self.flushed = 0
        self.synced = 0
        self.published: dict[str, str] = {}
        self.boot: Callable[[], None] | None = None


class ToyGrid:
    """`duration(job)` says how long a command takes; `fails(job)` whether it does."""

    def __init__(self, seed: int = 0) -> None:
        self.random = Random(seed)
        self.time = 0.0
        self.machines: dict[str, Machine] = {}
        self.loss = 0.0
        self.severed: set[frozenset[str]] = set()
        """Pairs of machines that do not hear each other."""
        self.repeat = 0.0
        self.delay_s: Callable[[], float] = lambda: 0.01
        self.duration: Callable[[Job], float] = lambda job: 1.0
        self.fails: Callable[[Job], bool] = lambda job: False
        self.unfit: Callable[[str, Job], bool] = lambda node, job: False
        self.transfer_s: Callable[[], float] = lambda: 0.05
        self.whims = False
        """Whether a command makes something else each time it runs."""
        self.made_of: dict[str, dict[str, str]] = {}
        """What each output was made of: its inputs' digests, by path."""
        self.started: list[tuple[float, str, Job]] = []
        self.sent: list[tuple[str, str, object]] = []
        self.keep_sent = False
        self._queue: list[tuple[float, int, Timer]] = []
        self._steps = 0

    def machine(self, node: str) -> Machine:
        if node not in self.machines:
            self.machines[node] = Machine(node)
        return self.machines[node]

    def place(self, me: str) -> ToyPlace:
        return ToyPlace(self, self.machine(node_of(me)), me)

    def join(self, agent: Agent) -> None:
        self.machine(node_of(agent.me)).agents[agent.me] = agent

    def boot(self, node: str, start: Callable[[], None]) -> None:
        self.machine(node).boot = start
        start()

    # -- faults --------------------------------------------------------------------------------

    def crash(self, node: str, *, power: bool = True) -> None:
        """All that was in memory is gone; with `power`, also what was not synced."""
        m = self.machine(node)
        m.up, m.frozen = False, False
        m.life += 1
        m.agents.clear()
        m.held_back.clear()
        m.puts = dict(m.synced_puts) if power else m.puts
        del m.events[m.synced if power else m.flushed :]
        m.flushed = m.synced = min(len(m.events), m.flushed)

    def restart(self, node: str) -> None:
        m = self.machine(node)
        m.up = True
        if m.boot is not None:
            m.boot()

    def freeze(self, node: str) -> None:
        self.machine(node).frozen = True

    def thaw(self, node: str) -> None:
        m = self.machine(node)
        m.frozen = False
        held, m.held_back = m.held_back, []
        for action in held:
            self.after(0.0, self._guarded(m, action))

    # -- time ----------------------------------------------------------------------------------

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        self._steps += 1
        timer = Timer(action)
        heapq.heappush(self._queue, (self.time + seconds, self._steps, timer))
        return timer

    def at_machine(self, m: Machine, seconds: float, action: Callable[[], None]) -> Timer:
        """As `after`, in this life of the machine, and not while it is frozen."""
        timer = Timer(action)

        def run() -> None:
            if timer.action is not None:
                todo, timer.action = timer.action, None
                todo()

        self.after(seconds, self._guarded(m, run))
        return timer

    def _guarded(self, m: Machine, action: Callable[[], None]) -> Callable[[], None]:
        life = m.life

        def run() -> None:
            if m.life != life:
                return
            if m.frozen:
                m.held_back.append(action)
            else:
                action()

        return run

    def run(self, until: Callable[[], bool], limit_s: float = 100_000.0) -> None:
        """Until the condition holds; fails if it never does."""
        while not until():
            assert self._queue, "nothing is left to do, and the condition does not hold"
            at, _, timer = heapq.heappop(self._queue)
            self.time = at
            assert self.time < limit_s, f"the condition does not hold after {limit_s} s"
            if timer.action is not None:
                timer.action()

    # -- messages ------------------------------------------------------------------------------

    def deliver(self, sender: str, to: str, message: object) -> None:
        if self.keep_sent:
            self.sent.append((sender, to, message))
        if self.is_severed(node_of(sender), node_of(to)):
            return
        local = node_of(sender) == node_of(to)
        copies = 1
        if not local:
            copies -= self.random.random() < self.loss
            copies += self.random.random() < self.repeat
        for _ in range(copies):
            self.after(0.0 if local else self.delay_s(), lambda: self._arrive(sender, to, message))

    def is_severed(self, a: str, b: str) -> bool:
        return frozenset((a, b)) in self.severed

    def _arrive(self, sender: str, to: str, message: object) -> None:
        m = self.machine(node_of(to))
        if not m.up:
            return

        def receive() -> None:
            agent = m.agents.get(to)
            if agent is not None:
                agent.receive(sender, message)

        self._guarded(m, receive)()


class ToyPlace:
    """One agent's World on one machine."""

    def __init__(self, grid: ToyGrid, machine: Machine, me: str) -> None:
        self.grid = grid
        self.m = machine
        self.me = me
        self.random = grid.random
        self.life = machine.life

    def _alive(self) -> bool:
        return self.m.life == self.life

    def now(self) -> float:
        return self.grid.time + self.m.clock_ahead_s

    def elapsed(self) -> float:
        return self.grid.time

    def awake(self) -> float:
        return self.grid.time

    def send(self, to: str, message: object) -> None:
        if self._alive():
            self.grid.deliver(self.me, to, message)

    def after(self, seconds: float, action: Callable[[], None]) -> Timer:
        return self.grid.at_machine(self.m, seconds, action)

    def start(self, job: Job, on_event: Callable[..., None], *, after: object = None) -> Running:
        running = Running(job, on_event)
        if isinstance(job, PublishJob):
            self.after(0.01, lambda: self._publish(running))
            return running
        if isinstance(job, CommandJob):
            for record in job.inputs:
                assert record.digest in self.m.files, f"{self.me} has not {record.path}"
        self.grid.started.append((self.grid.time, self.m.node, job))
        self.after(0.0, lambda: None if running.over else on_event(JobStarted(1)))
        self.after(self.grid.duration(job), lambda: self._end(running))
        return running

    def _publish(self, running: Running) -> None:
        for record in running.job.files:
            assert record.digest in self.m.files, f"{record.path} is published but not here"
            self.m.published[record.path] = record.digest
        running.on_event(JobEnded("succeeded"))

    def _end(self, running: Running) -> None:
        if running.over:
            return
        running.over = True
        job = running.job
        if self.grid.fails(job):
            running.on_event(JobEnded("failed", 1, reason="exit code 1", elapsed_s=1.0))
            return
        if self.grid.unfit(self.m.node, job):
            running.on_event(JobEnded("failed", reason="has another Python", fault="unfit"))
            return
        outputs = []
        if isinstance(job, CommandJob) and job.call is not None:
            digest = made(job.call.function, "result", job.inputs)
            self.m.files.add(digest)
            outputs.append(FileRecord(result_path(job.task), digest, 10))
        elif isinstance(job, CommandJob):
            for path in job.outputs:
                digest = made(job.run, path, job.inputs)
                if self.grid.whims:
                    digest = digest_of(digest, str(self.grid.random.random()))
                self.grid.made_of[digest] = {r.path: r.digest for r in job.inputs}
                self.m.files.add(digest)
                outputs.append(FileRecord(path, digest, 10, self.grid.random.randrange(1 << 30)))
        else:
            assert isinstance(job, PauseJob)
        running.on_event(JobEnded("succeeded", 0, elapsed_s=1.0, outputs=tuple(outputs)))

    def stop(self, handle: Running, *, force: bool = False) -> None:
        def end() -> None:
            if not handle.over:
                handle.over = True
                handle.on_event(JobEnded("cancelled"))

        self.after(0.05, end)

    def fetch(self, wanted: object, sources: Sequence[str], on_done: Callable[..., None]) -> None:
        match wanted:
            case UserFile(path=path):
                digest = digest_of("user", path)
                self.m.files.add(digest)
                self.after(0.0, lambda: on_done(FileReady(FileRecord(path, digest, 10, 7))))
            case PastResult():
                self.after(0.0, lambda: on_done(PastUnknown()))
            case Blob(file=record):
                if record.digest in self.m.files:
                    self.after(0.0, lambda: on_done(FileReady(record)))
                else:
                    self.after(self.grid.transfer_s(), lambda: on_done(self._blob(record, sources)))
            case Estimates(graph=graph):
                known = tuple(Estimate(1.0, (1.0,) * 7) for _ in graph.tasks)
                self.after(0.0, lambda: on_done(EstimatesFound(known)))
            case _:
                raise AssertionError(wanted)

    def _blob(self, record: FileRecord, sources: Sequence[str]) -> object:
        for node in sources:
            other = self.grid.machine(node)
            cut = self.grid.is_severed(self.m.node, node)
            if other.up and not (other.frozen or cut) and record.digest in other.files:
                self.m.files.add(record.digest)
                return FileReady(FileRecord(record.path, record.digest, 10, 5), node)
        return FileMissing(record.path, "no source has it")

    def record(self, event: Event) -> None:
        if self._alive():
            self.m.events.append(event)

    def flush(self) -> None:
        if self._alive():
            self.m.flushed = len(self.m.events)

    def sync(self, on_durable: Callable[[], None]) -> None:
        self.flush()
        count, puts = len(self.m.events), dict(self.m.puts)

        def done() -> None:
            self.m.synced = max(self.m.synced, count)
            self.m.synced_puts.update(puts)
            on_durable()

        self.after(0.005, done)

    def put(self, key: str, value: bytes) -> None:
        if self._alive():
            self.m.puts[key] = value

    def get(self, key: str) -> bytes | None:
        return self.m.puts.get(key)

    def busy(self, seconds: float) -> None: ...
