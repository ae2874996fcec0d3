"""The workflows of the paper's experiments: fork-join and Laplace graphs, with deadlines.

The paper gives no task lengths; here they are uniform from one to five minutes on a machine of
usual power. All tasks of a workflow are equally long: only then are the paper's maximum speed-ups,
3.3 and 1.8, what it says they are, the total by the minimum length (10/3 and 9/5). Deadlines are
set by the relative priority W: the time the submitting peer would need alone, divided by the time
until the deadline.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from random import Random
from typing import NamedTuple

from sureline.workflow.model import Graph, Pause, Task
from sureline.workflow.shapes import topological_order

POWERS = tuple(float(power) for power in range(1000, 3001, 200))
POWER_USUAL = sum(POWERS) / len(POWERS)
PRIORITIES = (1.1, 1.2, 1.3, 1.4)
SIZES = {"fork-join": (8, 16, 32, 64), "laplace": (3, 4, 5, 6, 8)}
TASK_S = (60.0, 300.0)
BASE_SHARE = 0.7
"""So many workflows have the size of Table II; the others share the larger sizes."""


class Model(NamedTuple):
    name: str
    size: int
    graph: Graph
    order: Sequence[int]


class Drawn(NamedTuple):
    """A workflow to be submitted."""

    model: Model
    works: list[float]
    priority: float


@lru_cache(maxsize=64)
def model_of(name: str, size: int) -> Model:
    parents = _fork_join(size) if name == "fork-join" else _laplace(size)
    tasks = [
        Task(f"t{i}", Pause(1.0), after=tuple(f"t{p}" for p in before))
        for i, before in enumerate(parents)
    ]
    graph = Graph(f"{name} {size}", tasks)
    return Model(name, size, graph, topological_order(graph))


def _fork_join(middle: int) -> list[list[int]]:
    return [[], *([0] for _ in range(middle)), list(range(1, middle + 1))]


def _laplace(side: int) -> list[list[int]]:
    return [
        [row * side + column - 1] * (column > 0) + [(row - 1) * side + column] * (row > 0)
        for row in range(side)
        for column in range(side)
    ]


class WorkflowLoad:
    """Draws workflows; the same seed gives the same ones."""

    def __init__(self, seed: int, *, base_share: float = BASE_SHARE) -> None:
        self._random = Random(f"{seed} load")
        self._base_share = base_share

    def draw(self) -> Drawn:
        random = self._random
        name = random.choice(("fork-join", "laplace"))
        sizes = SIZES[name]
        size = sizes[0] if random.random() < self._base_share else random.choice(sizes[1:])
        model = model_of(name, size)
        works = [random.uniform(*TASK_S) * POWER_USUAL] * len(model.graph)
        return Drawn(model, works, random.choice(PRIORITIES))

    def mean_work(self) -> float:
        """Of a workflow."""
        tasks = 0.0
        for name, sizes in SIZES.items():
            counts = [len(model_of(name, size).graph) for size in sizes]
            larger = sum(counts[1:]) / len(counts[1:])
            tasks += (self._base_share * counts[0] + (1 - self._base_share) * larger) / len(SIZES)
        return tasks * sum(TASK_S) / 2 * POWER_USUAL

    def gap_s(self, per_s: float) -> float:
        """Until the next one arrives."""
        return self._random.expovariate(per_s)

    def choice(self, count: int) -> int:
        return self._random.randrange(count)
