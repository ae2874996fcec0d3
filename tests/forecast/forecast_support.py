"""Graphs for the tests, and a plain simulation of the engine's scheduling to compare with."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence

from sureline.forecast.durations import durations_of
from sureline.forecast.finish import finish_forecast
from sureline.forecast.progress import Progress, untouched
from sureline.forecast.result import Forecast
from sureline.forecast.shape import Shape
from sureline.journal.history import Observed
from sureline.peer.capacity import Capacity
from sureline.workflow.model import Command, Graph, Needs, Takes, Task

GB = 10**9
KINDS = "abcdefgh"


def exactly(seconds: float) -> Takes:
    return Takes(seconds, seconds, seconds)


def task(
    name: str, after: Sequence[str] = (), takes: Takes | None = None, needs: Needs | None = None
) -> Task:
    return Task(name, Command("true"), after=tuple(after), takes=takes, needs=needs or Needs())


def chain(seconds: Sequence[float]) -> Graph:
    return Graph(
        "chain",
        [task(f"t_{i}", [f"t_{i - 1}"] if i else [], exactly(s)) for i, s in enumerate(seconds)],
    )


def independent(count: int, takes: Takes | None, needs: Needs | None = None) -> Graph:
    return Graph("flat", [task(f"t_{i}", takes=takes, needs=needs) for i in range(count)])


def random_graph(
    seed: int, count: int = 80, needs: Sequence[Needs] = (Needs(),), kinds: int = 3
) -> Graph:
    """Every task waits for up to three of the fifteen described before it."""
    draw = random.Random(seed)
    tasks = []
    for i in range(count):
        near = range(max(0, i - 15), i)
        after = (
            {f"{KINDS[j % kinds]}_{j}" for j in draw.choices(near, k=draw.randrange(4))}
            if i
            else ()
        )
        low = draw.uniform(1, 5)
        takes = Takes(low, low * draw.uniform(1.0, 2.0), low * draw.uniform(2.0, 5.0))
        tasks.append(task(f"{KINDS[i % kinds]}_{i}", sorted(after), takes, draw.choice(needs)))
    return Graph("random", tasks)


def layered(levels: int, width: int) -> Graph:
    """Every task waits for two of the level before."""
    draw = random.Random(1)

    def name(level: int, i: int) -> str:
        return f"{KINDS[level % len(KINDS)]}_{level * width + i}"

    tasks = []
    for level in range(levels):
        for i in range(width):
            after = {name(level - 1, draw.randrange(width)) for _ in range(2 if level else 0)}
            tasks.append(task(name(level, i), sorted(after), Takes(1, 2 + draw.random(), 6)))
    return Graph("layers", tasks)


def forecast(
    graph: Graph,
    cores: float = 2,
    progress: Progress | None = None,
    history: Mapping[str, Sequence[Observed]] | None = None,
    *,
    memory_bytes: int = 8 * GB,
    samples: int = 200,
    seed: int = 0,
) -> Forecast:
    shape = Shape(graph)
    progress = progress or untouched(graph, 0.0)
    durations = durations_of(shape, history or {}, progress.observed_s)
    machine = Capacity(cores, memory_bytes)
    return finish_forecast(shape, progress, durations, machine, samples, seed)


def pert(takes: Takes, draw: random.Random) -> float:
    width = takes.pessimistic_s - takes.optimistic_s
    if width == 0:
        return takes.optimistic_s
    mode = (takes.likely_s - takes.optimistic_s) / width
    return takes.optimistic_s + width * draw.betavariate(1 + 4 * mode, 5 - 4 * mode)


def simulate(
    graph: Graph, cores: float, memory_bytes: float, duration_s: Callable[[Task], float]
) -> float:
    """One run by the engine's rule: whenever something ends, the most urgent that fits starts."""
    ranks = [0.0] * len(graph)
    for i in reversed(range(len(graph))):  # tasks are described after those they wait for
        likely = graph.tasks[i].takes.likely_s if graph.tasks[i].takes else 1.0
        ranks[i] = likely + max((ranks[c] for c in graph.children[i]), default=0.0)
    missing = [len(p) for p in graph.parents]
    ready = [i for i, m in enumerate(missing) if not m]
    running: list[tuple[float, int]] = []
    now = 0.0
    while ready or running:
        for i in sorted(ready, key=lambda i: (-ranks[i], i)):
            needs = graph.tasks[i].needs
            if needs.cores <= cores and needs.memory_bytes <= memory_bytes:
                cores, memory_bytes = cores - needs.cores, memory_bytes - needs.memory_bytes
                heapq.heappush(running, (now + duration_s(graph.tasks[i]), i))
                ready.remove(i)
        now, i = heapq.heappop(running)
        needs = graph.tasks[i].needs
        cores, memory_bytes = cores + needs.cores, memory_bytes + needs.memory_bytes
        for child in graph.children[i]:
            missing[child] -= 1
            if not missing[child]:
                ready.append(child)
    return now


def simulated_times(graph: Graph, cores: float, memory_bytes: float, runs: int) -> list[float]:
    draw = random.Random(7)

    def duration_s(t: Task) -> float:
        assert t.takes is not None
        return pert(t.takes, draw)

    return sorted(simulate(graph, cores, memory_bytes, duration_s) for _ in range(runs))
