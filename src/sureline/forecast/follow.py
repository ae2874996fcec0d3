"""Forecasts of one run, before it and during it, never dearer than a small share of a core."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from sureline.forecast.progress import Progress
from sureline.forecast.result import Forecast
from sureline.journal.history import Observed
from sureline.workflow.model import Graph, Pause

if TYPE_CHECKING:
    from sureline.forecast.pools import Offers
    from sureline.forecast.shape import Shape

SHARE_OF_CORE = 0.02
EVERY_S_MIN = 0.5
"""Nobody can read faster than this."""


def kinds_of(graph: Graph) -> set[str]:
    """The kinds whose history a forecast of the graph wants (see `Journal.durations`)."""
    return {t.kind_name for t in graph.tasks if not isinstance(t.action, Pause)}


class Forecaster:
    """Forecasts a run of `graph` on `machine`. Any thread may ask; they take turns.

    `history` is what earlier runs took (`Journal.durations`). Numpy is loaded by the first
    forecast, which also prepares the graph: neither counts as its cost.
    """

    def __init__(
        self,
        graph: Graph,
        machine: Offers,
        history: Mapping[str, Sequence[Observed]],
        run: str = "",
    ) -> None:
        self._graph = graph
        self._machine = machine
        self._history = history
        self._run = run
        self._shape: Shape | None = None
        self._newest: Forecast | None = None
        self._lock = threading.Lock()

    def move_to(self, machine: Offers) -> None:
        """From now on the run has this machine."""
        with self._lock:
            self._machine = machine

    def forecast(self, progress: Progress) -> Forecast:
        """The forecast for this snapshot; the newest one again if another is not due yet.

        Snapshots must come in the order of time: an older one never replaces a newer forecast.
        """
        with self._lock:
            if self._newest is None or progress.at >= self.due_at(self._newest):
                self._newest = self._made(progress)
            return self._newest

    @staticmethod
    def due_at(newest: Forecast) -> float:
        """When the next forecast may be made, by the clock of the snapshots."""
        return newest.at + max(EVERY_S_MIN, newest.cost_s / SHARE_OF_CORE)

    def _made(self, progress: Progress) -> Forecast:
        from sureline.forecast.durations import durations_of
        from sureline.forecast.finish import finish_forecast
        from sureline.forecast.shape import Shape

        if self._shape is None:
            self._shape = Shape(self._graph)
        began = time.thread_time()
        durations = durations_of(self._shape, self._history, progress.observed_s, self._run)
        made = finish_forecast(self._shape, progress, durations, self._machine)
        return msgspec.structs.replace(made, cost_s=time.thread_time() - began)
