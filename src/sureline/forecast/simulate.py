"""Simulated runs of units on limited machines: the arrays for the kernel, and which kernel it is.

The engine starts the most urgent ready task that fits, whenever something ends; the kernel does
just that in every sample. Bounded patience with large tasks and the time between tasks are not
modelled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from sureline.forecast.change import Change
from sureline.forecast.durations import NORMAL_FORM, Durations
from sureline.forecast.folding import Units
from sureline.forecast.kernel import (
    EVENT,
    STATE,
    UNIT,
    Book,
    Keys,
    Room,
    Scene,
    factors,
    keys_of,
    loose_ends,
    tight_ends,
)
from sureline.forecast.shape import Floats, Ints, Shape
from sureline.forecast.tables import NORMAL

Records = NDArray[np.void]

_TASKS, _KINDS, _RUNS, _COPIES = range(1, 5)
"""Salts: what a key is for."""


class KnownRunning(NamedTuple):
    """What is known of a running task."""

    elapsed_s: float
    speed: float = 1.0
    """Of the machine it runs on."""
    group: int = 0
    total_s: Floats | None = None
    """Quantiles of its whole duration, if more is known than how long it ran."""


class SimulatedCopy(NamedTuple):
    """Another attempt of a task: one that runs, or one that would be made."""

    task: int
    known: KnownRunning | None = None
    change: Change | None = None


class Simulated(NamedTuple):
    ends_s: Floats
    """When the last unit ended, by sample."""
    decided: Ints
    """By unit: in how many samples it decided that."""


def sample_keys(samples: int, seed: int) -> Keys:
    return keys_of(np.arange(samples, dtype=np.int64), seed & 0xFFFFFFFF)


def simulated(
    shape: Shape,
    durations: Durations,
    units: Units,
    room: Room,
    running: Mapping[int, KnownRunning],
    copies: Sequence[SimulatedCopy],
    extra_s: Floats,
    changes: Sequence[Change],
    samples: int,
    seed: int,
) -> Simulated:
    """The tasks of `running`, `copies` and `changes` are open, and units of their own. `extra_s`
    is by task: what bringing in its files takes."""
    copies = [*copies, *(SimulatedCopy(c.task, change=c) for c in changes if c.how == "duplicate")]
    replaced = {c.task: c for c in changes if c.how == "replace"}
    running = {task: known for task, known in running.items() if task not in replaced}
    scene = scene_of(shape, durations, units, running, copies, replaced, extra_s)
    keys = sample_keys(samples, seed)
    factor = factors(
        keys_of(np.arange(durations.kinds, dtype=np.int64), _KINDS),
        keys_of(np.arange(durations.common_of_kind.shape[1], dtype=np.int64), _RUNS),
        keys,
        durations.common_of_kind,
        durations.shift_of_kind,
        NORMAL,
        durations.stretch,
    )
    ends_s, decided = np.zeros(samples), np.zeros(len(scene.order), dtype=np.int64)
    if nobody_waits(scene, room):
        loose_ends(scene, factor, keys, ends_s, decided)
    else:
        tight_ends(scene, room, _book(scene, room), factor, keys, ends_s, decided)
    return Simulated(ends_s, decided[: len(units)])


def _book(scene: Scene, room: Room) -> Book:
    units, needs = len(scene.order), room.taking.shape[1]
    per_need = np.bincount(scene.unit["need"][:-1], minlength=needs)
    return Book(
        of=np.zeros(units, dtype=STATE),
        event=np.zeros(2 * units + 1, dtype=EVENT),
        ready=np.zeros(units + 1, dtype=np.int64),
        begin=np.cumsum(per_need) - per_need,
        waiting=np.zeros(needs, dtype=np.int64),
        free=np.zeros_like(room.lanes),
    )


def nobody_waits(scene: Scene, room: Room) -> bool:
    """Whether there are lanes for all units at once, on machines that are all alike."""
    unit = scene.unit[:-1]
    if len(room.speed) > 1 or room.speed[0] != 1 or (unit["original"] != unit["ring"]).any():
        return False
    per_need = np.bincount(unit["need"], minlength=room.taking.shape[1])
    return bool((per_need @ room.taking[0] <= room.lanes[0]).all())


def scene_of(
    shape: Shape,
    durations: Durations,
    units: Units,
    running: Mapping[int, KnownRunning],
    copies: Sequence[SimulatedCopy],
    replaced: Mapping[int, Change],
    extra_s: Floats,
) -> Scene:
    """The records of all units, and of all copies after them."""
    copied = np.array([units.unit_of[copy.task] for copy in copies], dtype=np.int64)
    original = np.concatenate([np.arange(len(units)), copied])
    count = len(original)
    task = units.task[original]
    unit = np.zeros(count + 1, dtype=UNIT)
    own = unit[:-1]
    own["key"] = keys_of(task, _TASKS)
    own["key"][len(units) :] ^= keys_of(np.arange(len(copies), dtype=np.int64), _COPIES)
    own["mood"] = np.where(durations.moody[task], durations.kind[task] + 1, 0)
    own["elapsed_s"] = -1.0
    own["extra_s"] = extra_s[task] * units.size[original]
    own["not_before_s"] = units.not_before_s[original]
    own["need"] = shape.needs_class[task]
    own["original"] = original
    own["ring"] = _rings(original, len(units))
    _set_durations(own, units, durations, original)
    unit_at = np.lexsort((np.arange(count), -units.urgency[original]))
    own["place"][unit_at] = np.arange(count)
    edges = _with_copies(units.edges, original, len(units))
    unit["parents"], parent = _rows(edges[:, 1], edges[:, 0], count)
    unit["children"], child = _rows(edges[:, 0], edges[:, 1], count)
    order = np.argsort(units.level[original], kind="stable")
    known = [(own[units.unit_of[task]], one) for task, one in running.items()]
    for number, copy in enumerate(copies):
        if copy.known is not None:
            known.append((own[len(units) + number], copy.known))
        if copy.change is not None:
            _set_change(own[len(units) + number], copy.change, durations)
    for task, change in replaced.items():
        _set_change(own[units.unit_of[task]], change, durations)
    tables = _set_running(known, durations.tables)
    return Scene(unit, order, unit_at, parent, child, tables)


def _set_durations(own: Records, units: Units, durations: Durations, original: Ints) -> None:
    """Of single tasks by their tables; of many in a row by mean and variance."""
    task, folded = units.task[original], units.size[original] > 1
    mean_s, variance_s2 = units.mean_s[original], units.variance_s2[original]
    gamma = folded & (variance_s2 > 0) & (mean_s > 0)
    steady = folded & ~gamma
    own["form"] = np.where(folded, NORMAL_FORM, durations.form[task])
    own["offset_s"] = np.where(folded, np.where(steady, mean_s, 0.0), durations.offset_s[task])
    own["scale_s"] = np.where(folded, np.where(steady, 0.0, mean_s), durations.scale_s[task])
    own["shape"][gamma] = mean_s[gamma] ** 2 / variance_s2[gamma]


def _set_running(running: Sequence[tuple[np.void, KnownRunning]], tables: Floats) -> Floats:
    """Set what runs. All tables: whatever tells its progress gets one of its own."""
    more: list[Floats] = []
    for unit, known in running:
        unit["elapsed_s"], unit["group"], unit["extra_s"] = known.elapsed_s, known.group, 0.0
        if known.total_s is None:
            unit["offset_s"] /= known.speed
            unit["scale_s"] /= known.speed
        else:
            unit["form"], unit["mood"] = len(tables) + len(more), 0
            unit["offset_s"], unit["scale_s"] = 0.0, 1.0
            more.append(known.total_s)
    return np.concatenate([tables, np.array(more)]) if more else tables


def _set_change(unit: np.void, change: Change, durations: Durations) -> None:
    if change.takes is not None:
        unit["form"], unit["offset_s"], unit["scale_s"] = durations.promised(change.takes)
        unit["mood"] = 0
    else:
        unit["offset_s"] /= change.speed
        unit["scale_s"] /= change.speed
    unit["not_before_s"] = change.delay_s


def _with_copies(edges: Ints, original: Ints, units: int) -> Ints:
    """A copy waits for what its original waits for; who waits for it waits for the original."""
    more = [
        np.stack([parents, np.full(len(parents), units + number)], axis=1)
        for number, unit in enumerate(original[units:].tolist())
        for parents in (edges[edges[:, 1] == unit, 0],)
    ]
    return np.concatenate([edges, *more]) if more else edges


def _rings(original: Ints, units: int) -> Ints:
    """Each unit's next copy, around to itself."""
    ring = np.arange(len(original))
    for copy in range(units, len(original)):
        ring[copy], ring[original[copy]] = ring[original[copy]], copy
    return ring


def _rows(by: Ints, values: Ints, count: int) -> tuple[Ints, Ints]:
    """The values in rows, one per number: where each row begins, and all of them in a row."""
    order = np.argsort(by, kind="stable")
    start = np.zeros(count + 1, dtype=np.int64)
    np.cumsum(np.bincount(by, minlength=count), out=start[1:])
    return start, np.ascontiguousarray(values[order])
