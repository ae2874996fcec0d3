"""How long each task of a graph will take: a distribution per task, and what it rests on.

In this order:
- history: three or more observations of the task's kind, in earlier runs or in this one (see
  `learning`); one or two, if there is no estimate, with a wide spread.
- takes: the user's estimate as a beta-PERT distribution (mean (a + 4m + b) / 6). One or two
  observations move it part of the way towards them.
- guess: nothing is known. A lognormal around 10 s, wrong by a factor of 10 either way at 90 %,
  and mostly by the same factor for all tasks of a kind.

A task's duration in simulated run j is
    max(0, offset_s + scale_s * table[random]) * exp(shift * normal[kind, j])
with one row of `tables` per form, so that 100,000 tasks share a few tables.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from sureline.forecast.learning import ENOUGH, QUANTILES, TABLE_POINTS, Learned, learn
from sureline.forecast.shape import Flags, Floats, Ints, Shape
from sureline.journal.history import Observed

TAKES, HISTORY, GUESS = range(3)

GUESS_MEDIAN_S = 10.0
GUESS_SPREAD = math.log(10) / 1.645
GUESS_SHIFT_SHARE = 0.75
"""How much of the guess's variance is common to all tasks of a kind."""
PERT_FORMS = 32
"""Where the likely value lies between the ends, in so many steps; the mean is kept exact."""
OVERDUE_TAIL = 2.0
"""A task that runs longer than all that is known: its total is `elapsed` times a Pareto draw."""
_BETA_GRID = 2048

_NORMAL: Floats = np.array([NormalDist().inv_cdf(q) for q in QUANTILES])


class Durations:
    """Arrays by task; see the module. Made by `durations_of`, never changed."""

    def __init__(self, kind: Ints, kinds: int) -> None:
        count = len(kind)
        self.kind = kind
        self.source = np.full(count, GUESS, dtype=np.int64)
        self.form = np.zeros(count, dtype=np.int64)
        self.offset_s = np.zeros(count)
        self.scale_s = np.full(count, GUESS_MEDIAN_S)
        self.shift = np.full(count, GUESS_SPREAD * math.sqrt(GUESS_SHIFT_SHARE))
        self.tables: Floats = np.empty((0, TABLE_POINTS))
        self.earlier_runs_of_kind: list[frozenset[str]] = [frozenset()] * kinds

    @property
    def means_s(self) -> Floats:
        means: Floats = self.offset_s + self.scale_s * self.tables.mean(axis=1)[self.form]
        return means

    @property
    def variances_s2(self) -> Floats:
        variances: Floats = self.scale_s**2 * self.tables.var(axis=1)[self.form]
        return variances

    def draw(self, tasks: Ints, samples: int, random: np.random.Generator) -> Floats:
        """Own durations, without the kinds' shifts: a row per task, a column per sample."""
        points = random.integers(0, TABLE_POINTS, size=(len(tasks), samples), dtype=np.int32)
        drawn = self.tables[self.form[tasks][:, None], points]
        drawn *= self.scale_s[tasks][:, None]
        drawn += self.offset_s[tasks][:, None]
        return np.maximum(drawn, 0.0, out=drawn)

    def draw_remaining(
        self, task: int, elapsed_s: float, shifts: Floats, random: np.random.Generator
    ) -> Floats:
        """What is left of a running task: its total, given that it exceeds `elapsed_s`.

        `shifts` are the factors of its kind, one per sample. Where all that is known would be over
        by now, the total is `elapsed_s` times a Pareto draw: the longer it ran, the longer it may.
        """
        samples = len(shifts)
        table = self.offset_s[task] + self.scale_s[task] * self.tables[self.form[task]]
        first = np.searchsorted(table, elapsed_s / shifts, side="right")
        left = TABLE_POINTS - first
        points = first + (random.random(samples) * left).astype(np.int64)
        known = table[np.minimum(points, TABLE_POINTS - 1)] * shifts
        overdue = elapsed_s * (1 - random.random(samples)) ** (-1 / OVERDUE_TAIL)
        return np.maximum(np.where(left > 0, known, overdue) - elapsed_s, 0.0)


