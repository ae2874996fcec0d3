"""What succeeded tasks took, by kind: how it is written down and read back.

A duration stays even if the task's result is revoked later: the time was really taken.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from sureline.journal.events import TaskEnded

OBSERVED_MAX = 2500
"""How many durations of one kind are worth reading: the newest tell most."""
OBSERVED_OF_RUN_MAX = 100
"""How many of one run: how runs differ tells more than what one run's thousandth task took."""
SCANNED_MAX = 10_000
"""How far back they are looked for."""
_FACTOR, _MODULUS = 2654435761, 1 << 31
DURATIONS_SINCE = 2
"""The first version of the layout that has them."""
PEERS_SINCE = 3
"""The first one that has who took so long."""

INSERT_DURATION = "INSERT OR IGNORE INTO durations VALUES (?, ?, ?, ?, ?, ?, ?)"

DurationRow = tuple[str, float, int, int, float, int, str]


class Observed(NamedTuple):
    """One duration: of a task that ended at `at` in `run` and read `input_bytes`."""

    elapsed_s: float
    input_bytes: int
    at: float
    run: str
    peer: str = ""
    """The machine it ran on; '' if it was not written down."""


class KindSummary(msgspec.Struct, frozen=True):
    """What is remembered of one kind. Spread and drift are of the durations that forecasts use:
    the newest, and of each run at most OBSERVED_OF_RUN_MAX."""

    kind: str
    n: int
    """How many durations are remembered in all."""
    runs: int
    """In how many runs."""
    median_s: float
    p10_s: float
    p90_s: float
    drift: float | None
    """The median of the newer half of the runs over that of the older half; None with one run."""
    newest: float
    """When the newest ended, in seconds since the epoch."""


def select_durations(version: int) -> str:
    """The newest of a kind, of each run not too many. Asks for the kind and how many.

    Those of a run are chosen by a hash of where they stand: the last to end would be the longest,
    the first the shortest."""
    peer = "peer" if version >= PEERS_SINCE else "''"
    return (
        f"WITH newest AS (SELECT at, run, position, elapsed_s, input_bytes, {peer} AS peer"
        f" FROM durations WHERE kind = ? ORDER BY at DESC, run DESC, position DESC"
        f" LIMIT {SCANNED_MAX}),"
        " numbered AS (SELECT *, row_number() OVER"
        f" (PARTITION BY run ORDER BY (position % {_MODULUS} * {_FACTOR}) % {_MODULUS})"
        " AS number FROM newest)"
        " SELECT d.elapsed_s, d.input_bytes, d.at, r.run, d.peer FROM numbered d"
        f" JOIN runs r ON r.id = d.run WHERE d.number <= {OBSERVED_OF_RUN_MAX}"
        " ORDER BY d.at DESC, d.run DESC, d.position DESC LIMIT ?"
    )


def chosen(observed: Iterable[Observed]) -> list[Observed]:
    """The same kind of choice from a list of all durations of one kind."""
    by_run: dict[str, list[Observed]] = {}
    for one in observed:
        by_run.setdefault(one.run, []).append(one)
    found = []
    for of_run in by_run.values():
        order = sorted(range(len(of_run)), key=lambda place: place * _FACTOR % _MODULUS)
        found += [of_run[place] for place in order[:OBSERVED_OF_RUN_MAX]]
    return sorted(found, key=lambda seen: seen.at, reverse=True)[:OBSERVED_MAX]


SELECT_KINDS = (
    "SELECT kind, count(*), count(DISTINCT run), max(at) FROM durations GROUP BY kind ORDER BY kind"
)


def duration_row(ended: TaskEnded, run_id: int, position: int) -> DurationRow:
    size = sum([record.size for record in ended.inputs])
    return ended.kind, ended.at, run_id, position, ended.elapsed_s, size, ended.peer


def summarise(kind: str, n: int, runs: int, newest: float, seen: Sequence[Observed]) -> KindSummary:
    """`seen` are the kind's durations as forecasts use them, the newest first; at least one."""
    seconds = sorted(one.elapsed_s for one in seen)
    return KindSummary(
        kind,
        n,
        runs,
        statistics.median(seconds),
        _quantile(seconds, 0.1),
        _quantile(seconds, 0.9),
        _drift(seen),
        newest,
    )


def _drift(seen: Sequence[Observed]) -> float | None:
    by_run: dict[str, list[float]] = {}
    for one in seen:
        by_run.setdefault(one.run, []).append(one.elapsed_s)
    runs = list(by_run.values())
    half = len(runs) // 2
    if not half:
        return None
    newer, older = (
        statistics.median(s for r in part for s in r) for part in (runs[:half], runs[half:])
    )
    return newer / older if older > 0 else None


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between its neighbours in proportion, as is usual."""
    place = share * (len(ordered) - 1)
    low = int(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (place - low) * (ordered[high] - ordered[low])
