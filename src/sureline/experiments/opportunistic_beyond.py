"""Beyond the paper's experiment: other loads, workflows, sizes and files, the length of history,
and sites that fail. What the paper's last section asks for, and what an operator would.

Each row is one question, answered for several selectors, all with the queue monitor.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec

from sureline.experiments.processes import in_processes
from sureline.experiments.site_hindsight import best_fixed_s, hindsight_s
from sureline.experiments.site_model import SiteTrait
from sureline.experiments.site_world import run_at_sites
from sureline.experiments.sites_paper import (
    FILE_RATE,
    IDLE_S,
    LOADS,
    MODERN,
    PAPERS,
    pipelines,
    timed,
    twelve_sites,
)
from sureline.workflow.model import Graph, Task

ALL = (*PAPERS, *MODERN)
FEW = ("opportunistic", "printed", "weighted-random", "data-present", "forecast")
LARGE_BYTES = 30_000_000
"""Files that take as long to move as a job takes."""
WINDOWS = (5, 10, 20, 50, 0)
SIZES = (100, 1000, 3000)


class BeyondRow(msgspec.Struct, frozen=True):
    """One selector's answer to one question; `over_fixed` and `over_hindsight` as in
    `SelectorRuns`, `bad` the share of its jobs that went to a site that is no good."""

    question: str
    case: str
    selector: str
    average_s: float
    over_fixed: float
    over_hindsight: float
    withdrawn: float
    bad: float
    unfinished: int


class BeyondCase(NamedTuple):
    question: str
    case: str
    graph: str
    sites: str
    selectors: tuple[str, ...]
    settings: tuple[tuple[str, Any], ...] = ()
    runs: int = 20


CASES = (
    *(BeyondCase("load", load, "pipes", load, ALL) for load in LOADS),
    *(
        BeyondCase("workflow", name, name, "paper", FEW)
        for name in ("pipes", "fan-in", "chains", "mosaic")
    ),
    *(BeyondCase("jobs", f"{n}", f"{n}", "paper", FEW, runs=4) for n in SIZES),
    BeyondCase("files", "1 MB", "pipes", "paper", FEW),
    BeyondCase("files", "30 MB", "large", "paper", FEW),
    *(
        BeyondCase(
            "history",
            f"last {n}" if n else "all",
            "pipes",
            "paper",
            ("opportunistic",),
            (("window", n),),
        )
        for n in WINDOWS
    ),
    *(
        BeyondCase("sites", name, "small", name, ALL)
        for name in ("black-hole", "flapping", "changing")
    ),
)


def scenario_sites(name: str) -> list[SiteTrait]:
    """Six sites, the largest of which is no good in the way that the name says."""
    calm = (0.0, 0.3, 0.6)
    small = [
        SiteTrait(f"s{n}", processors, calm, 600.0, 1 / FILE_RATE)
        for n, processors in enumerate((4, 8, 12, 16, 24))
    ]
    bad = {
        "black-hole": SiteTrait("bad", 64, fails_after_s=5.0),
        "flapping": SiteTrait("bad", 64, up_s=400.0, down_s=300.0),
        "changing": SiteTrait("bad", 64, (0.0, 0.5, 1.0, 1.0), 300.0),
    }[name]
    if name == "changing":
        moving = msgspec.structs.replace
        small = [moving(site, shares=(0.0, 0.5, 1.0, 1.0), every_s=300.0) for site in small]
    return [*small, msgspec.structs.replace(bad, s_per_byte=1 / FILE_RATE)]


def _sites(name: str) -> list[SiteTrait]:
    return twelve_sites(name) if name in LOADS else scenario_sites(name)


@cache
def workflow(name: str) -> Graph:
    if name.isdigit():
        return pipelines(-(-int(name) // 3))
    match name:
        case "small":
            return pipelines(30)
        case "large":
            return pipelines(file_bytes=LARGE_BYTES)
        case "fan-in":
            return _graph(name, _fan_in(10, 29))
        case "chains":
            return _graph(name, _chains(10, 30))
        case "mosaic":
            return _graph(name, _mosaic(73))
    return pipelines()


def _graph(name: str, tasks: Sequence[Task]) -> Graph:
    paths = {path for task in tasks for path in (*task.inputs, *task.outputs)}
    return Graph(name, tasks, file_sizes=dict.fromkeys(sorted(paths), 1_000_000))


def _fan_in(groups: int, width: int) -> list[Task]:
    """Groups of jobs, one behind the other, that one job gathers each."""
    tasks = []
    for group in range(groups):
        before = (f"g{group - 1}",) if group else ("given",)
        made = tuple(f"w{group}.{n}" for n in range(width))
        tasks += [timed(f"work:{group}.{n}", 120.0, before, (path,)) for n, path in enumerate(made)]
        tasks.append(timed(f"gather:{group}", 60.0, made, (f"g{group}",)))
    return tasks


def _chains(count: int, length: int) -> list[Task]:
    return [
        timed(
            f"step:{chain}.{n}",
            120.0,
            (f"c{chain}.{n - 1}",) if n else ("given",),
            (f"c{chain}.{n}",),
        )
        for chain in range(count)
        for n in range(length)
    ]


def _mosaic(images: int) -> list[Task]:
    """The shape of Montage: project, compare neighbours, fit, correct, join."""
    tasks = [timed(f"project:{n}", 60.0, (f"raw{n}",), (f"p{n}",)) for n in range(images)]
    pairs = [(n, (n + step) % images) for n in range(images) for step in (1, 2)]
    tasks += [
        timed(f"compare:{k}", 30.0, (f"p{a}", f"p{b}"), (f"d{k}",))
        for k, (a, b) in enumerate(pairs)
    ]
    tasks.append(timed("fit", 120.0, tuple(f"d{k}" for k in range(len(pairs))), ("fits",)))
    tasks += [timed(f"correct:{n}", 30.0, (f"p{n}", "fits"), (f"b{n}",)) for n in range(images)]
    tasks.append(timed("join", 300.0, tuple(f"b{n}" for n in range(images)), ("mosaic",)))
    return tasks


class _Asked(NamedTuple):
    case: int
    selector: str
    """'' for the two yardsticks."""
    seed: int


def _answer(asked: _Asked) -> tuple[float, float, float, bool]:
    """Seconds, jobs taken back, share sent to the bad site, whether it ended; of the yardsticks,
    their two seconds first."""
    case = CASES[asked.case]
    graph, sites = workflow(case.graph), _sites(case.sites)
    if not asked.selector:
        fixed_s = best_fixed_s(graph, sites, asked.seed)
        return fixed_s, hindsight_s(graph, sites, asked.seed), 0.0, True
    withdrawals = "recover" if asked.selector == "printed" else "count"
    settings = {"selector": asked.selector, "idle_s": IDLE_S, "deep": 0, "withdrawals": withdrawals}
    found = run_at_sites(graph, sites, {**settings, **dict(case.settings)}, asked.seed)
    sent = sum(found.sent.values())
    bad = found.sent.get("bad", 0) / max(1, sent)
    return found.makespan_s, float(found.withdrawn), bad, bool(found.done_s)


def beyond(runs: int, seed: int, tell: Callable[[str], None], only: str = "") -> list[BeyondRow]:
    """`only` names one question; '' for all."""
    chosen = [n for n, case in enumerate(CASES) if only in ("", case.question)]
    asked = [
        _Asked(n, selector, seed + run)
        for n in chosen
        for selector in ("", *CASES[n].selectors)
        for run in range(min(runs, CASES[n].runs) if not only else runs)
    ]
    found = in_processes(_answer, asked, lambda n: tell(f"{n} of {len(asked)} more runs are done"))
    answers = dict(zip(asked, found, strict=True))
    return [_row(CASES[n], selector, n, answers) for n in chosen for selector in CASES[n].selectors]


def _row(
    case: BeyondCase,
    selector: str,
    number: int,
    answers: dict[_Asked, tuple[float, float, float, bool]],
) -> BeyondRow:
    mine = {asked.seed: one for asked, one in answers.items() if asked[:2] == (number, selector)}
    marks = {asked.seed: one for asked, one in answers.items() if asked[:2] == (number, "")}
    mean = statistics.fmean
    return BeyondRow(
        case.question,
        case.case,
        selector,
        round(mean(one[0] for one in mine.values()), 1),
        round(mean(one[0] / marks[seed][0] - 1 for seed, one in mine.items()), 3),
        round(mean(one[0] / marks[seed][1] - 1 for seed, one in mine.items()), 3),
        round(mean(one[1] for one in mine.values()), 1),
        round(mean(one[2] for one in mine.values()), 4),
        sum(not one[3] for one in mine.values()),
    )
