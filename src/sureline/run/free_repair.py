"""What can be done about a late run where nothing costs anything: here, or on free peers.

A task that decides the end and is under way may be run a second time, where there is room. Where
there is none, it may be stopped and started anew, but only if it is plain that it hangs: it has
taken far longer than several others of its kind did in this run. Else a wrong estimate would
cost the work that was done.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from sureline.forecast.change import Change
from sureline.forecast.result import Forecast
from sureline.run.port import Deciding, Engine
from sureline.run.repair import Applied, Remedy, RunningAttempt, Situation
from sureline.workflow.model import Call, Graph, Takes
from sureline.world.address import PeerName

CANDIDATES_MAX = 4
HANGS_SEEN_MIN = 3
HANGS_FACTOR = 3.0
"""A task hangs if it takes so many times longer than all of at least HANGS_SEEN_MIN others did."""
DUPLICATES_OF_TASK_MAX = 2
DUPLICATES_OF_RUN_MIN = 16
DUPLICATES_OF_RUN_SHARE = 0.1
"""Attempts that repair may add: to a task, and to a run of few tasks or of many. Of a run's, those
are not counted that brought the result: what helped uses up nothing."""


class Allowance:
    """How many attempts repair may still add. Python calls get none: they work in the user's own
    directory, where two of them at once would be in each other's way. Nor do tasks that are not
    `repeatable`."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._of_task: dict[int, int] = {}
        self._added: set[tuple[int, int]] = set()
        self._left = max(DUPLICATES_OF_RUN_MIN, int(DUPLICATES_OF_RUN_SHARE * len(graph)))

    def grow(self, graph: Graph) -> None:
        self._left += int(DUPLICATES_OF_RUN_SHARE * (len(graph) - len(self._graph)))
        self._graph = graph

    def allows(self, task: int) -> bool:
        described = self._graph.tasks[task]
        harmless = described.repeatable and not isinstance(described.action, Call)
        few = self._of_task.get(task, 0) < DUPLICATES_OF_TASK_MAX
        return self._left > 0 and few and harmless

    def use(self, task: int, attempt: int) -> None:
        self._of_task[task] = self._of_task.get(task, 0) + 1
        self._added.add((task, attempt))
        self._left -= 1

    def done(self, task: int, attempt: int) -> None:
        """The task has its result by this attempt."""
        if (task, attempt) in self._added:
            self._added.remove((task, attempt))
            self._left += 1


class FreeRepairer:
    """See `repair.Repairer`. `restart(task)` has a task done anew: the number of its next attempt,
    0 if it cannot be."""

    left = math.inf

    def __init__(self, engine: Engine, deciding: Deciding, restart: Callable[[int], int]) -> None:
        self._engine = engine
        self._deciding = deciding
        self._restart = restart

    def promises(self) -> Mapping[int, Takes]:
        return {}

    def peers(self) -> None:
        return None

    def planned(self, forecast: Forecast) -> tuple[float, Mapping[PeerName, int]]:
        return 0.0, {}

    def candidates(self, situation: Situation, offer: Callable[[Sequence[Remedy]], None]) -> None:
        found = []
        for attempts in late_first(self._engine.graph, situation)[:CANDIDATES_MAX]:
            remedy = self._remedy(situation, attempts)
            if remedy is not None:
                found.append(remedy)
        offer(found)

    def _remedy(self, situation: Situation, attempts: Sequence[RunningAttempt]) -> Remedy | None:
        task, peer = attempts[0].task, attempts[-1].peer
        needs = self._engine.graph.tasks[task].needs
        to = self._deciding.spare(needs, [one.peer for one in attempts])
        if to is not None:
            return Remedy("duplicate", (Change(task, "duplicate"),), task, peer, to)
        if self._hangs(situation, attempts):
            return Remedy("swap", (Change(task, "replace"),), task, peer, peer)
        return None

    def _hangs(self, situation: Situation, attempts: Sequence[RunningAttempt]) -> bool:
        kind = self._engine.graph.tasks[attempts[0].task].kind_name
        seen_s = situation.progress.observed_s.get(kind, ())
        elapsed_s = situation.progress.at - attempts[-1].since
        return len(seen_s) >= HANGS_SEEN_MIN and elapsed_s > HANGS_FACTOR * max(seen_s)

    def apply(self, remedy: Remedy, told: Callable[[Applied], None]) -> None:
        if remedy.how == "duplicate":
            attempt = self._duplicate_where_there_is_room(remedy)
        else:
            attempt = self._restart(remedy.task)
        told(Applied(bool(attempt), attempt, why="" if attempt else "there is no room any more"))

    def _duplicate_where_there_is_room(self, remedy: Remedy) -> int:
        """What was done just before may have taken the room that there was."""
        needs = self._engine.graph.tasks[remedy.task].needs
        room = self._deciding.spare(needs, [remedy.from_peer])
        return 0 if room is None else self._engine.duplicate(remedy.task, room)


def late_first(graph: Graph, situation: Situation) -> list[list[RunningAttempt]]:
    """The attempts under way of each task that may be duplicated: those first that most often
    decide the end, and of these the ones that began first. Of a task whose duration is a guess
    nobody can say that it is late: it is left alone."""
    guessed = frozenset(situation.forecast.guessed)
    share = {graph.index[name]: share for name, share in situation.forecast.critical}
    by_task: dict[int, list[RunningAttempt]] = {}
    for one in situation.running:
        if one.task in situation.may_duplicate and one.task not in guessed:
            by_task.setdefault(one.task, []).append(one)
    return sorted(
        by_task.values(),
        key=lambda attempts: (-share.get(attempts[0].task, 0.0), attempts[0].since),
    )
