"""Progress of a run as plain lines on stderr: few, and never more than the reader can follow.

Failures are told as they happen (at most FAILURES_MAX of them); counts at most every EVERY_S
seconds. Printing can never stall or fail the run: see `console.note`.
"""

from __future__ import annotations

import time

from sureline.cli import console
from sureline.compose import Watcher
from sureline.journal.events import (
    COMMITS,
    Event,
    TaskEnded,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.workflow.model import Graph

EVERY_S = 2.0
FAILURES_MAX = 20


class Lines(Watcher):
    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._total = 0
        self._done = 0
        self._reused = 0
        self._running = 0
        self._failures = 0
        self._next_at = 0.0

    def submitted(self, run: str, graph: Graph, notice: str | None, done: int) -> None:
        self._total = len(graph)
        self._done = done
        self._next_at = time.monotonic() + EVERY_S
        if notice:
            console.note(f"note: {notice}")
        if not self._quiet:
            rest = f", {done} done before" if done else ""
            console.note(f"run {run}: {console.counted(len(graph), 'task')}{rest}")

    def event(self, event: Event) -> None:
        match event:
            case TaskStarted():
                self._running += 1
            case TaskEnded():
                self._ended(event)
            case TaskRetried():
                if not self._quiet and self._failures <= FAILURES_MAX:
                    wait = console.duration(event.delay_s)
                    console.note(f"  {event.task} will be tried again in {wait}")
            case TaskRevoked():
                self._done -= 1
                console.note(f"  {event.task} must run again: {event.reason}")
            case _:
                return
        self._counts()

    def _ended(self, event: TaskEnded) -> None:
        if event.attempt:
            self._running -= 1
        if event.outcome in COMMITS:
            self._done += 1
            self._reused += event.outcome == "reused"
        elif event.outcome != "cancelled":
            self._failures += 1
            if self._failures <= FAILURES_MAX:
                console.note(f"  {event.task} failed: {event.reason}")
                tail = event.stderr.strip().splitlines()[-5:]
                for line in tail:
                    console.note(f"    | {line}")
            elif self._failures == FAILURES_MAX + 1:
                console.note("  more tasks failed; 'sureline show last' lists them")

    def _counts(self) -> None:
        if self._quiet or time.monotonic() < self._next_at:
            return
        self._next_at = time.monotonic() + EVERY_S
        percent = 100 * self._done // max(1, self._total)
        failed = f", {self._failures} failures" if self._failures else ""
        console.note(
            f"  {self._done}/{self._total} done ({percent} %), {self._running} running{failed}"
        )

    def interrupted(self, drain: bool, running: int) -> None:
        tasks = console.counted(running, "running task")
        if drain:
            console.note(f"letting {tasks} finish; press Ctrl-C again to stop them")
        else:
            console.note(f"stopping {tasks}")
