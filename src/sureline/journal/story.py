"""A task's story: what was recorded of it, event by event, in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sureline.journal.events import (
    Event,
    Foreseen,
    Grown,
    Noted,
    Planned,
    Repaired,
    TaskBound,
    TaskEnded,
    TaskProgressed,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
    Unknown,
)
from sureline.journal.words import counted, duration, listed, percent, size
from sureline.workflow.files import FileRecord


def in_words(event: Event) -> str:
    """One event of a task, or of the terms of its run, in one line."""
    tell = _WORDS.get(type(event))
    return tell(event) if tell is not None else type(event).__name__


def _ready(event: TaskReady) -> str:
    return "became ready: all that it waits for is there"


def _bound(event: TaskBound) -> str:
    return f"attempt {event.attempt} was given to {event.peer}"


def _started(event: TaskStarted) -> str:
    process = "" if event.pid is None else f" as process {event.pid}"
    return f"attempt {event.attempt} started on {event.peer}{process}"


def _progressed(event: TaskProgressed) -> str:
    return f"attempt {event.attempt} says it is {event.fraction:.0%} done"


def _retried(event: TaskRetried) -> str:
    reason = f": {event.reason}" if event.reason else ""
    return f"will be tried again in {duration(event.delay_s)}{reason}"


def _revoked(event: TaskRevoked) -> str:
    return f"its result was given up: {event.reason}"


def _ended(event: TaskEnded) -> str:
    made = f"; made {_files(event.outputs)}" if event.outputs else ""
    if event.outcome == "reused":
        return f"was not run: its result of run {event.from_run} was reused{made}"
    if not event.attempt:
        reason = f": {event.reason}" if event.reason else ""
        return f"{event.outcome} without having started{reason}"
    if event.outcome == "succeeded":
        used = [duration(event.elapsed_s), f"{duration(event.cpu_s)} of processor time"]
        if event.memory_peak_bytes:
            used.append(f"{size(event.memory_peak_bytes)} of memory")
        return f"attempt {event.attempt} succeeded after {', '.join(used)}{made}"
    how = {"timeout": "took too long", "cancelled": "was stopped", "lost": "was lost"}
    reason = f": {event.reason}" if event.reason else ""
    after = f" after {duration(event.elapsed_s)}" if event.elapsed_s else ""
    return f"attempt {event.attempt} {how.get(event.outcome, event.outcome)}{after}{reason}"


def _files(files: tuple[FileRecord, ...]) -> str:
    if len(files) <= 3:
        return listed([f"{file.path} ({size(file.size)})" for file in files])
    return f"{counted(len(files), 'file')} ({size(sum(file.size for file in files))})"


def _grown(event: Grown) -> str:
    return f"the workflow has {counted(event.tasks, 'task')} more"


def _noted(event: Noted) -> str:
    return event.said or f"{event.strategy} noted: {event.kind}"


def _unknown(event: Unknown) -> str:
    return f"something that this version does not know: {event.kind}"


def _planned(event: Planned) -> str:
    promised = "" if event.surety is None else f"in time with a surety of {percent(event.surety)}"
    wanted = f"{percent(event.surety_wanted)} is wanted"
    cost = f", for {event.cost:g}" if event.cost else ""
    return f"planned: {promised}, {wanted}{cost}"


def _foreseen(event: Foreseen) -> str:
    surety = "" if event.surety is None else f", in time with a surety of {percent(event.surety)}"
    early_s, late_s = event.early_at - event.at, event.late_at - event.at
    return f"done in {duration(max(0.0, early_s))} to {duration(max(0.0, late_s))}{surety}"


def _repaired(event: Repaired) -> str:
    if event.action == "none":
        return f"{event.reason}: {percent(event.surety_after)} is the best that can be had"
    where = f" on {event.to_peer}" if event.to_peer else ""
    here = event.to_peer == event.from_peer
    done = {
        "duplicate": f"attempt {event.attempt} of {event.task} was started{where}, beside the one "
        + ("there" if here else f"on {event.from_peer}"),
        "swap": f"{event.task} was stopped{f' on {event.from_peer}' if event.from_peer else ''} "
        f"and is started anew{'' if here else where}",
        "substitute": f"{event.task or 'later tasks'} will run elsewhere{where and ','}{where}",
    }[event.action]
    cost = f", for {event.cost:g}" if event.cost else ""
    return f"{event.reason}: {done}{cost}; that makes {percent(event.surety_after)}"


_WORDS: dict[type, Callable[[Any], str]] = {
    TaskReady: _ready,
    TaskBound: _bound,
    TaskStarted: _started,
    TaskProgressed: _progressed,
    TaskEnded: _ended,
    TaskRetried: _retried,
    TaskRevoked: _revoked,
    Grown: _grown,
    Noted: _noted,
    Unknown: _unknown,
    Planned: _planned,
    Foreseen: _foreseen,
    Repaired: _repaired,
}
