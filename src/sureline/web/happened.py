"""What decided a run's end: the path that really happened, and where time was lost."""

from __future__ import annotations

from collections import defaultdict
from typing import NamedTuple

from sureline.web.boxes import expected_path
from sureline.web.record import Attempt, Record
from sureline.workflow.shapes import critical_path

_GOOD = ("succeeded", "running")


class _Step(NamedTuple):
    """A task on the path, and what lay between the end of the one before and its own beginning.

    `waited_s`, `retried_s` and `paused_s` make up that gap: ready but not started (or being
    started), earlier attempts and their back-offs, and nobody working on the run.
    """

    task: int
    began_at: float
    ended_at: float
    waited_s: float
    retried_s: float
    paused_s: float


def path_that_happened(record: Record) -> list[_Step]:
    """From the task that finished last, back through the parent that finished last, in order."""
    finished = record.finished_at
    if not finished:
        return []
    attempts: defaultdict[int, list[Attempt]] = defaultdict(list)
    for attempt in record.attempts:
        attempts[attempt.task].append(attempt)
    task: int | None = max(finished, key=lambda i: (finished[i], i))
    steps: list[_Step] = []
    while task is not None:
        parents = [p for p in record.graph.parents[task] if p in finished]
        before = max(parents, key=lambda p: (finished[p], p)) if parents else None
        free_at = record.began_at if before is None else finished[before]
        steps.append(_step(record, task, attempts[task], free_at))
        task = before
    return steps[::-1]


def _step(record: Record, task: int, attempts: list[Attempt], free_at: float) -> _Step:
    ended_at = record.finished_at[task]
    if not attempts:
        return _Step(task, ended_at, ended_at, 0.0, 0.0, 0.0)
    began_at = attempts[-1].began_at
    paused_s = _paused_s(record, free_at, began_at)
    gap_s = max(0.0, began_at - free_at - paused_s)
    first_at = max(free_at, attempts[0].began_at)
    retried_s = max(0.0, began_at - first_at - _paused_s(record, first_at, began_at))
    return _Step(task, began_at, ended_at, gap_s - retried_s, retried_s, paused_s)


def _paused_s(record: Record, since: float, until: float) -> float:
    """How long, between two moments, no process worked on the run."""
    total = 0.0
    for one, following in zip(record.sessions, record.sessions[1:], strict=False):
        total += max(0.0, min(until, following.began_at) - max(since, one.ended_at))
    return total


class Losses(NamedTuple):
    """Where time went that brought no result.

    `waited_s` is summed over tasks, from when each could run to when it started. `idle_*` are
    core-seconds that no task held: while something was ready, and while nothing was.
    """

    waited_s: float
    waited_longest: int | None
    waited_longest_s: float
    fruitless: int
    fruitless_s: float
    delays_s: float
    paused_s: float
    core_s: float
    busy_core_s: float
    idle_ready_core_s: float
    idle_starved_core_s: float


def losses(record: Record) -> Losses:
    waits = [(a.began_at - a.eligible_at, a.task) for a in record.attempts]
    longest_s, longest = max(waits, default=(0.0, None))
    fruitless = [a for a in record.attempts if a.outcome not in _GOOD]
    core_s, busy_s, ready_s, starved_s = _cores(record)
    return Losses(
        sum(wait for wait, _ in waits),
        longest,
        longest_s,
        len(fruitless),
        sum(a.ended_at - a.began_at for a in fruitless),
        record.delays_s,
        _paused_s(record, float("-inf"), float("inf")),
        core_s,
        busy_s,
        ready_s,
        starved_s,
    )


def _cores(record: Record) -> tuple[float, float, float, float]:
    """Core-seconds: there were, held by tasks, idle with something ready, idle with nothing."""
    changes: list[tuple[float, float, float, int]] = []  # at, cores there, cores held, ready

    def interval(since: float, until: float, there: float, held: float, ready: int) -> None:
        if until > since:
            changes.append((since, there, held, ready))
            changes.append((until, -there, -held, -ready))

    for presence in record.presences:
        interval(presence.joined_at, presence.left_at, presence.cores, 0.0, 0)
    for attempt in record.attempts:
        cores = record.graph.tasks[attempt.task].needs.cores
        interval(attempt.began_at, attempt.ended_at, 0.0, cores, 0)
        interval(attempt.eligible_at, attempt.began_at, 0.0, 0.0, 1)
    for _, since in record.ready_and_waiting():
        interval(since, record.seen_until, 0.0, 0.0, 1)
    changes.sort()
    there = held = total_s = busy_s = ready_s = starved_s = 0.0
    ready, last = 0, changes[0][0] if changes else 0.0
    for at, more_there, more_held, more_ready in changes:
        span = at - last
        idle_s = max(0.0, there - held) * span
        total_s += there * span
        busy_s += min(held, there) * span
        if ready:
            ready_s += idle_s
        else:
            starved_s += idle_s
        there, held, ready, last = there + more_there, held + more_held, ready + more_ready, at
    return total_s, busy_s, ready_s, starved_s


def longest_path(record: Record) -> tuple[list[int], str]:
    """The chain of tasks that takes longest, and by what: what each took, or was to take."""
    took: dict[int, float] = {}
    for attempt in record.attempts:
        took[attempt.task] = attempt.took_s
    if not took:
        return expected_path(record.graph)
    durations_s = [
        took.get(
            i, 0.0 if record.states[i] == "reused" or task.takes is None else task.takes.likely_s
        )
        for i, task in enumerate(record.graph.tasks)
    ]
    return critical_path(record.graph, durations_s), "the longest way, by what tasks took"
