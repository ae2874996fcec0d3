"""HEFT: the task with the longest way to the end first, on the target that is done with it
earliest.

After Topcuoglu, Hariri and Wu, "Performance-effective and low-complexity task scheduling for
heterogeneous computing" (2002). The whole graph is planned before anything is ready: tasks in the
order of their upward ranks (by forecasts of durations), each into the earliest gap of a target
where it fits (insertion). Beyond the paper, reality is heard: what a target takes beyond what was
expected corrects its speed, and the plan is made anew when targets come or go or an attempt ends
well off its plan. Of very large graphs only the next PLANNED_MAX tasks are planned.

A ready task waits for the target that its plan names; tasks of one target start in planned order.
"""

from __future__ import annotations

import heapq
import math
from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from sureline.peer.capacity import Ledger
from sureline.peer.messages import Finished
from sureline.run.estimates import BANDWIDTH_BYTES_S, EstimatesFound
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
from sureline.run.states import State
from sureline.strategies.books import Books
from sureline.workflow.model import Graph, Needs
from sureline.workflow.shapes import upward_ranks
from sureline.world.address import PeerName
from sureline.world.protocol import World

PLANNED_MAX = 500
ATTACH_WAIT_S = 3.0
SPEED_PRIOR = 2.0
"""A target's speed is drawn towards 1 as if so many attempts had taken what was expected."""
OFF_PLAN = 0.25
"""An attempt that ends off its plan by this share of its length has the rest planned anew."""
REPLAN_S = 1.0
LOOKED_AT_PER_S = 50_000
"""But not more often than this, nor so often that more (task, target) pairs are looked at."""


class Gaps:
    """What is free on one target from now on: a step function of cores and memory over time. Of all
    else that it has, it is only known whether there is enough at all."""

    def __init__(self, target: Target, since: float) -> None:
        self._whole = Ledger(target.capacity)
        self._times = [since]
        self._cores = [target.capacity.cores]
        self._memory_bytes = [target.capacity.memory_bytes]

    def earliest(self, ready_at: float, seconds: float, needs: Needs) -> float:
        """The first moment from which it fits for so long; infinite if it never does."""
        if not self._whole.fits(needs):
            return math.inf
        start = max(ready_at, self._times[0])
        step = bisect_right(self._times, start) - 1
        last = len(self._times) - 1
        while True:
            room = (
                self._cores[step] >= needs.cores - 1e-9
                and self._memory_bytes[step] >= needs.memory_bytes
            )
            if room and (step == last or self._times[step + 1] >= start + seconds):
                return start
            if step == last:
                return math.inf
            step += 1
            if not room:
                start = self._times[step]

    def take(self, start: float, end: float, needs: Needs) -> None:
        first, after = self._cut(start), self._cut(end)
        for step in range(first, after):
            self._cores[step] -= needs.cores
            self._memory_bytes[step] -= needs.memory_bytes

    def _cut(self, at: float) -> int:
        """The step that begins then, made if need be."""
        step = bisect_right(self._times, at) - 1
        if step < 0 or self._times[step] == at:
            return max(0, step)
        self._times.insert(step + 1, at)
        self._cores.insert(step + 1, self._cores[step])
        self._memory_bytes.insert(step + 1, self._memory_bytes[step])
        return step + 1


class _Planned(NamedTuple):
    target: PeerName
    start: float
    end: float


