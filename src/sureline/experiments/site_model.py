"""One modelled site: a queue before processors that others use, too.

What others use is drawn anew now and then; jobs that run are never stopped for them. What a job
reads and the site does not have is brought first, one file after the other. A site may be slow, may
fail all that it is given, or be down at times: then what runs there is lost, and nothing begins.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from random import Random
from typing import Any

import msgspec

from sureline.peer.jobs import CommandJob, JobEnded, JobStarted
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Graph
from sureline.world.protocol import Action, Job, JobEvent, JobHandle


class SiteTrait(msgspec.Struct, frozen=True):
    name: str
    processors: int
    shares: tuple[float, ...] = (0.0,)
    """What others may use, each as likely as the next."""
    every_s: float = 1200.0
    """After so long, in the mean, they use another share."""
    s_per_byte: float = 0.0
    """What it takes to bring a file."""
    speed: float = 1.0
    fails_after_s: float | None = None
    """If given, all that begins here fails so soon."""
    up_s: float = 0.0
    down_s: float = 0.0
    """How long it is up and down in turn, in the mean; 0 for always up."""


class _Held:
    __slots__ = ("job", "on_event", "over", "running")

    def __init__(self, job: CommandJob, on_event: Callable[[JobEvent], None]) -> None:
        self.job = job
        self.on_event = on_event
        self.running = self.over = False


class SimulatedSite:
    def __init__(
        self,
        trait: SiteTrait,
        graph: Graph,
        after: Callable[[float, Action], Any],
        random: Random,
    ) -> None:
        self._trait = trait
        self._graph = graph
        self._after = after
        self._random = random
        self._queue: deque[_Held] = deque()
        self._running: set[_Held] = set()
        self._has: set[str] = set()
        self._others = 0.0
        self._up = True
        self.on_change: Callable[[], object] = lambda: None
        """Called when others have changed what is left."""
        self._draw()
        if trait.up_s:
            self._after(random.expovariate(1 / trait.up_s), self._go_down)

    def _draw(self) -> None:
        self._others = self._random.choice(self._trait.shares) * self._trait.processors
        self.on_change()
        self._after(max(1.0, self._random.expovariate(1 / self._trait.every_s)), self._draw)
        self._begin()

    def _go_down(self) -> None:
        self._up = False
        self.on_change()
        for held in sorted(self._running, key=lambda held: held.job.label):
            self._end(held, JobEnded("lost", reason="the site went down", fault="machine"))
        self._after(self._random.expovariate(1 / self._trait.down_s), self._come_up)

    def _come_up(self) -> None:
        self._up = True
        self.on_change()
        self._after(self._random.expovariate(1 / self._trait.up_s), self._go_down)
        self._begin()

    @property
    def left(self) -> float:
        """What others leave of it; -1 while it is down."""
        return self._trait.processors - self._others if self._up else -1.0

    # -- as a runner ---------------------------------------------------------------------------

    def start(self, job: Job, on_event: Callable[[JobEvent], None]) -> JobHandle:
        assert isinstance(job, CommandJob), "workflows here are of commands"
        held = _Held(job, on_event)
        sizes = self._graph.file_sizes
        missing = [file.path for file in job.inputs if file.path not in self._has]
        move_s = sum(sizes.get(path, 0) for path in missing) * self._trait.s_per_byte

        def arrived() -> None:
            self._has.update(missing)
            if not held.over:
                self._queue.append(held)
                self._begin()

        self._after(move_s, arrived)
        return held

    def stop(self, handle: JobHandle) -> None:
        assert isinstance(handle, _Held)
        if not handle.over:
            if handle in self._queue:
                self._queue.remove(handle)
            self._after(0.0, lambda: self._end(handle, JobEnded("cancelled", reason="stopped")))

    def _begin(self) -> None:
        free = self.left - len(self._running)
        while self._queue and free >= 1:
            held = self._queue.popleft()
            held.running = True
            self._running.add(held)
            free -= 1
            held.on_event(JobStarted(None))
            self._run(held)

    def _run(self, held: _Held) -> None:
        task = self._graph.tasks[self._graph.index[held.job.task]]
        assert task.takes is not None, "how long it takes is part of the model"
        if self._trait.fails_after_s is not None:
            ended = JobEnded("failed", exit_code=1, reason="exit code 1")
            self._after(self._trait.fails_after_s, lambda: self._end(held, ended))
            return

        def done() -> None:
            self._has.update(held.job.outputs)
            sizes = self._graph.file_sizes
            made = tuple(
                FileRecord(path, f"made {path}", sizes.get(path, 0)) for path in held.job.outputs
            )
            self._end(held, JobEnded("succeeded", outputs=made))

        self._after(task.takes.likely_s / self._trait.speed, done)

    def _end(self, held: _Held, ended: JobEnded) -> None:
        if held.over:
            return
        held.over = True
        self._running.discard(held)
        held.on_event(ended)
        self._begin()
