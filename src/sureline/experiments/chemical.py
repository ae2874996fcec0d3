"""The experiments of Fernandez, Obrovac and Tedeschi, "Decentralised Multiple Workflow Scheduling
via a Chemically-coordinated Shared Space", run again.

Figs. 6 to 8 by a model of what the paper simulates (`chemical_model`), under its assumptions and
with exclusive capture; Fig. 5, range queries and crashes by the agents that run live
(`chemical_agents`). Every claim of the paper has a verdict.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence

import numpy as np

from sureline.experiments.chemical_agents import crashes, fig5, ranges
from sureline.experiments.chemical_model import PaperRing
from sureline.experiments.chemical_result import (
    TITLE,
    ChemicalCell,
    ChemicalClaim,
    ChemicalReproduced,
    Fit,
    Range,
)

NODES = (100, 1_000, 10_000, 100_000)
WORKFLOWS = (10, 100, 1_000)
RINGS = (25, 50, 100)
STRAIGHT = 0.95
"""A line with a higher R^2 than this describes what was found."""

Tell = Callable[[str], None]


def reproduce(nodes: int, workflows: int, seed: int, tell: Tell) -> ChemicalReproduced:
    began_s = time.process_time()
    sizes = [n for n in NODES if n < nodes] + [nodes]
    counts = [w for w in WORKFLOWS if w < workflows] + [workflows]
    cells = []
    for exclusive in (False, True):
        for n in sizes:
            for w in counts:
                tell(f"{n:,} nodes, {w:,} workflows{', exclusive capture' if exclusive else ''}")
                cells.append(PaperRing(n, w, seed, exclusive=exclusive).run())
    middle, many = sizes[len(sizes) // 2], counts[len(counts) // 2]
    tell("with and without barriers")
    barriers = [
        PaperRing(n, many, seed, exclusive=exclusive, barriers=on).run()
        for n, exclusive in ((middle, False), (middle, True), (sizes[0], True))
        for on in (True, False)
    ]
    balance = [
        PaperRing(middle, many, seed, way=way).run() for way in ("pieces", "links", "anywhere")
    ]
    rings = []
    for n in RINGS:
        tell(f"a ring of {n} real agents")
        rings.append(ranges(n, seed))
    tell("machines that are killed")
    crashed = crashes(seed)
    return ChemicalReproduced(
        TITLE,
        nodes,
        workflows,
        seed,
        cells,
        fits(cells),
        claims(cells, balance, rings),
        fig5(seed),
        barriers,
        balance,
        rings,
        crashed,
        time.process_time() - began_s,
    )


# Growth.


def fits(cells: Sequence[ChemicalCell]) -> list[Fit]:
    """Over the sizes of rings, with the largest number of workflows that there is."""
    found = []
    most = max(cell.workflows for cell in cells)
    for exclusive in (False, True):
        those = [c for c in cells if c.exclusive == exclusive and c.workflows == most]
        if len(those) < 3:
            continue
        word = "exclusive capture" if exclusive else "the paper's assumptions"
        logs = [math.log2(c.nodes) for c in those]
        squares = [x * x for x in logs]
        steps, per_task = [c.mean_steps for c in those], [c.per_task for c in those]
        for what, over, x, y in (
            (f"steps of a workflow, {word}", "log n", logs, steps),
            (f"steps of a workflow, {word}", "log^2 n", squares, steps),
            (f"messages per task, {word}", "log n", logs, per_task),
            (f"messages per task, {word}", "log^2 n", squares, per_task),
        ):
            found.append(Fit(what, over, *_line(x, y)))
    return found


def _line(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """The slope of the best straight line, and R^2."""
    slope, base = np.polyfit(x, y, 1)
    left = np.asarray(y) - (slope * np.asarray(x) + base)
    spread = float(((np.asarray(y) - np.mean(y)) ** 2).sum())
    return float(slope), 1.0 - float((left**2).sum()) / spread if spread else 1.0


# What the paper says.


def claims(
    cells: Sequence[ChemicalCell], balance: Sequence[ChemicalCell], rings: Sequence[Range]
) -> list[ChemicalClaim]:
    def cell(n: int, w: int, *, exclusive: bool) -> ChemicalCell:
        wanted = (n, w, exclusive)
        return next(c for c in cells if (c.nodes, c.workflows, c.exclusive) == wanted)

    few, many = min(c.nodes for c in cells), max(c.nodes for c in cells)
    low, high = min(c.workflows for c in cells), max(c.workflows for c in cells)
    found = []

    def say(what: str, ours: str, holds: bool | None) -> None:
        verdict = {True: "agrees", False: "disagrees", None: "in part"}[holds]
        found.append(ChemicalClaim(what, ours, verdict))

    for exclusive in (False, True):
        word = " (exclusive capture)" if exclusive else ""
        small = cell(few, high, exclusive=exclusive)
        large = cell(many, high, exclusive=exclusive)
        faster = small.mean_steps < large.mean_steps
        say(
            f"having fewer nodes leads to better performance{word}",
            f"{small.mean_steps:.0f} steps on {few:,} nodes, {large.mean_steps:.0f} on {many:,}",
            faster,
        )
        for n in (few, many):
            one, all_of_them = (cell(n, w, exclusive=exclusive) for w in (low, high))
            ratio = all_of_them.first_steps / one.first_steps
            say(
                f"when the number of workflows increases, the time does not increase much{word}",
                f"{n:,} nodes: the same ten workflows take {ratio:.2f} times as long beside "
                f"{high - low:,} others",
                ratio < 1.5,
            )
    _traffic(say, cell(few, high, exclusive=False), cell(many, high, exclusive=False))
    one, all_of_them = cell(many, low, exclusive=False), cell(many, high, exclusive=False)
    say(
        "the number of messages is directly proportional to the number of tasks",
        f"{one.per_task:.0f} per task with {low:,} workflows, {all_of_them.per_task:.0f} with "
        f"{high:,}",
        abs(all_of_them.per_task / one.per_task - 1) < 0.1,
    )
    _growth(say, fits(cells))
    skew = balance[0].skew
    say(
        "the system is able to spread the network load evenly",
        f"the busiest of {balance[0].nodes:,} nodes has {skew:.0f} times the mean",
        skew < 3,
    )
    taken = cell(many, high, exclusive=True)
    say(
        "republishing resources costs nothing in the network",
        f"{taken.republishing / taken.tasks:.1f} messages per task, "
        f"{taken.republishing / taken.messages:.0%} of all: the pointers have to follow",
        False,
    )
    say(
        "the best resource is selected, whichever provider it is on",
        f"{sum(r.right for r in rings)} of {sum(r.asked for r in rings)} answers of real agents "
        "are what a full scan gives",
        all(r.right == r.asked for r in rings),
    )
    return found


Say = Callable[[str, str, bool | None], None]


def _traffic(say: Say, small: ChemicalCell, large: ChemicalCell) -> None:
    ratio = large.messages / small.messages
    say(
        "increasing the number of nodes does not impact the network significantly",
        f"{large.nodes // small.nodes:,} times the nodes, {ratio:.1f} times the messages",
        ratio < 1.5,
    )
    say(
        "traffic per node is drastically reduced when more nodes take part",
        f"{small.messages_per_node:,.0f} messages on {small.nodes:,} nodes, "
        f"{large.messages_per_node:,.1f} on {large.nodes:,}",
        large.messages_per_node < small.messages_per_node / 2,
    )


def _growth(say: Say, lines: Sequence[Fit]) -> None:
    for what, over, claim in (
        ("steps", "log n", "the time grows logarithmically with the number of nodes"),
        ("messages", "log^2 n", "a task needs O(log^2 n) messages"),
    ):
        those = [f for f in lines if f.what.startswith(what) and "paper" in f.what]
        fit = next((f for f in those if f.over == over), None)
        if fit is not None:
            say(claim, f"a line over {over} has R^2 = {fit.r2:.3f}", fit.r2 > STRAIGHT)
