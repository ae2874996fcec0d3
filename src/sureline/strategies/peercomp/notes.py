"""What a run notes of its reservations, for people, for the process that goes on with it, and for
whoever checks that promises were kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from sureline.journal.events import Event, Noted, Opened, PeerLeft, TaskEnded, Unknown
from sureline.overlay.tree.messages import TrailStep
from sureline.workflow.terms import Terms
from sureline.world.address import name_of
from sureline.world.protocol import AgentId

SHOWN_MAX = 12
GRACE_S = 1.0
"""From the end of a task until it is on record."""


class Reservation(msgspec.Struct, frozen=True):
    """Time for one task: the `unit`-th of a sequence that has this number at its host."""

    number: int
    unit: int
    host: AgentId
    latest_start_s: float
    due_s: float
    trail: tuple[TrailStep, ...] = ()


def reservations_of(noted: Iterable[Noted | Unknown]) -> list[Reservation]:
    return [
        msgspec.msgpack.decode(note.body, type=Reservation)
        for note in noted
        if note.kind == "reserved" and isinstance(note, Noted) and note.strategy == "peercomp"
    ]


def said_of(task: str, one: Reservation, now_s: float) -> str:
    """The window, the way through the tree, and how many holes were known on it."""
    window = (
        f"{one.due_s - one.latest_start_s:.1f} s on {name_of(one.host)}, to begin within "
        f"{max(0.0, one.latest_start_s - now_s):.1f} s"
    )
    steps = [f"{name_of(step.peer)} ({step.holes} holes)" for step in one.trail[:SHOWN_MAX]]
    more = [f"{len(one.trail) - SHOWN_MAX} more"] if len(one.trail) > SHOWN_MAX else []
    return f"time is reserved for {task}: {window}; found by way of " + ", ".join(steps + more)


def deadline_kept(events: Sequence[Event], terms: Terms) -> Iterable[str]:
    """Where time was promised for all tasks by the deadline and nothing failed, all are done by it.
    What fails is a machine that leaves, a process of the run that ends, and an attempt that ends
    badly or takes longer than it was given."""
    if terms.deadline_at is None:
        return
    promised = {
        event.task: event.window
        for event in events
        if isinstance(event, Noted) and event.strategy == "peercomp" and event.window is not None
    }
    ended = [event for event in events if isinstance(event, TaskEnded) and event.attempt]
    failed = any(isinstance(event, PeerLeft) for event in events)
    failed |= sum(isinstance(event, Opened) for event in events) > 1
    for one in ended:
        latest_start_s, due_s = promised.get(one.task, (0.0, 0.0))
        failed |= one.outcome != "succeeded" or one.elapsed_s > due_s - latest_start_s
        failed |= due_s > terms.deadline_at + GRACE_S
    for one in ended:
        if not failed and one.at > terms.deadline_at + GRACE_S:
            yield f"{one.task} ended {one.at - terms.deadline_at:.1f} s after the promised deadline"
