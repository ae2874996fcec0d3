"""A runner on a fresh working directory, driven job by job."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

from sureline.peer.confine.rules import Rules
from sureline.peer.jobs import JobEnded, UserFile
from sureline.peer.runner import SlotRunner
from sureline.peer.store import BlobStore
from sureline.world.protocol import Fetched, Job, JobEvent, JobHandle

PATIENCE_S = 30.0
TIMEOUTS_S = (0.2, 1, 5, 20)
"""Timeouts to try until a job gets far enough before it is cut short, however busy the machine."""


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def is_written(mark: Path) -> bool:
    """Whether a job has written its whole line there."""
    return mark.exists() and mark.read_text().endswith("\n")


class Started:
    """A job under way, and what it has reported so far."""

    def __init__(self) -> None:
        self.events: list[JobEvent] = []
        self.handle: JobHandle | None = None

    @property
    def ended(self) -> JobEnded | None:
        last = self.events[-1] if self.events else None
        return last if isinstance(last, JobEnded) else None


class Bench:
    def __init__(
        self,
        directory: Path,
        max_slots: int = 2,
        grace_s: float = 5.0,
        rules: Rules | None = None,
    ) -> None:
        self._rules = rules
        self.directory = directory
        self.root = directory / ".sureline"
        self.loop = asyncio.new_event_loop()
        self.functions: dict[str, bytes] = {}
        self.runner = self.new_runner(max_slots, grace_s)
        self.store = BlobStore(self.root)

    def new_runner(
        self, max_slots: int = 2, grace_s: float = 5.0, env: Mapping[str, str] | None = None
    ) -> SlotRunner:
        return SlotRunner(
            self.loop,
            root=self.root,
            directory=self.directory,
            run="r1",
            functions=self.functions,
            max_slots=max_slots,
            grace_s=grace_s,
            env=env,
            rules=self._rules,
        )

    def start(self, job: Job, after: Started | None = None) -> Started:
        started = Started()
        behind = after.handle if after is not None else None
        started.handle = self.runner.start(job, started.events.append, after=behind)
        return started

    def until(self, condition: Callable[[], object]) -> None:
        """Run the loop until the condition holds."""

        async def wait() -> None:
            while not condition():  # noqa: ASYNC110 - conditions are of files and processes too
                await asyncio.sleep(0.002)

        self.loop.run_until_complete(asyncio.wait_for(wait(), PATIENCE_S))

    def end(self, started: Started) -> JobEnded:
        self.until(lambda: started.ended)
        assert started.ended is not None
        return started.ended

    def run(self, job: Job) -> JobEnded:
        return self.end(self.start(job))

    def fetch(self, wanted: UserFile) -> Fetched:
        found: list[Fetched] = []
        self.runner.fetch(wanted, found.append)
        self.until(lambda: found)
        return found[0]

    def close(self) -> None:
        self.loop.run_until_complete(self.runner.close())
        self.loop.close()
