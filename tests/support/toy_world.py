"""A small deterministic world for testing agents: virtual time, no processes, no files.

Jobs last as long as the test says; fetches answer in the next step; records go to a list. It
checks the contract from the other side: a job is never started twice under one label, and a
stopped job still reports its end.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from random import Random

import msgspec

from sureline.journal.events import Event
from sureline.peer.jobs import (
    CommandJob,
    FileMissing,
    FileReady,
    JobEnded,
    JobReturned,
    JobStarted,
    PublishJob,
    UserFile,
)
from sureline.run.outlook import Outlook, Seer
from sureline.run.past import KeptAnswer, KeptFiles, PastResult, PastUnknown
from sureline.workflow.files import FileRecord
from sureline.world.agent import Agent
from sureline.world.protocol import Job


class ToyTimer:
    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class ToyJob:
    def __init__(self, job: Job, on_event: Callable[..., None]) -> None:
        self.job = job
        self.on_event = on_event
        self.over = False
        self.follower: ToyJob | None = None


class ToyWorld:
    """`duration(job)` and `outcome(job)` are the test's say in what happens."""

    def __init__(
        self,
        seed: int = 0,
        duration: Callable[[Job], float] = lambda job: 1.0,
        outcome: Callable[[Job], JobEnded] | None = None,
    ) -> None:
        self.random = Random(seed)
        self.duration = duration
        self.outcome = outcome or succeed
        self.time = 0.0
        self.records: list[Event] = []
        self.follows = True
        """Whether a job may begin where another ends; if not, it is given back."""
        self.flushed = 0
        """How many of the records would survive a kill."""
        self.running: dict[str, ToyJob] = {}
        self.started: list[tuple[float, Job]] = []
        self.published: list[FileRecord] = []
        self.publishing_s = 0.0
        self.missing_files: set[str] = set()
        self.past: dict[str, object] = {}
        self.kept_paths: set[str] | None = None
        """What the store still has whole; None for everything."""
        self.seer = Seer({})
        """Makes the forecasts that agents ask for."""
        self.outlooks: list[Outlook] = []
        self._agents: dict[str, Agent] = {}
        self._queue: list[tuple[float, int, ToyTimer]] = []
        self._steps = 0
        self.me = ""

    def place(self, me: str) -> ToyWorld:
        view = object.__new__(ToyWorld)
        view.__dict__ = dict(self.__dict__, me=me, shared=self)
        return view

    @property
    def _home(self) -> ToyWorld:
        return self.__dict__.get("shared", self)

    def join(self, agent: Agent) -> None:
        self._agents[agent.me] = agent

    def now(self) -> float:
        return self._home.time

    def elapsed(self) -> float:
        return self._home.time

    def awake(self) -> float:
        return self._home.time

    def after(self, seconds: float, action: Callable[[], None]) -> ToyTimer:
        home = self._home
        home._steps += 1
        timer = ToyTimer(action)
        heapq.heappush(home._queue, (home.time + seconds, home._steps, timer))
        return timer

    def send(self, to: str, message: object) -> None:
        sender = self.me

        def deliver() -> None:
            agent = self._agents.get(to)
            if agent is not None:
                agent.receive(sender, message)

        self.after(0.0, deliver)

    def start(
        self, job: Job, on_event: Callable[..., None], *, after: ToyJob | None = None
    ) -> ToyJob:
        handle = ToyJob(job, on_event)
        if after is not None:
            if after.over or after.follower is not None or not self._home.follows:
                self.after(0.0, lambda: on_event(JobReturned()))
            else:
                after.follower = handle
            return handle
        self._begin(handle)
        return handle

    def _begin(self, handle: ToyJob) -> ToyJob:
        job, on_event = handle.job, handle.on_event
        if isinstance(job, PublishJob):
            self.published.extend(job.files)
            self.after(self._home.publishing_s, lambda: self._end(handle, JobEnded("succeeded")))
            return handle
        assert job.label not in self.running, f"{job.label} started twice"
        self.running[job.label] = handle
        self.started.append((self.now(), job))
        self.after(0.0, lambda: None if handle.over else on_event(JobStarted(1)))
        self.after(self.duration(job), lambda: self._end(handle, self.outcome(job)))
        return handle

    def _end(self, handle: ToyJob, ended: JobEnded) -> None:
        if not handle.over:
            handle.over = True
            self.running.pop(getattr(handle.job, "label", ""), None)
            if handle.follower is not None and not handle.follower.over:
                self._begin(handle.follower)
            handle.on_event(ended)

    def stop(self, handle: ToyJob, *, force: bool = False) -> None:
        self.after(0.1, lambda: self._end(handle, JobEnded("cancelled")))

    def fetch(self, wanted: object, sources: Sequence[str], on_done: Callable[..., None]) -> None:
        match wanted:
            case UserFile(path=path):
                if path in self.missing_files:
                    answer: object = FileMissing(path, f"{path} is gone")
                else:
                    answer = FileReady(FileRecord(path, f"digest of {path}", 1))
            case PastResult(key=key):
                answer = self.past.get(key, PastUnknown())
            case KeptFiles(files=files):
                kept = self._home.kept_paths
                answer = KeptAnswer(kept is None or all(file.path in kept for file in files))
            case Outlook():
                self.outlooks.append(wanted)
                # What was measured is not the test's: the next round comes when it is due.
                answer = msgspec.structs.replace(self.seer.answer(wanted), cost_s=0.0)
            case _:
                raise AssertionError(wanted)
        self.after(0.0, lambda: on_done(answer))

    def record(self, event: Event) -> None:
        self.records.append(event)

    def flush(self) -> None:
        self._home.flushed = len(self.records)

    def sync(self, on_durable: Callable[[], None]) -> None:
        self.after(0.0, on_durable)

    def put(self, key: str, value: bytes) -> None:
        raise AssertionError("not used")

    def get(self, key: str) -> bytes | None:
        raise AssertionError("not used")

    def busy(self, seconds: float) -> None:
        pass

    def run(self, steps_max: int = 1_000_000) -> None:
        """Until nothing is left to do."""
        for _ in range(steps_max):
            if not self._queue:
                return
            self.time, _, timer = heapq.heappop(self._queue)
            if timer.action is not None:
                timer.action()
        raise AssertionError("the world did not come to rest")


def succeed(job: Job) -> JobEnded:
    outputs = tuple(
        FileRecord(path, f"made by {job.task}", 1)
        for path in (job.outputs if isinstance(job, CommandJob) else ())
    )
    return JobEnded("succeeded", exit_code=0, outputs=outputs)
