"""Binding ahead: short tasks wait at their target for others to end there.

Between two short tasks a target would wait for the way to the writer and back. So where all that
there is room for has begun, further tasks of the same needs are bound, as much work as AHEAD_S, if
their kind is known to be short. The last ones stay here, one for each that is under way: they go to
whoever has room first. Should one have to wait for long all the same, since what runs
there turned out to be longer, it is taken back as soon as there is room elsewhere.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from sureline.peer.messages import Finished
from sureline.run.port import Bound, Engine, Over
from sureline.run.ready import ReadyQueue
from sureline.strategies.books import Books
from sureline.workflow.model import Needs
from sureline.world.address import PeerName
from sureline.world.protocol import World

SHORT_S = 0.5
AHEAD_S = 0.1
AHEAD_MAX = 16
"""For each one that has begun, at most."""
RECENT_WEIGHT = 0.2
LOOK_S = 1.0
WAITS_S = 2.0
"""Whoever waits for longer, though bound as a short one, is taken back if there is room."""
Alike = tuple[PeerName, Needs]
"""Attempts on one target that need the same."""


class BindingAhead:
    """Of one run. `books` has what there is room for: what is bound beyond that waits."""

    def __init__(self, engine: Engine, world: World, books: Books) -> None:
        self._engine = engine
        self._world = world
        self._books = books
        self._recent_s: dict[str, float] = {}
        """How long attempts of a kind took of late, on average."""
        self._bound: Counter[Alike] = Counter()
        self._in_all = 0
        self._room: dict[Alike, None] = {}
        """Where more may wait."""
        self._looking = False

    def bound(self, bound: Bound, needs: Needs) -> None:
        self._bound[bound.target, needs] += 1
        self._in_all += 1
        self._room[bound.target, needs] = None

    def over(self, over: Over, needs: Needs) -> None:
        target = over.bound.target
        self._bound[target, needs] -= 1
        self._in_all -= 1
        self._room[target, needs] = None
        if isinstance(over.told, Finished):
            kind, took_s = self._kind(over.bound.task), over.told.ended.elapsed_s
            before_s = self._recent_s.setdefault(kind, took_s)
            self._recent_s[kind] = before_s + RECENT_WEIGHT * (took_s - before_s)

    def bind(self, queue: ReadyQueue, suits: Callable[[PeerName, Needs, int], int | None]) -> None:
        """In turns, so that all have about the same to do. `suits` names, of the tasks that are
        like one, that which suits a target best; None, if it had better get none."""
        if not len(queue) or not self._recent_s:
            return
        for depth in range(1, AHEAD_MAX + 1):
            for target, needs in list(self._room):
                while self._waits_less(target, needs, depth):
                    task = self._next(queue, target, needs)
                    task = None if task is None else suits(target, needs, task)
                    if task is None:
                        break
                    queue.take(task, needs)
                    self._engine.bind(task, target)
        for one in [one for one in self._room if not self._waits_less(*one, AHEAD_MAX)]:
            del self._room[one]
        if not self._looking and self._books.unbooked_in_all:
            self._looking = True
            self._world.after(LOOK_S, self._look)

    def _next(self, queue: ReadyQueue, target: PeerName, needs: Needs) -> int | None:
        """The next that may wait there."""
        task = queue.head_of(needs)
        under_way = self._in_all - self._books.unbooked_in_all
        if task is None or len(queue) <= under_way or target in self._engine.unfit(task):
            return None
        each_s = self._recent_s.get(self._kind(task))
        if each_s is None or each_s > SHORT_S:
            return None
        waiting = self._books.unbooked(target, needs)
        begun = self._bound[target, needs] - waiting
        return None if waiting and (waiting + 1) * each_s > AHEAD_S * begun else task

    def _waits_less(self, target: PeerName, needs: Needs, depth: int) -> bool:
        """Whether fewer wait there than so many for each that has begun."""
        waiting = self._books.unbooked(target, needs)
        return waiting < depth * (self._bound[target, needs] - waiting)

    def _kind(self, task: int) -> str:
        return self._engine.graph.tasks[task].kind_name

    def _look(self) -> None:
        """Take back who waits for long, as many as there is room for elsewhere."""
        self._looking = self._books.unbooked_in_all > 0
        if not self._looking:
            return
        self._world.after(LOOK_S, self._look)
        now, rooms = self._world.now(), self._books.rooms()
        for bound in self._engine.attempts():
            if not rooms:
                return
            late = now - bound.since > WAITS_S and not (bound.started or bound.withdrawn)
            needs = self._engine.graph.tasks[bound.task].needs
            if late and self._books.unbooked(bound.target, needs) and self._books.best(needs):
                rooms -= 1
                self._engine.withdraw(bound.task, bound.attempt)
