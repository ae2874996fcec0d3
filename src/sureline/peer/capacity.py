"""What a machine has, and the book of what is taken.

`Capacity` is what there is; `Ledger` subtracts what running tasks hold, so that nothing is ever
promised twice. Cores are counted in thousandths, to keep sums of fractions exact.
"""

from __future__ import annotations

import glob
import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import msgspec

from sureline.workflow.model import Needs


class Capacity(msgspec.Struct, frozen=True):
    """What one machine offers. A tag without a number (None) may be used by any number of tasks."""

    cores: float
    memory_bytes: int
    disk_bytes: int = 0
    gpus: int = 0
    tags: dict[str, int | None] = {}


def this_machine(
    directory: Path,
    *,
    cores: float | None = None,
    memory_bytes: int | None = None,
    gpus: int | None = None,
    tags: Mapping[str, int | None] | None = None,
) -> Capacity:
    """What this process may use of this machine; each argument overrides what is found."""
    return Capacity(
        cores=cores if cores is not None else _cores(),
        memory_bytes=memory_bytes if memory_bytes is not None else _memory_bytes(),
        disk_bytes=shutil.disk_usage(directory).free,
        gpus=gpus if gpus is not None else len(glob.glob("/dev/nvidia[0-9]*")),
        tags=dict(tags or {}),
    )


def _cores() -> float:
    """Cores this process is allowed to run on: its affinity, cut by the container's quota."""
    affinity = getattr(os, "sched_getaffinity", None)
    count = len(affinity(0)) if affinity else (os.cpu_count() or 1)
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            count = max(1, min(count, int(quota) // int(period)))
    except (OSError, ValueError):
        pass  # no control groups here, or not the second version of them
    return float(count)


def _memory_bytes() -> int:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:
        limit = Path("/sys/fs/cgroup/memory.max").read_text().strip()
        if limit != "max":
            total = min(total, int(limit))
    except (OSError, ValueError):
        pass  # as above
    return total


CORES_MAX = 1e6
"""No machine has more; the book is kept in whole numbers, and some floats have none."""


def is_possible(needs: Needs) -> bool:
    """Whether a task can need that at all, on any machine: what comes from elsewhere may say
    anything."""
    tags = [tag for tag, _ in needs.tags]
    return (
        0 <= needs.cores <= CORES_MAX
        and min(needs.memory_bytes, needs.disk_bytes, needs.gpus) >= 0
        and all(count >= 0 for _, count in needs.tags)
        and len(set(tags)) == len(tags)
    )


class Ledger:
    """The free part of a capacity. Invariant: nothing is ever below zero."""

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.millicores = _milli(capacity.cores)
        self.memory_bytes = capacity.memory_bytes
        self.disk_bytes = capacity.disk_bytes
        self.gpus = capacity.gpus
        self.tags = {tag: count for tag, count in capacity.tags.items() if count is not None}

    def fits(self, needs: Needs) -> bool:
        """Whether the needs could be taken right now."""
        return (
            _milli(needs.cores) <= self.millicores
            and needs.memory_bytes <= self.memory_bytes
            and needs.disk_bytes <= self.disk_bytes
            and needs.gpus <= self.gpus
            and all(self._tag_free(tag, count) for tag, count in needs.tags)
        )

    def _tag_free(self, tag: str, count: int) -> bool:
        if tag not in self.capacity.tags:
            return False
        free = self.tags.get(tag)
        return free is None or count <= free

    def take(self, needs: Needs) -> None:
        assert self.fits(needs), f"over-committed: {needs} of {self.capacity}"
        self._add(needs, -1)

    def give_back(self, needs: Needs) -> None:
        self._add(needs, +1)
        assert self.millicores <= _milli(self.capacity.cores), "gave back what was never taken"

    def _add(self, needs: Needs, sign: int) -> None:
        self.millicores += sign * _milli(needs.cores)
        self.memory_bytes += sign * needs.memory_bytes
        self.disk_bytes += sign * needs.disk_bytes
        self.gpus += sign * needs.gpus
        for tag, count in needs.tags:
            if tag in self.tags:
                self.tags[tag] += sign * count


def _milli(cores: float) -> int:
    return round(cores * 1000)
