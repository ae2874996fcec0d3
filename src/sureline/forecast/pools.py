"""What limits how many tasks run at once: pools of equal lanes.

Cores are one pool: a task that needs c cores takes c lanes, rounded up; if some tasks need less
than one core, every core is cut into up to CUTS_MAX lanes. GPUs and counted tags are pools too.
Memory, if it can bind at all, is cut into PARTS lanes such that each size of need alone is limited
exactly (3 GB of 8 GB: two at once); mixtures of sizes are approximate. Disk space is left out.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

from sureline.workflow.model import Needs

CUTS_MAX = 4
PARTS = 48
LANES_MAX = 4096


class Offers(Protocol):
    """What a machine offers; `peer.capacity.Capacity` is one."""

    @property
    def cores(self) -> float: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def gpus(self) -> int: ...
    @property
    def tags(self) -> Mapping[str, int | None]: ...


Taking = tuple[tuple[int, int], ...]
"""(pool, lanes) for each pool of which something is taken."""


class Pools(NamedTuple):
    lanes: tuple[int, ...]
    """How many lanes each pool has."""
    taking: tuple[Taking, ...]
    """What each of the needs takes."""


def pools_for(needs: Sequence[Needs], machine: Offers) -> Pools:
    """The pools that can bind for these needs. A need larger than the machine takes all of it."""
    columns = [_cores(needs, machine.cores)]
    columns.append(_parts([n.memory_bytes for n in needs], machine.memory_bytes, columns[0]))
    columns.append((machine.gpus, [n.gpus for n in needs]))
    for tag, count in machine.tags.items():
        if count is not None:
            columns.append((count, [dict(n.tags).get(tag, 0) for n in needs]))
    binding = [_reduced(lanes, takes) for lanes, takes in columns if any(takes)]
    return Pools(
        tuple(lanes for lanes, _ in binding),
        tuple(
            tuple((pool, takes[i]) for pool, (_, takes) in enumerate(binding) if takes[i])
            for i in range(len(needs))
        ),
    )


_Column = tuple[int, list[int]]
"""A pool's lanes, and how many of them each of the needs takes."""


def _cores(needs: Sequence[Needs], cores: float) -> _Column:
    smallest = min([n.cores for n in needs if n.cores > 0], default=1.0)
    cuts = max(1, min(CUTS_MAX, int(1 / smallest + 1e-9)))
    lanes = max(1, min(LANES_MAX, int(cores * cuts + 1e-9)))
    return lanes, [math.ceil(n.cores * cuts - 1e-9) for n in needs]


def _parts(sizes: Sequence[int], total: int, cores: _Column) -> _Column:
    """Lanes of memory; none taken if the cores always bind first."""
    lanes, cores_taken = cores
    if all(cores_taken) and max(sizes, default=0) * lanes <= total:
        return 0, [0] * len(sizes)
    return PARTS, [_parts_for(size, total) if size else 0 for size in sizes]


def _parts_for(size: int, total: int) -> int:
    """The number of parts nearest to the size of which as many fit as of the size itself."""
    at_once = max(1, min(PARTS, total // size))
    nearest = round(PARTS * size / total)
    return max(PARTS // (at_once + 1) + 1, min(nearest, PARTS // at_once))


def _reduced(lanes: int, takes: list[int]) -> _Column:
    """The same limits with as few lanes as possible; nothing takes more than there is."""
    lanes = max(1, lanes)
    takes = [min(t, lanes) for t in takes]
    common = math.gcd(*takes)
    return max(1, lanes // common), [t // common for t in takes]
