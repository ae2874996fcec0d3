"""Which resource a task is short of: what machines have, less what the tasks on them hold.

The book is kept from events alone: `PeerJoined` says what there is, `TaskBound` takes, `TaskEnded`
gives back. Cores are counted in thousandths, to keep sums of fractions exact.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sureline.journal.events import (
    Event,
    Opened,
    PeerJoined,
    PeerLeft,
    TaskBound,
    TaskEnded,
    TaskStarted,
)
from sureline.journal.words import listed, size
from sureline.workflow.model import Needs

HOLDERS_SHOWN = 5


class Shortage(msgspec.Struct, frozen=True):
    """A task needs more of a resource than is free just now.

    `resource` is cores, memory_bytes, disk_bytes, gpus, or `tag NAME`; `held_by` are tasks that
    hold some of it, those bound first."""

    resource: str
    needs: float
    free: float
    total: float
    held_by: list[str]
    holders: int

    @property
    def words(self) -> str:
        """'2 cores, and 1 of 2 is free (a holds the rest)'."""
        return self._told("is" if self.free == 1 else "are")

    @property
    def words_then(self) -> str:
        """The same, of a moment that has passed."""
        return self._told("was" if self.free == 1 else "were")

    def _told(self, be: str) -> str:
        if self.needs > self.total:
            has = "has" if be in ("is", "are") else "had"
            return (
                f"{_amount(self.resource, self.needs)}, and no machine here {has} more than "
                f"{_number(self.resource, self.total)}"
            )
        free, total = _number(self.resource, self.free), _number(self.resource, self.total)
        hold = {"is": "hold", "are": "hold"}.get(be, "held")
        if hold == "hold" and self.holders == 1:
            hold = "holds"
        return (
            f"{_amount(self.resource, self.needs)}, and {free} of {total} {be} free "
            f"({listed(self.held_by, 2, self.holders)} {hold} the rest)"
        )


def _number(resource: str, amount: float) -> str:
    return size(amount) if resource.endswith("_bytes") else f"{amount:g}"


def _amount(resource: str, amount: float) -> str:
    if resource.endswith("_bytes"):
        return f"{size(amount)} of {resource.removesuffix('_bytes')}"
    if resource.startswith("tag "):
        return f"{amount:g} of the {resource}"
    noun = resource if amount != 1 else resource.removesuffix("s")
    return f"{amount:g} {noun}"


class MachineBooks:
    """Who holds what of which machine, followed event by event."""

    def __init__(self, needs_of: Callable[[str], Needs]) -> None:
        self._needs_of = needs_of
        self.machines: dict[str, PeerJoined] = {}
        self._holding: dict[str, dict[str, None]] = {}
        """The tasks on each machine, those bound first at the front."""
        self._taken: dict[str, dict[str, int]] = {}
        self._machine_of: dict[str, str] = {}

    def apply(self, event: Event) -> None:
        match event:
            case Opened():
                self.machines.clear()
                self._holding.clear()
                self._taken.clear()
                self._machine_of.clear()
            case PeerJoined():
                self.machines[event.peer] = event
                self._holding.setdefault(event.peer, {})
                self._taken.setdefault(event.peer, {})
            case PeerLeft():
                self.machines.pop(event.peer, None)
            case TaskBound(ahead=False) | TaskStarted():
                self._release(event.task)
                self._take(event.task, event.peer)
            case TaskEnded():
                self._release(event.task)

    def _take(self, task: str, peer: str) -> None:
        self._machine_of[task] = peer
        self._holding.setdefault(peer, {})[task] = None
        self._add(peer, task, +1)

    def _release(self, task: str) -> None:
        peer = self._machine_of.pop(task, None)
        if peer is not None:
            self._holding[peer].pop(task, None)
            self._add(peer, task, -1)

    def _add(self, peer: str, task: str, sign: int) -> None:
        taken = self._taken.setdefault(peer, {})
        for resource, amount in _parts(self._needs_of(task)).items():
            taken[resource] = taken.get(resource, 0) + sign * amount

    def short(self, task: str) -> list[Shortage]:
        """What the task is short of on the machine that lacks least; nothing if one has room."""
        needs = _parts(self._needs_of(task))
        found = [self._short_on(peer, needs) for peer in self.machines]
        return min(found, key=_by_how_much, default=[])

    def _short_on(self, peer: str, needs: dict[str, int]) -> list[Shortage]:
        has, taken = _offer(self.machines[peer]), self._taken.get(peer, {})
        found = []
        for resource, amount in needs.items():
            total = has.get(resource, 0)
            free = total - taken.get(resource, 0)
            if total >= 0 and amount > free:  # a tag without a number (-1) is never used up
                unit = 1000 if resource == "cores" else 1
                holders = [
                    task
                    for task in self._holding.get(peer, ())
                    if _parts(self._needs_of(task)).get(resource)
                ]
                found.append(
                    Shortage(
                        resource,
                        amount / unit,
                        max(0, free) / unit,
                        total / unit,
                        holders[:HOLDERS_SHOWN],
                        len(holders),
                    )
                )
        return found


def _by_how_much(short: list[Shortage]) -> tuple[int, int, float]:
    """Machines that are too small come last, then those that lack more kinds of resources."""
    too_small = sum(shortage.needs > shortage.total for shortage in short)
    return (too_small, len(short), -sum(shortage.total for shortage in short))


def _parts(needs: Needs) -> dict[str, int]:
    parts = {
        "cores": round(needs.cores * 1000),
        "memory_bytes": needs.memory_bytes,
        "disk_bytes": needs.disk_bytes,
        "gpus": needs.gpus,
        **{f"tag {tag}": count for tag, count in needs.tags},
    }
    return {resource: amount for resource, amount in parts.items() if amount}


def _offer(machine: PeerJoined) -> dict[str, int]:
    return {
        "cores": round(machine.cores * 1000),
        "memory_bytes": machine.memory_bytes,
        "disk_bytes": machine.disk_bytes,
        "gpus": machine.gpus,
        **{f"tag {tag}": count for tag, count in machine.tags.items()},
    }
