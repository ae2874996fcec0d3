"""WfFormat 1.4, read as if it were 1.5.

In 1.4 a task holds its own files (with the role of each), its runtime and its command, and tasks
refer to each other by name. Here names that repeat get their id as a suffix, as the format's own
migration does.
"""

from __future__ import annotations

import msgspec

from sureline.workflow import wfformat as new


class _Part(msgspec.Struct, frozen=True, rename="camel"):
    pass


class _File(_Part, frozen=True):
    name: str
    size_in_bytes: int | float = 0
    link: str = "output"
    path: str = ""


class _Task(_Part, frozen=True):
    name: str
    id: str = ""
    parents: tuple[str, ...] = ()
    children: tuple[str, ...] = ()
    files: tuple[_File, ...] = ()
    runtime_in_seconds: int | float = 0
    command: new.InstanceProgram | None = None
    cores: int | float | None = None
    memory_in_bytes: int | float | None = None
    avg_cpu: int | float | None = msgspec.field(default=None, name="avgCPU")
    read_bytes: int | float | None = None
    written_bytes: int | float | None = None
    priority: int | float | None = None
    machine: str | None = None


class _Workflow(_Part, frozen=True):
    tasks: tuple[_Task, ...]
    makespan_in_seconds: int | float = 0
    executed_at: str = ""


class _Instance(_Part, frozen=True):
    name: str
    workflow: _Workflow
    description: str | None = None
    created_at: str | None = None
    author: new.Author | None = None
    wms: new.RuntimeSystem | None = None


_decoder = msgspec.json.Decoder(_Instance)


def decode(data: bytes) -> new.Instance:
    """Raises msgspec.DecodeError."""
    old = _decoder.decode(data)
    tasks = old.workflow.tasks
    names = [task.name for task in tasks]
    unique = len(set(names)) == len(names)
    ids = [task.name if unique or not task.id else f"{task.name}_{task.id}" for task in tasks]
    known = {task.id: new_id for task, new_id in zip(tasks, ids, strict=True) if task.id}
    known |= dict(zip(names, ids, strict=True))
    files = {
        _path(file): new.File(_path(file), file.size_in_bytes) for t in tasks for file in t.files
    }
    return new.Instance(
        name=old.name,
        schema_version=new.VERSION,
        description=old.description,
        created_at=old.created_at,
        author=old.author,
        runtime_system=old.wms,
        workflow=new.InstanceWorkflow(
            new.Specification(
                tuple(_specified(t, i, known) for t, i in zip(tasks, ids, strict=True)),
                tuple(files.values()),
            ),
            new.Execution(
                old.workflow.makespan_in_seconds,
                old.workflow.executed_at,
                tuple(_executed(t, i) for t, i in zip(tasks, ids, strict=True)),
            ),
        ),
    )


def _path(file: _File) -> str:
    return file.path + file.name


def _specified(task: _Task, new_id: str, known: dict[str, str]) -> new.SpecifiedTask:
    def chosen(reads: bool) -> tuple[str, ...]:
        return tuple(_path(f) for f in task.files if (f.link.lower() == "input") == reads)

    return new.SpecifiedTask(
        name=task.name,
        id=new_id,
        parents=tuple(known.get(name, name) for name in task.parents),
        children=tuple(known.get(name, name) for name in task.children),
        input_files=chosen(True),
        output_files=chosen(False),
    )


def _executed(task: _Task, new_id: str) -> new.ExecutedTask:
    return new.ExecutedTask(
        id=new_id,
        runtime_in_seconds=task.runtime_in_seconds,
        command=task.command,
        core_count=task.cores,
        avg_cpu=task.avg_cpu,
        read_bytes=task.read_bytes,
        written_bytes=task.written_bytes,
        memory_in_bytes=task.memory_in_bytes,
        priority=task.priority,
        machines=(task.machine,) if task.machine else None,
    )
