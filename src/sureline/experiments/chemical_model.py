"""The paper's simulation: workflows, levels, tasks and resources on a ring at rest.

Time goes in steps and a message takes one for each hop; nodes and links bear any load. Workflows
have 3 to 10 levels of 1 to 15 tasks, each of which takes 1 to 10 steps; all enter at once, each
anywhere. A task wants a resource below some load, and takes the one with the lowest.

What the paper leaves open is ours: the pieces of a range are asked at once, so a query costs
log^2 n messages and log n steps; a task has one to three parents in the level before it, which
counts only without barriers; with exclusive capture, who finds nothing waits 5 to 15 steps, twice
as long each time up to 80; and whatever a resource says of itself is sent through the ring, and
counted.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Callable
from random import Random

import numpy as np

from sureline.experiments.chemical_result import ChemicalCell
from sureline.experiments.chemical_ring import make_ids, owner_of, pieces, route

SPACE = 1 << 64
DEPTH, WIDTH, STEPS = (3, 10), (1, 15), (1, 10)
WAIT, WAIT_MAX = (5, 15), 80
PAIRED = 10
"""The first workflows are the same in every cell: so many are compared."""
LIMITS = (0.2, 1.0)
"""Tasks want a resource whose load is below something between these."""


class PaperWorkflow:
    __slots__ = ("children", "done", "ended", "entry", "holders", "left", "levels", "missing")

    def __init__(self, random: Random, entry: int) -> None:
        self.entry = entry
        self.levels: list[list[int]] = []
        """How long each task takes."""
        self.children: dict[tuple[int, int], list[int]] = {}
        self.missing: dict[tuple[int, int], int] = {}
        for level in range(random.randint(*DEPTH)):
            width = random.randint(*WIDTH)
            self.levels.append([random.randint(*STEPS) for _ in range(width)])
            for task in range(width if level else 0):
                before = range(len(self.levels[level - 1]))
                parents = random.sample(before, min(len(before), random.randint(1, 3)))
                self.missing[level, task] = len(parents)
                for parent in parents:
                    self.children.setdefault((level - 1, parent), []).append(task)
        self.left = [len(level) for level in self.levels]
        self.holders = [0] * len(self.levels)
        self.done = 0
        self.ended = 0

    @property
    def tasks(self) -> int:
        return sum(map(len, self.levels))


class PaperRing:
    def __init__(
        self,
        nodes: int,
        workflows: int,
        seed: int,
        *,
        exclusive: bool = False,
        barriers: bool = True,
        way: str = "pieces",
    ) -> None:
        assert way != "anywhere" or not exclusive, "what is free is kept as a heap: lowest first"
        self._random = Random(f"{seed} {nodes} {workflows}")
        self._flows_random = Random(f"{seed} flows")  # the same ones on every ring
        self._exclusive, self._barriers, self._way = exclusive, barriers, way
        self._ids = make_ids(nodes, seed)
        self._nodes = nodes
        self._load = np.zeros(nodes, dtype=np.int64)
        self._along = np.zeros(nodes + 1, dtype=np.int64)
        """Queries that go from neighbour to neighbour, as differences."""
        self._values = [self._random.random() for _ in range(nodes)]
        self._order = sorted((value, node) for node, value in enumerate(self._values))
        self._free = list(self._order)
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._count = 0
        self._republishing = self._queries = self._query_messages = 0
        self._flows = [
            PaperWorkflow(self._flows_random, self._random.randrange(nodes))
            for _ in range(workflows)
        ]

    def run(self) -> ChemicalCell:
        for flow in self._flows:
            self._enter(flow)
        while self._events:
            time, _, action = heapq.heappop(self._events)
            action(time)
        load = self._load + np.cumsum(self._along[:-1])
        ends = [flow.ended for flow in self._flows]
        messages = int(load.sum())
        return ChemicalCell(
            self._nodes,
            len(self._flows),
            self._exclusive,
            self._barriers,
            self._way,
            sum(flow.tasks for flow in self._flows),
            sum(ends) / len(ends),
            sum(ends[:PAIRED]) / len(ends[:PAIRED]),
            max(ends),
            messages,
            self._republishing,
            self._queries,
            self._query_messages,
            messages / self._nodes,
            int(load.max()),
        )

    def _at(self, time: int, action: Callable[[int], None]) -> None:
        self._count += 1
        heapq.heappush(self._events, (time, self._count, action))

    def _say(self, to: int) -> int:
        """One message to somebody whose address is known."""
        self._load[to] += 1
        return 1

    def _store(self, start: int) -> tuple[int, int]:
        """A molecule under a hashed key: (hops, its holder)."""
        key = np.uint64(self._random.getrandbits(64))
        return route(self._ids, self._load, start, key), owner_of(self._ids, key)

    # -- workflows -----------------------------------------------------------------------------

    def _enter(self, flow: PaperWorkflow) -> None:
        if not self._barriers:
            for task in range(len(flow.levels[0])):
                self._release(0, flow, 0, task, flow.entry)
            return
        for level in range(len(flow.levels)):
            hops, flow.holders[level] = self._store(flow.entry)
            if level == 0:
                self._at(hops, lambda time: self._take_apart(time, flow, 0))

    def _take_apart(self, time: int, flow: PaperWorkflow, level: int) -> None:
        for task in range(len(flow.levels[level])):
            self._release(time, flow, level, task, flow.holders[level])

    def _release(self, time: int, flow: PaperWorkflow, level: int, task: int, start: int) -> None:
        hops, holder = self._store(start)
        limit = self._random.uniform(*LIMITS)
        self._at(time + hops, lambda now: self._seek(now, flow, level, task, holder, limit, 0))

    def _finished(self, time: int, flow: PaperWorkflow, level: int, task: int, holder: int) -> None:
        flow.done += 1
        if not self._barriers:
            for child in flow.children.get((level, task), ()):
                flow.missing[level + 1, child] -= 1
                if flow.missing[level + 1, child] == 0:
                    self._release(time, flow, level + 1, child, holder)
            if flow.done == flow.tasks:
                flow.ended = time + self._say(flow.entry)
            return
        flow.left[level] -= 1
        time += self._say(flow.holders[level])
        if flow.left[level]:
            return
        if level + 1 == len(flow.levels):
            flow.ended = time + self._say(flow.entry)
            return
        # the next level is looked up, comes, and is put back as ready
        following = flow.holders[level + 1]
        hops = route(self._ids, self._load, flow.holders[level], self._ids[following])
        hops += self._say(flow.holders[level]) + self._say(following)
        self._at(time + hops, lambda now: self._take_apart(now, flow, level + 1))

    # -- resources -----------------------------------------------------------------------------

    def _seek(
        self,
        time: int,
        flow: PaperWorkflow,
        level: int,
        task: int,
        holder: int,
        limit: float,
        tries: int,
    ) -> None:
        start = self._random.random() * limit if self._way == "anywhere" else 0.0
        time += self._ask(holder, start, limit)
        time += self._say(holder)  # the answer
        found = self._take(start, limit)
        if found is None:
            wait = min(WAIT_MAX, self._random.randint(*WAIT) << min(tries, 6))
            self._at(
                time + wait,
                lambda now: self._seek(now, flow, level, task, holder, limit, tries + 1),
            )
            return
        # the resource molecule is fetched, then the task is sent
        begins = time + self._say(found) + self._say(holder) + self._say(found)
        ends = begins + flow.levels[level][task]

        def ended(now: int) -> None:
            if self._exclusive:
                self._publish(found)
                heapq.heappush(self._free, (self._values[found], found))
            self._finished(now + self._say(holder), flow, level, task, holder)

        self._at(ends, ended)

    def _ask(self, holder: int, start: float, limit: float) -> int:
        """A range query; the steps that it takes."""
        self._queries += 1
        if self._way == "pieces":
            last = _position(limit)
            messages, steps = pieces(self._ids, self._load, holder, np.uint64(0), last)
            self._query_messages += messages
            return steps
        hops = route(self._ids, self._load, holder, _position(start))
        best = self._best(start, limit)
        along = 0
        if best is not None:
            here = owner_of(self._ids, _position(start))
            there = owner_of(self._ids, _position(best[0]))
            along = max(0, there - here)
            self._along[here + 1] += 1 if along else 0
            self._along[there + 1] -= 1 if along else 0
        self._query_messages += hops + along
        return hops + along

    def _best(self, start: float, limit: float) -> tuple[float, int] | None:
        """What a query finds: the lowest value of the range, from some place on."""
        free = self._free if self._exclusive else self._order
        at = bisect_left(free, (start, 0)) if start else 0
        at = at if at < len(free) and free[at][0] < limit else 0
        return free[at] if free and free[at][0] < limit else None

    def _take(self, start: float, limit: float) -> int | None:
        best = self._best(start, limit)
        if not self._exclusive:
            return self._order[0][1] if best is None else best[1]
        if best is None:
            return None
        _, node = heapq.heappop(self._free)
        self._publish(node)  # its pointer is withdrawn
        return node

    def _publish(self, node: int) -> None:
        position = _position(self._values[node])
        self._republishing += route(self._ids, self._load, node, position)


def _position(value: float) -> np.uint64:
    """Where a value between 0 and 1 lies on the ring."""
    return np.uint64(min(SPACE - 1, int(value * SPACE)))
