"""Jobs on a simulated machine, in virtual time.

The machine's processor does the work: it knows the speed, the cores, and what slows them down.
Here is what a job is beyond its work: when it starts, fails, times out, is stopped or followed by
another, and what it leaves in the store.
"""

from __future__ import annotations

from collections.abc import Callable

from sureline.experiments.invariants import Ran
from sureline.experiments.machine_files import SimulatedStore
from sureline.experiments.work import TaskJob, Work
from sureline.peer.jobs import (
    CallJob,
    CheckJob,
    CommandJob,
    JobEnded,
    JobReturned,
    JobStarted,
    PauseJob,
    PublishJob,
    VerifyJob,
)
from sureline.world.protocol import Action, Job, JobEvent, JobHandle, Timer
from sureline.world.simulated.machine import Ending, Life

DISK_BYTES_S = 500e6
FILE_S = 0.0005
"""What moving or checking a file costs beside its bytes."""
STOP_S = 0.1
"""A job that is asked to end, not forced, takes so long."""
ANNOUNCED_S = 0.05
"""A job that runs for so long gives up the one that was to begin after it."""


Working = CommandJob | CallJob
"""A job that uses cores."""


class RunningJob:
    """A job under way, or one that waits for another to end."""

    def __init__(self, job: Job, on_event: Callable[[JobEvent], None]) -> None:
        self.job = job
        self.on_event = on_event
        self.over = False
        self.began_s: float | None = None
        self.timers: list[Timer] = []
        self.follower: RunningJob | None = None


class SimulatedRunner:
    """Of one life of a machine. `log` is the machine's own, over all its lives."""

    def __init__(self, life: Life, work: Work, store: SimulatedStore, log: list[Ran]) -> None:
        self._life = life
        self._work = work
        self._store = store
        self._log = log
        self._tasks: dict[RunningJob, None] = {}
        """Those that use cores."""
        life.on_end(self._died)

    @property
    def _now_s(self) -> float:
        return self._life.machine.sim.time

    # -- asked from above ----------------------------------------------------------------------

    def start(
        self, job: Job, on_event: Callable[[JobEvent], None], *, after: JobHandle | None = None
    ) -> JobHandle:
        running = RunningJob(job, on_event)
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
        self._life.after(0.0 if at_once else STOP_S, lambda: self._end(handle, ended))

    def _died(self, how: Ending) -> None:
        for job in self._tasks:
            job.over = True
            self._note(job, how)
        self._tasks.clear()

    # -- beginning -----------------------------------------------------------------------------

    def _begin_behind(self, job: RunningJob, other: RunningJob) -> None:
        if other.over or other.follower is not None or not isinstance(other.job, CommandJob):
            self._give_back(job)
            return
        other.follower = job
        ran_s = self._now_s - other.began_s if other.began_s is not None else 0.0
        self._later(other, max(0.0, ANNOUNCED_S - ran_s), lambda: self._drop_follower(other))

    def _drop_follower(self, job: RunningJob) -> None:
        if not job.over and job.follower is not None:
            follower, job.follower = job.follower, None
            self._give_back(follower)

    def _give_back(self, job: RunningJob) -> None:
        if not job.over:
            job.over = True
            self._life.after(0.0, lambda: job.on_event(JobReturned()))

    def _later(self, job: RunningJob, seconds: float, action: Action) -> None:
        job.timers.append(self._life.after(seconds, action))

    def _begin(self, job: RunningJob) -> None:
        job.began_s = self._now_s
        match job.job:
            case CommandJob() | CallJob() | PauseJob():
                self._begin_task(job, job.job)
            case PublishJob(files=files):
                seconds = sum(FILE_S + file.size / DISK_BYTES_S for file in files)
                self._later(job, seconds, lambda: self._end(job, self._store.publish(files)))
            case VerifyJob(files=files):
                seconds = sum(FILE_S + file.size / DISK_BYTES_S for file in files)
                self._later(job, seconds, lambda: self._end(job, self._store.verify(files)))
            case CheckJob():
                self._later(job, FILE_S, lambda: self._end(job, self._store.check()))
            case _:
                raise TypeError(f"no such job here: {type(job.job).__name__}")

    def _begin_task(self, job: RunningJob, task: TaskJob) -> None:
        missing = self._store.first_missing(task)
        if missing is not None:
            reason = f"its input {missing.path} is gone, or was damaged and is gone now"
            ended = JobEnded("failed", reason=reason, fault="inputs", missing=(missing.digest,))
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
        seconds = self._work.seconds(task) * (1.0 if fails_after is None else fails_after)

        def done() -> None:
            self._end(job, self._result(job, task, fails_after is not None))

        self._work_on(job, task, seconds, done)
        self._tasks[job] = None

    def _work_on(self, job: RunningJob, task: Working, seconds: float, done: Action) -> None:
        """Have the machine do so much work, then `done`."""
        processor = self._life.machine.processor
        job.timers.append(processor.work(seconds, done, cores=task.cores))

    # -- ending --------------------------------------------------------------------------------

    def _result(self, job: RunningJob, task: Working, fails: bool) -> JobEnded:
        assert job.began_s is not None
        elapsed_s = self._now_s - job.began_s
        if fails:
            reason = "ended with exit code 1"
            return JobEnded("failed", exit_code=1, reason=reason, elapsed_s=elapsed_s)
        outputs = self._work.outputs(task)
        refused = next(filter(None, map(self._store.add, outputs)), "")
        if refused:
            return JobEnded("failed", reason=refused, elapsed_s=elapsed_s, fault="machine")
        return JobEnded(
            "succeeded",
            exit_code=0,
            elapsed_s=elapsed_s,
            cpu_s=elapsed_s * task.cores,
            outputs=outputs,
            result=task.task.encode() if isinstance(task, CallJob) else None,
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
        if job in self._tasks:
            del self._tasks[job]
            self._note(job, ended.outcome)
        if job.follower is not None and not job.follower.over:
            self._begin(job.follower)
        job.on_event(ended)

    def _note(self, job: RunningJob, outcome: str) -> None:
        task = job.job
        assert isinstance(task, CommandJob | CallJob) and job.began_s is not None
        self._log.append(
            Ran(task.task, task.attempt, task.cores, job.began_s, self._now_s, outcome)
        )
