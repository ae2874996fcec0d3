"""What reproducing the paper on deadline reservations gives, as data."""

from __future__ import annotations

from typing import Literal

import msgspec

from sureline.experiments.peercomp_churn import Churned
from sureline.experiments.peercomp_warm import Alike

TITLE = "Distributed Scheduler of Workflows with Deadlines in a P2P Desktop Grid"


class Points(msgspec.Struct, frozen=True):
    """A row of Table I, as clock times."""

    made: str
    paper: list[str]
    ours: list[str]
    agrees: bool


class SpeedUp(msgspec.Struct, frozen=True):
    """A cell of Table II. Null where nothing was accepted."""

    model: str
    maximum: float
    priority: float
    paper: float
    executed: float | None
    """By when the last task really ended: of all up to 10,000 peers, else in the settled grid."""
    committed: float | None
    """By when it is due, in the large grid."""
    compared: Literal["executed", "committed"]
    """Which of the two stands for ours: that of more workflows."""
    workflows: int
    accepted: float
    """The share of those that were submitted."""
    verdict: str

    @property
    def ours(self) -> float | None:
        return self.executed if self.compared == "executed" else self.committed


class Allocation(msgspec.Struct, frozen=True):
    """A curve of Fig. 6: how long it takes to place a whole workflow, in seconds."""

    model: str
    size: int
    width: float
    workflows: int
    median_s: float
    p90_s: float
    p99_s: float
    curve: list[tuple[float, float]]
    """(seconds, share of workflows placed by then)."""


class PeercompCompared(msgspec.Struct, frozen=True):
    """A number or a statement of the paper beside ours."""

    what: str
    paper: str
    ours: float
    verdict: str


class Level(msgspec.Struct, frozen=True):
    """Peers whose branch is at this depth (0 is the root; -1 for those without one)."""

    depth: int
    peers: int
    messages_per_s: float
    busiest_messages_per_s: float
    busiest_bytes_per_s: float


class PeercompTraffic(msgspec.Struct, frozen=True):
    messages: int
    updates: int
    messages_per_allocation: float
    hops_per_request: float
    numbers: list[PeercompCompared]
    levels: list[Level]


class Rejected(msgspec.Struct, frozen=True):
    share: float
    workflows: int
    reasons: dict[str, int]
    split: float
    """The share of sequences that were placed in several pieces."""


class PeercompReproduced(msgspec.Struct, frozen=True):
    paper: str
    nodes: int
    minutes: float
    seed: int
    load: float
    busy: float
    """The share of lanes that were at work at the end."""
    table1: list[Points]
    table2: list[SpeedUp]
    allocation: list[Allocation]
    traffic: PeercompTraffic
    claims: list[PeercompCompared]
    rejected: Rejected
    missed: int
    churn: list[Churned]
    warm: list[Alike]
    wall_s: float
    cpu_s: float
    peak_bytes: int
