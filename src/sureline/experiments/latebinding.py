"""The experiments of Delgado Peris, Hernandez and Huedo, "Distributed scheduling and data sharing
in late-binding overlays", run again: three architectures of the paper and ours, at its sizes.

Each run is a testbed of the agents that run live (`latebinding_sites`), in whichever process is
free. Figures 2 to 8 beside the paper's numbers, and a verdict on what it claims; where greedy
assignment differs from exact; and what the paper leaves open (`latebinding_beyond`).
"""

from __future__ import annotations

import gc
import resource
import statistics
import time
from collections.abc import Callable, Iterable, Sequence
from random import Random

import msgspec
import numpy as np

from sureline.experiments.latebinding_beyond import (
    BulkPoint,
    ChurnCast,
    Outage,
    PriorityEffect,
    broadcasts,
    bulk_curve,
    outage,
    priority_effect,
)
from sureline.experiments.latebinding_sites import KINDS, Kind, Sample, Testbed, TestbedRun
from sureline.experiments.processes import in_processes
from sureline.strategies.latebinding.assignment import WAYS, sum_of
from sureline.strategies.latebinding.settings import Architecture

PAPER = (
    "Delgado Peris, Hernandez, Huedo: Distributed scheduling and data sharing in late-binding "
    "overlays"
)
SIZES = ((100, 300), (500, 1500), (1500, 5000), (1500, 10_000))
ARCHITECTURES: tuple[Architecture, ...] = ("pre-dht", "centralized", "distributed", "event")
PAPERS = ARCHITECTURES[:3]
REQUESTS = {"pre-dht": 12.0, "centralized": 9.0, "distributed": 5.0}
PERIOD_S = 20.0
CHURNS = (0.0, 0.05, 0.2)
"""Shares of the pilots that crash in a minute while there are broadcasts."""

Tell = Callable[[str], None]


class LateCell(msgspec.Struct, frozen=True):
    """One point of one figure: the mean over all workflows and runs, and the standard deviation of
    that mean."""

    figure: str
    architecture: str
    pilots: int
    tasks: int
    mean: float
    error: float
    paper: str


class LateSeries(msgspec.Struct, frozen=True):
    """Figures 5 (central) and 6 (not): one serial run of the largest testbed."""

    figure: str
    architecture: str
    pilots: int
    tasks: int
    startup_s: float
    samples: tuple[Sample, ...]


class RankSums(msgspec.Struct, frozen=True):
    """What each way of dealing out makes of the same matrices: the sum of ranks, against exact."""

    tasks: int
    places: int
    shares: dict[str, float]
    seconds: dict[str, float]


class LateClaim(msgspec.Struct, frozen=True):
    what: str
    paper: str
    ours: str
    verdict: str


class LateReproduced(msgspec.Struct, frozen=True):
    paper: str
    runs: int
    seed: int
    cells: list[LateCell]
    series: list[LateSeries]
    sums: list[RankSums]
    outage: Outage
    bulk: list[BulkPoint]
    priority: PriorityEffect
    broadcasts: list[ChurnCast]
    claims: list[LateClaim]
    cpu_s: float


TestbedItem = tuple[Architecture, Kind, int, int, int]
"""(architecture, workflow, pilots, tasks, seed)."""


def reproduce(largest: int, runs: int, seed: int, tell: Tell) -> LateReproduced:
    """`largest` is the number of pilots up to which the paper's testbeds are run."""
    began_s = _cpu_s()
    sizes = [size for size in SIZES if size[0] <= largest] or [SIZES[0]]
    items: list[TestbedItem] = [
        (architecture, kind, *size, seed * 1000 + run)
        for size in reversed(sizes)  # what takes longest begins first
        for run in range(runs)
        for architecture in ARCHITECTURES
        for kind in KINDS
    ]
    found = in_processes(
        testbed_run, items, lambda done: tell(f"{done} of {len(items)} testbeds are done")
    )
    tell("the queue is gone for minutes; completions told in bulk; a changed priority")
    pilots, tasks = SIZES[0]
    gone, bulk, priority = outage(pilots, tasks, seed), bulk_curve(seed), priority_effect(100, seed)
    tell("broadcasts while pilots come and go")
    casts = [broadcasts(min(largest, SIZES[1][0]), churn, seed) for churn in CHURNS]
    tell("first column, greedy, exact")
    sums = [rank_sums(n, m, seed) for n, m in ((150, 100), (750, 500), (3000, 1500))]
    cells = list(_cells(found, sizes))
    return LateReproduced(
        PAPER,
        runs,
        seed,
        cells,
        list(_series(found, sizes[-1])),
        sums,
        gone,
        bulk,
        priority,
        casts,
        list(_claims(found, cells, sizes)),
        _cpu_s() - began_s,
    )


