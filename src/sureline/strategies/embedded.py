"""Everything on this machine: the most urgent ready task that fits starts now.

While attempts last less than AHEAD_BELOW_S, the next ones are bound *ahead*: each is to begin where
one with equal needs ends, and takes over what that one held, without a round trip in between.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from sureline.peer.capacity import Ledger
from sureline.peer.messages import Finished
from sureline.run.port import (
    Action,
    Bound,
    Deciding,
    Engine,
    Noted,
    Over,
    Seat,
    Strategy,
    Target,
    Unknown,
)
from sureline.run.ready import ReadyQueue
from sureline.workflow.model import Needs
from sureline.world.address import NO_NAME, PeerName

AHEAD_BELOW_S = 0.02
RECENT_WEIGHT = 0.2


class Embedded(Deciding):
    """Mirrors the one machine's ledger; what it binds fits, or follows an equal task there.

    `_held` counts the attempts that hold their needs, `_ahead` those that are to take over from one
    of them: whichever of equal needs ends first, one that is ahead takes its place.
    """

    def __init__(self) -> None:
        self._queue = ReadyQueue()
        self._here = NO_NAME
        self._ledger: Ledger | None = None
        self._held: Counter[Needs] = Counter()
        self._ahead: Counter[Needs] = Counter()
        self._recent_s = 1.0
        """How long attempts took of late, on average; a second before anything is known."""

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        self._engine = engine
        go()

    def target(self, target: Target) -> None:
        self._here = target.name
        self._ledger = Ledger(target.capacity)

    def gone(self, target: PeerName) -> None:
        self._ledger = None

    def ready(self, task: int) -> None:
        needs = self._engine.graph.tasks[task].needs
        self._queue.push(task, needs, self._engine.urgency(task))

    def bound(self, bound: Bound) -> None:
        needs = self._engine.graph.tasks[bound.task].needs
        if bound.ahead:
            self._ahead[needs] += 1
        elif self._ledger is not None:
            self._ledger.take(needs)
            self._held[needs] += 1

    def over(self, over: Over) -> None:
        needs = self._engine.graph.tasks[over.bound.task].needs
        if isinstance(over.told, Finished):
            self._recent_s += RECENT_WEIGHT * (over.told.ended.elapsed_s - self._recent_s)
        if self._ahead[needs]:
            self._ahead[needs] -= 1
            return
        self._held[needs] -= 1
        if self._ledger is not None:
            self._ledger.give_back(needs)

    def spare(self, needs: Needs, but: Sequence[PeerName]) -> PeerName | None:
        """There is no choice of targets: the one there is, if there is room."""
        room = self._ledger is not None and self._ledger.fits(needs)
        return self._here if room else None

    def decide(self) -> None:
        while self._ledger is not None:
            found = self._queue.pop_fitting(self._ledger)
            if found is None:
                break
            self._engine.bind(found[0], self._here)
        if self._recent_s < AHEAD_BELOW_S and len(self._queue):
            self._bind_ahead()

    def _bind_ahead(self) -> None:
        for needs, held in self._held.items():
            while self._ahead[needs] < held:
                task = self._queue.pop_equal(needs)
                if task is None:
                    break
                self._engine.bind(task, self._here, ahead=True)


def _deciding(seat: Seat) -> Embedded:
    return Embedded()


embedded = Strategy(
    name="embedded",
    summary="everything on this machine, the most urgent task that fits first",
    where="here",
    deciding=_deciding,
)
