"""The real grid of `sureline.testing`, with commands that start without much ado."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from surely import Said, sureline

from sureline.journal.errors import NoJournalError
from sureline.journal.events import Event
from sureline.journal.store import Journal
from sureline.testing.live import GRID, LiveGrid, LivePeer

__all__ = ["GRID", "GridLab", "Peer", "events_of"]

Peer = LivePeer


class GridLab(LiveGrid):
    def __enter__(self) -> GridLab:
        return self

    def do(self, name: str, *arguments: str, where: Path | None = None, **options: Any) -> Said:
        return sureline(where or self.where, *arguments, env=self.env(name), **options)


def events_of(place: Path) -> list[Event]:
    """Of the one run of a directory; none if there is none (yet)."""
    try:
        with Journal.open(place / ".sureline", create=False, read_only=True) as journal:
            (run,) = journal.runs()
            return [entry.event for entry in journal.events(run.run)]
    except (NoJournalError, ValueError):
        return []
