"""What the report's page is given: the whole run as compact JSON.

Tasks are columns, not objects, and their events short lists whose first item is a letter; times
are seconds since the run began. `page/story.js` has the words for each letter. Texts (commands and
what tasks wrote) share one allowance, failed tasks first, so that the file stays small enough to
be mailed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sureline.journal.events import (
    AnyEvent,
    Repaired,
    TaskBound,
    TaskEnded,
    TaskProgressed,
    TaskReady,
    TaskRetried,
    TaskRevoked,
    TaskStarted,
)
from sureline.journal.story import in_words
from sureline.web.happened import losses, path_that_happened
from sureline.web.kinds import durations_by_kind
from sureline.web.record import Record
from sureline.web.slots import pack
from sureline.workflow.files import FileRecord, result_path
from sureline.workflow.model import Command, Pause, Task

TEXTS_MAX = 3_000_000
"""Characters of commands and of what tasks wrote, in all."""
TAIL_MAX = 4_000
COMMAND_MAX = 1_000
FILES_MAX = 20
NEIGHBOURS_MAX = 12
FAILURES_MAX = 20


def page_data(record: Record) -> dict[str, Any]:
    """All that the page shows."""
    clock = _Clock(record.began_at)
    return {
        "run": _run(record, clock),
        "sessions": [
            [clock(s.began_at), clock(s.ended_at), s.host, s.pid, s.ended] for s in record.sessions
        ],
        "machines": _machines(record),
        **_bars(record, clock),
        "tasks": _tasks(record, clock),
        "path": [
            [s.task, clock(s.began_at), clock(s.ended_at)]
            + [_short(x) for x in (s.waited_s, s.retried_s, s.paused_s)]
            for s in path_that_happened(record)
        ],
        "kinds": _kinds(record),
        "terms": _terms(record, clock),
        "losses": {
            name: _short(value) if isinstance(value, float) else value
            for name, value in losses(record)._asdict().items()
        },
    }


def _short(seconds: float) -> float:
    return round(seconds, 4)


class _Clock:
    """Moments as seconds since the run began."""

    def __init__(self, zero: float) -> None:
        self._zero = zero

    def __call__(self, at: float | None) -> float | None:
        return None if at is None else _short(at - self._zero)


def _run(record: Record, clock: _Clock) -> dict[str, Any]:
    view, submitted = record.view, record.submitted
    return {
        "run": view.run,
        "name": view.name,
        "state": record.state,
        "reason": view.reason,
        "source": view.source,
        "zero": record.began_at,
        "submitted": clock(view.submitted_at),
        "until": clock(record.seen_until),
        "now": clock(record.now),
        "elapsed": _short(sum(s.ended_at - s.began_at for s in record.sessions)),
        "alive": record.alive,
        "pretended": record.pretended,
        "params": submitted.params if submitted else {},
        "version": submitted.version if submitted else "",
        "total": len(record.graph),
    }


def _terms(record: Record, clock: _Clock) -> dict[str, Any] | None:
    """What was asked, how sure it was over time, and what was done; None if nothing was asked."""
    view, terms = record.view, record.view.terms
    if not terms.any:
        return None
    late_s = None
    if terms.deadline_at is not None and view.ended_state == "succeeded" and view.ended_at:
        late_s = _short(max(0.0, view.ended_at - terms.deadline_at))
    return {
        "deadline": clock(terms.deadline_at),
        "budget": terms.budget,
        "wanted": terms.surety,
        "planned": None if view.planned is None else view.planned.surety,
        "cost": 0.0 if view.planned is None else view.planned.cost,
        "spent": view.spent,
        "late": late_s,
        "seen": [
            [*map(clock, (seen.at, seen.early_at, seen.middle_at, seen.late_at)), seen.surety]
            for seen in record.foreseen
        ],
        "repairs": [
            [
                clock(event.at),
                event.action,
                record.graph.index.get(event.task),
                in_words(event),
                event.surety_before,
                event.surety_after,
            ]
            for event in view.repairs
        ],
    }


def _machines(record: Record) -> list[list[Any]]:
    """Each machine once, as it was last seen."""
    found = {p.peer: [p.peer, p.cores, p.memory_bytes] for p in record.presences}
    return sorted(found.values())


def _bars(record: Record, clock: _Clock) -> dict[str, Any]:
    slots, rows = pack(record.attempts)
    attempts = record.attempts
    return {
        "slots": slots,
        "bars": {
            "task": [a.task for a in attempts],
            "number": [a.number for a in attempts],
            "slot": rows,
            "began": [clock(a.began_at) for a in attempts],
            "ended": [clock(a.ended_at) for a in attempts],
            "eligible": [clock(a.eligible_at) for a in attempts],
            "outcome": [a.outcome for a in attempts],
            "window": [a.window and [clock(at) for at in a.window] for a in attempts],
        },
    }


def _kinds(record: Record) -> list[dict[str, Any]]:
    return [
        {
            "kind": story.kind,
            "tasks": story.tasks,
            "ran": story.ran,
            "total": _short(story.total_s),
            "spread": story.spread_s and [round(x, 6) for x in story.spread_s],
            "points": [_short(x) for x in story.durations_s],
            "takes": story.takes,
        }
        for story in durations_by_kind(record)
    ]


def _tasks(record: Record, clock: _Clock) -> dict[str, Any]:
    graph = record.graph
    kinds = {kind: k for k, kind in enumerate(dict.fromkeys(t.kind_name for t in graph.tasks))}
    texts = _texts(record)
    return {
        "name": [t.name for t in graph.tasks],
        "kinds": list(kinds),
        "kind": [kinds[t.kind_name] for t in graph.tasks],
        "state": record.states,
        "finished": [clock(record.finished_at.get(i)) for i in range(len(graph))],
        "likely": [None if t.takes is None else t.takes.likely_s for t in graph.tasks],
        "parents": [_neighbours(parents) for parents in graph.parents],
        "children": [_neighbours(children) for children in graph.children],
        "events": [[_event(event, clock) for event in events] for events in record.events],
        "outputs": [_outputs(record, task) for task in graph.tasks],
        "does": [text[0] for text in texts],
        "blocked": _blocked(record),
        "wrote": {str(i): text[1] for i, text in enumerate(texts) if text[1]},
    }


def _blocked(record: Record) -> dict[str, int]:
    """For the failures that are shown, how many tasks have no result for want of theirs."""
    found: dict[str, int] = {}
    failed = [i for i, state in enumerate(record.states) if state == "failed"]
    for task in failed[:FAILURES_MAX]:
        seen = {task}
        reached = [task]
        for one in reached:
            for child in record.graph.children[one]:
                if child not in seen:
                    seen.add(child)
                    reached.append(child)  # the loop goes on through what is found
        found[str(task)] = len(seen) - 1
    return found


def _neighbours(tasks: Sequence[int]) -> list[int]:
    """How many there are, then the first few."""
    return [len(tasks), *tasks[:NEIGHBOURS_MAX]]


def _event(event: AnyEvent, clock: _Clock) -> list[Any]:
    at = clock(event.at)
    match event:
        case TaskReady():
            return ["r", at]
        case TaskBound():
            return ["b", at, event.attempt, event.peer]
        case TaskStarted():
            return ["s", at, event.attempt, event.peer, event.pid]
        case TaskProgressed():
            return ["p", at, event.attempt, _short(event.fraction)]
        case TaskRetried():
            return ["y", at, event.attempt, _short(event.delay_s)]
        case TaskRevoked():
            return ["v", at, event.reason]
        case TaskEnded():
            return _ended(event, at)
        case Repaired():
            return ["x", at, in_words(event)]
    raise AssertionError(f"{event} is no event of a task")


def _ended(event: TaskEnded, at: float | None) -> list[Any]:
    """Trailing items that say nothing are left out."""
    items: list[Any] = [
        "e",
        at,
        event.attempt,
        event.outcome,
        _short(event.elapsed_s),
        _short(event.cpu_s),
        event.memory_peak_bytes,
        event.reason,
        event.from_run,
    ]
    while not items[-1]:
        items.pop()
    return items


def _outputs(record: Record, task: Task) -> list[Any]:
    """How many files and their bytes in all, then the first few with their sizes."""
    hidden = result_path(task.name)
    made: list[FileRecord] = [f for f in record.view.tasks[task.name].outputs if f.path != hidden]
    if not made:
        return []
    return [len(made), sum(f.size for f in made), *[[f.path, f.size] for f in made[:FILES_MAX]]]


def _texts(record: Record) -> list[tuple[str, list[list[Any]]]]:
    """For every task what it does, and what its attempts wrote: [attempt, stdout, stderr].

    Text past the allowance is left out: what a task does becomes '', what it wrote None."""
    left = TEXTS_MAX
    found: list[tuple[str, list[list[Any]]]] = [("", [])] * len(record.graph)
    order = sorted(range(len(record.graph)), key=lambda i: record.states[i] != "failed")
    for i in order:
        does = _does(record.graph.tasks[i])
        wrote: list[list[Any]] = []
        for event in record.events[i]:
            if isinstance(event, TaskEnded) and (event.stdout or event.stderr):
                wrote.append([event.attempt, event.stdout[-TAIL_MAX:], event.stderr[-TAIL_MAX:]])
        left -= len(does) + sum(len(out) + len(err) for _, out, err in wrote)
        if left < 0:
            does, wrote = "", [[attempt, None, None] for attempt, _, _ in wrote]
        found[i] = (does, wrote)
    return found


def _does(task: Task) -> str:
    match task.action:
        case Command(run=run):
            return run if len(run) <= COMMAND_MAX else run[: COMMAND_MAX - 1] + "\u2026"
        case Pause(seconds=seconds):
            return f"pretends to work for {seconds:g} s"
    return "a Python call"
