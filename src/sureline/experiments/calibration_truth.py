"""Where the runs of a calibration come from: a truth that the forecast does not know.

    duration of a task = a base duration of its kind, drawn anew
                         * exp(shift of the run + shift of its kind in the run + its own noise)

The base durations are what a trace recorded for the kind, or a made-up distribution, with its tail
and its modes. The shifts are what repeats of one workflow show: a whole run is slower than another,
and a kind more so than the rest. Earlier runs and later ones are drawn from the same truth; the
forecast learns from the earlier ones, through the same selection as a journal makes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from sureline.forecast.shape import Floats, Ints
from sureline.journal.history import Observed, chosen
from sureline.workflow.model import Graph

History = Mapping[str, list[Observed]]
"""By kind, the newest first: what `Journal.durations` gives."""


class Shifts(NamedTuple):
    """Standard deviations of logarithms."""

    run: float = 0.08
    """Of a whole run: repeated runs of one workflow differ by 3 to 10 %."""
    kind: float = 0.06
    """Of a kind within a run, beside that."""
    own: float = 0.03
    """Of a task, beside the spread of its kind's durations."""


USUAL_SHIFTS = Shifts()
NO_SHIFTS = Shifts(0.0, 0.0, 0.0)


class Truth:
    """Draws runs of `graph`. `bases_s` has the base durations of each kind of the graph."""

    def __init__(
        self, graph: Graph, bases_s: Mapping[str, Floats], shifts: Shifts = USUAL_SHIFTS
    ) -> None:
        self.graph = graph
        self.kinds = list(dict.fromkeys(task.kind_name for task in graph.tasks))
        number = {kind: place for place, kind in enumerate(self.kinds)}
        self._kind: Ints = np.array([number[t.kind_name] for t in graph.tasks], dtype=np.int64)
        self._bases_s = [np.asarray(bases_s[kind], dtype=np.float64) for kind in self.kinds]
        self._shifts = shifts
        self._bytes = input_bytes(graph)

    def draw(self, runs: int, random: np.random.Generator) -> Floats:
        """Durations in seconds: a row per run, a column per task."""
        tasks, sd = len(self.graph), self._shifts
        drawn = np.empty((runs, tasks))
        for kind, bases_s in enumerate(self._bases_s):
            of_kind = np.flatnonzero(self._kind == kind)
            drawn[:, of_kind] = random.choice(bases_s, size=(runs, len(of_kind)))
        logs = sd.run * random.standard_normal((runs, 1))
        logs = logs + sd.kind * random.standard_normal((runs, len(self.kinds)))[:, self._kind]
        logs += sd.own * random.standard_normal((runs, tasks))
        drawn *= np.exp(logs)
        return drawn

    def history(self, runs: int, random: np.random.Generator) -> History:
        """What a journal would tell of so many earlier runs."""
        return history_of(self.graph, self.draw(runs, random), self._bytes)


def trace_bases_s(graph: Graph) -> dict[str, Floats]:
    """What the tasks of a trace took, by kind. `takes` of a trace's tasks are what they took."""
    found: dict[str, list[float]] = {}
    for task in graph.tasks:
        assert task.takes is not None, "a trace says what its tasks took"
        found.setdefault(task.kind_name, []).append(task.takes.likely_s)
    return {kind: np.array(seconds) for kind, seconds in found.items()}


def input_bytes(graph: Graph) -> list[int]:
    return [sum(graph.file_sizes.get(path, 0) for path in task.inputs) for task in graph.tasks]


def history_of(
    graph: Graph, durations_s: Floats, sizes: list[int], name: str = "earlier"
) -> dict[str, list[Observed]]:
    """Runs, one a row, oldest first, as the journal would tell of them."""
    found: dict[str, list[Observed]] = {}
    lists = [found.setdefault(task.kind_name, []) for task in graph.tasks]
    for run in reversed(range(len(durations_s))):
        told = f"{name}-{run}"
        seconds = durations_s[run].tolist()
        for of_kind, took_s, size in zip(lists, seconds, sizes, strict=True):
            of_kind.append(Observed(took_s, size, float(run), told))
    return {kind: chosen(observed) for kind, observed in found.items()}
