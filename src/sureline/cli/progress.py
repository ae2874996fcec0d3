"""Following a run that goes on in this process, for a display.

`ProgressWatcher` hears every event in the run's own thread, so it does next to nothing there: it
counts, and at most five times a second, if anything happened, it posts a snapshot to the display
(which has a thread of its own: see `display`). Its cost does not depend on the number of tasks.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

import msgspec

from sureline.cli import console
from sureline.cli.display import (
    LAST_WORDS_S,
    Display,
    DisplayOutlook,
    Face,
    RunningTask,
    Sentence,
    Sink,
    Snapshot,
    ToldKind,
    printable,
)
from sureline.cli.outlook import LiveOutlook
from sureline.compose import Watcher
from sureline.forecast.result import Forecast
from sureline.journal.events import (
    COMMITS,
    Event,
    Planned,
    Repaired,
    TaskEnded,
    TaskProgressed,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.journal.story import in_words
from sureline.peer.capacity import Capacity
from sureline.workflow.model import Graph

SNAPSHOT_EVERY_S = 0.2
FAILURES_MAX = 20
TOLD_MAX = 200
TAIL_LINES = 5
LONGEST_MAX = 40

Mode = Literal["auto", "live", "lines", "none"]


class ProgressWatcher(Watcher):
    """Counts what happens and posts it."""

    def __init__(self, display: Display, following: LiveOutlook | None) -> None:
        self._display = display
        self._following = following
        self._run = ""
        self._total = 0
        self._began_at = time.time()
        self._done = 0
        self._reused = 0
        self._failed: set[str] = set()
        self._retrying: set[str] = set()
        self._running: dict[str, RunningTask] = {}
        self._failures = 0
        self._told: list[Sentence] = []
        self._stopping: Literal["", "drain", "stop"] = ""
        self._next_post_at = 0.0
        self._post_due = False

    def submitted(self, run: str, graph: Graph, notice: str | None, done: int) -> None:
        self._run, self._total, self._done = run, len(graph), done
        self._began_at = time.time()
        if notice:
            self._tell("notice", f"note: {notice}")
        before = f", {done} done before" if done else ""
        self._tell("start", f"run {run}: {console.counted(len(graph), 'task')}{before}")
        if self._following is not None:
            self._following.begin(run, graph, done)
        self._post()

    def foreseen(self, forecast: Forecast) -> None:
        if self._following is not None:
            self._following.take(forecast)

    def told(self, sentence: str) -> None:
        self._tell("notice", f"note: {sentence}")
        self._post_soon()

    def event(self, event: Event) -> None:
        if self._following is not None:
            self._following.hear(event)
        match event:
            case TaskStarted():
                self._retrying.discard(event.task)
                self._running[event.task] = RunningTask(event.task, event.at)
            case TaskProgressed():
                known = self._running.get(event.task)
                if known is not None:
                    self._running[event.task] = known._replace(fraction=event.fraction)
            case TaskEnded():
                self._ended(event)
            case TaskRetried():
                self._failed.discard(event.task)
                self._retrying.add(event.task)
                if self._failures <= FAILURES_MAX:
                    wait = f"in {console.duration(event.delay_s)}" if event.delay_s else "at once"
                    self._tell("retry", f"  {event.task} will be tried again {wait}")
            case Repaired():
                self._tell("repair", f"  {in_words(event)}")
            case Planned(surety=surety) if surety is not None:
                self._tell("start", f"  {in_words(event)}")
            case TaskRevoked():
                self._done -= 1
                self._tell("again", f"  {event.task} must run again: {event.reason}")
            case _:
                return
        self._post_soon()

    def _ended(self, event: TaskEnded) -> None:
        self._running.pop(event.task, None)
        if event.outcome in COMMITS:
            self._done += 1
            self._reused += event.outcome == "reused"
        elif event.outcome != "cancelled":
            self._failed.add(event.task)
            self._failures += 1
            if self._failures <= FAILURES_MAX:
                happened = "was lost" if event.outcome == "lost" else "failed"
                self._tell("failure", f"  {event.task} {happened}: {event.reason}")
                for line in event.stderr.strip().splitlines()[-TAIL_LINES:]:
                    self._tell("tail", f"    | {line}")
            elif self._failures == FAILURES_MAX + 1:
                self._tell("failure", "  more tasks failed; 'sureline show last' lists them")

    def interrupted(self, drain: bool, running: int) -> None:
        from sureline.cli.display_lines import stopping

        self._stopping = "drain" if drain else "stop"
        # Those that were just given to a slot count too, though it has not told of them yet.
        under_way = msgspec.structs.replace(self.snapshot(), running=running)
        self._tell("stop", stopping(under_way))
        self._post()

    def _tell(self, kind: ToldKind, text: str) -> None:
        if len(self._told) < (TOLD_MAX if kind != "stop" else 2 * TOLD_MAX):
            self._told.append(Sentence(kind, printable(text)))

    def _post_soon(self) -> None:
        """Post now, or when the last post is old enough: the last of many changes shows too."""
        if self._post_due:
            return
        wait_s = self._next_post_at - time.monotonic()
        if wait_s <= 0:
            self._post()
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the run is over: nothing comes after this
            self._post()
            return
        self._post_due = True
        loop.call_later(wait_s, self._post)

    def _post(self) -> None:
        self._post_due = False
        self._next_post_at = time.monotonic() + SNAPSHOT_EVERY_S
        self._display.post(self.snapshot())

    def snapshot(self) -> Snapshot:
        return Snapshot(
            run=self._run,
            total=self._total,
            began_at=self._began_at,
            done=self._done,
            reused=self._reused,
            failed=len(self._failed),
            retrying=len(self._retrying),
            running=len(self._running),
            longest=tuple(itertools.islice(self._running.values(), LONGEST_MAX)),
            told=tuple(self._told),
            stopping=self._stopping,
        )


@contextmanager
def watching(
    mode: Mode, home: Path, machine: Capacity, *, quiet: bool, as_json: bool
) -> Iterator[Watcher]:
    """What `run` and `resume` give to the run, shown on stderr until the block is left.

    --quiet tells of failures only; so does --json, unless a mode was asked for. `home` is where
    the journal lies, `machine` what the run may use: forecasts rest on both.
    """
    if mode == "none":
        yield Watcher()
        return
    sink = Sink(sys.stderr)
    quiet = quiet or (as_json and mode == "auto")
    following = LiveOutlook(home, machine)
    display = Display(_face(mode, sink, following, quiet))
    progress = ProgressWatcher(display, None if quiet else following)
    try:
        yield progress
    finally:
        following.stop()
        waits_until = time.monotonic() + LAST_WORDS_S  # for both of them together
        display.close(progress.snapshot())
        following.close(max(0.0, waits_until - time.monotonic()))


def _face(mode: Mode, sink: Sink, outlook: DisplayOutlook, quiet: bool) -> Face:
    if not quiet and (mode == "live" or (mode == "auto" and _can_live(sink))):
        from sureline.cli.display_live import Live

        return Live(sink, outlook)
    from sureline.cli.display_lines import Lines

    return Lines(sink, outlook, quiet=quiet)


def _can_live(sink: Sink) -> bool:
    return sink.is_terminal and os.environ.get("TERM", "") not in ("", "dumb", "unknown")
