"""A run as plain lines: few, and never more than the reader can follow.

What is told is told once; counts follow at most every EVERY_S seconds, more seldom the longer the
run takes (at most about LINES_PER_DOUBLING lines while its age doubles), and only if something
changed or nothing was said for SILENCE_S.
"""

from __future__ import annotations

import time

from sureline.cli.display import DisplayOutlook, Sink, Snapshot, ToldKind

EVERY_S = 2.0
SILENCE_S = 60.0
LINES_PER_DOUBLING = 50
QUIET: frozenset[ToldKind] = frozenset({"notice", "failure", "tail", "again", "repair", "stop"})
"""What is told with --quiet: nothing that goes as it should."""


class Lines:
    """A face for logs, pipes and poor terminals."""

    def __init__(self, sink: Sink, outlook: DisplayOutlook, *, quiet: bool) -> None:
        self._sink = sink
        self._outlook = outlook
        self._quiet = quiet
        self._told = 0
        self._counted: tuple[int, ...] = ()
        self._counted_at = time.monotonic()
        self._first_outlook_told = False

    def show(self, snapshot: Snapshot) -> None:
        for told in snapshot.told[self._told :]:
            if not self._quiet or told.kind in QUIET:
                self._sink.write(told.text + "\n")
        self._told = len(snapshot.told)
        if not self._quiet and not snapshot.over:
            self._first_outlook()
            self._counts(snapshot)

    def _first_outlook(self) -> None:
        if not self._first_outlook_told and (words := self._outlook.words(time.time())):
            self._first_outlook_told = True
            self._sink.write(f"  {words}\n")

    def _counts(self, s: Snapshot) -> None:
        quiet_s = time.monotonic() - self._counted_at
        age_s = max(0.0, time.time() - s.began_at)
        counted = (s.done, s.running, s.failed, s.retrying)
        due_s = min(SILENCE_S, max(EVERY_S, age_s / LINES_PER_DOUBLING))
        if quiet_s < (due_s if counted != self._counted else SILENCE_S):
            return
        self._counted, self._counted_at = counted, time.monotonic()
        words = (self._outlook.words(time.time()) or "").partition(" (")[0]  # the basis was told
        self._sink.write(f"  {counts(s)}" + (f"; {words}\n" if words else "\n"))


def counts(s: Snapshot) -> str:
    """The state of a run in one line.

    >>> counts(Snapshot("r", 8, 0.0, done=2, running=1, failed=1))
    '2/8 done (25 %), 1 running, 1 failed'
    """
    parts = [f"{s.done}/{s.total} done ({100 * s.done // max(1, s.total)} %)"]
    parts.append(f"{s.running} running")
    if s.failed:
        parts.append(f"{s.failed} failed")
    if s.retrying:
        parts.append(f"{s.retrying} to be tried again")
    return ", ".join(parts)


def stopping(s: Snapshot) -> str:
    """What has been asked of the run, for people."""
    tasks = "1 running task" if s.running == 1 else f"{s.running} running tasks"
    if s.stopping == "drain":
        return f"letting {tasks} finish; press Ctrl-C again to stop them"
    return f"stopping {tasks}"