def testbed_run(item: TestbedItem) -> TestbedRun:
    try:
        return Testbed(*item).run()
    finally:
        gc.collect()  # a testbed is full of circles, and large


def _cpu_s() -> float:
    """Of this process, and of those that it has started and that have ended."""
    both = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in both)


def rank_sums(tasks: int, places: int, seed: int) -> RankSums:
    """Pilots that hold some of the inputs, of very different sizes, of some tasks."""
    random = Random(f"{seed} {tasks}")
    ranks = np.zeros((tasks, places))
    for task in range(tasks):
        size = random.lognormvariate(0.0, 1.0)
        for place in random.sample(range(places), 3):
            ranks[task, place] = size * random.random()
    sums, seconds = {}, {}
    for name, way in WAYS.items():
        began_s = time.process_time()
        sums[name] = sum_of(ranks, way(ranks))
        seconds[name] = round(time.process_time() - began_s, 4)
    best = sums["exact"]
    return RankSums(tasks, places, {n: round(s / best, 4) for n, s in sums.items()}, seconds)


# -- the figures -----------------------------------------------------------------------------------

NEEDS_FULL = "not judged at this size; --full does"
Measure = Callable[[TestbedRun], float]
FIGURES: dict[str, tuple[str, Measure]] = {
    "2": ("queue requests per job", lambda r: (r.requests + _served(r)) / r.tasks),
    "3": ("seconds between two tasks of a pilot", lambda r: r.delay_s),
    "4": ("seconds until all is done", lambda r: r.turnaround_s),
    "7": ("share of reads from a cache", lambda r: (r.local + r.from_peers) / max(1, r.reads)),
    "8": ("share of reads from the local cache", lambda r: r.local / max(1, r.reads)),
}


def _served(run: TestbedRun) -> int:
    """The paper's queue serves jobs and takes reports; ours has runs do that."""
    return 0 if run.architecture == "event" else run.files


def _paper_says(figure: str, architecture: str, pilots: int) -> str:
    if figure == "2":
        return f"{REQUESTS[architecture]:g}" if architecture in REQUESTS else ""
    if figure == "3" and architecture == "distributed":
        return "about the period, 20"
    if figure == "3" and architecture in REQUESTS and pilots <= 500:
        return "about 5"
    if figure == "7" and architecture in ("centralized", "distributed"):
        return "about 1"
    return ""


def _cells(found: Sequence[TestbedRun], sizes: Sequence[tuple[int, int]]) -> Iterable[LateCell]:
    for figure, (_, measure) in FIGURES.items():
        for architecture in ARCHITECTURES:
            for pilots, tasks in sizes:
                values = [measure(r) for r in _of(found, architecture, pilots, tasks)]
                error = statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
                mean, paper = statistics.fmean(values), _paper_says(figure, architecture, pilots)
                yield LateCell(
                    figure, architecture, pilots, tasks, round(mean, 4), round(error, 4), paper
                )


def _of(
    found: Sequence[TestbedRun], architecture: str, pilots: int, tasks: int
) -> list[TestbedRun]:
    """Those of one testbed. Merging workflows may have a task less than asked for."""
    return [
        r
        for r in found
        if r.architecture == architecture and r.pilots == pilots and abs(r.tasks - tasks) < 10
    ]


def _series(found: Sequence[TestbedRun], size: tuple[int, int]) -> Iterable[LateSeries]:
    figures: tuple[tuple[str, Architecture], ...] = tuple(zip("5566", ARCHITECTURES, strict=True))
    for figure, architecture in figures:
        serial = [r for r in _of(found, architecture, *size) if r.kind == "serial"]
        one = serial[0]
        samples = one.samples
        yield LateSeries(figure, architecture, one.pilots, one.tasks, one.startup_s, samples)


