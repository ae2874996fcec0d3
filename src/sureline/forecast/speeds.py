"""How fast machines are, compared with each other, by what tasks took on them.

A machine's speed is by how much tasks were faster there than tasks of the same kind in the same
run were on the whole. Few tasks say little: they are drawn towards 1.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from sureline.journal.history import Observed

DOUBT = 5.0
"""So many tasks weigh as much as the belief that a machine is like the others."""
SECONDS_MIN = 1e-3
"""Shorter tasks tell more of the time between tasks than of the machine."""


def speeds_of(history: Mapping[str, Sequence[Observed]]) -> dict[str, float]:
    """By peer; 1 is the machine in the middle. Empty if only one machine is known."""
    groups: dict[tuple[str, str], list[tuple[str, float]]] = {}
    for kind, seen in history.items():
        for one in seen:
            if one.peer and one.elapsed_s >= SECONDS_MIN:
                pair = one.peer, math.log(one.elapsed_s)
                groups.setdefault((kind, one.run), []).append(pair)
    faster: dict[str, list[float]] = {}
    for group in groups.values():
        middles: dict[str, list[float]] = {}
        for peer, log in group:
            middles.setdefault(peer, []).append(log)
        if len(middles) < 2:
            continue
        # By machine first, so that one that did most of the tasks is not the measure of all.
        centre = sum(sum(logs) / len(logs) for logs in middles.values()) / len(middles)
        for peer, log in group:
            faster.setdefault(peer, []).append(centre - log)
    return {peer: math.exp(sum(by) / (len(by) + DOUBT)) for peer, by in sorted(faster.items())}


def at_equal_speed(
    history: Mapping[str, Sequence[Observed]], speeds: Mapping[str, float]
) -> Mapping[str, Sequence[Observed]]:
    """The history as if every task had run on the machine in the middle."""
    if not speeds:
        return history
    return {
        kind: [one._replace(elapsed_s=one.elapsed_s * speeds.get(one.peer, 1.0)) for one in seen]
        for kind, seen in history.items()
    }
