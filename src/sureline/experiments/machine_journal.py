"""A run's journal on a simulated machine's disk.

The disk keeps events and loses them in a crash as far as they were not synced. A run's events lie
there in order; their positions follow from that: every `Opened` begins a new epoch, within which
events are numbered, as the real writer does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from sureline.journal.events import (
    COMMITS,
    AnyEvent,
    Contracted,
    Event,
    Opened,
    Settled,
    TaskBound,
    TaskEnded,
    TaskRevoked,
)
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry
from sureline.run.options import Past
from sureline.world.protocol import Recordable
from sureline.world.simulated.disk import Disk, DiskRecorder
from sureline.world.simulated.machine import Life

GROUP_S = 0.05
"""What was flushed is synced so much later, as the real recorder does."""


class SimulatedRecorder(DiskRecorder):
    """As the plain recorder, but what is flushed is also synced, a little later, by itself."""

    def __init__(self, life: Life) -> None:
        super().__init__(life)
        self._sync_due = False

    def record(self, event: Recordable) -> None:
        assert isinstance(event, Event), f"only events can be recorded, not {event!r}"
        super().record(event)
        self._sync_soon()

    def flush(self) -> None:
        super().flush()
        self._sync_soon()

    def _sync_soon(self) -> None:
        if not self._sync_due:
            self._sync_due = True
            self._life.after(GROUP_S, self._sync_group)

    def _sync_group(self) -> None:
        self._sync_due = False
        self.sync(lambda: None)


def write_now(disk: Disk, event: Event) -> None:
    """Record an event durably before anything else happens: a submission, an opening."""
    disk.record(event)
    disk.sync_to(disk.mark())


def entries(disk: Disk) -> list[Entry]:
    """The events that a process finds on the disk, in their positions."""
    return list(_placed(disk.recorded()))


def _placed(events: Iterable[Recordable]) -> Iterator[Entry]:
    epoch = sequence = 0
    for event in events:
        if isinstance(event, Opened):
            epoch, sequence = event.epoch, 0
        sequence += 1
        yield Entry(epoch * POSITIONS_PER_EPOCH + sequence, event)  # type: ignore[arg-type]  # events only


def epoch_of(events: Sequence[AnyEvent]) -> int:
    return max((event.epoch for event in events if isinstance(event, Opened)), default=0)


def past_of(events: Iterable[AnyEvent]) -> Past:
    """What a journal says was done: for the next process that drives the run."""
    past = Past({}, {})
    money: list[Contracted | Settled] = []
    for event in events:
        if isinstance(event, TaskRevoked):
            past.committed.pop(event.task, None)
        elif isinstance(event, TaskEnded) and event.outcome in COMMITS:
            past.committed[event.task] = event
        elif isinstance(event, TaskBound):
            known = past.attempts.get(event.task, 0)
            past.attempts[event.task] = max(event.attempt, known)
        elif isinstance(event, Contracted | Settled):
            money.append(event)
    past.money = tuple(money)
    return past
