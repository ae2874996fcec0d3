"""Forecasts of one run, before it and during it, never dearer than a small share of a core."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from sureline.forecast.change import Change
from sureline.forecast.progress import Progress, untouched
from sureline.forecast.result import Forecast
from sureline.journal.history import Observed
from sureline.workflow.model import Graph, Pause, Takes

if TYPE_CHECKING:
    from sureline.forecast.durations import Durations
    from sureline.forecast.pools import Offers
    from sureline.forecast.remaining import Projection
    from sureline.forecast.shape import Shape
    from sureline.forecast.sources import TaskSource

SHARE_OF_CORE = 0.02
EVERY_S_MIN = 0.5
"""Nobody can read faster than this."""


def kinds_of(graph: Graph) -> set[str]:
    """The kinds whose history a forecast of the graph wants (see `Journal.durations`)."""
    return {t.kind_name for t in graph.tasks if not isinstance(t.action, Pause)}


class Forecaster:
    """Forecasts a run of `graph` on `machine`. Any thread may ask; they take turns.

    `history` is what earlier runs took (`Journal.durations`). Numpy is loaded by the first
    forecast, which also prepares the graph and loads (or, for the first time after an
    installation, compiles) the kernel: none of that counts as its cost.
    """

    def __init__(
        self,
        graph: Graph,
        machine: Offers,
        history: Mapping[str, Sequence[Observed]],
        run: str = "",
        projection: Projection = "linear",
    ) -> None:
        self.graph = graph
        self._machine = machine
        self._history = history
        self._run = run
        self._projection: Projection = projection
        self._speeds: Mapping[str, float] = {}
        self._shape: Shape | None = None
        self._newest: Forecast | None = None
        self._deadline_at: float | None = None
        self._promises: dict[int, Takes] = {}
        self._model: tuple[object, Durations] | None = None
        """The last model of the durations, and what it rests on beside the history."""
        self._lock = threading.Lock()

    def move_to(self, machine: Offers) -> None:
        """From now on the run has this machine."""
        with self._lock:
            self._machine = machine

    def ask_deadline(self, deadline_at: float | None) -> None:
        """Later forecasts say how surely all is done by then (seconds since the epoch)."""
        with self._lock:
            if deadline_at != self._deadline_at:
                self._deadline_at, self._newest = deadline_at, None

    def promise(self, task: int, takes: Takes | None) -> None:
        """A provider's bid for a task: it replaces what is known of its kind; None takes it back.

        The next forecast is made anew when it is due, not before."""
        with self._lock:
            if takes is None:
                self._promises.pop(task, None)
            else:
                self._promises[task] = takes

    def forecast(self, progress: Progress) -> Forecast:
        """The forecast for this snapshot; the newest one again if another is not due yet.

        Snapshots must come in the order of time: an older one never replaces a newer forecast.
        """
        with self._lock:
            if self._newest is None or progress.at >= self.due_at(self._newest):
                self._newest = self._made(progress)
            return self._newest

    def what_if(self, progress: Progress, changes: Sequence[Change]) -> Forecast:
        """The forecast as if these changes were made; with none, the base to compare with.

        Always computed, and with the same random numbers as every other forecast of the same
        snapshot, so that a difference is real. Its cost is in `cost_s`: who asks keeps the book."""
        with self._lock:
            return self._made(progress, changes)

    @staticmethod
    def due_at(newest: Forecast) -> float:
        """When the next forecast may be made, by the clock of the snapshots."""
        return newest.at + max(EVERY_S_MIN, newest.cost_s / SHARE_OF_CORE)

    def sources(self, progress: Progress | None = None) -> list[TaskSource]:
        """Where the numbers of a forecast of this snapshot (or before the run) come from."""
        from sureline.forecast.finish import open_tasks
        from sureline.forecast.sources import sources_of

        progress = progress or untouched(self.graph, 0.0)
        with self._lock:
            shape, durations = self._modelled(progress)
            observations = {
                kind: sum(one.run != self._run for one in seen)
                for kind, seen in self._history.items()
            }
            is_open = open_tasks(shape, progress).tolist()
            return sources_of(shape, durations, is_open, progress.observed_s, observations)

    def _made(self, progress: Progress, changes: Sequence[Change] = ()) -> Forecast:
        from sureline.forecast.finish import Outside, finish_forecast
        from sureline.forecast.warm import warm

        warm()
        if self._shape is None:
            self._modelled(progress)
        began = time.thread_time()
        shape, durations = self._modelled(progress)
        deadline_s = None if self._deadline_at is None else self._deadline_at - progress.at
        made = finish_forecast(
            shape,
            progress,
            durations,
            self._machine,
            deadline_s=deadline_s,
            changes=changes,
            outside=Outside(self._speeds, self._projection),
        )
        return msgspec.structs.replace(made, cost_s=time.thread_time() - began)

    def _modelled(self, progress: Progress) -> tuple[Shape, Durations]:
        """Made again only if more was observed or promised: most of it is the same every time."""
        from sureline.forecast.durations import durations_of
        from sureline.forecast.shape import Shape
        from sureline.forecast.speeds import at_equal_speed, speeds_of

        if self._shape is None:
            self._shape = Shape(self.graph)
            self._speeds = speeds_of(self._history)
            self._history = at_equal_speed(self._history, self._speeds)
        rests_on = progress.observed_s, dict(self._promises)
        if self._model is None or self._model[0] != rests_on:
            made = durations_of(
                self._shape, self._history, progress.observed_s, self._run, self._promises
            )
            self._model = rests_on, made
        return self._shape, self._model[1]
