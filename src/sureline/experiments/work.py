"""What simulated jobs do: how much work they are, whether they fail, and what they make.

A job's work is in seconds on a machine of speed 1. It is drawn once per task, so that every
attempt, and every strategy, meets the same. What a command makes is a function of its text, what
it reads and where it writes: a checker can say what the right outputs are without running it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from random import Random

from blake3 import blake3

from sureline.journal.history import Observed
from sureline.peer.jobs import CallJob, CommandJob, PauseJob
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Graph, Pause, Takes

TaskJob = CommandJob | CallJob | PauseJob


def made_digest(command: str, inputs: Iterable[tuple[str, str]], output: str) -> str:
    """The digest of what `command` writes to `output` given (path, digest) of what it reads."""
    hashed = blake3(f"made\0{command}\0{output}".encode())
    for path, digest in sorted(inputs):
        hashed.update(f"\0{path}\0{digest}".encode())
    digest_made: str = hashed.hexdigest()
    return digest_made


def user_digest(path: str) -> str:
    """The digest of a user's own file."""
    digest: str = blake3(f"user's\0{path}".encode()).hexdigest()
    return digest


class Work:
    """The model of one workflow's work. `fail_kinds` overrides `fail` by kind of task; `history` is
    what forecasts during the simulated run learn from, by kind."""

    def __init__(
        self,
        graph: Graph,
        seed: int,
        *,
        fail: float = 0.0,
        fail_kinds: Mapping[str, float] | None = None,
        history: Mapping[str, Sequence[Observed]] | None = None,
    ) -> None:
        self.history = history or {}
        random = Random(f"{seed}/work")
        self._seconds = {
            task.name: task.action.seconds
            if isinstance(task.action, Pause)
            else _drawn(task.takes, random)
            for task in graph.tasks
        }
        kinds = fail_kinds or {}
        self._fail = {t.name: kinds.get(t.kind_name, fail) for t in graph.tasks}
        self._sizes = dict(graph.file_sizes)
        self._seed = seed

    def seconds(self, job: TaskJob) -> float:
        """How long the job takes at speed 1 with the cores it asks for."""
        return self.seconds_of(job.task)

    def seconds_of(self, task: str) -> float:
        """The same, by the task's name."""
        return self._seconds.get(task, 1.0)

    def fails_after(self, job: TaskJob) -> float | None:
        """The share of its work after which this attempt fails; None if it will not."""
        chance = self._fail.get(job.task, 0.0)
        if not chance:
            return None
        random = Random(f"{self._seed}/{job.task}/{job.attempt}")
        return random.random() if random.random() < chance else None

    def user_file(self, path: str) -> FileRecord:
        return FileRecord(path, user_digest(path), self._sizes.get(path, 0))

    def outputs(self, job: TaskJob) -> tuple[FileRecord, ...]:
        """What a command leaves behind; nothing, if the job is no command."""
        if not isinstance(job, CommandJob):
            return ()
        read = [(file.path, file.digest) for file in job.inputs]
        return tuple(
            FileRecord(path, made_digest(job.run, read, path), self._sizes.get(path, 0))
            for path in job.outputs
        )


def _drawn(takes: Takes | None, random: Random) -> float:
    """A draw from the beta-PERT distribution of an estimate; a second if there is none."""
    if takes is None:
        return 1.0
    low, likely, high = takes.optimistic_s, takes.likely_s, takes.pessimistic_s
    if high <= low:
        return likely
    a = 1 + 4 * (likely - low) / (high - low)
    return low + (high - low) * random.betavariate(a, 6 - a)
