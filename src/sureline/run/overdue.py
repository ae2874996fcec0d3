"""Attempts that take far longer than they should: a second one is begun elsewhere.

A peer that takes tasks and does nothing cannot be told from a slow one by what it says. So what
counts is what others took: an attempt is overdue when it has taken LATE_FACTOR times as long as any
of its kind did on another peer in this run. Of a kind that nobody has done yet nothing is known;
there a peer that has ended nothing at all in this run is given UNPROVEN_S, and any other for ever.
What waits in a target's queue has not begun: its time counts apart, and it is given UNPROVEN_S at
least.

Where there is room, and within what repair may add as well (`free_repair.Allowance`), the task is
begun a second time. The first to end brings the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from sureline.run.attempts import Attempts, Key
from sureline.run.free_repair import Allowance
from sureline.run.port import Bound, Deciding
from sureline.workflow.model import Graph
from sureline.world.address import PeerName
from sureline.world.protocol import World

LOOK_S = 5.0
LATE_FACTOR = 4.0
LATE_MIN_S = 30.0
UNPROVEN_S = 300.0


class Overdue:
    def __init__(
        self,
        world: World,
        graph: Graph,
        attempts: Attempts,
        deciding: Deciding,
        allowance: Allowance,
    ) -> None:
        self._world = world
        self._graph = graph
        self._attempts = attempts
        self._deciding = deciding
        self._allowance = allowance
        self._again: Callable[[int, PeerName], int] = lambda task, target: 0
        self._seen_at: dict[tuple[Key, bool], float] = {}
        """When an attempt was first found waiting (False), or begun, by `World.elapsed`."""
        self._longest: dict[str, tuple[PeerName, float, float]] = {}
        """Of each kind: who took longest, how long, and the longest of all others."""
        self._proven: set[PeerName] = set()

    def start(self, again: Callable[[int, PeerName], int]) -> None:
        """`again` begins another attempt of a task on a target; its number, 0 if that cannot be."""
        self._again = again
        self._world.after(LOOK_S, self._look)

    def grow(self, graph: Graph) -> None:
        self._graph = graph

    def ended_well(self, task: int, peer: PeerName, attempt: int) -> None:
        """An attempt has brought the result."""
        self._proven.add(peer)
        elapsed_s = self._world.elapsed()
        began = self._seen_at.get(((peer, task, attempt), True), elapsed_s)
        took_s = LOOK_S + elapsed_s - began
        kind = self._graph.tasks[task].kind_name
        longest, most_s, others_s = self._longest.get(kind, (peer, 0.0, 0.0))
        if peer == longest:
            self._longest[kind] = (peer, max(most_s, took_s), others_s)
        elif took_s > most_s:
            self._longest[kind] = (peer, took_s, most_s)
        else:
            self._longest[kind] = (longest, most_s, max(others_s, took_s))

    def is_late(self, bound: Bound) -> bool:
        seen_at = self._seen_at.get(_stage(bound))
        return seen_at is not None and self._world.elapsed() - seen_at > self._patience_s(bound)

    def _patience_s(self, bound: Bound) -> float:
        kind = self._graph.tasks[bound.task].kind_name
        longest, most_s, others_s = self._longest.get(kind, ("", 0.0, 0.0))
        elsewhere_s = others_s if bound.target == longest else most_s
        if elsewhere_s:
            least_s = LATE_MIN_S if bound.started else UNPROVEN_S
            return max(least_s, LATE_FACTOR * elsewhere_s)
        return math.inf if bound.target in self._proven else UNPROVEN_S

    def _look(self) -> None:
        before, now = self._seen_at, self._world.elapsed()
        under_way = self._attempts.all()
        self._seen_at = {}
        for bound in under_way:
            stage = _stage(bound)
            self._seen_at[stage] = before.get(stage, now)
        for bound in under_way:
            if self.is_late(bound) and self._attempts.of_task(bound.task) == [bound]:
                self._begin_elsewhere(bound)
        self._world.after(LOOK_S, self._look)

    def _begin_elsewhere(self, bound: Bound) -> None:
        task = bound.task
        if bound.withdrawn or not self._allowance.allows(task):
            return
        to = self._deciding.spare(self._graph.tasks[task].needs, [bound.target])
        if to is not None and to != bound.target:
            self._again(task, to)


def _stage(bound: Bound) -> tuple[Key, bool]:
    return (bound.target, bound.task, bound.attempt), bound.started
