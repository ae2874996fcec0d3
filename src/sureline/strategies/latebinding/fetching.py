"""Who fetches large files: a pilot for whose task another has them all waits first.

To fetch a large file may take longer than to wait until a pilot that has it can take another task,
and nobody knows how long that will be. So a pilot that is idle waits for as long as fetching would
take, and one that is at work does not fetch that ahead; of the rest it fetches ahead for one task
at a time. What a pilot was dealt it has, or will have.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from sureline.strategies.latebinding.judging import size_bytes
from sureline.strategies.latebinding.messages import ListedTask, Ranked
from sureline.strategies.nearby import LARGE_BYTES, WAIT_MAX_S
from sureline.world.address import PeerName

BYTES_PER_S = 100e6
"""How fast files are believed to come."""
FILES_MAX = 50_000


def cold_bytes(listed: ListedTask, rank: float) -> int:
    """What a pilot with this rank lacks of the task's inputs; 0 if that is little, or if the task
    has a rank of its own, which says nothing about it."""
    lacks = 0 if listed.rank else size_bytes(listed) - int(rank)
    return lacks if lacks >= LARGE_BYTES else 0


class LargeFiles:
    """The first pilot of the site that was dealt a task with each large file, and when."""

    def __init__(self) -> None:
        self._of: dict[str, tuple[PeerName, float]] = {}

    def dealt(self, listed: ListedTask, pilot: PeerName, now: float) -> None:
        for _, digest, size in listed.inputs:
            if size >= LARGE_BYTES:
                self._of.setdefault(digest, (pilot, now))
        while len(self._of) > FILES_MAX:
            del self._of[next(iter(self._of))]

    def takes(
        self, listed: ListedTask, pilot: PeerName, rank: float, idle_s: float, now: float
    ) -> bool:
        """Whether a pilot fetches what it lacks, if it does. It has been idle since `idle_s`;
        infinity, if it is not."""
        lacks = cold_bytes(listed, rank)
        since_s = self._had_by_other_s(listed, pilot) if lacks else None
        wait_s = min(WAIT_MAX_S, lacks / BYTES_PER_S)
        return since_s is None or now - max(idle_s, since_s) >= wait_s

    def _had_by_other_s(self, listed: ListedTask, pilot: PeerName) -> float | None:
        """Since when one other pilot has all large inputs of the task; None if none does."""
        large = [digest for _, digest, size in listed.inputs if size >= LARGE_BYTES]
        if len(large) == 1 and any(holder != pilot for holder in listed.holders):
            return 0.0
        known = [self._of[digest] for digest in large if digest in self._of]
        names = {holder for holder, _ in known}
        if len(known) < len(large) or len(names) != 1 or pilot in names:
            return None
        return max(since_s for _, since_s in known)


class RoundFetches(msgspec.Struct):
    """Who would fetch what in a round: `idle_s` is since when a pilot is idle, if it is."""

    files: LargeFiles
    idle_s: Mapping[PeerName, float]
    now: float
    ahead: set[PeerName] = set()
    """Those that fetch something ahead; each for one task."""

    def able(
        self, ranked: Sequence[Ranked], tasks: Mapping[int, ListedTask], *, ahead: bool
    ) -> Sequence[Ranked]:
        """What each has ranked, but for what it does not fetch now."""
        large = {n for n, listed in tasks.items() if size_bytes(listed) >= LARGE_BYTES}
        if not large:
            return ranked

        def left_of(one: Ranked) -> Ranked:
            ranks = tuple(
                (number, rank)
                for number, rank in one.ranks
                if number not in large or self.takes(tasks[number], one.pilot, rank, ahead=ahead)
            )
            return msgspec.structs.replace(one, ranks=ranks)

        return [left_of(one) for one in ranked]

    def takes(self, listed: ListedTask, pilot: PeerName, rank: float, *, ahead: bool) -> bool:
        if ahead and pilot in self.ahead and cold_bytes(listed, rank):
            return False
        idle_s = math.inf if ahead else self.idle_s.get(pilot, math.inf)
        return self.files.takes(listed, pilot, rank, idle_s, self.now)

    def dealt(self, listed: ListedTask, pilot: PeerName, rank: float) -> None:
        self.files.dealt(listed, pilot, self.now)
        if cold_bytes(listed, rank):
            self.ahead.add(pilot)
