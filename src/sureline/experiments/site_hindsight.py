"""What could have been done at modelled sites by one who knows all that others will do there.

Two yardsticks for the choice of sites. The best fixed site: everything goes to one, whichever turns
out best. And hindsight: tasks in the order in which they become ready, each to the site where it is
done first, with every site's future known. That is no bound, but few do better without knowing.
"""

from __future__ import annotations

import bisect
import heapq
from collections.abc import Sequence
from random import Random

from sureline.experiments.site_model import SimulatedSite, SiteTrait
from sureline.experiments.site_world import DAY_S, SiteWorld, run_at_sites
from sureline.workflow.model import Graph
from sureline.workflow.shapes import urgencies


def best_fixed_s(graph: Graph, sites: Sequence[SiteTrait], seed: int) -> float:
    """How long a run takes that uses one site only, the best for that."""
    alone = {"selector": "round-robin", "idle_s": 0, "deep": 0}
    good = [trait for trait in sites if trait.fails_after_s is None]
    return min(run_at_sites(graph, [trait], alone, seed).makespan_s for trait in good)


def hindsight_s(graph: Graph, sites: Sequence[SiteTrait], seed: int) -> float:
    futures = [_Future(trait, graph, seed) for trait in sites if trait.fails_after_s is None]
    urgent = urgencies(graph)
    missing = [len(parents) for parents in graph.parents]
    ready_at = [0.0] * len(graph)
    heap = [(0.0, -urgent[task], task) for task, count in enumerate(missing) if not count]
    heapq.heapify(heap)
    last = 0.0
    while heap:
        at_s, _, task = heapq.heappop(heap)
        done_s, site = min((future.done_s(task, at_s), n) for n, future in enumerate(futures))
        futures[site].take(task, at_s)
        last = max(last, done_s)
        for child in graph.children[task]:
            missing[child] -= 1
            ready_at[child] = max(ready_at[child], done_s)
            if not missing[child]:
                heapq.heappush(heap, (ready_at[child], -urgent[child], child))
    return last


class _Future:
    """One site, with all that others will do there, and what we have sent there."""

    def __init__(self, trait: SiteTrait, graph: Graph, seed: int) -> None:
        self._trait = trait
        self._graph = graph
        self._times, self._free = _history(trait, graph, seed)
        self._has: set[str] = set()
        self._ends: list[float] = []
        """Of what we have sent there, in order."""
        self._begun = 0.0
        """When the last of them begins: a queue is served in order."""

    def done_s(self, task: int, at_s: float) -> float:
        begin_s = self._begin_s(task, at_s)
        return begin_s + self._takes_s(task)

    def take(self, task: int, at_s: float) -> None:
        begin_s = self._begin_s(task, at_s)
        self._begun = begin_s
        bisect.insort(self._ends, begin_s + self._takes_s(task))
        described = self._graph.tasks[task]
        self._has.update(described.inputs, described.outputs)

    def _takes_s(self, task: int) -> float:
        takes = self._graph.tasks[task].takes
        assert takes is not None, "how long it takes is part of the model"
        return takes.likely_s / self._trait.speed

    def _begin_s(self, task: int, at_s: float) -> float:
        inputs, sizes = self._graph.tasks[task].inputs, self._graph.file_sizes
        lacks = sum(sizes.get(path, 0) for path in inputs if path not in self._has)
        time_s = max(self._begun, at_s + lacks * self._trait.s_per_byte)
        takes_s = self._takes_s(task)
        while time_s < DAY_S:
            step = bisect.bisect_right(self._times, time_s) - 1
            running = len(self._ends) - bisect.bisect_right(self._ends, time_s)
            if self._free[step] - running >= 1 and self._stays_up(step, time_s + takes_s):
                return time_s
            after = self._times[step + 1 : step + 2] or [DAY_S]
            place = bisect.bisect_right(self._ends, time_s)
            if place < len(self._ends):
                after.append(self._ends[place])
            time_s = min(after)
        return DAY_S

    def _stays_up(self, step: int, until_s: float) -> bool:
        while step < len(self._times) and self._times[step] < until_s:
            if self._free[step] < 0:
                return False
            step += 1
        return True


def _history(trait: SiteTrait, graph: Graph, seed: int) -> tuple[list[float], list[float]]:
    """From which moment on how many processors are left; -1 while the site is down."""
    world = SiteWorld(seed)
    site = SimulatedSite(trait, graph, world.after, Random(f"{seed} {trait.name}"))
    times, free = [0.0], [site.left]

    def changed() -> None:
        times.append(world.time)
        free.append(site.left)

    site.on_change = changed
    world.run(lambda: False, DAY_S)
    return times, free
