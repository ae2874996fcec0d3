"""A run's journal on a simulated machine's disk.

The disk keeps events and loses them in a crash as far as they were not synced. A run's events lie
there in order; their positions follow from that: every `Opened` begins a new epoch, within which
events are numbered, as the real writer does.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence

from sureline.journal.events import (
    COMMITS,
    AnyEvent,
    Event,
    Noted,
    Opened,
    TaskBound,
    TaskEnded,
    TaskRevoked,
    Unknown,
    encode,
)
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry
from sureline.run.keeping import EVENTS_MAX, NumberedEvent, Position, line_on
from sureline.run.kept import page
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
        self.on_record: Callable[[], None] = lambda: None

    def record(self, event: Recordable) -> None:
        assert isinstance(event, Event), f"only events can be recorded, not {event!r}"
        super().record(event)
        self._sync_soon()
        self.on_record()

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


class DiskRecorded:
    """A run's journal on a disk, for `run.mirror`."""

    def __init__(self, disk: Disk, epoch: int) -> None:
        self._disk = disk
        self._places = _Places()
        self._positions: list[Position] = []
        self._bodies: list[bytes] = []
        self._read_on()
        earlier = bisect_right(self._positions, epoch * POSITIONS_PER_EPOCH)
        self.line = line_on((), self._positions[:earlier])

    def _read_on(self) -> None:
        for event in self._disk.surviving(len(self._positions)):
            assert isinstance(event, Event)
            self._positions.append(self._places.next(event))
            self._bodies.append(encode(event))

    def after(self, position: Position) -> list[NumberedEvent]:
        self._read_on()
        first = bisect_right(self._positions, position)
        some = slice(first, first + EVENTS_MAX)
        return page(list(zip(self._positions[some], self._bodies[some], strict=True)))

    def last(self) -> Position:
        self._read_on()
        return self._positions[-1]


def write_now(disk: Disk, event: Event) -> None:
    """Record an event durably before anything else happens: a submission, an opening."""
    disk.record(event)
    disk.sync_to(disk.mark())


def entries(disk: Disk) -> list[Entry]:
    """The events that a process finds on the disk, in their positions."""
    return list(_placed(disk.recorded()))


def _placed(events: Iterable[Recordable]) -> Iterator[Entry]:
    places = _Places()
    for event in events:
        yield Entry(places.next(event), event)  # type: ignore[arg-type]  # events only


class _Places:
    """Counts the positions of a run's events, in order."""

    def __init__(self) -> None:
        self._epoch = self._sequence = 0

    def next(self, event: Recordable) -> Position:
        if isinstance(event, Opened):
            self._epoch, self._sequence = event.epoch, 0
        self._sequence += 1
        return self._epoch * POSITIONS_PER_EPOCH + self._sequence


def epoch_of(events: Sequence[AnyEvent]) -> int:
    return max((event.epoch for event in events if isinstance(event, Opened)), default=0)


def past_of(events: Iterable[AnyEvent]) -> Past:
    """What a journal says was done: for the next process that drives the run."""
    past = Past({}, {})
    noted: list[Noted | Unknown] = []
    for event in events:
        if isinstance(event, TaskRevoked):
            past.committed.pop(event.task, None)
        elif isinstance(event, TaskEnded) and event.outcome in COMMITS:
            past.committed[event.task] = event
        elif isinstance(event, TaskBound):
            known = past.attempts.get(event.task, 0)
            past.attempts[event.task] = max(event.attempt, known)
            past.seals[event.task, event.attempt, event.peer] = event.seal
        elif isinstance(event, Noted | Unknown):
            noted.append(event)
    past.noted = tuple(noted)
    return past
