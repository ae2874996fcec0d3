"""What must hold of the events of every run, whatever its strategy decided.

Each law yields sentences on what is broken. They add to what every simulated run is checked for
(`experiments.invariants`), and serve for real runs too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from sureline.journal.events import (
    COMMITS,
    AnyEvent,
    CancelAsked,
    Opened,
    PeerJoined,
    PeerLeft,
    RunEnded,
    Submitted,
    TaskBound,
    TaskEnded,
    TaskRevoked,
    TaskStarted,
)

Events = Sequence[AnyEvent]


def broken(events: Events, strategy: str) -> list[str]:
    """All that does not hold."""
    laws = (committed_once, bound_to_those_there, ended_once, nothing_begins_after_a_cancel)
    found = [problem for law in laws for problem in law(events)]
    return [*chosen(events, strategy), *found]


def chosen(events: Events, strategy: str) -> Iterator[str]:
    """The run is on record with the strategy that it was given."""
    submitted = [event for event in events if isinstance(event, Submitted)]
    if [event.options.get("strategy") for event in submitted] != [strategy]:
        yield f"the journal does not say that the run was given to {strategy}"


def committed_once(events: Events) -> Iterator[str]:
    """A second result of a task follows only on a revocation of the first."""
    committed: set[str] = set()
    for event in events:
        if isinstance(event, TaskRevoked):
            committed.discard(event.task)
        elif isinstance(event, TaskEnded) and event.outcome in COMMITS:
            if event.task in committed:
                yield f"{event.task} was committed twice"
            committed.add(event.task)


def bound_to_those_there(events: Events) -> Iterator[str]:
    """Nothing is bound to a target that takes no part. Each process meets its targets anew."""
    there: set[str] = set()
    for event in events:
        match event:
            case Opened():
                there.clear()
            case PeerJoined(peer=peer):
                there.add(peer)
            case PeerLeft(peer=peer):
                there.discard(peer)
            case TaskBound(peer=peer) if peer not in there:
                yield f"{event.task} was bound to {peer}, which takes no part"


def ended_once(events: Events) -> Iterator[str]:
    """An attempt ends once; again only if it was believed lost, or its result was revoked: then its
    target may come back, and tell again."""
    ends: Counter[tuple[str, int]] = Counter()
    for event in events:
        if isinstance(event, Opened):
            ends.clear()
        elif isinstance(event, TaskRevoked):
            ends = Counter({key: count for key, count in ends.items() if key[0] != event.task})
        elif isinstance(event, TaskEnded) and event.attempt and event.outcome != "lost":
            ends[event.task, event.attempt] += 1
            if ends[event.task, event.attempt] > 1:
                yield f"attempt {event.attempt} at {event.task} ended twice"


def nothing_begins_after_a_cancel(events: Events) -> Iterator[str]:
    """From the moment it is cancelled, a process binds nothing."""
    cancelled = False
    for event in events:
        match event:
            case Opened():
                cancelled = False
            case CancelAsked():
                cancelled = True
            case TaskBound(task=task) if cancelled:
                yield f"{task} was bound after the run was cancelled"


def state(events: Events) -> str:
    """How the run ended; '' if it did not."""
    ends = [event.state for event in events if isinstance(event, RunEnded)]
    return ends[-1] if ends else ""


def processes(events: Events) -> int:
    """How many drove the run."""
    return sum(isinstance(event, Opened) for event in events)


def committed(events: Iterable[AnyEvent]) -> set[str]:
    """The tasks that have a result at the end."""
    found: set[str] = set()
    for event in events:
        if isinstance(event, TaskRevoked):
            found.discard(event.task)
        elif isinstance(event, TaskEnded) and event.outcome in COMMITS:
            found.add(event.task)
    return found


def taken_back(events: Iterable[AnyEvent]) -> list[str]:
    """The tasks of attempts that were withdrawn before they began, for each such attempt."""
    began: set[tuple[str, int]] = set()
    found: list[str] = []
    for event in events:
        if isinstance(event, TaskStarted):
            began.add((event.task, event.attempt))
        elif (
            isinstance(event, TaskEnded)
            and event.outcome == "cancelled"
            and (event.task, event.attempt) not in began
        ):
            found.append(event.task)
    return found
