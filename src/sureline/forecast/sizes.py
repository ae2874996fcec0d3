"""How durations grow with what tasks read: seconds ~ bytes ** slope, by kind.

The slope is that of the logarithms within runs, so that a run which was slow and large on the whole
is not mistaken for it. It counts only if the observations show it clearly; else durations are taken
as they are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sureline.forecast.shape import Floats, Shape
from sureline.journal.history import Observed

OBSERVED_LEAST = 12
CLEAR = 3.0
"""So many standard errors away from none."""
SLOPE_MAX = 1.5
SECONDS_MIN = 1e-3


def slope_of(seen: Sequence[Observed]) -> float:
    """0 if it is not clear, and never below."""
    sized = [one for one in seen if one.input_bytes > 0]
    if len(sized) < OBSERVED_LEAST:
        return 0.0
    runs = np.unique([one.run for one in sized], return_inverse=True)[1]
    size = _within(np.log([one.input_bytes for one in sized]), runs)
    took = _within(np.log([max(SECONDS_MIN, one.elapsed_s) for one in sized]), runs)
    wide = float(size @ size)
    freedom = len(sized) - int(runs.max()) - 2
    if wide < 1e-6 or freedom < 1:
        return 0.0
    slope = float(size @ took) / wide
    error = math.sqrt(float(((took - slope * size) ** 2).sum()) / freedom / wide)
    return min(slope, SLOPE_MAX) if slope > CLEAR * error else 0.0


def _within(logs: Floats, runs: np.ndarray[tuple[int], np.dtype[np.int64]]) -> Floats:
    """Around the mean of each run."""
    found: Floats = logs - (np.bincount(runs, logs) / np.bincount(runs))[runs]
    return found


class Sized:
    """The history as if all tasks of a kind read the same, and by what each task differs."""

    def __init__(self, shape: Shape, history: Mapping[str, Sequence[Observed]]) -> None:
        self.history: dict[str, Sequence[Observed]] = dict(history)
        self.factor = np.ones(len(shape.kind))
        """By task: its duration over that of one of the usual size."""
        for number, name in enumerate(shape.kind_names):
            seen = history.get(name, ())
            tasks = np.flatnonzero(shape.kind == number) if seen else ()
            if len(tasks) and (shape.input_bytes[tasks] > 0).all():
                slope = slope_of(seen)
                if slope:
                    self._set(shape, name, np.asarray(tasks), slope)

    def _set(
        self,
        shape: Shape,
        name: str,
        tasks: np.ndarray[tuple[int], np.dtype[np.int64]],
        slope: float,
    ) -> None:
        logs = np.log(shape.input_bytes[tasks])
        usual = float(logs.mean())
        self.factor[tasks] = np.exp(slope * (logs - usual))
        self.history[name] = [
            one._replace(
                elapsed_s=one.elapsed_s * math.exp(slope * (usual - math.log(one.input_bytes)))
            )
            if one.input_bytes > 0
            else one
            for one in self.history[name]
        ]
