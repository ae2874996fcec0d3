"""Workflows to simulate: read from a file, or generated in the shapes that real ones have.

`workload_graph` gives a graph whose tasks all carry an estimate of their work (`takes`), and whose
files all have a size: what `work.Work` needs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from random import Random

import msgspec

from sureline.experiments.distributions import Distribution
from sureline.experiments.scenario import Workload
from sureline.workflow import wfformat
from sureline.workflow.check import check
from sureline.workflow.collect import Collector
from sureline.workflow.globs import RealDisk
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Command, Graph, Needs, Takes, Task
from sureline.workflow.read import read_bytes
from sureline.workflow.wfformat import (
    ExecutedTask,
    Instance,
    InstanceProgram,
    InstanceWorkflow,
    Specification,
)
from sureline.workflow.wfformat_reader import read_instance
from sureline.workflow.yaml_reader import read_yaml

RETRIES = 3
"""Of generated tasks, where the scenario does not say."""


def workload_graph(workload: Workload, seed: int) -> Graph:
    """The workflow of a scenario; equal for equal seeds."""
    random = Random(f"{seed}/workload")
    if workload.kind == "workflow":
        graph = _from_file(workload)
    else:
        tasks = list(_SHAPES[workload.kind](workload, random))
        graph = Graph(f"{workload.kind} of {len(tasks)}", tasks)
    return _adjusted(graph, workload, random)


class _ImaginaryDisk(RealDisk):
    """The user's files in a simulation: any that is named is there. Wildcards look at real ones."""

    def exists(self, path: str) -> bool:
        return True


def _from_file(workload: Workload) -> Graph:
    assert workload.file is not None, "the reader saw to it"
    data, file = read_bytes(workload.file), os.fspath(workload.file)
    directory = workload.file.parent
    disk = _ImaginaryDisk(directory)
    if workload.file.suffix.lower() != ".json":
        return read_yaml(data, file=file, directory=directory, disk=disk).graph
    return _trace(read_instance(data, file), file, directory, disk)


def _trace(instance: Instance, file: str, directory: Path, disk: RealDisk) -> Graph:
    """A trace with its files, and its runtimes as what tasks take."""
    if not instance.workflow.specification.tasks:
        raise UserError(f"{file} describes no tasks; name another trace")
    recorded = instance.workflow.execution
    known = {task.id: task for task in recorded.tasks} if recorded else {}
    executed = [
        _runnable(known.get(task.id) or ExecutedTask(task.id, 0.0))
        for task in instance.workflow.specification.tasks
    ]
    execution = wfformat.Execution(0.0, "", tuple(executed))
    specification = _tidied(instance.workflow.specification)
    found = Collector(file)
    draft = wfformat.to_draft(
        msgspec.structs.replace(instance, workflow=InstanceWorkflow(specification, execution)),
        pretend=False,
        speed=1.0,
        found=found,
    )
    draft.file = file
    took = [max(0.0, float(done.runtime_in_seconds)) for done in executed]
    draft.tasks = [
        msgspec.structs.replace(task, takes=Takes(seconds, seconds, seconds))
        for task, seconds in zip(draft.tasks, took, strict=True)
    ]
    return check(draft, directory=directory, disk=disk, found=found)


def _tidied(specification: Specification) -> Specification:
    """The same with paths that lie in one directory: published traces name files anywhere."""
    names: dict[str, str] = {}
    taken: set[str] = set()

    def tidy(path: str) -> str:
        if path not in names:
            parts = [part for part in path.split("/") if part not in ("", ".", "..")]
            name = base = "/".join(parts) or "file"
            count = 1
            while name in taken:
                count += 1
                name = f"{base}~{count}"
            taken.add(name)
            names[path] = name
        return names[path]

    tasks = tuple(
        msgspec.structs.replace(
            task,
            input_files=tuple(map(tidy, task.input_files)),
            output_files=tuple(map(tidy, task.output_files)),
        )
        for task in specification.tasks
    )
    files = tuple(msgspec.structs.replace(f, id=tidy(f.id)) for f in specification.files or ())
    return Specification(tasks, files)


def _runnable(executed: ExecutedTask) -> ExecutedTask:
    """Published traces often leave out the program; nothing is really run here."""
    if executed.command is not None and executed.command.program:
        return executed
    return msgspec.structs.replace(executed, command=InstanceProgram(executed.id))


