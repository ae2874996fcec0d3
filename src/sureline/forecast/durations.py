"""How long each task of a graph will take: a distribution per task, and what it rests on.

In this order:
- bid: somebody promised this task's duration.
- history: three or more observations of the task's kind, in earlier runs or in this one (see
  `repeats`); one or two, if there is no estimate, with a wide spread. Scaled by what the task
  reads, where that is known and shown to matter (`sizes`).
- takes: the user's estimate as a beta-PERT distribution (mean (a + 4m + b) / 6). One or two
  observations move it part of the way towards them.
- guess: nothing is known. A lognormal around 10 s, wrong by a factor of 10 either way at 90 %,
  and mostly by the same factor for all tasks of a kind.

A task's duration in simulated run j is
    max(0, offset_s + scale_s * table[random]) * exp(log shift of its kind in run j)
with one row of `tables` per form, so that 100,000 tasks share a few tables. The shifts are
    stretch[j] * sum over sources (common[kind, source] * normal[source, j])
    + shift[kind] * normal[kind, j]
where the first part is what kinds have in common in one run.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from sureline.forecast.own import own_quantiles
from sureline.forecast.repeats import ENOUGH, Kind, learn_together
from sureline.forecast.shape import Flags, Floats, Ints, Shape
from sureline.forecast.sizes import Sized
from sureline.forecast.tables import (
    NORMAL,
    PERT_FORMS,
    QUANTILES,
    TABLE_POINTS,
    lognormal,
    pert,
    stretch,
)
from sureline.journal.history import Observed
from sureline.workflow.model import Takes

TAKES, HISTORY, GUESS, BID = range(4)

GUESS_MEDIAN_S = 10.0
GUESS_SPREAD = math.log(10) / 1.645
GUESS_SHIFT_SHARE = 0.75
"""How much of the guess's variance is common to all tasks of a kind."""

GUESS_FORM, PERT_FORM = 0, 1
NORMAL_FORM = PERT_FORM + PERT_FORMS + 1
"""Rows of the tables; those after it are of this graph."""
OWN_TABLES_MAX = 500
"""The kinds beyond share lognormal tables: a table is 32 kB."""


class Durations:
    """Arrays by task and by kind; see the module. Made by `durations_of`, never changed."""

    def __init__(self, kind: Ints, kinds: int) -> None:
        count = len(kind)
        self.kind = kind
        self.kinds = kinds
        self.source = np.full(count, GUESS, dtype=np.int64)
        self.form = np.full(count, GUESS_FORM, dtype=np.int64)
        self.offset_s = np.zeros(count)
        self.scale_s = np.full(count, GUESS_MEDIAN_S)
        self.moody = np.ones(count, dtype=bool)
        """Whether the shifts of the run and of the kind apply to a task."""
        self.common_of_kind = np.zeros((kinds, 1))
        """[kind, source]"""
        self.shift_of_kind = np.full(kinds, GUESS_SPREAD * math.sqrt(GUESS_SHIFT_SHARE))
        self.stretch: Floats = np.ones(TABLE_POINTS)
        self.tables: Floats = np.empty((0, TABLE_POINTS))
        self.earlier_runs_of_kind: list[frozenset[str]] = [frozenset()] * kinds

    @property
    def means_s(self) -> Floats:
        means: Floats = self.offset_s + self.scale_s * self.tables.mean(axis=1)[self.form]
        return means

    @property
    def middles_s(self) -> Floats:
        middles: Floats = self.offset_s + self.scale_s * np.median(self.tables, axis=1)[self.form]
        return middles

    @property
    def variances_s2(self) -> Floats:
        variances: Floats = self.scale_s**2 * self.tables.var(axis=1)[self.form]
        return variances

    @property
    def shift(self) -> Floats:
        """The standard deviation of the logarithm of what is common to a task's kind in a run."""
        of_kind = np.sqrt((self.common_of_kind**2).sum(axis=1) + self.shift_of_kind**2)
        found: Floats = np.where(self.moody, of_kind[self.kind], 0.0)
        return found

    def promised(self, takes: Takes) -> tuple[int, float, float]:
        """The form, offset and scale of a duration that somebody promised."""
        low, likely, high = takes.optimistic_s, takes.likely_s, takes.pessimistic_s
        width = high - low
        form = PERT_FORM + round(PERT_FORMS * (likely - low) / width if width > 0 else 0)
        mean = (low + 4 * likely + high) / 6
        return form, mean - width * float(self.tables[form].mean()), width


