"""What a calibration is about: traces of a folder, and made-up workflows with awkward durations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from sureline.experiments.calibration_truth import (
    NO_SHIFTS,
    History,
    Truth,
    history_of,
    input_bytes,
    trace_bases_s,
)
from sureline.experiments.distributions import constant
from sureline.experiments.scenario import Workload
from sureline.experiments.workloads import workload_graph
from sureline.forecast.shape import Floats
from sureline.journal.history import Observed
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph, Needs, Takes

TRACES_MAX = 1000
BASES = 20_000
"""Base durations of a made-up kind: its distribution is these values."""
SHORT = 0.03
"""What the tasks of `small_cases` take, beside those of the others."""
WRONG_BY = 4.0
"""The user of `wrong-estimates` says a quarter, or four times, of what a kind takes."""


class CalibrationCase(NamedTuple):
    name: str
    graph: Graph
    """As a user would give it: without what its tasks took."""
    truth: Truth


def trace_cases(directory: Path) -> list[CalibrationCase]:
    """Every trace of a folder: its durations by kind, with shifts between runs."""
    return [
        CalibrationCase(name, _untold(graph), Truth(_untold(graph), trace_bases_s(graph)))
        for name, graph in _traces(directory)
    ]


def unseen_cases(directory: Path) -> list[CalibrationCase]:
    """Every trace of a folder as a run that happened: its durations by kind and nothing else."""
    return [
        CalibrationCase(
            name, _untold(graph), Truth(_untold(graph), trace_bases_s(graph), NO_SHIFTS)
        )
        for name, graph in _traces(directory)
    ]


def learned_from(directory: Path) -> History:
    """What a journal would know if the traces of a folder had been its runs."""
    found: dict[str, list[Observed]] = {}
    for name, graph in _traces(directory):
        took_s = np.array([[task.takes.likely_s if task.takes else 0.0 for task in graph.tasks]])
        for kind, seen in history_of(graph, took_s, input_bytes(graph), name).items():
            found.setdefault(kind, []).extend(seen)
    return found


def recorded_s(directory: Path) -> dict[str, Floats]:
    """What the tasks of each trace took, in their order: one row."""
    return {
        name: np.array([[task.takes.likely_s if task.takes else 0.0 for task in graph.tasks]])
        for name, graph in _traces(directory)
    }


def _traces(directory: Path) -> Iterator[tuple[str, Graph]]:
    if not directory.is_dir():
        raise UserError(f"{directory} is not a folder; name one that holds WfFormat traces")
    files = sorted(path for path in directory.iterdir() if path.suffix.lower() == ".json")
    if not files:
        raise UserError(f"{directory} holds no traces (*.json); name a folder that does")
    if len(files) > TRACES_MAX:
        raise UserError(f"{directory} holds more than {TRACES_MAX:,} traces; give fewer")
    for path in files:
        graph = workload_graph(Workload("workflow", file=path, work_factor=1.0), 0)
        if not any(task.takes is not None and task.takes.likely_s > 0 for task in graph.tasks):
            raise UserError(f"{path} does not say what its tasks took; remove it from the folder")
        yield path.stem, graph


def _untold(graph: Graph) -> Graph:
    """The graph without what its tasks took. Every task takes one slot."""
    tasks = [msgspec.structs.replace(task, takes=None, needs=Needs()) for task in graph.tasks]
    return Graph(graph.name, tasks, file_sizes=graph.file_sizes, source=graph.source)


def generated_cases(seed: int) -> list[CalibrationCase]:
    """Random graphs with ordinary, heavy-tailed and two-peaked durations; wrong estimates."""
    random = np.random.default_rng([seed, 77])
    shapes = {
        "random-graph": Workload("layered", tasks=80, levels=8, parents=3),
        "wide-graph": Workload("layered", tasks=120, levels=4, parents=2),
        "heavy-tail": Workload("layered", tasks=80, levels=5, parents=3),
        "two-peaks": Workload("layered", tasks=80, levels=5, parents=3),
        "montage-like": Workload("montage", width=20),
        "wrong-estimates": Workload("fork-join", width=12, levels=4),
    }
    return [_generated(name, shape, seed, random) for name, shape in shapes.items()]


def small_cases(seed: int) -> list[CalibrationCase]:
    """Workflows small and short enough to be run thousands of times by the real agents: what
    a simulated grid costs grows with the time that its peers must stay in touch."""
    random = np.random.default_rng([seed, 78])
    shapes = {
        "stages": Workload("fork-join", width=5, levels=3),
        "random-graph": Workload("layered", tasks=20, levels=4, parents=3),
        "mosaic": Workload("montage", width=4),
    }
    return [_generated(name, shape, seed, random, SHORT) for name, shape in shapes.items()]


def _generated(
    name: str, shape: Workload, seed: int, random: np.random.Generator, scale: float = 1.0
) -> CalibrationCase:
    graph = workload_graph(msgspec.structs.replace(shape, work_s=constant(1.0)), seed)
    # names such as level3:7 are of one kind; here every level has one of its own
    tasks = [
        msgspec.structs.replace(task, kind=task.name.partition(":")[0], takes=None)
        for task in graph.tasks
    ]
    kinds = list(dict.fromkeys(task.kind_name for task in tasks))
    draw = {"heavy-tail": _heavy, "two-peaks": _two_peaks}.get(name, _ordinary)
    bases_s = {kind: scale * draw(random) for kind in kinds}
    if name == "wrong-estimates":
        said = _wrong(bases_s)
        tasks = [msgspec.structs.replace(task, takes=said[task.kind_name]) for task in tasks]
    made = Graph(name, tasks, file_sizes=graph.file_sizes)
    return CalibrationCase(name, made, Truth(made, bases_s))


def _ordinary(random: np.random.Generator) -> Floats:
    median_s = float(random.uniform(5, 200))
    return median_s * np.exp(random.uniform(0.1, 0.6) * random.standard_normal(BASES))


def _heavy(random: np.random.Generator) -> Floats:
    """A Pareto tail with a mean and hardly a variance: one in a thousand takes 20 times as long."""
    drawn: Floats = random.uniform(5, 60) * (1 + random.pareto(2.2, BASES))
    return drawn


def _two_peaks(random: np.random.Generator) -> Floats:
    """Some tasks find their data at hand, the others take six times as long."""
    slow = random.random(BASES) < random.uniform(0.1, 0.5)
    drawn: Floats = random.uniform(5, 60) * np.where(slow, 6.0, 1.0)
    return drawn * np.exp(0.1 * random.standard_normal(BASES))


def _wrong(bases_s: Mapping[str, Floats]) -> dict[str, Takes]:
    said = {}
    for number, (kind, seconds) in enumerate(bases_s.items()):
        factor = WRONG_BY if number % 2 else 1 / WRONG_BY
        likely_s = float(np.median(seconds)) * factor
        said[kind] = Takes(0.8 * likely_s, likely_s, 1.3 * likely_s)
    return said