def _adjusted(graph: Graph, workload: Workload, random: Random) -> Graph:
    """Every task with an estimate and the retries asked for, every file with a size."""
    tasks = [_estimated(task, workload, random) for task in graph.tasks]
    sizes = {path: int(size * workload.size_factor) for path, size in graph.file_sizes.items()}
    for path in [*graph.external, *graph.producer]:
        if path not in sizes:
            sizes[path] = int(workload.output_bytes.draw(random))
    return Graph(graph.name, tasks, file_sizes=sizes, params=graph.params, source=graph.source)


def _estimated(task: Task, workload: Workload, random: Random) -> Task:
    takes = task.takes
    if workload.work_s is not None:
        drawn = workload.work_s.draw(random)
        takes = Takes(drawn, drawn, drawn)
    elif takes is None:
        takes = Takes(1.0, 1.0, 1.0)
    factor = workload.work_factor
    takes = Takes(
        takes.optimistic_s * factor, takes.likely_s * factor, takes.pessimistic_s * factor
    )
    retries = task.retries if workload.retries is None else workload.retries
    return msgspec.structs.replace(task, takes=takes, retries=retries)


def _task(
    name: str,
    inputs: Iterable[str],
    outputs: Iterable[str],
    cores: Distribution,
    random: Random,
) -> Task:
    needs = Needs(cores=round(cores.draw(random), 3))
    reads, makes = tuple(inputs), tuple(outputs)
    run = f"{name.partition(':')[0]} {' '.join(reads)} -o {' '.join(makes)}"
    return Task(name, Command(run), reads, makes, needs=needs, retries=RETRIES)


def _chain(workload: Workload, random: Random) -> Iterator[Task]:
    """One task after the other."""
    before = "input.dat"
    for number in range(1, workload.tasks + 1):
        made = f"step{number}.dat"
        yield _task(f"step:{number}", [before], [made], workload.cores, random)
        before = made


def _fork_join(workload: Workload, random: Random) -> Iterator[Task]:
    """Stages of `width` tasks, each split from one file and joined into the next."""
    before = "input.dat"
    for stage in range(1, workload.levels + 1):
        parts = [f"part{stage}-{number}.dat" for number in range(1, workload.width + 1)]
        for number, part in enumerate(parts, 1):
            yield _task(f"work:{stage}-{number}", [before], [part], workload.cores, random)
        before = f"joined{stage}.dat"
        yield _task(f"join:{stage}", parts, [before], workload.cores, random)


def _layered(workload: Workload, random: Random) -> Iterator[Task]:
    """A random graph: every task reads up to `parents` files of the level above."""
    levels = min(workload.levels, workload.tasks)
    counts = [workload.tasks // levels + (k < workload.tasks % levels) for k in range(levels)]
    above = ["input.dat"]
    for level, count in enumerate(counts, 1):
        made = []
        for number in range(1, count + 1):
            reads = random.sample(above, min(len(above), random.randint(1, workload.parents)))
            made.append(f"level{level}-{number}.dat")
            name = f"level{level}:{number}"
            yield _task(name, reads, [made[-1]], workload.cores, random)
        above = made


def _montage(workload: Workload, random: Random) -> Iterator[Task]:
    """The mosaic of `width` images in the shape of Montage: project each, fit the overlaps of
    neighbours, model the background, correct each, add all up, shrink."""
    numbers = range(1, workload.width + 1)

    def task(name: str, inputs: Iterable[str], outputs: Iterable[str]) -> Task:
        return _task(name, inputs, outputs, workload.cores, random)

    for n in numbers:
        yield task(f"project:{n}", [f"image{n}.fits"], [f"projected{n}.fits"])
    fits = []
    for n in numbers:
        for other in (n + 1, n + 2):
            if other <= workload.width:
                fits.append(f"fit{n}-{other}.txt")
                reads = [f"projected{n}.fits", f"projected{other}.fits"]
                yield task(f"difffit:{n}-{other}", reads, [fits[-1]])
    yield task("concatfit", fits, ["fits.tbl"])
    yield task("bgmodel", ["fits.tbl"], ["corrections.tbl"])
    corrected = [f"corrected{n}.fits" for n in numbers]
    for n in numbers:
        reads = [f"projected{n}.fits", "corrections.tbl"]
        yield task(f"background:{n}", reads, [corrected[n - 1]])
    yield task("imgtbl", corrected, ["images.tbl"])
    yield task("add", ["images.tbl", *corrected], ["mosaic.fits"])
    yield task("shrink", ["mosaic.fits"], ["mosaic-small.fits"])
    yield task("jpeg", ["mosaic-small.fits"], ["mosaic.jpg"])


_SHAPES = {
    "chain": _chain,
    "fork-join": _fork_join,
    "layered": _layered,
    "montage": _montage,
}
