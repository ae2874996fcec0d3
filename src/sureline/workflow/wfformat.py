"""WfFormat (wfcommons.org), the JSON format of real workflow traces, version 1.5.

`Instance` is the format as data: `decode(encode(x)) == x`. Fields that the format does not define
are dropped. `to_draft` makes tasks of it that can be checked and run; `from_graph` goes the other
way. Files of version 1.4 are read into the same model (see `wfformat_old`).

Traces are not always tidy. Ids are the tasks' names, because names repeat. An edge counts whether
it stands with the parent, with the child, or follows from a file. An input that the same task
makes is dropped.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

import msgspec

from sureline.workflow.check import Draft
from sureline.workflow.collect import Collector, did_you_mean
from sureline.workflow.globs import escape_glob
from sureline.workflow.model import Command, Graph, Needs, Pause, Takes, Task, kind_of

VERSION = "1.5"


class _Part(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel"):
    """Base of all parts: camelCase in JSON; None means that a field is absent."""


class Author(_Part, frozen=True):
    name: str = ""
    email: str = ""
    institution: str | None = None
    country: str | None = None


class RuntimeSystem(_Part, frozen=True):
    name: str = ""
    version: str = ""
    url: str | None = None


class SpecifiedTask(_Part, frozen=True, omit_defaults=False):
    name: str
    id: str
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    input_files: tuple[str, ...] = ()
    output_files: tuple[str, ...] = ()


class File(_Part, frozen=True):
    id: str
    size_in_bytes: int | float


class Specification(_Part, frozen=True):
    tasks: tuple[SpecifiedTask, ...]
    files: tuple[File, ...] | None = None


class InstanceProgram(_Part, frozen=True):
    program: str | None = None
    arguments: tuple[str, ...] | None = None


class ExecutedTask(_Part, frozen=True):
    id: str
    runtime_in_seconds: int | float
    command: InstanceProgram | None = None
    core_count: int | float | None = None
    avg_cpu: int | float | None = msgspec.field(default=None, name="avgCPU")
    read_bytes: int | float | None = None
    written_bytes: int | float | None = None
    memory_in_bytes: int | float | None = None
    energy_in_kwh: int | float | None = msgspec.field(default=None, name="energyInKWh")
    avg_power_in_w: int | float | None = msgspec.field(default=None, name="avgPowerInW")
    priority: int | float | None = None
    machines: tuple[str, ...] | None = None
    machine: str | None = None


class Cpu(_Part, frozen=True):
    core_count: int | float | None = None
    speed_in_mhz: int | float | None = msgspec.field(default=None, name="speedInMHz")
    vendor: str | None = None


class InstanceMachine(_Part, frozen=True):
    node_name: str
    system: str | None = None
    architecture: str | None = None
    release: str | None = None
    memory_in_bytes: int | float | None = None
    cpu: Cpu | None = None


class Execution(_Part, frozen=True):
    makespan_in_seconds: int | float
    executed_at: str
    tasks: tuple[ExecutedTask, ...]
    machines: tuple[InstanceMachine, ...] | None = None


class InstanceWorkflow(_Part, frozen=True):
    """The `workflow` of an instance: what was to be done, and how it went."""

    specification: Specification
    execution: Execution | None = None
    repo: str | None = None
    run_name: str | None = None


class Instance(_Part, frozen=True):
    name: str
    schema_version: str
    workflow: InstanceWorkflow
    description: str | None = None
    created_at: str | None = None
    runtime_system: RuntimeSystem | None = None
    author: Author | None = None


_decoder = msgspec.json.Decoder(Instance)
_encoder = msgspec.json.Encoder()


def decode(data: bytes) -> Instance:
    """Raises msgspec.DecodeError."""
    return _decoder.decode(data)


def encode(instance: Instance) -> bytes:
    """The instance as JSON text, indented as published traces are."""
    return msgspec.json.format(_encoder.encode(instance), indent=1) + b"\n"


def to_draft(
    instance: Instance,
    lines: Sequence[int | None] = (),
    *,
    pretend: bool,
    speed: float,
    found: Collector,
) -> Draft:
    """The tasks of an instance; unknown ids and missing commands go to `found`.

    `lines` are those of the tasks, if they are known.

    Pretended tasks only pause, for their recorded runtime divided by `speed`. They name no files
    (sizes stay in `file_sizes`) and hold one core each: a pause fits on any machine, whatever the
    real task needed.
    """
    specified = instance.workflow.specification.tasks
    execution = instance.workflow.execution
    executed = {task.id: task for task in execution.tasks} if execution else {}
    line_of = {task.id: line for task, line in zip(specified, lines, strict=False) if line}
    parents = _parents(specified, line_of, found)
    make = _Pretended(speed) if pretend else _Real(specified, line_of, found)
    tasks = [make.task(task, executed.get(task.id), parents[task.id]) for task in specified]
    sizes = {f.id: int(f.size_in_bytes) for f in instance.workflow.specification.files or ()}
    return Draft(instance.name, tasks, lines, file_sizes=sizes)


def _parents(
    tasks: Sequence[SpecifiedTask], line_of: Mapping[str, int], found: Collector
) -> dict[str, dict[str, None]]:
    """For every id, the ids it waits for, in order and without repetition."""
    parents: dict[str, dict[str, None]] = {task.id: {} for task in tasks}
    for task in tasks:
        own = parents[task.id]
        for parent in task.parents:
            if parent in parents:
                own[parent] = None
            else:
                _unknown(
                    f"task '{task.id}' has the parent", parent, parents, line_of.get(task.id), found
                )
    makers = {path: task.id for task in reversed(tasks) for path in task.output_files}
    for task in tasks:
        for child in task.children:
            if child in parents:
                parents[child][task.id] = None
            else:
                _unknown(
                    f"task '{task.id}' has the child", child, parents, line_of.get(task.id), found
                )
        for path in task.input_files:
            maker = makers.get(path)
            if maker is not None and path not in task.output_files:
                parents[task.id][maker] = None
    return parents


def _unknown(
    what: str, name: str, known: Mapping[str, object], line: int | None, found: Collector
) -> None:
    if found.room("unknown tasks", line):
        hint = did_you_mean(name, known, "add the task, or remove the id")
        found.keep("unknown tasks", f"{what} '{name}', which is not a task", hint, line)


class _Pretended:
    def __init__(self, speed: float) -> None:
        self._speed = speed

    def task(
        self, task: SpecifiedTask, executed: ExecutedTask | None, parents: Mapping[str, None]
    ) -> Task:
        seconds = float(executed.runtime_in_seconds) / self._speed if executed else 0.0
        return Task(
            name=task.id,
            action=Pause(seconds),
            after=tuple(parents),
            takes=Takes(seconds, seconds, seconds),
            kind=_kind(task),
        )


class _Real:
    def __init__(
        self, tasks: Sequence[SpecifiedTask], line_of: Mapping[str, int], found: Collector
    ) -> None:
        self._makers = {path: task.id for task in tasks for path in task.output_files}
        self._line_of = line_of
        self._found = found

    def task(
        self, task: SpecifiedTask, executed: ExecutedTask | None, parents: Mapping[str, None]
    ) -> Task:
        made = set(task.output_files)
        inputs = tuple(path for path in task.input_files if path not in made)
        explained = {self._makers.get(path) for path in inputs}
        return Task(
            name=task.id,
            action=Command(self._command(task, executed)),
            inputs=tuple(escape_glob(path) for path in inputs),
            outputs=task.output_files,
            after=tuple(parent for parent in parents if parent not in explained),
            needs=_needs(executed),
            kind=_kind(task),
        )

    def _command(self, task: SpecifiedTask, executed: ExecutedTask | None) -> str:
        command = executed.command if executed else None
        if command is None or not command.program:
            hint = "add `command` to its execution, or use --pretend"
            what, line = f"task '{task.id}' has no program to run", self._line_of.get(task.id)
            self._found.add("missing commands", what, hint, line)
            return "?"
        return shlex.join([command.program, *(command.arguments or ())])


def _needs(executed: ExecutedTask | None) -> Needs:
    if executed is None:
        return Needs()
    return Needs(
        cores=max(executed.core_count or 1, 0.001),
        memory_bytes=max(int(executed.memory_in_bytes or 0), 0),
    )


def _kind(task: SpecifiedTask) -> str:
    """What alike tasks share, where the id alone would not tell."""
    kind = kind_of(task.name)
    return "" if kind == kind_of(task.id) else kind


def from_graph(
    graph: Graph,
    durations_s: Mapping[str, float] | None = None,
    *,
    executed_at: str = "",
    makespan_s: float = 0.0,
    file_sizes: Mapping[str, int] | None = None,
) -> Instance:
    """A graph and how it went. A task without a duration has its likely estimate, or 0."""
    sizes = {**graph.file_sizes, **(file_sizes or {})}
    specified, executed = [], []
    for i, task in enumerate(graph.tasks):
        specified.append(
            SpecifiedTask(
                name=task.name,
                id=task.name,
                parents=tuple(graph.tasks[p].name for p in graph.parents[i]),
                children=tuple(graph.tasks[c].name for c in graph.children[i]),
                input_files=task.inputs,
                output_files=task.outputs,
            )
        )
        executed.append(_executed(task, durations_s or {}))
        for path in (*task.inputs, *task.outputs):
            sizes.setdefault(path, 0)
    files = tuple(File(path, size) for path, size in sizes.items())
    return Instance(
        name=graph.name,
        schema_version=VERSION,
        workflow=InstanceWorkflow(
            Specification(tuple(specified), files),
            Execution(makespan_s, executed_at, tuple(executed)),
        ),
    )


def _executed(task: Task, durations_s: Mapping[str, float]) -> ExecutedTask:
    action = task.action
    estimate = task.takes.likely_s if task.takes else 0.0
    if isinstance(action, Pause):
        estimate = action.seconds
    command = None
    if isinstance(action, Command):
        words = _words(action.run)
        command = InstanceProgram(words[0], tuple(words[1:]))
    return ExecutedTask(
        id=task.name,
        runtime_in_seconds=durations_s.get(task.name, estimate),
        command=command,
        core_count=task.needs.cores,
        memory_in_bytes=task.needs.memory_bytes or None,
    )


_SHELL = re.compile(r"[|&;<>()$`\\*?\[\]#~=%!{}\n]")


def _words(run: str) -> list[str]:
    """The command as a program and its arguments; what only a shell can run, by the shell."""
    if not _SHELL.search(run):
        try:
            words = shlex.split(run)
        except ValueError:  # an open quote: let the shell say so
            words = []
        if words:
            return words
    return ["/bin/sh", "-c", run]
