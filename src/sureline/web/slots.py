"""Slots: rows in which no two attempts on one machine overlap."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import NamedTuple

from sureline.web.record import Attempt


class _Slot(NamedTuple):
    peer: str
    number: int
    """From 0, on its machine."""


def pack(attempts: Sequence[Attempt]) -> tuple[list[_Slot], list[int]]:
    """The slots, machine by machine, and for every attempt the index of its slot.

    `attempts` are in order of their beginning. Each takes the lowest slot of its machine that is
    free by then, so there are as many slots as ever were busy at once.
    """
    free: dict[str, list[int]] = {}
    busy: dict[str, list[tuple[float, int]]] = {}
    used: dict[str, int] = {}
    chosen: list[int] = []
    for attempt in attempts:
        idle, working = free.setdefault(attempt.peer, []), busy.setdefault(attempt.peer, [])
        while working and working[0][0] <= attempt.began_at:
            heapq.heappush(idle, heapq.heappop(working)[1])
        if idle:
            slot = heapq.heappop(idle)
        else:
            slot = used.get(attempt.peer, 0)
            used[attempt.peer] = slot + 1
        heapq.heappush(working, (attempt.ended_at, slot))
        chosen.append(slot)
    slots = [_Slot(peer, number) for peer in sorted(used) for number in range(used[peer])]
    index = {slot: k for k, slot in enumerate(slots)}
    return slots, [
        index[_Slot(attempt.peer, slot)] for attempt, slot in zip(attempts, chosen, strict=True)
    ]
