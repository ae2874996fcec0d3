"""What the machines of a run offer together, as its events tell: they come and go.

A forecast sees the machines of a grid as one large one. That is exact for tasks that fit any of
them, and hopeful for a task so large that only a few machines can take it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from sureline.journal.events import Event, Opened, PeerJoined, PeerLeft


class Together(NamedTuple):
    """An `Offers` for `pools`."""

    cores: float
    memory_bytes: int
    gpus: int
    tags: Mapping[str, int | None]


class Machines:
    """Folds the events of a run."""

    def __init__(self) -> None:
        self._present: dict[str, PeerJoined] = {}

    def apply(self, event: Event) -> bool:
        """Take an event in; whether it changed what there is."""
        match event:
            case PeerJoined(peer=peer):
                self._present[peer] = event
            case PeerLeft(peer=peer):
                self._present.pop(peer, None)
            case Opened():
                self._present.clear()  # another process drives: it tells anew who is there
            case _:
                return False
        return True

    def __len__(self) -> int:
        return len(self._present)

    def together(self) -> Together | None:
        """All of it; None if there is no machine."""
        if not self._present:
            return None
        tags: dict[str, int | None] = {}
        for machine in self._present.values():
            for tag, count in machine.tags.items():
                known = tags.get(tag, 0)
                tags[tag] = None if count < 0 or known is None else known + count
        machines = self._present.values()
        return Together(
            sum(m.cores for m in machines),
            sum(m.memory_bytes for m in machines),
            sum(m.gpus for m in machines),
            tags,
        )