# -- what the paper says ---------------------------------------------------------------------------


def _claims(
    found: Sequence[TestbedRun], cells: Sequence[LateCell], sizes: Sequence[tuple[int, int]]
) -> Iterable[LateClaim]:
    def mean(figure: str, architecture: str, size: tuple[int, int]) -> float:
        wanted = (figure, architecture, *size)
        return next(
            c.mean for c in cells if (c.figure, c.architecture, c.pilots, c.tasks) == wanted
        )

    small, large = sizes[0], sizes[-1]
    whole = large == SIZES[-1]
    for architecture, paper in REQUESTS.items():
        ours = mean("2", architecture, large)
        near = abs(ours / paper - 1) <= 0.3
        yield _claim(
            f"requests per job, {architecture} (Fig. 2)", f"around {paper:g}", f"{ours:.1f}", near
        )
    order = [mean("2", architecture, large) for architecture in PAPERS]
    falls = order == sorted(order, reverse=True)
    told = ", ".join(f"{value:.1f}" for value in order)
    yield _claim("requests fall from pre-DHT to distributed (Fig. 2)", "yes", told, falls)
    for architecture in PAPERS[:2] if len(sizes) > 1 else ():
        low, high = mean("3", architecture, small), mean("3", architecture, large)
        told = f"{low:.1f} s, then {high:.1f} s"
        yield _claim(
            f"delay of {architecture} grows with the size (Fig. 3)",
            "yes",
            told,
            high > 1.5 * low if whole else None,
        )
    delays = [mean("3", "distributed", size) for size in sizes]
    told = f"{min(delays):.1f} to {max(delays):.1f} s"
    flat = max(delays) <= 1.3 * min(delays) and 0.4 <= max(delays) / PERIOD_S <= 1.5
    yield _claim(
        "delay of distributed is almost constant, about the period (Fig. 3)", "yes", told, flat
    )
    yield from _of_the_largest(found, mean, large)
    hits = [mean("7", "pre-dht", size) for size in sizes]
    if len(sizes) > 1:
        yield _claim(
            "the hit ratio of pre-DHT grows with the size (Fig. 7)",
            "yes",
            ", ".join(f"{hit:.2f}" for hit in hits),
            hits == sorted(hits) and hits[-1] > 2 * hits[0] if whole else None,
        )
    shared = [mean("7", a, size) for a in ("centralized", "distributed") for size in sizes]
    yield _claim(
        "with the hash table almost all reads hit (Fig. 7)",
        "about 1",
        f"{min(shared):.3f}",
        min(shared) > 0.97,
    )
    local = {a: mean("8", a, large) for a in PAPERS}
    told = ", ".join(f"{name} {value:.2f}" for name, value in local.items())
    best = local["distributed"] == max(local.values())
    yield _claim("distributed reads most from its own disk (Fig. 8)", "yes", told, best)
    by_kind = {
        kind: statistics.fmean(
            r.local / max(1, r.reads) for r in found if r.kind == kind and r.architecture in PAPERS
        )
        for kind in KINDS
    }
    told = ", ".join(f"{kind} {value:.2f}" for kind, value in by_kind.items())
    lowest = by_kind["merging"] == min(by_kind.values())
    yield _claim("merging reads least from its own disk (Fig. 8)", "yes", told, lowest)
    ours = mean("2", "event", large)
    yield LateClaim(
        "requests per job, ours", "1 at most wanted", f"{ours:.2f}", _verdict(ours <= 1)
    )
    medians = [r.median_delay_s for r in _of(found, "event", *large)]
    average_s = mean("3", "event", large)
    told = f"{statistics.median(medians):.2f} s in the median, {average_s:.1f} s on average"
    yield LateClaim("delay between two tasks, ours", "20 s (distributed)", told, "new")


