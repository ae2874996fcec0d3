"""A machine's disk, and the recorder that keeps what agents record on it.

What is written lies first in the process's memory, after a flush in the system's, after a sync on
the platter. A killed process loses the first, a machine that loses power the first two. What is
left is always a prefix of what was written.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from sureline.world.protocol import Action, Recordable

if TYPE_CHECKING:
    from sureline.world.simulated.machine import Life

Write = Recordable | tuple[str, bytes]


class Disk:
    """Outlives the machine's processes. `events` and `kept` are what is on the platter."""

    def __init__(self) -> None:
        self.slowness = 1.0
        """How many times as long as usual it takes."""
        self.full = False
        """Whether what asks takes no more; the journal of a run does not."""
        self.events: list[Recordable] = []
        self.kept: dict[str, bytes] = {}
        self._unsynced: list[Write] = []
        self._flushed = 0
        """How many of the unsynced are with the system."""
        self._synced = 0
        """How many writes have reached the platter, ever."""
        self._seen: dict[str, bytes] = {}

    def record(self, event: Recordable) -> None:
        self._unsynced.append(event)

    def put(self, key: str, value: bytes) -> None:
        self._unsynced.append((key, value))
        self._seen[key] = value

    def get(self, key: str) -> bytes | None:
        found = self._seen.get(key)
        return self.kept.get(key) if found is None else found

    def recorded(self) -> list[Recordable]:
        """What a process that reads the disk now finds recorded, in order."""
        return self.events + [write for write in self._unsynced if isinstance(write, Recordable)]

    def replace(self, events: Sequence[Recordable]) -> None:
        """These, durably, instead of all that was recorded."""
        self._unsynced = [write for write in self._unsynced if isinstance(write, tuple)]
        self._flushed = min(self._flushed, len(self._unsynced))
        self.events = list(events)

    def surviving(self, start: int) -> list[Recordable]:
        """What a kill would leave of what was recorded, from the `start`-th on."""
        with_system = self._unsynced[: self._flushed]
        tail = [write for write in with_system if isinstance(write, Recordable)]
        return self.events[start:] + tail[max(0, start - len(self.events)) :]

    def mark(self) -> int:
        """How much has been written, ever: for `sync_to`."""
        return self._synced + len(self._unsynced)

    def flush(self) -> None:
        self._flushed = len(self._unsynced)

    @property
    def flushed(self) -> int:
        """How much of what was ever written would survive a kill."""
        return self._synced + self._flushed

    def sync_to(self, mark: int) -> None:
        """Everything up to the mark is on the platter."""
        count = max(0, mark - self._synced)
        for write in self._unsynced[:count]:
            if isinstance(write, tuple):
                self.kept[write[0]] = write[1]
            else:
                self.events.append(write)
        del self._unsynced[:count]
        self._synced += count
        self._flushed = max(0, self._flushed - count)

    def lose(self, *, power: bool) -> None:
        """The process was killed; with `power`, the whole machine went down."""
        del self._unsynced[0 if power else self._flushed :]
        self._flushed = len(self._unsynced)
        self._seen = {}
        for write in self._unsynced:
            if isinstance(write, tuple):
                self._seen[write[0]] = write[1]


class DiskRecorder:
    """The plain recorder of one life of a machine: everything goes to its disk."""

    def __init__(self, life: Life) -> None:
        self._life = life
        self._disk = life.machine.disk

    def record(self, event: Recordable) -> None:
        self._disk.record(event)

    def flush(self) -> None:
        self._disk.flush()

    def sync(self, on_durable: Action) -> None:
        self._disk.flush()
        mark = self._disk.mark()

        def done() -> None:
            self._disk.sync_to(mark)
            on_durable()

        self._life.after(self._life.machine.spec.sync_s * self._disk.slowness, done)

    def put(self, key: str, value: bytes) -> None:
        self._disk.put(key, value)

    def get(self, key: str) -> bytes | None:
        return self._disk.get(key)
