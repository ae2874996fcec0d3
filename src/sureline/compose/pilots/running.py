"""A run on pilots of its own: it makes what it needs, and ends it.

Such a run has a grid of its own, in a home of its own (`pilots/private` in this home), whose name
is in the run's options, a base, and pilots that carry the run's name. All of that is found again
by whoever resumes the run. When the run is over, or this process is told to stop, the pilots are
ended; when it has succeeded, the grid is removed, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sureline.compose.grid_run import GridRun
from sureline.compose.pilots.base import ensure_base, private_home
from sureline.compose.pilots.keeping import PilotKeeper
from sureline.compose.pilots.starting import Pilots
from sureline.compose.session import Outcome, Watcher
from sureline.forecast.result import Forecast
from sureline.journal.events import Event, Submitted, TaskEnded
from sureline.journal.store import Journal
from sureline.peer.removing import remove_tree
from sureline.sites.order import PilotOrder
from sureline.workflow.mistakes import SurelineError
from sureline.workflow.model import Graph
from sureline.world.identity.authority import Authority
from sureline.world.identity.home import GridHome, grid_names, home_directory
from sureline.world.identity.whereabouts import default_name


def order_of(journal: Journal, run: str) -> PilotOrder | None:
    """The pilots that a run was submitted with, if it has its own."""
    first = next(journal.events(run)).event
    assert isinstance(first, Submitted), "a run's first event is its submission"
    kept = first.options.get("pilots")
    return msgspec.json.decode(kept, type=PilotOrder) if isinstance(kept, str) else None


class Counting(Watcher):
    """Passes on what a run tells, and knows how many of its tasks are left."""

    def __init__(self, watcher: Watcher) -> None:
        self._watcher = watcher
        self._done: set[str] = set()
        self._total = 0
        self.left = 1
        """One until the run has begun: some pilot will be of use."""

    def submitted(self, run: str, graph: Graph, notice: str | None, done: int) -> None:
        self._total = len(graph) - done
        self.left = self._total
        self._watcher.submitted(run, graph, notice, done)

    def event(self, event: Event) -> None:
        if isinstance(event, TaskEnded) and event.outcome in ("succeeded", "reused"):
            self._done.add(event.task)
            self.left = max(1, self._total - len(self._done))
        self._watcher.event(event)

    def told(self, sentence: str) -> None:
        self._watcher.told(sentence)

    def foreseen(self, forecast: Forecast) -> None:
        self._watcher.foreseen(forecast)

    def interrupted(self, drain: bool, running: int) -> None:
        self._watcher.interrupted(drain, running)


class PilotedRun:
    """Drives a run to its end on pilots of its own."""

    def __init__(
        self,
        journal: Journal,
        run: str,
        directory: Path,
        grid: str,
        order: PilotOrder,
        watcher: Watcher | None,
        *,
        alone: bool = False,
    ) -> None:
        self._journal = journal
        self._run = run
        self._directory = directory
        self._grid = grid
        self._order = order
        self._alone = alone
        self._gave_up = ""
        self._watcher = Counting(watcher or Watcher())

    def drive(self) -> Outcome:
        home = open_private(self._grid)
        with self._kept_pilots(home):
            outcome = GridRun(
                self._journal,
                self._run,
                self._directory,
                home,
                self._watcher,
                alone=self._alone,
            ).drive()
        if self._gave_up:
            raise SurelineError(
                f"run {self._run} has no pilots: {self._gave_up}; mend that, and go on with: "
                f"sureline resume {self._run}"
            )
        if outcome.state == "succeeded":
            remove_tree(str(home.path))
        return outcome

    @contextmanager
    def _kept_pilots(self, home: GridHome) -> Iterator[None]:
        pilots = Pilots(home_directory(), self._order.base_listen)
        ensure_base(pilots.book, home, self._order.base_listen)
        keeper = PilotKeeper(
            pilots,
            home,
            self._run,
            self._order,
            lambda there: math.ceil(self._watcher.left / self._order.shape.cores),
            self._watcher.told,
            self._stop,
        )
        keeper.start()
        try:
            yield
        finally:
            keeper.close()

    def _stop(self, why: str) -> None:
        """Nothing can be started: end the run, as somebody at another terminal would."""
        from sureline.compose import cancel_run

        self._gave_up = why
        cancel_run(self._directory, self._run, drain=True, wait=False)


def open_private(grid: str) -> GridHome:
    """The grid of a run, which is made if it is not there."""
    home = private_home()
    if grid not in (grid_names(home) if home.exists() else ()):
        Authority.create(home, grid, default_name())
    return GridHome.open(grid, home)


def end_pilots(run: str) -> None:
    """Of a run whose process is gone."""
    pilots = Pilots(home_directory())
    batches = pilots.batches(run=run)
    pilots.stop(batches)