def durations_of(
    shape: Shape,
    history: Mapping[str, Sequence[Observed]],
    this_run_s: Mapping[str, Sequence[float]],
    run: str = "",
    promises: Mapping[int, Takes] | None = None,
) -> Durations:
    """The model for all tasks of a graph. `run` is the current one (in `history` if resumed);
    `promises` are by task."""
    made = Durations(shape.kind, len(shape.kind_names))
    estimated = ~np.isnan(shape.takes[:, 0])
    tables = [
        lognormal(GUESS_SPREAD * math.sqrt(1 - GUESS_SHIFT_SHARE)),
        *(pert(number) for number in range(PERT_FORMS + 1)),
        NORMAL,
    ]
    names = {name: number for number, name in enumerate(shape.kind_names) if name}
    sized = Sized(shape, {name: history[name] for name in names if name in history})
    together = learn_together(
        sized.history,
        {name: this_run_s[name] for name in names if name in this_run_s},
        run,
    )
    made.common_of_kind = np.zeros((made.kinds, together.sources))
    made.stretch = stretch(round(together.freedom))
    learned = {names[name]: found for name, found in together.kinds.items()}
    for number, name in enumerate(shape.kind_names):
        earlier = frozenset(seen.run for seen in history.get(name, ()) if seen.run != run)
        made.earlier_runs_of_kind[number] = earlier
    _set_history(made, shape, learned, estimated, tables)
    made.scale_s[made.source == HISTORY] *= sized.factor[made.source == HISTORY]
    _set_takes(made, shape, learned, estimated & (made.source != HISTORY), tables)
    made.tables = np.array(tables)
    for task, takes in (promises or {}).items():
        made.form[task], made.offset_s[task], made.scale_s[task] = made.promised(takes)
        made.source[task], made.moody[task] = BID, False
    return made


def _set_history(
    made: Durations,
    shape: Shape,
    learned: Mapping[int, Kind],
    estimated: Flags,
    tables: list[Floats],
) -> None:
    form_of_kind = np.zeros(len(shape.kind_names), dtype=np.int64)
    middle_of_kind = np.zeros(len(shape.kind_names))
    few = np.zeros(len(shape.kind_names), dtype=bool)
    shared: dict[float, int] = {}
    for number, found in learned.items():
        form_of_kind[number] = _form(found, tables, shared)
        middle_of_kind[number] = math.exp(found.centre)
        made.shift_of_kind[number] = found.alone
        made.common_of_kind[number] = found.common
        few[number] = found.number < ENOUGH
    known = middle_of_kind > 0
    applies = known[shape.kind] & ~(few[shape.kind] & estimated)
    made.source[applies] = HISTORY
    made.form[applies] = form_of_kind[shape.kind[applies]]
    made.scale_s[applies] = middle_of_kind[shape.kind[applies]]


def _form(found: Kind, tables: list[Floats], shared: dict[float, int]) -> int:
    """The row of the own parts of a kind's tasks, added if need be."""
    if len(found.own) > 1 and len(tables) - len(shared) < NORMAL_FORM + OWN_TABLES_MAX:
        tables.append(np.exp(own_quantiles(found.own, QUANTILES)))
        return len(tables) - 1
    spread = round(float(found.own.std()), 2)
    if spread not in shared:
        shared[spread] = len(tables)
        tables.append(lognormal(spread))
    return shared[spread]


def _set_takes(
    made: Durations,
    shape: Shape,
    learned: Mapping[int, Kind],
    applies: Flags,
    tables: list[Floats],
) -> None:
    low, likely, high = shape.takes[applies].T
    width = high - low
    where = np.divide(likely - low, width, out=np.full(len(width), 0.5), where=width > 0)
    form = PERT_FORM + np.rint(where * PERT_FORMS).astype(np.int64)
    middles = np.array([table.mean() for table in tables])
    mean = (low + 4 * likely + high) / 6
    factor = _correction(shape, learned, applies, mean)
    made.source[applies] = TAKES
    made.form[applies] = form
    made.scale_s[applies] = width * factor
    made.offset_s[applies] = (mean - width * middles[form]) * factor
    made.moody[applies] = False  # an estimate is about one task: so is its error


def _correction(
    shape: Shape,
    learned: Mapping[int, Kind],
    applies: Flags,
    mean_s: Floats,
) -> Floats:
    """By what one or two observations correct the estimates of their kind."""
    of_kind = np.ones(len(shape.kind_names))
    kinds = shape.kind[applies]
    for number, found in learned.items():
        estimates = mean_s[kinds == number]
        if found.number < ENOUGH and len(estimates) and estimates.mean() > 0:
            ratio = math.exp(found.centre) / float(estimates.mean())
            of_kind[number] = ratio ** (found.number / (found.number + 2))
    return of_kind[kinds]