def durations_of(
    shape: Shape,
    history: Mapping[str, Sequence[Observed]],
    this_run_s: Mapping[str, Sequence[float]],
    run: str = "",
) -> Durations:
    """The model for all tasks of a graph. `run` is the current one (in `history` if resumed)."""
    made = Durations(shape.kind, len(shape.kind_names))
    estimated = ~np.isnan(shape.takes[:, 0])
    tables = [_lognormal(GUESS_SPREAD * math.sqrt(1 - GUESS_SHIFT_SHARE))]
    learned: dict[int, tuple[Learned, int]] = {}
    for number, name in enumerate(shape.kind_names):
        seen, now_s = history.get(name, ()), this_run_s.get(name, ())
        found = learn(seen, now_s, run) if name and (seen or now_s) else None
        if found is not None:
            learned[number] = found, len(seen) + len(now_s)
            made.earlier_runs_of_kind[number] = frozenset(o.run for o in seen if o.run != run)
    _set_history(made, shape, learned, estimated, tables)
    _set_takes(made, shape, learned, estimated & (made.source != HISTORY), tables)
    made.tables = np.array(tables)
    return made


def _set_history(
    made: Durations,
    shape: Shape,
    learned: Mapping[int, tuple[Learned, int]],
    estimated: Flags,
    tables: list[Floats],
) -> None:
    form_of_kind = np.zeros(len(shape.kind_names), dtype=np.int64)
    middle_of_kind = np.zeros(len(shape.kind_names))
    shift_of_kind = np.zeros(len(shape.kind_names))
    few = np.zeros(len(shape.kind_names), dtype=bool)
    for number, (found, observations) in learned.items():
        form_of_kind[number] = len(tables)
        tables.append(found.own if found.own is not None else _lognormal(found.spread))
        middle_of_kind[number] = found.middle_s
        shift_of_kind[number] = found.shift
        few[number] = observations < ENOUGH
    known = middle_of_kind > 0
    applies = known[shape.kind] & ~(few[shape.kind] & estimated)
    made.source[applies] = HISTORY
    made.form[applies] = form_of_kind[shape.kind[applies]]
    made.scale_s[applies] = middle_of_kind[shape.kind[applies]]
    made.shift[applies] = shift_of_kind[shape.kind[applies]]


def _set_takes(
    made: Durations,
    shape: Shape,
    learned: Mapping[int, tuple[Learned, int]],
    applies: Flags,
    tables: list[Floats],
) -> None:
    low, likely, high = shape.takes[applies].T
    width = high - low
    where = np.divide(likely - low, width, out=np.full(len(width), 0.5), where=width > 0)
    form = np.rint(where * PERT_FORMS).astype(np.int64)
    first = len(tables)
    tables.extend(_pert(number) for number in range(PERT_FORMS + 1))
    middles = np.array([table.mean() for table in tables[first:]])
    mean = (low + 4 * likely + high) / 6
    factor = _correction(shape, learned, applies, mean)
    made.source[applies] = TAKES
    made.form[applies] = form + first
    made.scale_s[applies] = width * factor
    made.offset_s[applies] = (mean - width * middles[form]) * factor
    made.shift[applies] = 0.0  # an estimate is about one task: so is its error


def _correction(
    shape: Shape,
    learned: Mapping[int, tuple[Learned, int]],
    applies: Flags,
    mean_s: Floats,
) -> Floats:
    """By what one or two observations correct the estimates of their kind."""
    of_kind = np.ones(len(shape.kind_names))
    kinds = shape.kind[applies]
    for number, (found, observations) in learned.items():
        estimates = mean_s[kinds == number]
        if observations < ENOUGH and len(estimates) and estimates.mean() > 0:
            ratio = found.middle_s / float(estimates.mean())
            of_kind[number] = ratio ** (observations / (observations + 2))
    return of_kind[kinds]


def _lognormal(spread: float) -> Floats:
    return np.exp(spread * _NORMAL)


@lru_cache(maxsize=PERT_FORMS + 1)
def _pert(form: int) -> Floats:
    """Quantiles of the beta distribution on 0..1 with its mode at `form` / PERT_FORMS."""
    mode = form / PERT_FORMS
    grid = (np.arange(_BETA_GRID) + 0.5) / _BETA_GRID
    density = grid ** (4 * mode) * (1 - grid) ** (4 * (1 - mode))
    share = np.cumsum(density)
    return np.interp(QUANTILES, (share - density / 2) / share[-1], grid)