class Heft(Deciding):
    def __init__(self, run: str, world: World) -> None:
        self._world = world
        self._books = Books(run)
        self._targets: dict[PeerName, Target] = {}
        self._expected_s: list[float] = []
        self._ranks: list[float] = []
        self._plan: dict[int, _Planned] = {}
        self._ready: dict[int, None] = {}
        self._logs: dict[PeerName, tuple[float, int]] = {}
        """Of each target: the sum of logarithms of how much longer attempts took, and how many."""
        self._stale = False
        self._unplanned = False
        """Whether a task has become ready that the plan does not know."""
        self._planned_at = -math.inf
        self._timer = False
        self._since: dict[tuple[PeerName, int, int], float] = {}
        """When each attempt was bound, by the clock that is never set."""

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        self._engine = engine

        def estimated(found: EstimatesFound) -> None:
            self._expected_s = [max(1e-3, task.mean_s) for task in found.tasks]
            self._rank()
            engine.when_attached(ATTACH_WAIT_S, begin)

        def begin() -> None:
            self._stale = True
            go()

        engine.estimates(estimated)

    # -- what happens --------------------------------------------------------------------------

    def target(self, target: Target) -> None:
        self._targets[target.name] = target
        self._books.join(target.name, target.capacity)
        self._stale = True

    def gone(self, target: PeerName) -> None:
        del self._targets[target]
        self._books.leave(target)
        self._stale = True

    def load(self, target: PeerName, cores: float) -> None:
        self._books.report(target, cores)

    def grown(self, tasks: range) -> None:
        usual = sum(self._expected_s) / max(1, len(self._expected_s))
        self._expected_s += [usual] * len(tasks)
        self._rank()
        self._stale = True

    def _rank(self) -> None:
        graph = self._engine.graph
        self._ranks = upward_ranks(graph, self._expected_s, lambda a, b: _brought_s(graph, a, b))

    def ready(self, task: int) -> None:
        self._ready[task] = None
        if task not in self._plan:
            self._stale = self._unplanned = True

    def bound(self, bound: Bound) -> None:
        self._ready.pop(bound.task, None)
        self._books.take(bound.target, self._needs(bound.task))
        self._since[bound.target, bound.task, bound.attempt] = self._world.elapsed()

    def over(self, over: Over) -> None:
        bound = over.bound
        self._since.pop((bound.target, bound.task, bound.attempt), None)
        self._books.give_back(bound.target, self._needs(bound.task))
        planned = self._plan.get(bound.task)
        if over.ending != "succeeded" or planned is None:
            self._stale = True
            return
        if isinstance(over.told, Finished):
            took = max(1e-3, over.told.ended.elapsed_s) / self._expected_s[bound.task]
            total, count = self._logs.get(bound.target, (0.0, 0))
            self._logs[bound.target] = (total + math.log(took), count + 1)
        off_s = abs(self._world.elapsed() - planned.end)
        if off_s > OFF_PLAN * (planned.end - planned.start):
            self._stale = True

    def spare(self, needs: Needs, but: Sequence[PeerName]) -> PeerName | None:
        return self._books.best_but(needs, but)

    def _needs(self, task: int) -> Needs:
        return self._engine.graph.tasks[task].needs

    # -- deciding ------------------------------------------------------------------------------

    def decide(self) -> None:
        if self._stale:
            self._plan_when_due()
        order = sorted(self._ready, key=self._turn)
        waiting: set[PeerName] = set()
        for task in order:
            planned = self._plan.get(task)
            if planned is None or planned.target in waiting or not self._engine.wanted(task):
                if not self._engine.wanted(task):
                    del self._ready[task]
                continue
            if planned.target in self._engine.unfit(task):
                self._stale = self._unplanned = True  # planned before that was known
                self._engine.wake()
            elif self._books.fits_on(planned.target, self._needs(task)) is None:
                waiting.add(planned.target)  # whoever comes after it does not overtake it
            elif not self._engine.bind(task, planned.target):
                self._ready.pop(task, None)  # told again when it can be

    def _turn(self, task: int) -> tuple[float, float]:
        planned = self._plan.get(task)
        return (math.inf if planned is None else planned.start, -self._ranks[task])

    def _plan_when_due(self) -> None:
        now = self._world.elapsed()
        pairs = min(PLANNED_MAX, len(self._engine.graph)) * len(self._targets)
        due_at = self._planned_at + max(REPLAN_S, pairs / LOOKED_AT_PER_S)
        if now >= due_at or self._unplanned:
            self._stale = self._unplanned = False
            self._planned_at = now
            self._make_plan(now)
        elif not self._timer:
            self._timer = True
            self._world.after(due_at - now, self._look_again)

    def _look_again(self) -> None:
        self._timer = False
        self._engine.wake()

    def _make_plan(self, now: float) -> None:
        gaps = {name: Gaps(target, now) for name, target in self._targets.items()}
        done_at: dict[int, tuple[float, PeerName]] = {}
        plan: dict[int, _Planned] = {}
        for bound in self._engine.attempts():
            if bound.target in gaps:
                seconds = self._expected_s[bound.task] * self._slower(bound.target)
                since = self._since.get((bound.target, bound.task, bound.attempt), now)
                end = max(now, since + seconds)
                gaps[bound.target].take(now, end, self._needs(bound.task))
                done_at.setdefault(bound.task, (end, bound.target))
                plan[bound.task] = _Planned(bound.target, since, end)
        for task in self._next_tasks():
            best = self._best(task, gaps, done_at, now)
            if best is not None:
                gaps[best.target].take(best.start, best.end, self._needs(task))
                done_at[task] = (best.end, best.target)
                plan[task] = best
        self._plan = plan

    def _next_tasks(self) -> list[int]:
        """Those that are not under way or done, by rank: parents always come before children."""
        open_tasks = [
            task
            for task in self._engine.open_tasks()
            if self._engine.state(task) not in (State.BOUND, State.FAILED)
        ]
        first = heapq.nlargest(PLANNED_MAX, open_tasks, key=lambda task: (self._ranks[task], -task))
        return list(dict.fromkeys([*first, *self._ready]))

    def _best(
        self,
        task: int,
        gaps: dict[PeerName, Gaps],
        done_at: dict[int, tuple[float, PeerName]],
        now: float,
    ) -> _Planned | None:
        graph, needs = self._engine.graph, self._needs(task)
        held = self._engine.held(task) if task in self._ready else {}
        unfit = self._engine.unfit(task)
        found: _Planned | None = None
        for name, gap in gaps.items():
            if name in unfit:
                continue
            ready_at = now
            for parent in graph.parents[task]:
                end, where = done_at.get(parent, (now, name))
                brought_s = 0.0 if where == name else _brought_s(graph, parent, task)
                ready_at = max(ready_at, end + brought_s)
            seconds = self._expected_s[task] * self._slower(name) - (
                held.get(name, 0) / BANDWIDTH_BYTES_S
            )
            start = gap.earliest(ready_at, max(1e-3, seconds), needs)
            end = start + max(1e-3, seconds)
            if math.isfinite(start) and (found is None or end < found.end):
                found = _Planned(name, start, end)
        return found

    def _slower(self, target: PeerName) -> float:
        total, count = self._logs.get(target, (0.0, 0))
        return math.exp(total / (count + SPEED_PRIOR))


def _brought_s(graph: Graph, parent: int, child: int) -> float:
    """What it takes to bring a task what it reads of its parent's."""
    if not graph.file_sizes:
        return 0.0
    made = graph.tasks[parent].outputs
    read = [path for path in graph.tasks[child].inputs if path in made]
    return sum(graph.file_sizes.get(path, 0) for path in read) / BANDWIDTH_BYTES_S


def _deciding(seat: Seat) -> Heft:
    return Heft(seat.run, seat.world)


heft = Strategy(
    name="heft",
    summary="the task with the longest way to the end first, where it is done earliest",
    paper="Topcuoglu, Hariri and Wu: Performance-effective and low-complexity task scheduling for "
    "heterogeneous computing (2002)",
    deciding=_deciding,
)
