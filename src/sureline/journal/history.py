"""What succeeded tasks took, by kind: how it is written down and read back.

A duration stays even if the task's result is revoked later: the time was really taken.
"""

from __future__ import annotations

from typing import NamedTuple

from sureline.journal.events import TaskEnded

OBSERVED_MAX = 200
"""How many durations of one kind are worth reading: the newest tell most."""
DURATIONS_SINCE = 2
"""The first version of the layout that has them."""

INSERT_DURATION = "INSERT OR IGNORE INTO durations VALUES (?, ?, ?, ?, ?, ?)"
SELECT_DURATIONS = (
    "SELECT d.elapsed_s, d.input_bytes, d.at, r.run FROM durations d JOIN runs r ON r.id = d.run"
    " WHERE d.kind = ? ORDER BY d.at DESC, d.run DESC, d.position DESC LIMIT ?"
)

DurationRow = tuple[str, float, int, int, float, int]


class Observed(NamedTuple):
    """One duration: of a task that ended at `at` in `run` and read `input_bytes`."""

    elapsed_s: float
    input_bytes: int
    at: float
    run: str


def duration_row(ended: TaskEnded, run_id: int, position: int) -> DurationRow:
    size = sum([record.size for record in ended.inputs])
    return ended.kind, ended.at, run_id, position, ended.elapsed_s, size
