"""Where the numbers of a forecast come from, kind by kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec
import numpy as np

from sureline.forecast.durations import BID, GUESS, HISTORY, TAKES, Durations
from sureline.forecast.shape import Shape
from sureline.journal.words import counted, duration

Source = Literal["takes", "history", "this run", "bid", "guess"]


class TaskSource(msgspec.Struct, frozen=True):
    """What the durations of a kind's tasks rest on. A kind may have several."""

    kind: str
    source: Source
    tasks: int
    """How many open tasks of the kind it is about."""
    middle_s: float
    """What a task of the kind takes, in the middle."""
    early_s: float
    late_s: float
    """Sooner with a chance of 10 %, later with a chance of 10 %, what is common to a run left
    out."""
    observations: int = 0
    runs: int = 0
    """How many earlier runs they come from."""

    @property
    def words(self) -> str:
        if self.source in ("history", "this run"):
            where = counted(self.runs, "earlier run") if self.runs else "this run"
            basis = f"{counted(self.observations, 'observation')} in {where}"
        else:
            basis = {"takes": "its 'takes'", "bid": "a bid", "guess": "a guess"}[self.source]
        return f"{duration(self.early_s)} to {duration(self.late_s)}, from {basis}"


def sources_of(
    shape: Shape,
    durations: Durations,
    is_open: Sequence[bool],
    this_run_s: Mapping[str, Sequence[float]],
    observations: Mapping[str, int],
) -> list[TaskSource]:
    """Of the open tasks, by kind in the order of the graph. `observations` are of earlier runs."""
    names: dict[int, Source] = {TAKES: "takes", HISTORY: "history", GUESS: "guess", BID: "bid"}
    found = []
    opened = np.array(is_open, dtype=bool)
    for number, kind in enumerate(shape.kind_names):
        for code, name in names.items():
            tasks = np.flatnonzero(opened & (shape.kind == number) & (durations.source == code))
            if not len(tasks):
                continue
            early, middle, late = (
                float(np.median(durations.offset_s[tasks] + durations.scale_s[tasks] * points))
                for points in np.quantile(
                    durations.tables[durations.form[tasks]], (0.1, 0.5, 0.9), axis=1
                )
            )
            now = len(this_run_s.get(kind, ()))
            runs = len(durations.earlier_runs_of_kind[number])
            from_history = code == HISTORY
            found.append(
                TaskSource(
                    kind,
                    "this run" if from_history and not runs else name,
                    len(tasks),
                    middle,
                    early,
                    late,
                    observations.get(kind, 0) + now if from_history else 0,
                    runs if from_history else 0,
                )
            )
    return found
