"""A ready task goes to the least loaded target that meets its needs.

The load of a target is the share of its cores that is in use: by this run, which is known exactly,
and by others, as the target last told. Among equally loaded ones the target that holds most of the
task's inputs is taken, and else one by a hash of this run and the target, so that several runs do
not all choose the same one.

While attempts last less than AHEAD_BELOW_S, the next ones are bound *ahead* where all that there is
room for has begun: each waits at its target for one with equal needs to end there, as much work as
AHEAD_S, so that the target does not wait for the way here and back between two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
from sureline.strategies.books import Books
from sureline.workflow.model import Needs
from sureline.world.address import PeerName

EQUAL_LOADS = 1e-6
AHEAD_BELOW_S = 0.5
AHEAD_S = 0.1
AHEAD_MAX = 16
"""For each one that has begun, at most."""
RECENT_WEIGHT = 0.2
Class = tuple[PeerName, Needs]
"""Attempts on one target that need the same."""


class Spread(Deciding):
    """`salt` tells runs apart, such as by their names."""

    def __init__(self, salt: str) -> None:
        self._queue = ReadyQueue(patience=None)
        self._books = Books(salt)
        self._best: tuple[PeerName, float] | None = None
        self._aside: list[int] = []
        """Tasks for which only targets have room that are unfit for them."""
        self._recent_s = 1.0
        """How long attempts took of late, on average; a second before anything is known."""
        self._bound: Counter[Class] = Counter()
        self._ahead: dict[Class, None] = {}
        """Where there may be room for more that wait."""

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        self._engine = engine
        go()

    def target(self, target: Target) -> None:
        self._books.join(target.name, target.capacity)

    def gone(self, target: PeerName) -> None:
        self._books.leave(target)

    def load(self, target: PeerName, cores: float) -> None:
        self._books.report(target, cores)

    def ready(self, task: int) -> None:
        needs = self._engine.graph.tasks[task].needs
        self._queue.push(task, needs, self._engine.urgency(task))

    def bound(self, bound: Bound) -> None:
        needs = self._engine.graph.tasks[bound.task].needs
        self._books.take(bound.target, needs)
        self._bound[bound.target, needs] += 1
        self._ahead[bound.target, needs] = None

    def over(self, over: Over) -> None:
        needs = self._engine.graph.tasks[over.bound.task].needs
        self._books.give_back(over.bound.target, needs)
        self._bound[over.bound.target, needs] -= 1
        self._ahead[over.bound.target, needs] = None
        if isinstance(over.told, Finished):
            self._recent_s += RECENT_WEIGHT * (over.told.ended.elapsed_s - self._recent_s)

    def spare(self, needs: Needs, but: Sequence[PeerName]) -> PeerName | None:
        return self._books.best_but(needs, but)

    def fits(self, needs: Needs) -> bool:
        """Whether there is a target for it; `decide` takes that one."""
        self._best = self._books.best(needs)
        if self._best is None:
            self._books.pass_over(needs)
        return self._best is not None

    def decide(self) -> None:
        aside, self._aside = self._aside, []
        for task in aside:
            self.ready(task)
        while (popped := self._queue.pop_fitting(self)) is not None:
            task, needs = popped
            unfit = self._engine.unfit(task)
            best = self._books.best(needs, unfit) if unfit else self._best
            if best is None:
                self._aside.append(task)
            elif self._engine.bind(task, self._nearest(task, needs, *best)):
                self._books.placed(needs)
        if self._recent_s < AHEAD_BELOW_S and len(self._queue):
            self._bind_ahead()

    def _bind_ahead(self) -> None:
        """In turns, so that all have about the same to do."""
        deep = min(AHEAD_MAX, max(1, round(AHEAD_S / max(0.001, self._recent_s))))
        for depth in range(1, deep + 1):
            for target, needs in list(self._ahead):
                while self._waits_less(target, needs, depth):
                    task = self._queue.pop_equal(needs)
                    if task is None:
                        break
                    if target in self._engine.unfit(task):
                        self._aside.append(task)
                    elif not self._engine.bind(task, target):
                        break
        for one in [one for one in self._ahead if not self._waits_less(*one, deep)]:
            del self._ahead[one]

    def _waits_less(self, target: PeerName, needs: Needs, depth: int) -> bool:
        """Whether fewer wait there than so many for each that has begun."""
        waiting = self._books.unbooked(target, needs)
        return waiting < depth * (self._bound[target, needs] - waiting)

    def _nearest(self, task: int, needs: Needs, best: PeerName, load: float) -> PeerName:
        """Of the least loaded targets, the one that holds most of the task's inputs."""
        most = 0
        unfit = self._engine.unfit(task)
        for target, held_bytes in self._engine.held(task).items():
            if held_bytes > most and target not in unfit:
                its_load = self._books.fits_on(target, needs)
                if its_load is not None and its_load <= load + EQUAL_LOADS:
                    best, most = target, held_bytes
        return best


def _deciding(seat: Seat) -> Spread:
    return Spread(seat.run)


spread = Strategy(
    name="spread",
    summary="a ready task goes to the least loaded target that meets its needs",
    deciding=_deciding,
)
