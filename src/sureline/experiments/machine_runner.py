"""Jobs on a simulated machine, in virtual time.

All jobs on a machine advance at one rate: its speed, times the share of the cores they ask for
that there are. So the machine needs one clock that counts work done: a job that began at reading w
ends at reading w + its work, and a change of rate (a slow-down, background load, one job more)
only changes how fast the clock runs.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable

from sureline.experiments.host import Host
from sureline.experiments.invariants import Ran
from sureline.experiments.machine_files import Store
from sureline.experiments.work import TaskJob, Work
from sureline.peer.jobs import (
    CallJob,
    CommandJob,
    JobEnded,
    JobReturned,
    JobStarted,
    PauseJob,
    PublishJob,
    VerifyJob,
)
from sureline.world.protocol import Action, Job, JobEvent, JobHandle, Timer

DISK_BYTES_S = 500e6
FILE_S = 0.0005
"""What moving or checking a file costs beside its bytes."""
STOP_S = 0.1
"""A job that is asked to end, not forced, takes so long."""
ANNOUNCED_S = 0.05
"""A job that runs for so long gives up the one that was to begin after it."""
WORK_EPSILON = 1e-9


class RunningJob:
    """A job under way, or one that waits for another to end."""

    def __init__(self, number: int, job: Job, on_event: Callable[[JobEvent], None]) -> None:
        self.number = number
        self.job = job
        self.on_event = on_event
        self.over = False
        self.began_s: float | None = None
        self.ends_at_work = 0.0
        self.fails = False
        self.cores = 0.0
        self.timers: list[Timer] = []
        self.follower: RunningJob | None = None


class SimulatedRunner:
    def __init__(self, host: Host, work: Work, store: Store) -> None:
        self._host = host
        self._work = work
        self._store = store
        self._jobs: dict[int, RunningJob] = {}
        """Those that use cores."""
        self._ends: list[tuple[float, int]] = []
        self._next: Timer | None = None
        self._numbers = 0
        self._demand = 0.0
        self._rate = 0.0
        self._work_done = 0.0
        self._counted_at_s = host.true_time_s
        self.log: list[Ran] = []

    # -- asked from above ----------------------------------------------------------------------

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        self._numbers += 1
        running = RunningJob(self._numbers, job, on_event)
        if after is None:
            self._begin(running)
        else:
            assert isinstance(after, RunningJob)
            self._begin_behind(running, after)
        return running

    def stop(self, handle: JobHandle, *, force: bool = False) -> None:
        assert isinstance(handle, RunningJob)
        if handle.over:
            return
        ended = JobEnded("cancelled", reason="was stopped")
        at_once = force or handle.began_s is None
        self._host.after(0.0 if at_once else STOP_S, lambda: self._end(handle, ended))

    def speed_changed(self) -> None:
        """The machine's speed or background load is another one from now on."""
        self._recount()

    def died(self) -> None:
        """The machine went down: nothing ends any more, nobody is told."""
        for job in self._jobs.values():
            job.over = True
            self._note(job, "died")
        self._jobs.clear()
        self._ends.clear()
        self._demand = 0.0
        if self._next is not None:
            self._next.cancel()
            self._next = None

    # -- beginning -----------------------------------------------------------------------------

    def _begin_behind(self, job: RunningJob, other: RunningJob) -> None:
        if other.over or other.follower is not None or not isinstance(other.job, CommandJob):
            self._give_back(job)
            return
        other.follower = job
        now = self._host.true_time_s
        ran_s = now - other.began_s if other.began_s is not None else 0.0
        self._later(other, max(0.0, ANNOUNCED_S - ran_s), lambda: self._drop_follower(other))

    def _drop_follower(self, job: RunningJob) -> None:
        if not job.over and job.follower is not None:
            follower, job.follower = job.follower, None
            self._give_back(follower)

    def _give_back(self, job: RunningJob) -> None:
        if not job.over:
            job.over = True
            self._host.after(0.0, lambda: job.on_event(JobReturned()))

    def _later(self, job: RunningJob, seconds: float, action: Action) -> None:
        job.timers.append(self._host.after(seconds, action))

    def _begin(self, job: RunningJob) -> None:
        job.began_s = self._host.true_time_s
        match job.job:
            case CommandJob() | CallJob() | PauseJob():
                self._begin_task(job, job.job)
            case PublishJob(files=files):
                seconds = sum(FILE_S + file.size / DISK_BYTES_S for file in files)
                self._later(job, seconds, lambda: self._end(job, self._store.publish(files)))
            case VerifyJob(files=files):
                seconds = sum(FILE_S + file.size / DISK_BYTES_S for file in files)
                self._later(job, seconds, lambda: self._end(job, self._store.verify(files)))
            case _:
                raise TypeError(f"no such job here: {type(job.job).__name__}")

    def _begin_task(self, job: RunningJob, task: TaskJob) -> None:
        missing = self._store.first_missing(task)
        if missing:
            ended = JobEnded("failed", reason=f"its input {missing} is not in the store")
            self._later(job, 0.0, lambda: self._end(job, ended))
            return
        self._later(job, 0.0, lambda: job.on_event(JobStarted()))
        if isinstance(task, PauseJob):
            ended = JobEnded("succeeded", exit_code=0, elapsed_s=task.seconds)
            self._later(job, task.seconds, lambda: self._end(job, ended))
            return
        if task.timeout_s is not None:
            self._later(job, task.timeout_s, lambda: self._time_out(job, task.timeout_s or 0.0))
        fails_after = self._work.fails_after(task)
        job.fails = fails_after is not None
        job.cores = task.cores
        self._demand += task.cores
        self._recount()
        seconds = self._work.seconds(task) * (fails_after if fails_after is not None else 1.0)
        job.ends_at_work = self._work_done + seconds
        self._jobs[job.number] = job
        heapq.heappush(self._ends, (job.ends_at_work, job.number))
        self._aim()

    # -- the clock of work ---------------------------------------------------------------------

    def _recount(self) -> None:
        """Bring the clock of work up to now, and run it at the rate that holds from now on."""
        now = self._host.true_time_s
        self._work_done += (now - self._counted_at_s) * self._rate
        self._counted_at_s = now
        enough = self._demand <= self._host.free_cores() or not self._demand
        share = 1.0 if enough else self._host.free_cores() / self._demand
        self._rate = self._host.speed() * share
        self._aim()

    def _aim(self) -> None:
        """Set the one timer to when the next job ends at this rate."""
        while self._ends and self._ends[0][1] not in self._jobs:
            heapq.heappop(self._ends)
        if self._next is not None:
            self._next.cancel()
            self._next = None
        if self._ends and self._rate > 0:
            left = max(0.0, self._ends[0][0] - self._work_done)
            self._next = self._host.after(left / self._rate, self._due)

    def _due(self) -> None:
        self._next = None
        self._recount()
        while self._ends and self._ends[0][0] <= self._work_done + WORK_EPSILON:
            job = self._jobs.get(heapq.heappop(self._ends)[1])
            if job is not None:
                self._end(job, self._result(job))
        self._aim()

    # -- ending --------------------------------------------------------------------------------

    def _result(self, job: RunningJob) -> JobEnded:
        task = job.job
        assert isinstance(task, CommandJob | CallJob) and job.began_s is not None
        elapsed_s = self._host.true_time_s - job.began_s
        if job.fails:
            return JobEnded(
                "failed", exit_code=1, reason="ended with exit code 1", elapsed_s=elapsed_s
            )
        outputs = self._work.outputs(task)
        refused = self._store.keep_made(outputs)
        if refused:
            return JobEnded("failed", reason=refused, elapsed_s=elapsed_s)
        result = task.label.encode() if isinstance(task, CallJob) else None
        return JobEnded(
            "succeeded",
            exit_code=0,
            elapsed_s=elapsed_s,
            cpu_s=elapsed_s * task.cores,
            outputs=outputs,
            result=result,
        )

    def _time_out(self, job: RunningJob, limit_s: float) -> None:
        reason = f"ran longer than its timeout of {limit_s:g} s"
        self._end(job, JobEnded("timeout", reason=reason, elapsed_s=limit_s))

    def _end(self, job: RunningJob, ended: JobEnded) -> None:
        if job.over:
            return
        job.over = True
        for timer in job.timers:
            timer.cancel()
        if self._jobs.pop(job.number, None) is not None:
            self._note(job, ended.outcome)
            self._demand = max(0.0, self._demand - job.cores) if self._jobs else 0.0
            self._recount()
        if job.follower is not None and not job.follower.over:
            self._begin(job.follower)
        job.on_event(ended)

    def _note(self, job: RunningJob, outcome: str) -> None:
        task = job.job
        assert isinstance(task, CommandJob | CallJob) and job.began_s is not None
        now = self._host.true_time_s
        self.log.append(Ran(task.task, task.attempt, job.cores, job.began_s, now, outcome))
