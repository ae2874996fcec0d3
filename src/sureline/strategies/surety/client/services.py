"""What a run asks providers for: its tasks by kind and needs, so that bids are few."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sureline.journal.history import Observed
from sureline.workflow.model import Graph, Needs, Pause, Takes, Task

ENOUGH = 3
"""So many observations count for more than an estimate."""


class Service(msgspec.Struct, frozen=True):
    """Tasks of one kind with equal needs; `tasks` of them in the whole graph."""

    kind: str
    needs: Needs
    tasks: int
    takes: Takes | None
    """What is expected of one of them: by what earlier runs took, else by the user's estimates, on
    average over those that have one."""
    input_bytes: int
    """What one of them reads, on average over those whose sizes are known."""


class Services:
    """`of[task]` numbers the service of each task; `all[number]` describes it. `known` is what
    tasks of a kind took in earlier runs."""

    def __init__(self, graph: Graph, known: Mapping[str, Takes]) -> None:
        numbers: dict[tuple[str, Needs], int] = {}
        self.of = [numbers.setdefault((t.kind_name, t.needs), len(numbers)) for t in graph.tasks]
        members: list[list[int]] = [[] for _ in numbers]
        for task, number in enumerate(self.of):
            members[number].append(task)
        self.all = [
            _described(graph, kind, needs, members[number], known.get(kind))
            for (kind, needs), number in numbers.items()
        ]

    def __len__(self) -> int:
        return len(self.all)


def _described(
    graph: Graph, kind: str, needs: Needs, members: list[int], known: Takes | None
) -> Service:
    takes = [found for task in members if (found := expected(graph.tasks[task])) is not None]
    sizes = [
        sum(graph.file_sizes.get(path, 0) for path in graph.tasks[task].inputs) for task in members
    ]
    return Service(
        kind, needs, len(members), known or _average(takes), sum(sizes) // max(1, len(sizes))
    )


def took_before(history: Mapping[str, Sequence[Observed]]) -> dict[str, Takes]:
    """What tasks of each kind took in earlier runs: rarely less, in the middle, rarely more."""
    found = {}
    for kind, seen in history.items():
        took_s = sorted(one.elapsed_s for one in seen)
        if len(took_s) >= ENOUGH:
            last = len(took_s) - 1
            found[kind] = Takes(*(took_s[round(last * share)] for share in (0.1, 0.5, 0.9)))
    return found


def expected(task: Task) -> Takes | None:
    """What the description says of a task's duration."""
    if isinstance(task.action, Pause):
        return Takes(task.action.seconds, task.action.seconds, task.action.seconds)
    return task.takes


def _average(takes: list[Takes]) -> Takes | None:
    if not takes:
        return None
    count = len(takes)
    return Takes(
        min(t.optimistic_s for t in takes),
        sum(t.likely_s for t in takes) / count,
        max(t.pessimistic_s for t in takes),
    )
