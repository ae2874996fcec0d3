"""The control database of a run: what was sent to which site, and what came of it.

A view of the journal (`control_of`), and what the strategy `opportunistic` keeps while it decides.

A site's ratio is ended / submitted. The paper counts whatever its post step saw as ended, failures
too, so that a site which fails everything at once looks best; here a failure is not ended
(`failures_end` gives the paper's way). A task that is taken back from a queue and planned anew is
a record of its new site, so the ratio of the abandoned one recovers; or, with
`withdrawals_count`, it does not.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from typing import Literal

import msgspec

from sureline.journal.events import Event, TaskBound, TaskEnded, TaskStarted
from sureline.world.address import PeerName

WAITS_KEPT = 20
"""Of a site's last jobs, it is remembered how long they waited."""
HALF_LIFE_S = 600.0
"""After so long, half of what was learned of a queue still counts."""

Standing = Literal["submitted", "running", "ended", "failed", "withdrawn"]
_ENDINGS: dict[str, Standing] = {
    "succeeded": "ended",
    "withdrawn": "withdrawn",
    "cancelled": "withdrawn",
}


class Sending(msgspec.Struct):
    """One submission."""

    task: str
    attempt: int
    site: PeerName
    at_s: float
    standing: Standing = "submitted"
    started_s: float | None = None
    ended_s: float | None = None
    kind: str = ""
    """Of its task, once it is over."""


class SiteRecord:
    """All of one site, kept up as rows come and go."""

    def __init__(self, window: int) -> None:
        self._window = window
        self._newest: deque[Sending] = deque(maxlen=window or None)
        self.submitted = 0
        self.running = 0
        self.waiting = 0
        self.ended = 0
        self.failed = 0
        self.withdrawn = 0
        self.failed_in_a_row = 0
        self.present_files = 0
        self.staged_files = 0
        self.staged_bytes = 0
        """Inputs that were there when a task came, and such as were brought there for it."""
        self._queued: dict[int, Sending] = {}
        """Those that wait, the oldest first."""
        self._waited_at_s = 0.0
        self.waits_s: deque[float] = deque(maxlen=WAITS_KEPT)
        self.takes_s: dict[str, tuple[float, int]] = {}
        """By kind of task: seconds in all, and of how many."""

    def submit(self, row: Sending) -> None:
        self.submitted += 1
        self.waiting += 1
        self._queued[id(row)] = row
        if self._window:
            self._newest.append(row)

    def start(self, row: Sending) -> None:
        self.waiting -= 1
        self.running += 1
        self._waited((row.started_s or row.at_s) - row.at_s, row.started_s or row.at_s)
        self._queued.pop(id(row), None)

    def _waited(self, seconds: float, at_s: float) -> None:
        self.waits_s.append(seconds)
        self._waited_at_s = at_s

    def expected_wait_s(self, now_s: float) -> float:
        """What a job may have to wait: as the last ones did, less the longer that is ago; and no
        less than the one that has waited longest so far."""
        oldest = next(iter(self._queued.values()), None)
        so_far_s = now_s - oldest.at_s if oldest is not None else 0.0
        if not self.waits_s:
            return so_far_s
        seen_s = sum(self.waits_s) / len(self.waits_s)
        age_s = now_s - self._waited_at_s
        return max(so_far_s, seen_s * math.exp2(-age_s / HALF_LIFE_S))

    def end(self, row: Sending) -> None:
        if row.started_s is None:
            self.waiting -= 1
            self._queued.pop(id(row), None)
            self._waited((row.ended_s or row.at_s) - row.at_s, row.ended_s or row.at_s)
        else:
            self.running -= 1
        match row.standing:
            case "ended":
                self.ended += 1
                self.failed_in_a_row = 0
                if row.started_s is not None and row.ended_s is not None:
                    total_s, number = self.takes_s.get(row.kind, (0.0, 0))
                    took_s = row.ended_s - row.started_s
                    self.takes_s[row.kind] = (total_s + took_s, number + 1)
            case "withdrawn":
                self.withdrawn += 1
            case _:
                self.failed += 1
                self.failed_in_a_row += 1

    def counts(self, *, failures_end: bool, withdrawals_count: bool) -> tuple[int, int]:
        """(submitted, ended), as the ratio counts them."""
        submitted, ended = self.submitted, self.ended
        failed, withdrawn = self.failed, self.withdrawn
        if self._window:
            standings = [row.standing for row in self._newest]
            submitted, ended = len(standings), standings.count("ended")
            failed, withdrawn = standings.count("failed"), standings.count("withdrawn")
        if not withdrawals_count:
            submitted -= withdrawn
        return submitted, ended + failed * failures_end


