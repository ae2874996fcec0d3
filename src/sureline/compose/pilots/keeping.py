"""Keeping pilots, of one run or of a grid: a thread that looks after them until it is closed.

It asks for as many as are of use, replaces those whose time was over or that were lost, learns
from each how long it waited, and says when it gives up.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable

import msgspec

from sureline.compose.pilots.base import ensure_base
from sureline.compose.pilots.factory import PilotFactory
from sureline.compose.pilots.starting import Pilots, PilotSeen
from sureline.sites.book import PilotBatch
from sureline.sites.order import PilotOrder
from sureline.sites.port import JobId, JobStatus, SiteError
from sureline.sites.waits import WaitBook, WaitSeen
from sureline.workflow.mistakes import SurelineError
from sureline.world.identity.home import GridHome

LOOK_EVERY_S = 2.0
LOOK_AGAIN_S_MAX = 60.0
"""Between two looks at a site that does not answer."""
CLOCK_S = 1.0
"""Engines say the second in which something began, not the instant."""
ITS_OWN = ("failed", "lost", "node-failed", "out-of-memory", "deadline")
"""Ends after which one asks whether a pilot had come up at all."""


class _Ready(msgspec.Struct):
    """What a pilot prints once it serves, as far as it matters here."""

    ready_at: float


class PilotKeeper(threading.Thread):
    """For a run, or, if that is '', for the grid. `wanted` says how many pilots would be of use if
    so many are there; `give_up` is called, once, when nothing more can be started and nothing is
    there. `close` ends all pilots that it has kept."""

    def __init__(
        self,
        pilots: Pilots,
        home: GridHome,
        run: str,
        order: PilotOrder,
        wanted: Callable[[int], int],
        tell: Callable[[str], None],
        give_up: Callable[[str], None],
        floor: int = 0,
    ) -> None:
        super().__init__(name="pilots", daemon=True)
        self._pilots = pilots
        self._home = home
        self._run_name = run
        self._order = order
        self._wanted = wanted
        self._tell = tell
        self._give_up = give_up
        self._factory = PilotFactory(floor, order.number)
        self._waits = WaitBook(pilots.directory / "waits.jsonl")
        self._began: set[JobId] = set()
        self._coming_up: dict[JobId, PilotSeen] = {}
        """Those that have begun and, as far as was seen, do not serve yet."""
        self._over: set[JobId] = set()
        self._serves: set[JobId] = set()
        self._unfit: set[JobId] = set()
        self._since = time.time()
        self._turn = 0
        self._stopping = threading.Event()
        self._told_trouble = ""
        self._told_paused = False

    def run(self) -> None:
        pause_s = LOOK_EVERY_S
        while not self._stopping.is_set():
            try:
                self.look()
                pause_s = LOOK_EVERY_S
                self._told_trouble = ""
            except SurelineError as error:
                pause_s = min(LOOK_AGAIN_S_MAX, 2 * pause_s)
                if str(error) != self._told_trouble:
                    self._told_trouble = str(error)
                    self._tell(f"pilots: {error}; tries again")
            self._stopping.wait(pause_s)

    def close(self) -> None:
        """No pilot of the run is left, as far as its engine answers."""
        self._stopping.set()
        if self.is_alive():
            self.join()
        for pilot in self._coming_up.values():
            self._learn(pilot, None)
        bases = [b for b in self._pilots.batches(self._home.grid) if b.base]
        self._pilots.stop([*self._batches(), *bases], self._tell)

    def _batches(self) -> list[PilotBatch]:
        found = self._pilots.batches(self._home.grid)
        return [batch for batch in found if not batch.base and batch.run == self._run_name]

    def look(self) -> None:
        """One round. Raises SiteError if an engine does not answer: then nothing is concluded."""
        ensure_base(self._pilots.book, self._home, self._order.base_listen)
        there = 0
        for batch in self._batches():
            seen = self._pilots.seen(batch)
            for pilot in seen:
                self.saw(pilot)
            left = sum(p.status is None or not p.status.is_over for p in seen)
            if not left:
                self._pilots.settle(batch)
            there += left
        if self._factory.paused:
            if there and not self._told_paused:
                self._told_paused = True
                self._tell(f"pilots: no more are asked for: {self._factory.paused}")
            elif not there and not self._stopping.is_set():
                self._stopping.set()
                self._give_up(self._factory.paused)
            return
        number = self._factory.to_submit(time.monotonic(), self._wanted(there), there)
        if number:
            self._start(number)

    def _start(self, number: int) -> None:
        choice = self._order.choices[self._turn % len(self._order.choices)]
        share = math.ceil(number / len(self._order.choices))
        self._turn += 1
        try:
            self._pilots.start(self._home, choice, self._order.shape, share, self._run_name)
        except SiteError as error:
            self._factory.refused(time.monotonic(), str(error), again=error.again)
            self._tell(f"pilots: {error}" + ("; tries again" if error.again else ""))
        else:
            self._factory.submitted()
            many = "a pilot" if share == 1 else f"{share} pilots"
            self._tell(f"asked {choice.name} for {many}")

    # -- what became of them ---------------------------------------------------------------------

    def saw(self, pilot: PilotSeen) -> None:
        """What is known of a pilot now: learn from it, and judge how it ended."""
        job, status = pilot.job, pilot.status
        if job is None or status is None:
            return
        if status.word == "unfit" and job not in self._unfit:
            self._unfit.add(job)
            self._factory.fits_nowhere(status.reason)
            self._pilots.book.site_of(pilot.batch).cancel([job])
        if status.started_at is not None and job not in self._began:
            self._began.add(job)
            self._coming_up[job] = pilot
        if job in self._coming_up:
            self._comes_up(job, pilot, status)
        if status.is_over and job not in self._over:
            self._over.add(job)
            self._judge(pilot, status)

    def _comes_up(self, job: JobId, pilot: PilotSeen, status: JobStatus) -> None:
        ready_at = self._ready_at(pilot)
        if ready_at is None and not status.is_over:
            return
        del self._coming_up[job]
        self._learn(pilot, ready_at)
        if ready_at is not None:
            self._serves.add(job)
            self._factory.began()

    def _learn(self, pilot: PilotSeen, ready_at: float | None) -> None:
        """How long it waited, and took to come up; what began before this process did was seen by
        another."""
        batch, status = pilot.batch, pilot.status
        if status is None or status.submitted_at is None or status.started_at is None:
            return
        if status.starts > 1 or status.started_at < self._since - CLOCK_S:
            return
        self._waits.add(
            WaitSeen(
                at=status.submitted_at,
                site=batch.choice.name,
                partition=batch.choice.partition,
                cores=batch.shape.cores * batch.count,
                limit_s=batch.shape.lifetime_s or 0.0,
                wait_s=max(0.0, status.started_at - status.submitted_at),
                ahead=batch.ahead,
                up_s=None if ready_at is None else max(0.0, ready_at - status.started_at),
            )
        )

    def _ready_at(self, pilot: PilotSeen) -> float | None:
        """When it said that it serves, by its own clock; None if it has not."""
        for line in self._pilots.output(pilot.batch, pilot.number).splitlines():
            with contextlib.suppress(msgspec.MsgspecError):
                return msgspec.json.decode(line, type=_Ready).ready_at
        return None

    def _judge(self, pilot: PilotSeen, status: JobStatus) -> None:
        if status.word not in ITS_OWN or pilot.job in self._serves:
            return
        said = self._pilots.output(pilot.batch, pilot.number)
        line = said.strip().rpartition("\n")[2]
        why = ": ".join(filter(None, (status.word, status.reason, line)))
        self._factory.start_failed(time.monotonic(), why)
        self._tell(f"pilot {pilot.batch.pilot(pilot.number)} did not come up: {why}")
