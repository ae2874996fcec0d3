"""The machines of a run as groups that are equally fast, for the kernel."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from sureline.forecast.kernel import Room
from sureline.forecast.machines import MachinePart, Together, together
from sureline.forecast.pools import Offers, Pools, pools_for
from sureline.workflow.model import Needs

STEP = 1.25
"""Machines whose speeds differ by less than this factor, or so, are taken for equally fast."""
STEPS_MAX = 6
"""Speeds are believed within STEP ** STEPS_MAX, a factor of four either way."""


class Rooms(NamedTuple):
    room: Room
    group_of: Mapping[str, int]
    """By peer; who is not in it is in group 0."""
    several: bool
    """Whether there is more than one machine, so that files must travel."""


def rooms_for(needs: Sequence[Needs], machine: Offers, speeds: Mapping[str, float]) -> Rooms:
    """`speeds` are by peer; whose is not known has 1."""
    parts = machine.parts if isinstance(machine, Together) else ()
    steps: dict[int, list[MachinePart]] = {}
    for part in parts:
        step = round(math.log(max(1e-9, speeds.get(part.peer, 1.0)), STEP))
        steps.setdefault(max(-STEPS_MAX, min(STEPS_MAX, step)), []).append(part)
    groups: list[Sequence[MachinePart]] = [steps[step] for step in sorted(steps, reverse=True)]
    if len(groups) < 2:
        step = next(iter(steps), 0)
        room = _room([pools_for(needs, machine)], [STEP**step], len(needs))
        return Rooms(room, {}, len(parts) > 1)
    pools = [pools_for(needs, together(group)) for group in groups]
    room = _room(pools, [STEP**step for step in sorted(steps, reverse=True)], len(needs))
    for number, need in enumerate(needs):
        can = [any(_could_run(part, need) for part in group) for group in groups]
        if any(can):  # else it is for nobody, and a forecast takes it for what fits best
            room.fits[:, number] = can
    group_of = {part.peer: number for number, group in enumerate(groups) for part in group}
    return Rooms(room, group_of, True)


def _could_run(part: MachinePart, need: Needs) -> bool:
    return (
        need.cores <= part.cores
        and need.memory_bytes <= part.memory_bytes
        and need.gpus <= part.gpus
    )


def _room(groups: Sequence[Pools], speeds: Sequence[float], needs: int) -> Room:
    pools = max([1, *(len(g.lanes) for g in groups)])
    lanes = np.ones((len(groups), pools), dtype=np.int64)
    taking = np.zeros((len(groups), max(1, needs), pools), dtype=np.int64)
    for number, group in enumerate(groups):
        lanes[number, : len(group.lanes)] = group.lanes
        for need, takes in enumerate(group.taking):
            for pool, count in takes:
                taking[number, need, pool] = count
    fits = np.ones((len(groups), max(1, needs)), dtype=np.int64)
    return Room(lanes, taking, fits, np.array(speeds, dtype=np.float64))
