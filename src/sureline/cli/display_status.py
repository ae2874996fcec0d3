"""How a run stands at one moment, as another process reads it from the journal.

`RunStatus` follows a run: each `refresh` takes in what was recorded since the last one. It is the
same picture as the live display's, made of the same snapshot, with who runs it and what failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Literal

from rich.text import Text

from sureline.cli import console
from sureline.cli.display import RunningTask, Snapshot, printable
from sureline.cli.display_live import UNICODE, Signs, frame
from sureline.cli.outlook import expected_s
from sureline.cli.terms_told import repairs_data, terms_data, terms_lines
from sureline.forecast.follow import Forecaster, kinds_of
from sureline.forecast.machines import Machines
from sureline.forecast.progress import Tracker
from sureline.forecast.result import Forecast, describe
from sureline.journal.away import Away
from sureline.journal.events import CancelAsked, Grown
from sureline.journal.locks import Holder, RunLock, holder
from sureline.journal.store import Journal
from sureline.journal.views import RunView
from sureline.journal.words import counted

FAILURES_SHOWN = 5


class RunStatus:
    """One run, as of the last `refresh`. A `DisplayOutlook` for the frame."""

    def __init__(
        self, journal: Journal, run: str, update: Callable[[], None] = lambda: None
    ) -> None:
        """`update` brings the journal itself up to date, if it is a copy."""
        self._journal = journal
        self._update = update
        self.run = run
        self.graph = journal.workflow(run)
        self.view = RunView.of((), self.graph.index)
        self._tracker = Tracker(self.graph)
        self._history = journal.durations(kinds_of(self.graph))
        self._machines = Machines()
        self._forecaster: Forecaster | None = None
        self._drain = False
        self._position = 0
        self._away = Away()
        self.alive = False
        self.driver: Holder | None = None
        self.now = 0.0

    def refresh(self) -> bool:
        """Take in what is new; whether anything was."""
        self._update()
        before = (self._position, self.alive)
        work = self._journal.work_directory(self.run)
        self.alive = RunLock.held_elsewhere(work)
        self.driver = holder(work) if self.alive else None
        for entry in self._journal.events(self.run, after=self._position):
            self._position = entry.position
            if isinstance(entry.event, Grown):
                self._grow(entry.event)
            self.view.apply(entry.event)
            self._away.apply(entry.event)
            self._tracker.apply(entry.event)
            self._machines.apply(entry.event)
            if isinstance(entry.event, CancelAsked):
                self._drain = entry.event.drain
        self.now = time.time()
        return before != (self._position, self.alive)

    def _grow(self, event: Grown) -> None:
        if len(self.graph) >= self.view.total + event.tasks:
            return  # it was read as it is now
        self.graph = self.graph.grown(event.growth)
        self.view.add_tasks(self.graph.index)
        self._tracker.grow(self.graph)
        self._forecaster = None

    @property
    def state(self) -> str:
        return self.view.state(self.alive)

    @property
    def elapsed_s(self) -> float:
        """Spent on the run so far, this moment included if a process is at work."""
        since_s = max(0.0, self.now - self.view.last_at) if self.state == "running" else 0.0
        return self.view.elapsed_s + since_s

    def forecast(self) -> Forecast | None:
        """When it will be done; None if nothing is going on."""
        offers = self._machines.together()
        if self.state != "running" or offers is None:
            return None
        if self._forecaster is None:
            self._forecaster = Forecaster(self.graph, offers, self._history, self.run)
        self._forecaster.move_to(offers)
        self._forecaster.ask_deadline(self.view.terms.deadline_at)
        return self._forecaster.forecast(self._tracker.snapshot(self.now))

    def words(self, now: float) -> str | None:
        forecast = self.forecast()
        return None if forecast is None else describe(forecast, now)

    def expected_s(self, task: str) -> float | None:
        observed_s = self._tracker.snapshot(self.now).observed_s
        return expected_s(self.graph, task, self._history, observed_s)

    def running(self) -> list[RunningTask]:
        """Those that run, the longest first; none if the process that ran them is gone."""
        if self.state != "running":
            return []
        found = [
            RunningTask(name, one.started_at, one.fraction)
            for name, one in self.view.tasks.items()
            if one.state == "running" and one.started_at is not None
        ]
        return sorted(found, key=lambda one: one.started_at)

    def failures(self) -> list[tuple[str, str]]:
        """The tasks that failed for good, the newest last, and why."""
        found = [
            (one.ended_at or 0.0, name, one.failures[-1].reason if one.failures else "")
            for name, one in self.view.tasks.items()
            if one.state == "failed"
        ]
        return [(name, reason) for _, name, reason in sorted(found)]

    def snapshot(self) -> Snapshot:
        counts, running = self.view.counts, self.running()
        stopping: Literal["", "drain", "stop"] = ""
        if self.view.cancelling and self.state == "running":
            stopping = "drain" if self._drain else "stop"
        return Snapshot(
            run="",  # the line above has it
            total=counts.total,
            began_at=self.now - self.elapsed_s,
            done=counts.succeeded + counts.reused,
            reused=counts.reused,
            failed=counts.failed,
            retrying=self.view.by_state.get("retrying", 0) if running else 0,
            running=len(running),
            longest=tuple(running),
            stopping=stopping,
            over=self.view.ended_state is not None,
        )

    def data(self) -> dict[str, Any]:
        """For programs. See docs/json.md."""
        view, forecast = self.view, self.forecast()
        return {
            "run": self.run,
            "name": view.name,
            "state": self.state,
            "reason": view.reason,
            "submitted": _when(view.submitted_at),
            "ended": _when(view.ended_at),
            "elapsed_s": round(self.elapsed_s, 3),
            "driver": None if self.driver is None else _driver(self.driver),
            "last_event_age_s": round(max(0.0, self.now - view.last_at), 3),
            "tasks": view.counts,
            "by_state": view.by_state,
            "running": [self._running_data(one) for one in self.running()],
            "failed": [{"task": name, "reason": reason} for name, reason in self.failures()],
            "forecast": None if forecast is None else self._forecast_data(forecast),
            "stays": self.stays,
            "terms": terms_data(view),
            "repairs": repairs_data(view),
        }

    @property
    def stays(self) -> str | None:
        """Why the run needs the machine that drives it; '' if it does not, None if that is no
        question."""
        return self._away.why_stay() if self._away.on_grid and self.state == "running" else None

    def _running_data(self, one: RunningTask) -> dict[str, Any]:
        task = self.view.tasks[one.task]
        expected = self.expected_s(one.task)
        return {
            "task": one.task,
            "attempt": task.attempts,
            "peer": task.peer,
            "started": _when(one.started_at),
            "elapsed_s": round(max(0.0, self.now - one.started_at), 3),
            "expected_s": None if expected is None else round(expected, 3),
            "fraction": task.fraction,
        }

    def _forecast_data(self, forecast: Forecast) -> dict[str, Any]:
        late_s = self.now - forecast.at
        return {
            "p50_s": round(max(0.0, forecast.p50_s - late_s), 3),
            "p90_s": round(max(0.0, forecast.p90_s - late_s), 3),
            "p50": _when(forecast.at + forecast.p50_s),
            "p90": _when(forecast.at + forecast.p90_s),
            "surety": forecast.surety,
            "surety_error": round(forecast.surety_error, 4),
            "basis": forecast.basis,
        }

    def lines(self, width: int, rows: int, signs: Signs = UNICODE) -> list[Text]:
        """One screen."""
        failures = self._terms_lines() + self._away_lines() + self._failure_lines()
        title = Text(f"run {self.run}: {self.state}", style="bold", end="")
        title.append(self._about(), style="not bold")
        room = rows - 1 - len(failures)
        found = [title, *frame(self.snapshot(), self, self.now, width, room, signs), *failures]
        return found[: max(1, rows)]

    def _about(self) -> str:
        view = self.view
        reason = f" ({printable(view.reason)})" if view.reason else ""
        if view.ended_at is not None:
            return f"{reason}, ended {console.duration(max(0.0, self.now - view.ended_at))} ago"
        last = f"last event {console.duration(max(0.0, self.now - view.last_at))} ago"
        if self.driver is not None:
            return f"{reason} by process {self.driver.pid} on {self.driver.host}; {last}"
        return f"{reason}; {last}" + (
            "" if self.alive else f"; its process is gone; continue: sureline resume {self.run}"
        )

    def _terms_lines(self) -> list[Text]:
        """What was asked and what was done for it; how it stands is in the frame."""
        lines = [line for line in terms_lines(self.view) if not line.startswith("  foreseen")]
        return [Text(printable(line), end="") for line in lines]

    def _away_lines(self) -> list[Text]:
        if self.stays is None:
            return []
        off = "  the machine that drives it may be switched off"
        on = f"  the machine that drives it must stay on: {self.stays}"
        return [Text(printable(on if self.stays else off), end="")]

    def _failure_lines(self) -> list[Text]:
        failures = self.failures()
        if not failures:
            return []
        lines = [Text(f"  {counted(len(failures), 'task')} failed:", style="red", end="")]
        for name, reason in failures[-FAILURES_SHOWN:]:
            lines.append(Text(f"    {printable(name)}: {printable(reason)}", end=""))
        if len(failures) > FAILURES_SHOWN:
            lines[0].append(f" (the last {FAILURES_SHOWN}; all: sureline show {self.run})")
        return lines


def _driver(driver: Holder) -> dict[str, Any]:
    return {"host": driver.host, "pid": driver.pid}


def _when(at: float | None) -> str | None:
    return None if at is None else console.moment(at)
