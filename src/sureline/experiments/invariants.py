"""What must hold of every simulated run, checked from what is left of it.

These checkers share nothing with the engine: they see the journal (what the run says happened),
the machines' own logs of what ran on them when, the counters of the network, and the workflow.
Each returns sentences on what is broken, none if all is well, and at most PROBLEMS_MAX of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from sureline.experiments.work import made_digest, user_digest
from sureline.journal.events import (
    COMMITS,
    CancelAsked,
    Event,
    Opened,
    RunEnded,
    Submitted,
    TaskBound,
    TaskEnded,
    TaskReady,
    TaskRevoked,
    TaskStarted,
    decode,
    encode,
)
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry
from sureline.workflow.model import Command, Graph
from sureline.workflow.shapes import topological_order
from sureline.world.address import Node

PROBLEMS_MAX = 10

Problems = list[str]


class Ran(NamedTuple):
    """One stretch of a job on a machine, in true time. `ended_s` is infinite if it never ended."""

    task: str
    attempt: int
    cores: float
    started_s: float
    ended_s: float
    outcome: str = ""


def _first(problems: Iterable[str]) -> Problems:
    return list(islice(problems, PROBLEMS_MAX))


def commits_once(events: Sequence[Event]) -> Problems:
    """A task's result commits at most once, and again only after it was revoked."""

    def problems() -> Iterable[str]:
        committed: set[str] = set()
        for event in events:
            if isinstance(event, TaskRevoked):
                committed.discard(event.task)
            elif isinstance(event, TaskEnded) and event.outcome in COMMITS:
                if event.task in committed:
                    yield f"{event.task} committed twice, the second time by {event.peer}"
                committed.add(event.task)

    return _first(problems())


def one_line(journals: Mapping[Node, Sequence[Entry]]) -> Problems:
    """Of the journals that machines have of one run, over all who drove it: no epoch was opened on
    two machines, and where two journals go back to the same writer, they say the same.

    The journal with the highest epoch is what counts of the run. It holds all it builds on, so a
    task that commits once in it has committed once in all that is left of the run."""

    def problems() -> Iterable[str]:
        told: dict[int, tuple[str, Event]] = {}
        for node, entries in journals.items():
            for position, event in entries:
                other, before = told.setdefault(position, (node, event))
                if event != before:
                    kind = "opened" if isinstance(event, Opened) else "written"
                    epoch = position // POSITIONS_PER_EPOCH
                    yield f"epoch {epoch} was {kind} on {other} and, otherwise, on {node}"

    return _first(problems())


def copies_true(
    journals: Mapping[Node, Sequence[Entry]], copies: Iterable[Sequence[tuple[int, bytes]]]
) -> Problems:
    """What keepers have of a run is what its writers recorded, in order. A writer's own machine may
    have lost some of it since."""
    recorded = {
        position: encode(event) for entries in journals.values() for position, event in entries
    }

    def problems() -> Iterable[str]:
        for copy in copies:
            positions = [position for position, _ in copy]
            if positions != sorted(set(positions)):
                yield "a copy is out of order"
            for position, body in copy:
                if recorded.get(position, body) != body:
                    yield f"a copy says something else at {position} than its writer"

    return _first(problems())


def resumable(
    graph: Graph,
    run: str,
    journals: Mapping[Node, Sequence[Entry]],
    copies: Iterable[Sequence[tuple[int, bytes]]],
) -> Problems:
    """The run has ended somewhere, or somebody could go on with it: a journal or a copy begins with
    its submission and commits nothing but its tasks."""
    lines = [[entry.event for entry in entries] for entries in journals.values()]
    lines += [[decode(body) for _, body in copy] for copy in copies]
    for line in lines:
        known = all(e.task in graph.index for e in line if isinstance(e, TaskEnded))
        if line and isinstance(line[0], Submitted) and line[0].run == run and known:
            return []
    return [f"nothing is left of {run} that could be resumed"]


def order_respected(graph: Graph, events: Sequence[Event]) -> Problems:
    """Nothing is ready, or bound, before all it waits for has committed.

    An attempt that is under way may be bound again at any time, by a later writer or when its peer
    comes back: it was handed out in order, even if the record of that is lost."""

    def problems() -> Iterable[str]:
        committed: set[str] = set()
        ready: set[str] = set()
        seen: set[tuple[str, int]] = set()
        first_epoch = True
        for event in events:
            match event:
                case Opened(epoch=epoch):
                    first_epoch = epoch == 1
                    ready.clear()
                case TaskRevoked(task=task):
                    committed.discard(task)
                case TaskEnded(task=task, outcome=outcome) if outcome in COMMITS:
                    committed.add(task)
                case TaskReady(task=task):
                    ready.add(task)
                    yield from (f"{task} was ready {late}" for late in _missing(task, committed))
                case TaskBound(task=task, attempt=attempt) if (task, attempt) not in seen:
                    seen.add((task, attempt))
                    if task in ready:
                        yield from (
                            f"{task} was bound {late}" for late in _missing(task, committed)
                        )
                    elif first_epoch:
                        yield f"{task} was bound before it was ready"

    def _missing(task: str, committed: set[str]) -> Iterable[str]:
        for parent in graph.parents[graph.index[task]]:
            if (name := graph.tasks[parent].name) not in committed:
                yield f"before {name} had committed"

    return _first(problems())


