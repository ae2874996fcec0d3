"""The workloads: how large they are, what is called, and what the right answers are.

Every contestant makes the same calls of the functions below. Workers import them from this
module (the contest puts its directory on PYTHONPATH), so that no engine pays for carrying code.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from dataclasses import dataclass

WORKERS = int(os.environ.get("CONTEST_WORKERS", "2"))
"""Processes that work: as many as the machine has cores on one machine, peers on a grid."""
TRUE = "/bin/true"
MODULUS = 1_000_003
"""Keeps the graph's numbers small; a wrong or missing edge still changes the answer."""


def same(value: int) -> int:
    """The no-op."""
    return value


def add(left: int, right: int) -> int:
    """The graph's call."""
    return (left + right) % MODULUS


def run_true(_: int) -> int:
    """A command for engines whose tasks are Python calls; its exit code."""
    return subprocess.run([TRUE], check=False).returncode


def tail(data: bytes) -> str:
    """A task that needs a large input: what its last bytes are."""
    return hashlib.sha256(data[-TAIL_BYTES:]).hexdigest()


TAIL_BYTES = 4096


@dataclass(frozen=True)
class Shared:
    """Tasks that share large inputs: each reads one of so many files."""

    tasks: int
    files: int
    file_bytes: int

    def content(self, number: int) -> bytes:
        """Of one file: nothing that could be compressed, or taken for another."""
        block = hashlib.shake_256(str(number).encode()).digest(1 << 20)
        return (block * (self.file_bytes // len(block) + 1))[: self.file_bytes]

    def answer(self) -> list[str]:
        tails = [tail(self.content(number)) for number in range(self.files)]
        return [tails[task % self.files] for task in range(self.tasks)]


@dataclass(frozen=True)
class Shape:
    """A layered graph: each node needs two of the level before; level 0 needs none."""

    levels: int
    width: int

    @property
    def calls(self) -> int:
        return self.levels * self.width

    def needs(self, node: int) -> tuple[int, int]:
        """The two nodes of the level before that this node of a level needs."""
        return node, (7 * node + 1) % self.width

    def answer(self) -> list[int]:
        """The values of the last level."""
        row = list(range(self.width))
        for _ in range(1, self.levels):
            row = [add(row[a], row[b]) for a, b in map(self.needs, range(self.width))]
        return row


@dataclass(frozen=True)
class Sizes:
    calls: int
    graph: Shape
    commands: int
    warm: int
    shared: Shared

    def tasks(self, workload: str) -> int:
        """How many tasks a workload has in these sizes."""
        counts = {
            "calls": self.calls,
            "graph": self.graph.calls,
            "commands": self.commands,
            "shared": self.shared.tasks,
        }
        return counts.get(workload, self.warm if workload == "warm" else 1)


FULL = Sizes(10_000, Shape(10, 500), 2_000, 300, Shared(500, 20, 100_000_000))
WARM_UP = Sizes(20, Shape(2, 4), 4, 20, Shared(4, 2, 1000))
"""Made before the clock starts, so that workers are there and modules are loaded."""
WORKLOADS = ("calls", "graph", "commands", "warm", "cold")
"""On one machine."""
GRID_WORKLOADS = ("calls", "commands", "shared")


def sizes(scale: float) -> Sizes:
    """The workloads, smaller (or larger) by `scale`; the graph keeps its levels."""

    def scaled(full: int) -> int:
        return max(4, round(full * scale))

    return Sizes(
        calls=scaled(FULL.calls),
        graph=Shape(FULL.graph.levels, scaled(FULL.graph.width)),
        commands=scaled(FULL.commands),
        warm=scaled(FULL.warm),
        shared=Shared(scaled(FULL.shared.tasks), FULL.shared.files, scaled(FULL.shared.file_bytes)),
    )
