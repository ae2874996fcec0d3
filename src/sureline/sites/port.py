"""The port: what is asked of an engine, and what it says of the jobs it was given.

All calls block, and may take as long as the engine does, up to the adapter's time limit; callers
make them in threads. An adapter holds no state that a crash could lose: another instance, made
with the same settings, answers the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NewType, Protocol

import msgspec

from sureline.workflow.mistakes import SurelineError

JobId = NewType("JobId", str)
"""A job, as its site calls it; the same for all time, also after a requeue."""

Word = Literal[
    "queued",  # it waits, and has never begun
    "requeued",  # it began, was taken back by the engine, and waits to begin anew
    "held",  # it waits for a person: nothing will happen by itself
    "unfit",  # it asks for what is not there: it would wait for ever
    "starting",  # it has a machine that is being made ready
    "running",
    "suspended",
    "ending",  # its processes are being cleared away
    "ended",  # over, well
    "failed",  # over: the work's own exit code, not 0
    "out-of-memory",  # over: killed for what it used
    "timeout",  # over: its own limit was reached
    "deadline",  # over, or never begun: it could not have ended when the engine was told it must
    "preempted",  # over: others were more important
    "node-failed",  # over: its machine was lost, or never came up
    "cancelled",  # over: somebody ended it
    "lost",  # over: the site is sure that it is gone, and nobody knows how it ended
]
WAITING: frozenset[Word] = frozenset({"queued", "requeued", "held", "unfit", "starting"})
OVER: frozenset[Word] = frozenset(
    {
        "ended",
        "failed",
        "out-of-memory",
        "timeout",
        "deadline",
        "preempted",
        "node-failed",
        "cancelled",
        "lost",
    }
)
Blame = Literal["", "work", "engine", "user"]
"""Whose doing an end is: nobody's, the work's own, the engine's or its machines', a person's."""
BLAMED: Mapping[Word, Blame] = {
    "failed": "work",
    "out-of-memory": "work",
    "timeout": "work",
    "deadline": "engine",
    "preempted": "engine",
    "node-failed": "engine",
    "lost": "engine",
    "cancelled": "user",
}

TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
COUNT_MAX = 1000
"""Jobs of one submission; what needs more submits twice. (Slurm's own default is 1001.)"""
INDEX = "SURELINE_INDEX"
"""The environment's variable in which a job finds its place among its submission's, from 0."""


class SiteError(SurelineError):
    """A site did not do what it was asked. `again`: trying later may help (it is down, busy, out of
    reach); else it never will (it does not know the partition, the key is refused). `unsure`, of a
    submission: the site may have the work all the same; `find` says whether.
    """

    def __init__(self, sentence: str, *, again: bool, unsure: bool = False) -> None:
        super().__init__(sentence)
        self.again = again
        self.unsure = unsure


class SiteWork(msgspec.Struct, frozen=True, kw_only=True):
    """What a site is asked to run: `count` jobs that are alike."""

    tag: str
    """Its name, given once, ever: the jobs carry it, so that they are found after a crash. Who
    submits writes it down first."""
    argv: tuple[str, ...]
    """Found by the PATH there; no shell sees it."""
    directory: str = ""
    """Where it runs, at the site; '' for a directory of the submission's own."""
    environment: Mapping[str, str] = {}
    """On top of what the site itself gives a job."""
    cores: int = 1
    memory_bytes: int = 0
    """0 for what the engine gives by default."""
    gpus: int = 0
    limit_s: float | None = None
    """After so long in all it is ended, as `timeout`; None for the engine's own limit."""
    warn_s: float = 0.0
    """So long before the limit it gets SIGUSR1, if not 0. Slurm may send it up to 60 s earlier."""
    count: int = 1
    requeue: bool = False
    """Whether the engine may start it again from its beginning, under the same id."""
    options: tuple[str, ...] = ()
    """Of the engine, as its command takes them: `--partition=short`."""

    def __post_init__(self) -> None:
        if not TAG.fullmatch(self.tag):
            raise ValueError(f"{self.tag!r} is not a tag: letters, digits, '.', '_' and '-' only")
        if not self.argv or any("\0" in word for word in self.argv):
            raise ValueError("a job needs a command, without NUL characters")
        if not 1 <= self.count <= COUNT_MAX:
            raise ValueError(f"{self.count} jobs at once; 1 to {COUNT_MAX} can be submitted")
        if self.cores < 1 or self.memory_bytes < 0 or self.gpus < 0:
            raise ValueError("a job needs at least one core, and no less than no memory")
        if self.limit_s is not None and not self.limit_s > self.warn_s >= 0:
            raise ValueError("a job's limit is longer than its warning")


class JobStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a job. Times are seconds since the epoch, by the site's clock."""

    word: Word
    reason: str = ""
    """In the engine's or our words; '' if there is nothing to say."""
    node: str = ""
    exit_code: int | None = None
    """Of the work, if it ended by itself; -N if signal N ended it."""
    submitted_at: float | None = None
    started_at: float | None = None
    ended_at: float | None = None
    starts: int = 0
    """How often it began."""

    @property
    def is_over(self) -> bool:
        return self.word in OVER

    @property
    def is_waiting(self) -> bool:
        return self.word in WAITING

    @property
    def blame(self) -> Blame:
        return BLAMED.get(self.word, "")


class Site(Protocol):
    """An engine. Every call raises SiteError if it cannot be done."""

    name: str
    """As commands call it: local, ssh, slurm..."""

    @property
    def where(self) -> str:
        """Which one, in a few words: a host, a cluster; '' if there is only one."""
        ...

    shares_files: bool
    """Whether its jobs see this machine's files under the same names."""

    def submit(self, work: SiteWork) -> list[JobId]:
        """Hand the work over; its jobs, in the order of their indices. A tag that the site has
        seen is refused."""
        ...

    def look(self, jobs: Iterable[JobId]) -> Mapping[JobId, JobStatus]:
        """What is known of these jobs now. Of one that is not in the answer nothing is known: it
        may wait, run, or be over; it is not lost for that."""
        ...

    def find(self, tag: str = "") -> Mapping[JobId, str]:
        """The jobs that carry the tag, each with its tag; '' for all of ours. All that wait or run,
        and those that are over for as long as the site remembers them."""
        ...

    def cancel(self, jobs: Iterable[JobId]) -> None:
        """Have them end: SIGTERM, and SIGKILL after a grace of some seconds. Those that are over,
        or that the site has never seen, are passed over. Returns before they have ended."""
        ...

    def output(self, job: JobId, limit_bytes: int = 1 << 16) -> bytes:
        """The last that it printed, both streams as they came; empty if it has not begun."""
        ...

    def forget(self, tag: str) -> None:
        """Remove what the site's spool keeps of a submission that is over: output, states."""
        ...

    def ahead(self, options: Sequence[str] = ()) -> int | None:
        """The cores that jobs wait for where work with these options of the engine would wait; None
        if the site has no queue."""
        ...

    def put(self, source: Path, target: str) -> None:
        """Bring a file to the site, whole or not at all; a relative target is below the site's own
        directory."""
        ...

    def get(self, source: str, target: Path) -> None:
        """Bring a file from the site, whole or not at all."""
        ...
