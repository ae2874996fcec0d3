"""Checking: from tasks as described to a graph that can be run, or to all that is wrong with them.

A `Draft` is what a reader or the Python interface has: tasks whose inputs may be wildcards and
whose `after` may name a whole block. `check` turns it into a `Graph`, or raises `WorkflowError`
with every mistake it can find, those of the reader included.
"""

from __future__ import annotations

import math
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Protocol

import msgspec
import rustworkx as rx

from sureline.workflow.collect import Collector, did_you_mean
from sureline.workflow.globs import RealDisk, UserFiles
from sureline.workflow.mistakes import Mistake
from sureline.workflow.model import Call, Command, Graph, Needs, Pause, Task
from sureline.workflow.quantities import format_cores, format_size
from sureline.workflow.resolve import LINKS_MAX, Resolver
from sureline.workflow.shapes import digraph
from sureline.workflow.wishes import held_in

NAME_LENGTH_MAX = 1000
_CYCLE_TASKS_SHOWN = 12
_CONTROL = re.compile(r"[\x00-\x1f\x7f]")


class Draft(msgspec.Struct):
    """A described workflow, unchecked. `lines[i]` is where `tasks[i]` is described."""

    name: str
    tasks: list[Task]
    lines: Sequence[int | None] = ()
    file: str | None = None
    params: Mapping[str, str] = {}
    functions: Mapping[str, bytes] = {}
    reached: Mapping[str, Mapping[str, str]] = {}
    file_sizes: Mapping[str, int] = {}
    whole: bool = True
    """False if some tasks could not be read; what they would make is then unknown."""


class Reading(msgspec.Struct):
    """A workflow that was read and is sound. `lines` tells where a task is described."""

    graph: Graph
    lines: Mapping[str, int]
    warnings: Sequence[Mistake] = ()


def check(
    draft: Draft,
    *,
    directory: Path,
    beside: Path | None = None,
    disk: UserFiles | None = None,
    capacity: Available | None = None,
    found: Collector | None = None,
) -> Graph:
    """The graph of a sound draft. Raises WorkflowError with all mistakes, `found` included.

    Inputs that no task makes must exist in `directory` (or on `disk`, which stands for it).
    `beside` is the workflow file's own directory, for a better hint. With a `capacity`, needs
    that it can never meet are mistakes too.
    """
    found = found if found is not None else Collector(draft.file)
    lines = draft.lines or [None] * len(draft.tasks)
    tasks, lines = _uniquely_named(draft.tasks, lines, found)
    for task, line in zip(tasks, lines, strict=True):
        _check_alone(task, line, found)
    if capacity is not None:
        _check_needs(tasks, lines, capacity, found)
    tasks = Resolver(
        tasks,
        lines,
        disk if disk is not None else RealDisk(directory),
        found,
        whole=draft.whole,
        beside=_beside(directory, beside),
    ).resolve()
    tasks = _Afters(tasks, lines, found, draft.whole).resolve()
    graph = Graph(
        draft.name,
        tasks,
        params=draft.params,
        functions=draft.functions,
        reached=draft.reached,
        file_sizes=draft.file_sizes,
        source=draft.file,
    )
    _check_cycles(graph, lines, found)
    found.raise_if_any()
    _check_held(tasks, lines, found)
    found.raise_if_any()
    return graph


def _beside(directory: Path, beside: Path | None) -> Callable[[str], str | None]:
    """Tells the other directory to run in, if a path exists there."""
    if beside is None or os.path.realpath(beside) == os.path.realpath(directory):
        return lambda path: None
    where = os.fspath(beside)
    return lambda path: where if os.path.exists(f"{where}/{path}") else None


def _uniquely_named(
    tasks: Sequence[Task], lines: Sequence[int | None], found: Collector
) -> tuple[list[Task], list[int | None]]:
    """The tasks with usable names; of two with one name, the first."""
    kept: dict[str, Task] = {}
    kept_lines: list[int | None] = []
    for task, line in zip(tasks, lines, strict=True):
        name = task.name
        if name in kept:
            hint = "give one of them another name"
            found.add("names given twice", f"two tasks are named '{name}'", hint, line)
        elif not name or len(name) > NAME_LENGTH_MAX or _CONTROL.search(name):
            what = f"{name[:50]!r} cannot be a task's name"
            hint = f"use 1 to {NAME_LENGTH_MAX} characters without control characters"
            found.add("bad names", what, hint, line)
        else:
            kept[name] = task
            kept_lines.append(line)
    return list(kept.values()), kept_lines


