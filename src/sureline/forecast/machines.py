"""What the machines of a run offer together, as its events tell: they come and go.

A forecast sees machines that are equally fast as one large one. That is exact for tasks that fit
any of them, and hopeful for a task so large that only a few of them can take it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import NamedTuple

from sureline.journal.events import Event, Opened, PeerJoined, PeerLeft


class MachinePart(NamedTuple):
    """One machine; an `Offers` for `pools`."""

    peer: str
    cores: float
    memory_bytes: int
    gpus: int
    tags: Mapping[str, int | None]


class Together(NamedTuple):
    """An `Offers` for `pools`."""

    cores: float
    memory_bytes: int
    gpus: int
    tags: Mapping[str, int | None]
    parts: tuple[MachinePart, ...] = ()
    """The machines that it is made of, if it is known."""


def together(parts: Iterable[MachinePart]) -> Together:
    """All of them as one."""
    known = tuple(parts)
    tags: dict[str, int | None] = {}
    for part in known:
        for tag, count in part.tags.items():
            before = tags.get(tag, 0)
            tags[tag] = None if count is None or before is None else before + count
    return Together(
        sum(part.cores for part in known),
        sum(part.memory_bytes for part in known),
        sum(part.gpus for part in known),
        tags,
        known,
    )


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

    def together(self, only: Collection[str] | None = None) -> Together | None:
        """All of it, or what these machines offer; None if there is no machine."""
        machines = [m for m in self._present.values() if only is None or m.peer in only]
        if not machines:
            return None
        return together(
            MachinePart(
                one.peer,
                one.cores,
                one.memory_bytes,
                one.gpus,
                {tag: None if count < 0 else count for tag, count in one.tags.items()},
            )
            for one in machines
        )
