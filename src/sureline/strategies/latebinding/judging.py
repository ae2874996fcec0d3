"""What a pilot thinks of a task: whether it could run it, and how gladly.

The queue judges in the same words where it matches by itself, from what a pilot has told.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping
from heapq import nlargest

import msgspec

from sureline.chemistry.arithmetic import NoSenseError
from sureline.chemistry.formulas import Call
from sureline.chemistry.mistakes import ChemistryError
from sureline.chemistry.molecules import Molecule
from sureline.peer.capacity import Capacity, Ledger
from sureline.strategies.latebinding.messages import ListedTask
from sureline.strategies.latebinding.sense import NUMBER_MAX
from sureline.workflow.wishes import INPUTS, formula_of
from sureline.world.address import PeerName

FOR_EVER_S = 1e9
"""The lifetime of a pilot that does not know its end."""
ANY_NUMBER = 1_000_000
"""Of a tag that is not counted."""
MIXED = 2_654_435_761
LOWEST = -1000


class View(msgspec.Struct):
    """A pilot as it judges. `free` is what could begin at once."""

    pilot: PeerName
    site: str
    free: Ledger
    capacity: Capacity
    lifetime_s: float
    held: Container[str]
    """Digests of the files that are there."""
    salt: int = 0
    """Ranks that are equal are put in an order of the pilot's own, so that not all pilots answer
    with the same few tasks."""
    _whole: Ledger | None = None

    @property
    def whole(self) -> Ledger:
        """What there is when nothing runs; one for all the tasks that are judged."""
        if self._whole is None:
            self._whole = Ledger(self.capacity)
        return self._whole

    def features(self, size: int) -> tuple[float | str, ...]:
        """In the order of `wishes.FEATURES`."""
        free, whole = self.free, self.capacity
        cores = free.millicores / 1000
        return (
            cores,
            float(free.memory_bytes),
            float(free.disk_bytes),
            float(free.gpus),
            whole.cores,
            float(whole.memory_bytes),
            self.lifetime_s,
            1.0 - cores / whole.cores if whole.cores else 1.0,
            float(size),
            self.site,
        )


def held_bytes(listed: ListedTask, held: Container[str], paths: tuple[str, ...] = ()) -> int:
    """How much of its inputs, or of those named, is there."""
    return sum(
        size
        for path, digest, size in listed.inputs
        if digest in held and (not paths or path in paths)
    )


def size_bytes(listed: ListedTask) -> int:
    return sum(size for _, _, size in listed.inputs)


def rank_of(listed: ListedTask, view: View, *, ahead: bool = False) -> float | None:
    """What the task's rank comes to here, None if it cannot run here: now or, if it is to be
    fetched `ahead`, when something ends."""
    room = view.whole if ahead else view.free
    if not room.fits(listed.needs) or view.pilot in listed.but or listed.takes_s > view.lifetime_s:
        return None
    if listed.requires and _value(listed, listed.requires, view) is not True:
        return None
    if not listed.rank:
        return float(held_bytes(listed, view.held))
    rank = _value(listed, listed.rank, view)
    if not isinstance(rank, int | float):
        return 0.0
    return float(max(-NUMBER_MAX, min(rank, NUMBER_MAX)))  # a product may be no float at all


def _value(listed: ListedTask, text: str, view: View) -> Molecule | None:
    def call(called: Call) -> Molecule:
        function, names = called
        if function == "held":
            return held_bytes(listed, view.held, () if names == (INPUTS,) else names)
        return sum(_tags(view, name) for name in names)

    try:
        return formula_of(text).value(view.features(size_bytes(listed)), call)
    except (ChemistryError, NoSenseError):  # a run of another version may say anything
        return None


def _tags(view: View, name: str) -> int:
    if name not in view.capacity.tags:
        return 0
    return view.free.tags.get(name, ANY_NUMBER)


def best_of(
    tasks: Iterable[tuple[int, ListedTask]], view: View, most: int, *, ahead: bool
) -> list[tuple[int, float]]:
    """(number, rank) of the tasks that are ranked highest, of those that could run here."""
    ranked = (
        (rank, ((number ^ view.salt) * MIXED) & 0xFFFFFFFF, number)
        for number, listed in tasks
        if (rank := rank_of(listed, view, ahead=ahead)) is not None
    )
    return [(number, rank) for rank, _, number in nlargest(most, ranked)]


def tier_of(listed: ListedTask) -> int:
    """How long the chain is that hangs on a task, by powers of two: a longer one goes first,
    however well others are ranked. In the paper's architectures ranks alone count."""
    if listed.architecture != "event" or listed.urgency <= 0:
        return LOWEST
    return round(math.log2(listed.urgency))


def tags_of(tags: Mapping[str, int | None]) -> dict[str, int | None]:
    """As they are told: not too many, not too long."""
    return {tag[:100]: count for tag, count in list(tags.items())[:20]}