def _check_held(tasks: Sequence[Task], lines: Sequence[int | None], found: Collector) -> None:
    """What a formula asks a machine for must be an input: it holds nothing of others."""
    for task, line in zip(tasks, lines, strict=True):
        if type(task.action) is Command:
            named = dict.fromkeys(held_in(task.requires) + held_in(task.rank))
            for path in [path for path in named if path not in task.inputs]:
                what = f"`held({path!r})` of task '{task.name}' names none of its inputs"
                hint = did_you_mean(path, task.inputs, "add it to `inputs`, or leave it out")
                found.add("unknown inputs", what, hint, line)


def _check_alone(task: Task, line: int | None, found: Collector) -> None:
    """What can be wrong with a task by itself."""
    action = task.action
    if type(action) is Command:
        if not action.run.strip():
            hint = "write the command line to run"
            found.add("empty commands", f"`run` of task '{task.name}' is empty", hint, line)
        if action.shell and not _is_split(action.shell):
            what = f"`shell` of task '{task.name}' is {action.shell!r}"
            hint = "name a program, such as bash, python3 or 'perl -w {}', with its quotes closed"
            found.add("bad shells", what, hint, line)
    elif type(action) is Pause and not 0 <= action.seconds < math.inf:
        what = f"task '{task.name}' takes {action.seconds} seconds"
        found.add("bad durations", what, "give zero or more", line)
    if task.retries < 0:
        what = f"task '{task.name}' has {task.retries} retries"
        found.add("bad retries", what, "give zero or more", line)
    if task.timeout_s is not None and not task.timeout_s > 0:
        what = f"task '{task.name}' has a timeout of {task.timeout_s} seconds"
        found.add("bad timeouts", what, "give more than zero, or leave it out", line)


def _is_split(shell: str) -> bool:
    try:
        return bool(shlex.split(shell))
    except ValueError:
        return False


class _Afters:
    """Turns `after` into names of tasks: a task's own name, or all tasks of a block."""

    def __init__(
        self,
        tasks: Sequence[Task],
        lines: Sequence[int | None],
        found: Collector,
        whole: bool,
    ) -> None:
        self._tasks = tasks
        self._lines = lines
        self._found = found
        self._whole = whole
        self._names = {task.name for task in tasks}
        self._links = 0

    def resolve(self) -> list[Task]:
        return [
            self._resolved(task, line) for task, line in zip(self._tasks, self._lines, strict=True)
        ]

    @cached_property
    def _blocks(self) -> dict[str, tuple[str, ...]]:
        """For 'count', the tasks 'count:00', 'count:01', ..."""
        blocks: dict[str, list[str]] = {}
        for task in self._tasks:
            block, colon, _ = task.name.partition(":")
            if colon:
                blocks.setdefault(block, []).append(task.name)
        return {block: tuple(names) for block, names in blocks.items()}

    def _resolved(self, task: Task, line: int | None) -> Task:
        after = task.after
        if isinstance(task.action, Call):
            for name in task.action.uses:
                if name not in self._names:
                    self._unknown(task, name, line)
        if not after:
            return task
        if len(after) == 1:
            names = self._meant(task, after[0], line)
        else:
            names = tuple(dict.fromkeys(n for one in after for n in self._meant(task, one, line)))
        return task if names == after else msgspec.structs.replace(task, after=names)

    def _meant(self, task: Task, written: str, line: int | None) -> tuple[str, ...]:
        known = written in self._names
        if written == task.name or (not known and written == task.name.partition(":")[0]):
            what = f"task '{task.name}' comes after '{written}', which it is or belongs to"
            hint = "name only other tasks in `after`"
            self._found.add("tasks after themselves", what, hint, line)
            return ()
        names = (written,) if known else self._blocks.get(written, ())
        if not names:
            self._unknown(task, written, line)
        return self._within_bounds(names)

    def _within_bounds(self, names: tuple[str, ...]) -> tuple[str, ...]:
        if self._links > LINKS_MAX:
            return ()
        self._links += len(names)
        if self._links > LINKS_MAX:
            what = f"`after` makes more than {LINKS_MAX:,} links between tasks"
            hint = "put one task in between: it comes after the first ones, the others after it"
            self._found.add("too many links", what, hint)
        return names

    def _unknown(self, task: Task, name: str, line: int | None) -> None:
        if self._whole and self._found.room("unknown tasks", line):
            what = f"task '{task.name}' comes after '{name}', which is not a task"
            known = [*self._blocks, *self._names]
            hint = did_you_mean(name, known, "name a task of this workflow")
            self._found.keep("unknown tasks", what, hint, line)


