"""The journal of a simulated run, in memory, with what a disk does to it in a crash.

`SimulatedDisk` is what outlives a process: events in their positions and values that were put,
each as far as it was synced (survives a crash of the machine) or flushed (survives a kill of the
process). `SimulatedRecorder` is one process's way to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sureline.experiments.host import Host
from sureline.journal.errors import FencedError
from sureline.journal.events import (
    COMMITS,
    AnyEvent,
    Event,
    Opened,
    Submitted,
    TaskBound,
    TaskEnded,
    TaskRevoked,
)
from sureline.journal.export import export_entries
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.journal.store import Entry
from sureline.run.options import Past
from sureline.world.protocol import Action, Recordable

SYNC_S = 0.004
GROUP_S = 0.05
"""What was flushed is synced so much later, without anybody asking for it."""


class SimulatedDisk:
    """What one machine keeps: one run's journal at most, and what its agents put."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.synced = 0
        self.flushed = 0
        self.epoch = 0
        self.kept: dict[str, bytes] = {}
        self._kept_synced: dict[str, bytes] = {}
        self.lost = 0
        """How many events crashes have taken."""

    def submit(self, submitted: Submitted) -> None:
        """The first event of the run; durable at once."""
        assert not self.entries
        self._append(Entry(1, submitted))
        self.sync_to(1)

    def _append(self, entry: Entry) -> None:
        self.entries.append(entry)

    def open(self, opened: Callable[[int], Opened]) -> int:
        """Become the only writer: the epoch, durable at once."""
        self.epoch += 1
        self._append(Entry(self.epoch * POSITIONS_PER_EPOCH + 1, opened(self.epoch)))
        self.sync_to(len(self.entries))
        return self.epoch

    def sync_to(self, count: int) -> None:
        self.synced = max(self.synced, count)
        self.flushed = max(self.flushed, self.synced)

    def sync_puts(self, puts: dict[str, bytes]) -> None:
        self._kept_synced |= puts

    def crash(self, *, machine: bool) -> None:
        """The process is gone; with `machine`, what was only flushed is gone too."""
        survives = self.synced if machine else self.flushed
        self.lost += len(self.entries) - survives
        del self.entries[survives:]
        self.flushed = self.synced = survives
        if machine:
            self.kept = dict(self._kept_synced)

    def events(self) -> list[AnyEvent]:
        return [entry.event for entry in self.entries]

    def past(self) -> Past:
        """What the journal says was done: for the next process that drives the run."""
        past = Past({}, {})
        for event in self.events():
            if isinstance(event, TaskRevoked):
                past.committed.pop(event.task, None)
            elif isinstance(event, TaskEnded) and event.outcome in COMMITS:
                past.committed[event.task] = event
            if isinstance(event, TaskBound):
                past.attempts[event.task] = max(event.attempt, past.attempts.get(event.task, 0))
        return past

    def export(self, run: str, graph: bytes) -> Iterable[str]:
        """The run as canonical JSON lines, as `journal.export` writes them."""
        return export_entries(run, graph, self.entries)


class SimulatedRecorder:
    """`epoch` is that of the process; a writer whose epoch has passed is refused."""

    def __init__(self, host: Host, disk: SimulatedDisk, epoch: int = 0) -> None:
        self._host = host
        self._disk = disk
        self.epoch = epoch
        self._sequence = 1  # the opening was the first
        self._group_due = False
        self._heard: Callable[[Event], None] | None = None
        self._unsynced_puts: dict[str, bytes] = {}

    def record(self, event: Recordable) -> None:
        assert isinstance(event, Event), f"only events can be recorded, not {event!r}"
        if self.epoch != self._disk.epoch:
            raise FencedError(self._host.node, self.epoch, self._disk.epoch)
        self._sequence += 1
        position = self.epoch * POSITIONS_PER_EPOCH + self._sequence
        self._disk.entries.append(Entry(position, event))  # type: ignore[arg-type]  # all are known

    def flush(self) -> None:
        self._disk.flushed = len(self._disk.entries)
        if not self._group_due:
            self._group_due = True
            self._host.after(GROUP_S, self._sync_group)

    def _sync_group(self) -> None:
        self._group_due = False
        self.sync(lambda: None)

    def sync(self, on_durable: Action) -> None:
        disk = self._disk
        disk.flushed = count = len(disk.entries)
        puts, self._unsynced_puts = self._unsynced_puts, {}

        def durable() -> None:
            disk.sync_to(count)
            disk.sync_puts(puts)
            on_durable()

        self._host.after(SYNC_S, durable)

    def put(self, key: str, value: bytes) -> None:
        self._disk.kept[key] = value
        self._unsynced_puts[key] = value

    def get(self, key: str) -> bytes | None:
        return self._disk.kept.get(key)
