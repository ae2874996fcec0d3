"""What a run notes of its reservations, for people and for the process that goes on with it."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sureline.journal.events import Noted, Unknown
from sureline.overlay.tree.messages import TrailStep
from sureline.world.address import name_of
from sureline.world.protocol import AgentId

SHOWN_MAX = 12


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