def _check_cycles(graph: Graph, lines: Sequence[int | None], found: Collector) -> None:
    """One mistake for every knot of tasks that wait for each other, with a cycle through it."""
    directed = digraph(graph)
    if rx.is_directed_acyclic_graph(directed):
        return
    for knot in rx.strongly_connected_components(directed):
        if len(knot) < 2:
            continue
        start = min(knot)
        if found.room("cycles", lines[start]):
            edges = rx.digraph_find_cycle(directed.subgraph(sorted(knot)), 0)
            names = [graph.tasks[sorted(knot)[a]].name for a, _ in edges]
            hint = "remove one of these inputs or `after`s"
            found.keep("cycles", f"tasks wait for each other: {_shown(names)}", hint, lines[start])


def _shown(cycle: Sequence[str]) -> str:
    """a -> b -> a, the middle left out if it is long."""
    names = list(cycle)
    if len(names) > _CYCLE_TASKS_SHOWN:
        names[_CYCLE_TASKS_SHOWN - 1 : -1] = [f"({len(names) - _CYCLE_TASKS_SHOWN} more)"]
    return " -> ".join([*names, names[0]])


class Available(Protocol):
    """What a machine has, as far as needs are checked against it. A tag of None is unlimited."""

    @property
    def cores(self) -> float: ...
    @property
    def memory_bytes(self) -> int: ...
    @property
    def disk_bytes(self) -> int: ...
    @property
    def gpus(self) -> int: ...
    @property
    def tags(self) -> Mapping[str, int | None]: ...


def check_needs(graph: Graph, capacity: Available) -> None:
    """Raises WorkflowError for needs that this machine can never meet."""
    found = Collector(graph.source)
    _check_needs(graph.tasks, [None] * len(graph), capacity, found)
    found.raise_if_any()


def _check_needs(
    tasks: Sequence[Task], lines: Sequence[int | None], capacity: Available, found: Collector
) -> None:
    """One mistake for every kind and need."""
    verdicts: dict[Needs, list[tuple[str, str]]] = {}
    folded: dict[tuple[str, str], list[int]] = {}
    for i, task in enumerate(tasks):
        short = verdicts.get(task.needs)
        if short is None:
            short = verdicts[task.needs] = _shortages(task.needs, capacity)
        for what, _ in short:
            folded.setdefault((task.kind_name, what), []).append(i)
    hints = dict(shortage for short in verdicts.values() for shortage in short)
    for (_, what), alike in folded.items():
        more = f" (and {len(alike) - 1:,} more alike)" if len(alike) > 1 else ""
        found.add(
            "needs that cannot be met",
            f"task '{tasks[alike[0]].name}'{more} needs {what}",
            hints[what],
            lines[alike[0]],
        )


def _shortages(needs: Needs, capacity: Available) -> list[tuple[str, str]]:
    """(what is needed, what to do) for all that is not there."""
    found = []
    have = f"this machine has {format_cores(capacity.cores)}; lower `needs: cores`"
    if needs.cores > capacity.cores:
        found.append((_counted(format_cores(needs.cores), "core"), have))
    sizes = (
        ("memory", needs.memory_bytes, capacity.memory_bytes),
        ("disk", needs.disk_bytes, capacity.disk_bytes),
    )
    for word, needed, there in sizes:
        if needed > there:
            hint = f"this machine has {_about(there)}; lower `needs: {word}`"
            found.append((f"{format_size(needed)} of {word}", hint))
    if needs.gpus > capacity.gpus:
        found.append(
            (
                _counted(str(needs.gpus), "GPU"),
                f"this machine has {capacity.gpus}; lower `needs: gpus`",
            )
        )
    for tag, count in needs.tags:
        limit = capacity.tags.get(tag, 0)
        if limit is not None and count > limit:
            hint = did_you_mean(tag, capacity.tags, f"offer it with `--tag {tag}`")
            here = f"this machine has {limit}; {hint if not limit else 'lower the need'}"
            found.append((f"{count} of the tag '{tag}'", here))
    return found


def _counted(number: str, thing: str) -> str:
    return f"{number} {thing}" if number == "1" else f"{number} {thing}s"


def _about(size_bytes: int) -> str:
    """A size for people: three digits and a unit."""
    size, unit = float(size_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.3g}{unit}"
