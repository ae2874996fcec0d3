"""Where files are, as far as it was seen: a site has what a task read there, and what one made.

And how long it takes to bring one: the shortest wait that was seen, for each byte that had to be
brought, since no wait is shorter than that.
"""

from __future__ import annotations

from collections.abc import Iterable

from sureline.workflow.model import Graph, Task
from sureline.world.address import PeerName

UNKNOWN_BYTES = 1
"""A file whose size is not known counts as little, but counts."""


class Whereabouts:
    def __init__(self) -> None:
        self._at: dict[PeerName, set[str]] = {}
        self._fastest: float | None = None

    def has(self, site: PeerName, paths: Iterable[str]) -> None:
        self._at.setdefault(site, set()).update(paths)

    def bytes_of(self, graph: Graph, task: Task) -> int:
        return sum(graph.file_sizes.get(path, UNKNOWN_BYTES) for path in task.inputs)

    def missing_bytes(self, graph: Graph, task: Task, site: PeerName) -> int:
        there = self._at.get(site, frozenset[str]())
        sizes = graph.file_sizes
        return sum(sizes.get(path, UNKNOWN_BYTES) for path in task.inputs if path not in there)

    def brought(self, size_bytes: int, waited_s: float) -> None:
        """A task began so long after it was sent, and so much was not there before."""
        if size_bytes > UNKNOWN_BYTES:
            rate = waited_s / size_bytes
            self._fastest = rate if self._fastest is None else min(self._fastest, rate)

    @property
    def s_per_byte(self) -> float:
        return self._fastest or 0.0
