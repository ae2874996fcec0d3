"""What a run's submitter and a machine say to each other."""

from __future__ import annotations

from sureline.peer.jobs import CallJob, CommandJob, JobEnded, PauseJob
from sureline.workflow.model import Needs
from sureline.world.protocol import Message

TaskJob = CommandJob | CallJob | PauseJob


class Attempt(Message, frozen=True):
    """Base of messages about one attempt at one task."""

    run: str
    task: str
    attempt: int


class Bind(Attempt, frozen=True, tag="bind"):
    """Run this. Answered by Started and Finished, or by Refused."""

    job: TaskJob
    needs: Needs
    ahead: bool = False
    """To begin when one with equal needs ends, and to hold what that one held."""


class Withdraw(Attempt, frozen=True, tag="withdraw"):
    """Stop this, whether it waits or runs. Answered by Finished (cancelled), unless it is over."""

    force: bool = False


class Started(Attempt, frozen=True, tag="started"):
    pid: int | None = None


class Progressed(Attempt, frozen=True, tag="progressed"):
    fraction: float


class Finished(Attempt, frozen=True, tag="finished"):
    ended: JobEnded


class Refused(Attempt, frozen=True, tag="refused"):
    """The machine will not run it; `reason` is one sentence."""

    reason: str
