"""From samples to medians, ratios and verdicts."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import median

from rivals.stage import Sample

ENGINES = ("ray", "parsl", "dask", "hyperqueue")
FLOORS = ("ppe", "spawn")
CONTESTANTS = ("sureline", *FLOORS, *ENGINES)
SPAWN_WORKLOADS = ("commands",)
"""The bare loop makes no calls."""

Medians = dict[str, dict[str, float]]
"""metric -> contestant -> figure."""


@dataclass(frozen=True)
class Metric:
    name: str
    workload: str
    figure: str
    title: str
    shown: str
    """How a number is printed."""


METRICS = (
    Metric("calls_per_s", "calls", "per_s", "no-op calls/s", "{:,.0f}"),
    Metric("graph_calls_per_s", "graph", "per_s", "graph calls/s", "{:,.0f}"),
    Metric("commands_per_s", "commands", "per_s", "/bin/true /s", "{:,.0f}"),
    Metric("warm_ms", "warm", "latency_ms", "warm ms", "{:.2f}"),
    Metric("cold_s", "cold", "cold_s", "cold s", "{:.2f}"),
    Metric("call_cpu_ms", "calls", "cpu_ms_per_task", "CPU ms/call", "{:.2f}"),
    Metric("graph_call_cpu_ms", "graph", "cpu_ms_per_task", "CPU ms/graph call", "{:.2f}"),
    Metric("command_cpu_ms", "commands", "cpu_ms_per_task", "CPU ms/command", "{:.2f}"),
    Metric("calls_peak_bytes", "calls", "peak_bytes", "peak MB, calls", "{:,.0f}"),
    Metric("commands_peak_bytes", "commands", "peak_bytes", "peak MB, commands", "{:,.0f}"),
)


@dataclass(frozen=True)
class Target:
    """What sureline's figure must be: in relation to a rival's, or by itself."""

    metric: str
    rival: str
    holds: Callable[[float, float], bool]
    wanted: str
    bound: float


TARGETS = (
    Target("calls_per_s", "ray", operator.ge, "at least 3 times Ray's", 3.0),
    Target("calls_per_s", "ppe", operator.ge, "at least 0.5 of ProcessPoolExecutor's", 0.5),
    Target("graph_calls_per_s", "ray", operator.ge, "at least 2 times Ray's", 2.0),
    *(Target("commands_per_s", name, operator.gt, f"ahead of {name}", 1.0) for name in ENGINES),
    Target("commands_per_s", "spawn", operator.ge, "at least 0.6 of the bare spawn loop's", 0.6),
    *(Target("warm_ms", name, operator.lt, f"below {name}'s", 1.0) for name in ENGINES),
    Target("cold_s", "", operator.lt, "below 1 s", 1.0),
)


@dataclass(frozen=True)
class Verdict:
    metric: str
    wanted: str
    verdict: str
    """`met`, `missed`, or `unknown` where there is no figure to judge by."""
    found: float | None
    """The ratio (or, for a target without a rival, the figure itself)."""


def entered(contestant: str, workload: str) -> bool:
    """Whether this contestant has anything to show in this workload."""
    return contestant != "spawn" or workload in SPAWN_WORKLOADS


def medians(samples: Iterable[Sample]) -> Medians:
    """Over the repeats that delivered."""
    kept = [sample for sample in samples if not sample.reason]
    found: Medians = {}
    for metric in METRICS:
        for name in CONTESTANTS:
            figures = [
                sample.figures[metric.figure]
                for sample in kept
                if sample.contestant == name and sample.workload == metric.workload
            ]
            if figures:
                found.setdefault(metric.name, {})[name] = median(figures)
    return found


def ratios(figures: Medians) -> Medians:
    """Sureline's figure divided by each rival's."""
    found: Medians = {}
    for metric, row in figures.items():
        ours = row.get("sureline")
        if ours is None:
            continue
        theirs = {name: value for name, value in row.items() if name != "sureline" and value > 0}
        found[metric] = {name: ours / value for name, value in theirs.items()}
    return found


def verdicts(figures: Medians) -> list[Verdict]:
    against = ratios(figures)
    told = []
    for target in TARGETS:
        row = against.get(target.metric, {}) if target.rival else figures.get(target.metric, {})
        found = row.get(target.rival or "sureline")
        verdict = "unknown"
        if found is not None:
            verdict = "met" if target.holds(found, target.bound) else "missed"
        told.append(Verdict(target.metric, target.wanted, verdict, found))
    return told
