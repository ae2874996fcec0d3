"""Runs made up for the tests of pictures: a graph, and the events of a machine working on it."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Sequence

from hypothesis import strategies as st

from sureline.journal.events import (
    AnyEvent,
    Opened,
    PeerJoined,
    RunEnded,
    Submitted,
    TaskBound,
    TaskEnded,
    TaskReady,
    TaskRetried,
    TaskStarted,
)
from sureline.web.record import Record
from sureline.workflow.model import Command, Graph, Takes, Task

ZERO = 1_800_000_000.0


def graph_of(parents: Sequence[Collection[int]], kinds: int = 3, name: str = "made up") -> Graph:
    """Task k waits for `parents[k]`, all of them before it."""
    return Graph(
        name,
        [
            Task(
                _name(k, kinds),
                Command(f"make {k}"),
                after=tuple(_name(p, kinds) for p in sorted(before)),
                takes=Takes(0.5, 1.0, 2.0),
            )
            for k, before in enumerate(parents)
        ],
        source="made-up.yaml",
    )


def _name(task: int, kinds: int) -> str:
    return f"kind-{'abcdefgh'[task % kinds]}:{task}"


@st.composite
def graphs(draw: st.DrawFn, most: int = 30) -> Graph:
    size = draw(st.integers(1, most))
    parents = [
        draw(st.sets(st.integers(0, k - 1), max_size=4)) if k else set() for k in range(size)
    ]
    return graph_of(parents, kinds=draw(st.integers(1, 4)))


def worked(
    graph: Graph, slots: int = 2, durations_s: Sequence[float] = (1.0,), flaky: Collection[int] = ()
) -> list[AnyEvent]:
    """The events of one session in which every task succeeds, those of `flaky` at the second try.

    Task k takes `durations_s[k % len]`; starting takes 0.1 s, a repetition comes after 0.5 s.
    """
    events: list[AnyEvent] = [
        Submitted(ZERO - 0.5, "made-up-aaaaaa", graph.name, len(graph), graph.source),
        Opened(ZERO, 1, "here", 4711),
        PeerJoined(ZERO, "here", float(slots), 2**33),
    ]
    missing = [len(parents) for parents in graph.parents]
    waiting: list[tuple[float, int, int]] = []  # from when, task, attempt
    running: list[tuple[float, int, int]] = []

    def ready(at: float, task: int) -> None:
        events.append(TaskReady(at, graph.tasks[task].name))
        heapq.heappush(waiting, (at, task, 1))

    def end(at: float, task: int, attempt: int) -> None:
        name, took_s = graph.tasks[task].name, durations_s[task % len(durations_s)]
        if task in flaky and attempt == 1:
            events.append(
                TaskEnded(
                    at,
                    name,
                    "failed",
                    1,
                    "here",
                    reason="exit code 1",
                    elapsed_s=took_s,
                    stderr="out of luck\n",
                )
            )
            events.append(TaskRetried(at, name, 1, 0.5, "exit code 1"))
            heapq.heappush(waiting, (at + 0.5, task, 2))
            return
        events.append(TaskEnded(at, name, "succeeded", attempt, "here", 0, elapsed_s=took_s))
        for child in graph.children[task]:
            missing[child] -= 1
            if not missing[child]:
                ready(at, child)

    for task in range(len(graph)):
        if not missing[task]:
            ready(ZERO, task)
    now = ZERO
    while waiting or running:
        while waiting and len(running) < slots and waiting[0][0] <= now:
            _, task, attempt = heapq.heappop(waiting)
            name = graph.tasks[task].name
            events.append(TaskBound(now, name, attempt, "here"))
            events.append(TaskStarted(now + 0.1, name, attempt, "here", 1000 + task))
            took_s = durations_s[task % len(durations_s)]
            heapq.heappush(running, (now + 0.1 + took_s, task, attempt))
        if running and (len(running) == slots or not waiting or running[0][0] <= waiting[0][0]):
            now, task, attempt = heapq.heappop(running)
            end(now, task, attempt)
        else:
            now = max(now, waiting[0][0])
    events.append(RunEnded(now, "succeeded"))
    return sorted(events, key=lambda event: event.at)


def record_of(graph: Graph, events: Sequence[AnyEvent], alive: bool = False) -> Record:
    return Record.of(graph, events, alive=alive, now=events[-1].at + 1.0)
