"""The copies of runs that lie on a peer's disk, read as they are, while it may write them."""

from __future__ import annotations

from pathlib import Path

from sureline.compose.run_copies import SEAL
from sureline.journal.events import AnyEvent, Voters, decode


def raw_events(path: Path) -> dict[int, AnyEvent]:
    """By position; what is torn at the end is left out."""
    kept = path.read_bytes() if path.exists() else b""
    found: dict[int, AnyEvent] = {}
    at = 0
    while at + 12 <= len(kept):
        position = int.from_bytes(kept[at : at + 8], "little")
        end = at + 12 + int.from_bytes(kept[at + 8 : at + 12], "little")
        if position != SEAL and end <= len(kept):
            found[position] = decode(kept[at + 12 : end])
        at = end
    return found


def voters_in(path: Path) -> set[str]:
    """Whom a copy names last."""
    named = [event.voters for event in raw_events(path).values() if isinstance(event, Voters)]
    return set(named[-1]) if named else set()
