"""What is free on each target, by our own placements: the book that most strategies keep.

Kept in arrays: a decision looks at all targets at once, a few microseconds for a thousand of them.
We never place more on a target than it has, counting our own; what others hold there shows only as
load, and the target may let a task wait.

A task that is too large for what is free may be overtaken, but not for ever: after PATIENCE
decisions one target that is large enough is reserved for it. Tasks that no target could run wait
without being in anybody's way.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np
import numpy.typing as npt
from blake3 import blake3

from sureline.peer.capacity import Capacity, Ledger
from sureline.workflow.model import Needs
from sureline.world.address import NO_NAME, PeerName

PATIENCE = 200
TIE_WEIGHT = 1e-9
_GROW = 64

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Books:
    """What is free on each target, by our own placements. Targets have numbered places, used
    again."""

    def __init__(self, salt: str) -> None:
        self._salt = salt
        self._place: dict[PeerName, int] = {}
        self._names: list[PeerName] = []
        self._ledgers: list[Ledger | None] = []
        self._free_places: list[int] = []
        self._free: Integers = np.zeros((0, 4), dtype=np.int64)
        """Millicores, bytes of memory, bytes of disk, GPUs."""
        self._load: Floats = np.zeros(0)
        """Share of the cores in use, and a tie-breaker far below it; infinite where nobody is."""
        self._others: list[float] = []
        self._ties: list[float] = []
        self._reserved: dict[Needs, int] = {}
        self._is_reserved: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)
        self._passed: dict[Needs, int] = {}
        self._impossible: set[Needs] = set()
        self._unbooked: dict[PeerName, dict[Needs, int]] = {}
        self._unbooked_in_all = 0

    def __contains__(self, target: PeerName) -> bool:
        return target in self._place

    def join(self, target: PeerName, capacity: Capacity) -> None:
        place = self._free_places.pop() if self._free_places else self._grow()
        self._place[target] = place
        self._names[place] = target
        self._ledgers[place] = Ledger(capacity)
        self._others[place] = 0.0
        self._ties[place] = _fraction(self._salt, target) * TIE_WEIGHT
        self._impossible.clear()
        self._note(place)

    def leave(self, target: PeerName) -> None:
        place = self._place.pop(target, None)
        if place is None:
            return
        self._ledgers[place] = None
        self._load[place] = np.inf
        self._free[place] = -1
        self._unbooked_in_all -= sum(self._unbooked.pop(target, {}).values())
        for needs in [n for n, reserved in self._reserved.items() if reserved == place]:
            self._unreserve(needs)
        self._free_places.append(place)

    def report(self, target: PeerName, load: float) -> None:
        """So many cores are in use there, ours among them."""
        place = self._place.get(target)
        if place is not None:
            self._others[place] = max(0.0, load - self._ours(place))
            self._note(place)

    def take(self, target: PeerName, needs: Needs) -> None:
        ledger = self._ledgers[self._place[target]]
        assert ledger is not None
        if ledger.fits(needs):
            ledger.take(needs)
        else:  # it waits there, or an earlier writer saw the target differently
            unbooked = self._unbooked.setdefault(target, {})
            unbooked[needs] = unbooked.get(needs, 0) + 1
            self._unbooked_in_all += 1
        self._note(self._place[target])

    def give_back(self, target: PeerName, needs: Needs) -> None:
        place = self._place.get(target)
        if place is None:
            return
        unbooked = self._unbooked.get(target, {})
        if unbooked.get(needs):
            unbooked[needs] -= 1
            self._unbooked_in_all -= 1
            return
        ledger = self._ledgers[place]
        assert ledger is not None
        ledger.give_back(needs)
        self._note(place)

    def unbooked(self, target: PeerName, needs: Needs) -> int:
        """How many with these needs are there beyond what there was room for."""
        return self._unbooked.get(target, {}).get(needs, 0)

    @property
    def unbooked_in_all(self) -> int:
        return self._unbooked_in_all

    def rooms(self) -> int:
        """How many targets have cores that are free."""
        return int(np.count_nonzero(self._free[:, 0] > 0))

    def best(self, needs: Needs, unfit: Collection[PeerName] = ()) -> tuple[PeerName, float] | None:
        """The least loaded target on which the needs fit, none of the `unfit`, and its load."""
        fitting = self._fitting(needs)
        loads = np.where(fitting, self._load, np.inf)
        for target in unfit:
            if target in self._place:
                loads[self._place[target]] = np.inf
        if not len(loads):
            return None
        place = int(loads.argmin())
        return (self._names[place], float(loads[place])) if np.isfinite(loads[place]) else None

    def all_fitting(self, needs: Needs) -> list[PeerName]:
        """Every target on which the needs fit, in the order of their places."""
        return [self._names[place] for place in np.flatnonzero(self._fitting(needs))]

    def best_but(self, needs: Needs, but: Sequence[PeerName]) -> PeerName | None:
        """The least loaded target on which the needs fit and that is none of these, unless there is
        no other at all."""
        loads = np.where(self._fitting(needs), self._load, np.inf)
        for target in but:
            if target in self._place and len(self._place) > 1:
                loads[self._place[target]] = np.inf
        if not len(loads):
            return None
        place = int(loads.argmin())
        return self._names[place] if np.isfinite(loads[place]) else None

    def fits_on(self, target: PeerName, needs: Needs) -> float | None:
        """The target's load, if the needs fit there."""
        place = self._place.get(target)
        if place is None or (self._is_reserved[place] and self._reserved.get(needs) != place):
            return None
        ledger = self._ledgers[place]
        if ledger is None or not ledger.fits(needs):
            return None
        return float(self._load[place])

    def placed(self, needs: Needs) -> None:
        """One with these needs has found its place: nothing is reserved for it any more."""
        self._passed.pop(needs, None)
        self._unreserve(needs)

    # -- inside --------------------------------------------------------------------------------

    def _fitting(self, needs: Needs) -> npt.NDArray[np.bool_]:
        free = self._free
        fitting = free[:, 0] >= round(needs.cores * 1000)
        if needs.memory_bytes:
            fitting &= free[:, 1] >= needs.memory_bytes
        if needs.disk_bytes:
            fitting &= free[:, 2] >= needs.disk_bytes
        if needs.gpus:
            fitting &= free[:, 3] >= needs.gpus
        if self._reserved:
            mine = self._reserved.get(needs)
            fitting &= ~self._is_reserved
            if mine is not None:
                ledger = self._ledgers[mine]
                fitting[mine] = ledger is not None and ledger.fits(needs)
        if needs.tags:
            for place in np.flatnonzero(fitting):
                ledger = self._ledgers[place]
                fitting[place] = ledger is not None and ledger.fits(needs)
        return fitting

    def pass_over(self, needs: Needs) -> None:
        """A task with these needs was looked at and fits nowhere just now. After many times, a
        target is reserved for it."""
        passed = self._passed.get(needs, 0) + 1
        self._passed[needs] = passed
        if passed >= PATIENCE and needs not in self._reserved and needs not in self._impossible:
            self._reserve(needs)

    def _reserve(self, needs: Needs) -> None:
        """The largest part free among those that are large enough."""
        found, found_free = None, -1.0
        for target, place in self._place.items():
            ledger = self._ledgers[place]
            if ledger is None or self._is_reserved[place]:
                continue
            whole = Ledger(ledger.capacity)
            share = ledger.millicores / max(1, whole.millicores)
            if whole.fits(needs) and share > found_free:
                found, found_free = self._place[target], share
        if found is None:
            self._impossible.add(needs)
            return
        self._reserved[needs] = found
        self._is_reserved[found] = True

    def _unreserve(self, needs: Needs) -> None:
        place = self._reserved.pop(needs, None)
        if place is not None:
            self._is_reserved[place] = False

    def _ours(self, place: int) -> float:
        ledger = self._ledgers[place]
        assert ledger is not None
        return ledger.capacity.cores - ledger.millicores / 1000

    def _note(self, place: int) -> None:
        ledger = self._ledgers[place]
        assert ledger is not None
        self._free[place] = (
            ledger.millicores,
            ledger.memory_bytes,
            ledger.disk_bytes,
            ledger.gpus,
        )
        used = self._ours(place) + self._others[place]
        self._load[place] = used / max(0.001, ledger.capacity.cores) + self._ties[place]

    def _grow(self) -> int:
        first = len(self._names)
        self._names.extend([NO_NAME] * _GROW)
        self._ledgers.extend([None] * _GROW)
        self._others.extend([0.0] * _GROW)
        self._ties.extend([0.0] * _GROW)
        self._free = np.concatenate([self._free, np.full((_GROW, 4), -1, dtype=np.int64)])
        self._load = np.concatenate([self._load, np.full(_GROW, np.inf)])
        self._is_reserved = np.concatenate([self._is_reserved, np.zeros(_GROW, dtype=np.bool_)])
        self._free_places.extend(range(first + _GROW - 1, first, -1))
        return first


def _fraction(salt: str, name: str) -> float:
    digest = blake3(f"{salt} {name}".encode()).digest(length=6)
    return int.from_bytes(digest, "big") / (1 << 48)