class Control:
    """`window` 0 is the whole run. Times are seconds of one clock, whichever."""

    def __init__(self, window: int = 0) -> None:
        self._window = window
        self._open: dict[tuple[PeerName, str, int], Sending] = {}
        self.sites: dict[PeerName, SiteRecord] = {}
        self.last_ended: PeerName | None = None
        """Where the last job ended well."""

    def site(self, name: PeerName) -> SiteRecord:
        record = self.sites.get(name)
        if record is None:
            record = self.sites[name] = SiteRecord(self._window)
        return record

    def submitted(self, site: PeerName, task: str, attempt: int, at_s: float) -> None:
        row = self._open[site, task, attempt] = Sending(task, attempt, site, at_s)
        self.site(site).submit(row)

    def started(self, site: PeerName, task: str, attempt: int, at_s: float) -> Sending | None:
        """Its row; None if it is not news."""
        row = self._open.get((site, task, attempt))
        if row is None or row.started_s is not None:
            return None
        row.standing, row.started_s = "running", at_s
        self.site(site).start(row)
        return row

    def over(
        self, site: PeerName, task: str, attempt: int, ending: str, kind: str, at_s: float
    ) -> Sending | None:
        """Its row; None if nothing of the kind was sent."""
        row = self._open.pop((site, task, attempt), None)
        if row is None:
            return None
        row.standing, row.ended_s, row.kind = _ENDINGS.get(ending, "failed"), at_s, kind
        self.site(site).end(row)
        if row.standing == "ended":
            self.last_ended = site
        return row

    def remember(self, rows: Iterable[Sending], shift_s: float) -> None:
        """Jobs of earlier runs count as if this one had sent them; `shift_s` later, by its clock,
        than they say."""
        for row in rows:
            moved = Sending(row.task, row.attempt, row.site, row.at_s + shift_s)
            record = self.site(row.site)
            record.submit(moved)
            if row.started_s is not None:
                moved.started_s = row.started_s + shift_s
                record.start(moved)
            moved.ended_s = (row.ended_s or row.at_s) + shift_s
            moved.standing, moved.kind = row.standing, row.kind
            record.end(moved)
            if row.standing == "ended":
                self.last_ended = row.site

    def idle(self, now_s: float, limit_s: float) -> list[Sending]:
        """Those that have waited longer than this and have not started."""
        return [
            row
            for row in self._open.values()
            if row.started_s is None and now_s - row.at_s > limit_s
        ]


def control_of(
    events: Iterable[Event], on_over: Callable[[Sending], object] | None = None
) -> Control:
    """The database of a run, as its journal tells it; `on_over` hears of each job that is over."""
    control = Control()
    for event in events:
        match event:
            case TaskBound():
                control.submitted(PeerName(event.peer), event.task, event.attempt, event.at)
            case TaskStarted():
                control.started(PeerName(event.peer), event.task, event.attempt, event.at)
            case TaskEnded() if event.attempt:
                ending = "succeeded" if event.outcome == "reused" else event.outcome
                site = PeerName(event.peer)
                args = (site, event.task, event.attempt, ending, event.kind, event.at)
                row = control.over(*args)
                if row is not None and on_over is not None:
                    on_over(row)
                record = control.site(site)
                record.present_files += event.here_files
                record.staged_files += event.peer_files
                record.staged_bytes += event.peer_bytes
    return control
