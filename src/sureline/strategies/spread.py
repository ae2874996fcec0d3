"""A ready task goes to the least loaded target that meets its needs.

The load of a target is the share of its cores that is in use: by this run, which is known exactly,
and by others, as the target last told. Among equally loaded ones the target that holds most of the
task's inputs is taken, and else one by a hash of this run and the target, so that several runs do
not all choose the same one. Short tasks are also bound ahead (`ahead`).

Of tasks that are equally urgent and need the same, a target gets the one of whose large inputs it
has most, or has been told to fetch; an idle one waits for a while before it fetches what another
has (`nearby`).
"""

from __future__ import annotations

from collections.abc import Sequence

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
from sureline.strategies.ahead import BindingAhead
from sureline.strategies.books import Books
from sureline.strategies.nearby import Nearby
from sureline.workflow.model import Needs
from sureline.world.address import PeerName
from sureline.world.protocol import World

EQUAL_LOADS = 1e-6
LOOKED_AT = 64
"""Tasks among which the one is chosen that suits a target, and that may be put off."""


class Spread(Deciding):
    """`salt` tells runs apart, such as by their names. With a `world`, short tasks are bound
    ahead."""

    def __init__(self, salt: str, world: World | None = None) -> None:
        self._ground = world
        self._ahead: BindingAhead | None = None
        self._queue = ReadyQueue(patience=None)
        self._books = Books(salt)
        self._best: tuple[PeerName, float] | None = None
        self._aside: list[int] = []
        """Tasks for which only targets have room that are unfit for them."""

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        self._engine = engine
        self._nearby = Nearby(engine, self._ground, self._books.__contains__)
        if self._ground is not None:
            self._ahead = BindingAhead(engine, self._ground, self._books)
        go()

    def target(self, target: Target) -> None:
        self._books.join(target.name, target.capacity)

    def gone(self, target: PeerName) -> None:
        self._books.leave(target)
        self._nearby.gone(target)

    def load(self, target: PeerName, cores: float) -> None:
        self._books.report(target, cores)

    def ready(self, task: int) -> None:
        needs = self._engine.graph.tasks[task].needs
        self._queue.push(task, needs, self._engine.urgency(task))

    def bound(self, bound: Bound) -> None:
        needs = self._engine.graph.tasks[bound.task].needs
        self._books.take(bound.target, needs)
        if not bound.confirmed:  # of one that was found there, nothing needs to be known yet
            self._nearby.bound(bound)
        if self._ahead is not None:
            self._ahead.bound(bound, needs)

    def over(self, over: Over) -> None:
        needs = self._engine.graph.tasks[over.bound.task].needs
        self._books.give_back(over.bound.target, needs)
        self._nearby.over(over)
        if self._ahead is not None:
            self._ahead.over(over, needs)

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
        put_off: list[int] = []
        idle: set[PeerName] = set()
        while len(put_off) < LOOKED_AT and (popped := self._queue.pop_fitting(self)) is not None:
            task, needs = popped
            unfit, waiting = self._engine.unfit(task), idle if self._nearby.large(task) else ()
            best = self._books.best(needs, {*unfit, *waiting}) if unfit or waiting else self._best
            if best is None:
                (put_off if waiting else self._aside).append(task)
                continue
            target = self._nearest(task, needs, *best)
            task = self._swapped(task, needs, target)
            if self._nearby.waits(task, target):
                put_off.append(task)
                idle.add(target)
            elif self._engine.bind(task, target):
                self._books.placed(needs)
        for task in put_off:
            self.ready(task)
        if self._ahead is not None:
            self._ahead.bind(self._queue, self._suits_ahead)

    def _swapped(self, task: int, needs: Needs, target: PeerName) -> int:
        """The task, or one that is as urgent and suits the target better; the task waits then."""
        if not self._nearby.large(task):
            return task
        self._queue.push(task, needs, self._engine.urgency(task))
        task = self.suits(target, needs, task)
        self._queue.take(task, needs)
        return task

    def suits(self, target: PeerName, needs: Needs, task: int) -> int:
        """Of those that wait and are alike, the one of which least is to be fetched there."""
        if not self._nearby.large(task):
            return task
        able = [one for one in self._queue.alike(needs, LOOKED_AT) if self._may(one, target)]
        return self._nearby.least([task, *able], target)

    def _suits_ahead(self, target: PeerName, needs: Needs, task: int) -> int | None:
        """Likewise, for a target that is busy: none, if another has what would be fetched."""
        task = self.suits(target, needs, task)
        return None if self._nearby.is_elsewhere(task, target) else task

    def _may(self, task: int, target: PeerName) -> bool:
        return target not in self._engine.unfit(task)

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
    return Spread(seat.run, seat.world)


spread = Strategy(
    name="spread",
    summary="a ready task goes to the least loaded target that meets its needs",
    deciding=_deciding,
)
