"""How long each task of a graph is expected to take, taken alone: its mean and a few quantiles.

A task's duration is what is its own (a table) times what is common to its kind in a run (a
lognormal shift, see `durations`); here both are taken together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from sureline.forecast.durations import GUESS, Durations, durations_of
from sureline.forecast.shape import Floats, Shape
from sureline.forecast.speeds import at_equal_speed, speeds_of
from sureline.journal.history import Observed
from sureline.workflow.model import Graph

SHIFTS = 33
"""The shift is taken at so many quantiles of its own."""


class Expected(NamedTuple):
    mean_s: float
    quantiles_s: tuple[float, ...]
    guessed: bool


def expected(
    graph: Graph, history: Mapping[str, Sequence[Observed]], run: str, shares: Sequence[float]
) -> list[Expected]:
    """For every task, with quantiles at these shares."""
    shape = Shape(graph)
    made = durations_of(shape, at_equal_speed(history, speeds_of(history)), {}, run)
    shift = np.round(made.shift, 3)
    of_pair: dict[tuple[int, float], tuple[float, Floats]] = {}
    for form, spread in {(int(f), float(s)) for f, s in zip(made.form, shift, strict=True)}:
        of_pair[form, spread] = _together(made, form, spread, shares)
    found = []
    for task in range(len(graph)):
        mean, quantiles = of_pair[int(made.form[task]), float(shift[task])]
        offset_s, scale_s = float(made.offset_s[task]), float(made.scale_s[task])
        times_s = np.maximum(0.0, offset_s + scale_s * quantiles)
        guessed = bool(made.source[task] == GUESS)
        mean_s = max(0.0, offset_s + scale_s * mean)
        found.append(Expected(mean_s, tuple(float(t) for t in times_s), guessed))
    return found


def _together(
    made: Durations, form: int, spread: float, shares: Sequence[float]
) -> tuple[float, Floats]:
    """The mean and the quantiles of table * exp(spread * normal)."""
    table = made.tables[form]
    if spread:
        normal = NormalDist()
        points = [normal.inv_cdf((k + 0.5) / SHIFTS) for k in range(SHIFTS)]
        table = np.outer(table, np.exp(spread * np.array(points))).ravel()
    return float(table.mean()), np.quantile(table, list(shares))