def _of_the_largest(
    found: Sequence[TestbedRun],
    mean: Callable[[str, str, tuple[int, int]], float],
    large: tuple[int, int],
) -> Iterable[LateClaim]:
    times = {a: mean("4", a, large) for a in ARCHITECTURES}
    told = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in times.items())
    whole = large == SIZES[-1]
    sooner = times["distributed"] < min(times["pre-dht"], times["centralized"]) if whole else None
    yield _claim("of the largest testbed, distributed is done first (Fig. 4)", "yes", told, sooner)
    startup_s = max(r.startup_s for r in _of(found, "pre-dht", *large))
    if whole:
        told = f"{startup_s / 60:.1f} minutes until nine of ten have a task"
        yield _claim(
            "pre-DHT takes almost 10 minutes to start (Fig. 5)",
            "yes",
            told,
            6 <= startup_s / 60 <= 14,
        )
    pending = {a: max(s.pending for r in _of(found, a, *large) for s in r.samples) for a in PAPERS}
    told = ", ".join(f"{name} {most}" for name, most in pending.items())
    short = pending["distributed"] < max(10, pending["pre-dht"] / 10)
    yield _claim("requests hardly queue up when distributed (Fig. 6)", "yes", told, short)


def _claim(what: str, paper: str, ours: str, holds: bool | None) -> LateClaim:
    return LateClaim(what, paper, ours, _verdict(holds))


def _verdict(holds: bool | None) -> str:
    """None: the paper says it of larger testbeds than were run."""
    return NEEDS_FULL if holds is None else "agrees" if holds else "disagrees"


def _shown(cell: LateCell) -> str:
    paper = f" ({cell.paper})" if cell.paper else ""
    return f"{cell.pilots}/{cell.tasks}: {cell.mean:.4g} +- {cell.error:.2g}{paper}"


def lines(made: LateReproduced) -> Iterable[str]:
    yield f"{made.paper}: runs of each workflow: {made.runs}, seed {made.seed}"
    for figure, (what, _) in FIGURES.items():
        yield f"Fig. {figure}, {what} (mean +- standard deviation of the mean; paper):"
        for architecture in ARCHITECTURES:
            those = [c for c in made.cells if (c.figure, c.architecture) == (figure, architecture)]
            yield f"    {architecture:<12} {'   '.join(map(_shown, those))}"
    yield "Fig. 5 and 6, one serial run of the largest testbed:"
    for one in made.series:
        most = max(sample.pending for sample in one.samples)
        yield (
            f"    {one.architecture:<12} nine of ten pilots at work after {one.startup_s:.0f} s, "
            f"{most} requests waiting at most"
        )
    yield "Sum of ranks, against exact, and seconds:"
    for sums in made.sums:
        told = ", ".join(
            f"{name} {share:.3f} ({sums.seconds[name]:.2f} s)"
            for name, share in sums.shares.items()
        )
        yield f"    {sums.tasks} tasks, {sums.places} places: {told}"
    out = made.outage
    yield (
        f"The queue gone for {out.gone_s:.0f} s: {out.done} of {out.tasks} done, "
        f"{out.turnaround_s:.0f} s instead of {out.undisturbed_s:.0f} s"
    )
    yield "Completions told in bulk, a pilot free for each task that waits for another:"
    for point in made.bulk:
        yield (
            f"    every {point.interval_s:g} s: it begins {point.dependent_delay_s:.1f} s later, "
            f"{point.requests_per_job:.2f} requests per job, all done after "
            f"{point.turnaround_s:.0f} s"
        )
    effect = made.priority
    yield (
        f"A changed priority, {effect.pilots} pilots: the first task of the run that was raised is "
        f"placed after {effect.first_s:.1f} s, the last of the other one before that after "
        f"{effect.others_s:.1f} s"
    )
    yield "Broadcasts while pilots crash and come back:"
    for cast in made.broadcasts:
        yield (
            f"    {cast.pilots} pilots, {cast.churn_per_minute:.0%} of them in a minute: "
            f"{cast.reached:.2%} reached, {cast.messages_per_node:.1f} messages per pilot, "
            f"{cast.median_s:.2f} s in the median, {cast.worst_s:.1f} s at most"
        )
    yield "What the paper says:"
    for claim in made.claims:
        yield f"    {claim.what}: paper {claim.paper}; ours {claim.ours}: {claim.verdict}"