def attempts_bound_once(events: Sequence[Event]) -> Problems:
    """An attempt is handed to one peer, and none starts or ends that nobody handed out.

    It may be bound to the same peer again: one that was believed dead came back with it. After
    the first writer's crash all this cannot be told: the record of what it handed out may be lost.
    """

    def problems() -> Iterable[str]:
        bound: dict[tuple[str, int], str] = {}
        for event in events:
            if isinstance(event, Opened) and event.epoch > 1:
                return
            if isinstance(event, TaskBound):
                peer = bound.setdefault((event.task, event.attempt), event.peer)
                if peer != event.peer:
                    told = f"attempt {event.attempt} at {event.task}"
                    yield f"{told} was bound to {peer} and to {event.peer}"
            elif (
                isinstance(event, TaskStarted | TaskEnded)
                and event.attempt
                and (event.task, event.attempt) not in bound
            ):
                yield f"attempt {event.attempt} at {event.task} was never bound"

    return _first(problems())


def outputs_right(graph: Graph, events: Sequence[Event]) -> Problems:
    """What was committed is what the commands make of what they should have read."""
    right = right_outputs(graph)

    def problems() -> Iterable[str]:
        for event in events:
            if not isinstance(event, TaskEnded) or event.outcome not in COMMITS:
                continue
            task = graph.tasks[graph.index[event.task]]
            if not isinstance(task.action, Command):
                continue
            made = {file.path: file.digest for file in event.outputs}
            if sorted(made) != sorted(task.outputs):
                yield f"{event.task} made {sorted(made)} instead of {sorted(task.outputs)}"
                continue
            for path, digest in made.items():
                if digest != right[path]:
                    yield f"{event.task} made a wrong {path}"

    return _first(problems())


def right_outputs(graph: Graph) -> dict[str, str]:
    """The digest of every file that the workflow's commands make, by path."""
    right: dict[str, str] = {}
    for index in topological_order(graph):
        task = graph.tasks[index]
        if isinstance(task.action, Command):
            read = {}
            for path in task.inputs:
                whole = _whole(graph, path)
                read[whole] = right.get(whole) or user_digest(whole)
            for path in task.outputs:
                right[path] = made_digest(task.action.run, read.items(), path)
    return right


def _whole(graph: Graph, path: str) -> str:
    """The directory that is made whole, if the path is a part of one; else the path."""
    whole = path
    while whole not in graph.producer:
        if "/" not in whole:
            return path
        whole = whole.rsplit("/", 1)[0]
    return whole


def delivered(graph: Graph, events: Sequence[Event], published: Mapping[str, str]) -> Problems:
    """A run that says it succeeded has put every output in the user's directory, whole."""
    if not any(isinstance(e, RunEnded) and e.state == "succeeded" for e in events):
        return []
    right = right_outputs(graph)
    return _first(
        f"{path} is {'missing' if path not in published else 'wrong'} in the user's directory"
        for path, digest in right.items()
        if published.get(path) != digest
    )


def finished(graph: Graph, events: Sequence[Event], retries_used_up: Iterable[str]) -> Problems:
    """The run has ended well, unless a task used up its retries or somebody asked it to stop."""
    if any(True for _ in retries_used_up):
        return []
    ends = [event for event in events if isinstance(event, RunEnded)]
    if not ends:
        done = sum(isinstance(e, TaskEnded) and e.outcome in COMMITS for e in events)
        return [f"the run did not end: {done} of {len(graph)} tasks are done"]
    asked = any(isinstance(event, CancelAsked) for event in events)
    if ends[-1].state != "succeeded" and not (asked and ends[-1].state == "cancelled"):
        return [f"the run {ends[-1].state}: {ends[-1].reason or 'no reason was given'}"]
    return []


def failed_for_good(graph: Graph, events: Sequence[Event]) -> list[str]:
    """Tasks whose commands failed more often than they may."""
    failures: dict[str, int] = {}
    for event in events:
        if isinstance(event, TaskEnded) and event.outcome in ("failed", "timeout"):
            failures[event.task] = failures.get(event.task, 0) + 1
    return [
        name for name, count in failures.items() if count > graph.tasks[graph.index[name]].retries
    ]


def never_overcommitted(node: Node, cores: float, log: Sequence[Ran]) -> Problems:
    """At no time did more cores' worth of jobs run on a machine than it has."""
    changes: list[tuple[float, int, int]] = []
    for ran in log:
        millicores = round(ran.cores * 1000)
        changes.append((ran.started_s, 1, millicores))
        changes.append((ran.ended_s, 0, -millicores))  # an end goes before a start at that time
    used, limit = 0, round(cores * 1000)
    for at_s, _, change in sorted(changes):
        used += change
        if used > limit:
            return [f"{node} ran {used / 1000:g} cores' worth of jobs on {cores:g} at {at_s:.3f} s"]
    return []


def no_storm(peaks: Mapping[str, int], per_second_max: int) -> Problems:
    """No node sent more messages in a second than the scenario allows."""
    return _first(
        f"{node} sent {count} messages in one second, more than {per_second_max}"
        for node, count in sorted(peaks.items(), key=lambda item: (-item[1], item[0]))
        if count > per_second_max
    )


def nothing_lost(
    keys: Mapping[str, Sequence[str]], found: Mapping[str, bool], share: float
) -> Problems:
    """Of the keys that a live node still holds (`keys`: who), at least that share was found."""
    held = [key for key, holders in keys.items() if holders]
    lost = [key for key in held if not found.get(key, False)]
    if not held or 1 - len(lost) / len(held) >= share:
        return []
    return [
        f"{len(lost)} of {len(held)} keys with a live replica were not found",
        *_first(f"{key} is held by {', '.join(keys[key][:3])}" for key in lost),
    ]
