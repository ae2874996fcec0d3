"""Forecasts for a face: made in a thread of their own, so that nobody ever waits for one.

The run's thread only notes events in a `Tracker` (a byte per task). The thread begins after a
moment of grace: a run that is over by then never pays for loading what forecasting needs.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from sureline.cli.display import LAST_WORDS_S
from sureline.forecast.follow import Forecaster, kinds_of
from sureline.forecast.machines import Machines
from sureline.forecast.progress import Progress, Tracker
from sureline.forecast.result import Forecast, describe
from sureline.journal.errors import JournalError
from sureline.journal.events import Event
from sureline.journal.history import Observed
from sureline.journal.store import Journal
from sureline.workflow.model import Graph, Pause

if TYPE_CHECKING:
    from sureline.forecast.pools import Offers

GRACE_S = 1.0
"""Loading what forecasting needs costs most of a second of processor time."""
EVERY_S = 1.0
ENOUGH_SEEN = 3
"""So many observed durations of a kind outweigh the user's estimate."""

History = Mapping[str, Sequence[Observed]]


def expected_s(
    graph: Graph, task: str, history: History, this_run_s: Mapping[str, Sequence[float]]
) -> float | None:
    """How long a task is likely to take in all; None if nobody can tell."""
    index = graph.index.get(task)
    if index is None:
        return None
    described = graph.tasks[index]
    if isinstance(described.action, Pause):
        return described.action.seconds
    kind = described.kind_name
    seen = [o.elapsed_s for o in history.get(kind, ())] + list(this_run_s.get(kind, ()))
    if len(seen) >= ENOUGH_SEEN or (seen and described.takes is None):
        return statistics.median(seen)
    return described.takes.likely_s if described.takes is not None else None


class LiveOutlook:
    """The outlook of a run that goes on in this process; a `DisplayOutlook`."""

    def __init__(self, home: Path, machine: Offers) -> None:
        self._home = home
        self._machine = machine
        self._machines = Machines()
        self._tracker: Tracker | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._newest: Forecast | None = None
        self._taken = False
        self._known: tuple[Graph, History, Progress] | None = None
        self._trouble = ""

    # In the run's thread

    def begin(self, run: str, graph: Graph, done: int) -> None:
        """The run begins, or goes on with `done` tasks that have a result already."""
        self._tracker = Tracker(graph)
        self._thread = threading.Thread(
            target=self._follow,
            args=(run, graph, self._tracker, done, time.time()),
            name="sureline-forecast",
            daemon=True,
        )
        self._thread.start()

    def hear(self, event: Event) -> None:
        if self._tracker is not None:
            self._tracker.apply(event)
        if self._machines.apply(event):
            self._machine = self._machines.together() or self._machine

    def take(self, forecast: Forecast) -> None:
        """The run makes forecasts itself, for its deadline: show these, and make none here."""
        self._newest, self._taken = forecast, True

    def stop(self) -> None:
        """Begin no more forecasts."""
        self._stop.set()

    def close(self, wait_s: float = LAST_WORDS_S) -> None:
        """Stop, and wait for a forecast under way, but not longer than this."""
        self.stop()
        if self._thread is not None:
            self._thread.join(wait_s)

    # In the display's thread

    def words(self, now: float) -> str | None:
        newest = self._newest
        if newest is None:
            return self._trouble or None
        return describe(newest, now)

    def expected_s(self, task: str) -> float | None:
        if self._known is None:
            return None
        graph, history, progress = self._known
        return expected_s(graph, task, history, progress.observed_s)

    # In a thread of its own

    def _follow(self, run: str, graph: Graph, tracker: Tracker, done: int, began_at: float) -> None:
        try:
            if self._stop.wait(GRACE_S):
                return
            history = self._read_past(run, graph, tracker, done, began_at)
            forecaster = Forecaster(graph, self._machine, history, run)
            while not self._stop.is_set():
                forecaster.move_to(self._machine)
                progress = tracker.snapshot(time.time())
                self._known = (graph, history, progress)
                if self._taken:
                    self._stop.wait(EVERY_S)
                    continue
                newest = forecaster.forecast(progress)
                self._offer(newest)
                self._stop.wait(max(EVERY_S, forecaster.due_at(newest) - time.time()))
        except Exception as error:  # a mistake of ours must not cost a run
            self._newest, self._trouble = None, f"no forecast ({error!r})"

    def _offer(self, newest: Forecast) -> None:
        if not self._taken:  # one may have been while this was made
            self._newest = newest

    def _read_past(
        self, run: str, graph: Graph, tracker: Tracker, done: int, began_at: float
    ) -> History:
        """What tasks took before, and, of a resumed run, which have a result already."""
        try:
            with Journal.open(self._home, create=False, read_only=True) as journal:
                if done:
                    for ended in journal.commits(run):
                        if ended.at < began_at:  # what came later was heard
                            tracker.apply(ended)
                return journal.durations(kinds_of(graph))
        except JournalError:
            return {}
