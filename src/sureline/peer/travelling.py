"""Calls that are made on other machines: what travels with them, by content.

The function with the code that it carries, long arguments and large buffers are files of the store;
so are the user's own modules that it reaches, as they are when the run is submitted. `carrying`
puts those into a store and notes them in the graph, `store_calls` the rest; `data_of` and
`lone_call` tell, of a graph alone, what one call needs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping
from functools import lru_cache
from pathlib import Path

import msgspec
from blake3 import blake3

from sureline.peer.jobs import CALL_DIRECTORY, MODULES, PYTHON_ENVIRONMENT, LoneCall
from sureline.peer.packed import buffers_of
from sureline.peer.reach import origin
from sureline.peer.store import BlobStore
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Call, Carried, Graph, Needs, Task

LONG_BYTES = 16 << 10
"""Longer arguments travel as a file."""
BESIDE_MAX = 200
"""How many names of the user's directory are told; of a fuller one, the first."""


def python_tag(version: str = ".".join(map(str, sys.version_info[:2]))) -> str:
    """What a machine offers, and a call needs, that has this version of Python."""
    return f"python-{version}"


# -- of a graph alone ----------------------------------------------------------------------------


def data_of(graph: Graph, call: Call) -> list[FileRecord]:
    """The files that a call needs besides its inputs and the results that it uses; the function's
    first."""
    function = graph.functions[call.function]
    found = [_record(function)]
    if len(call.arguments) > LONG_BYTES:
        found.append(_record(call.arguments))
    for data in (function, call.arguments):
        found += [named(one.digest, one.size) for one in buffers_of(data)]
    carried = graph.carried or Carried()
    reached = graph.reached.get(call.code, {})
    found += [file for name, file in carried.modules.items() if f"module {name}" in reached]
    return list({file.path: file for file in found}.values())


def lone_call(
    graph: Graph, call: Call, results: Mapping[str, bytes], files: Mapping[str, FileRecord]
) -> LoneCall:
    reached = graph.reached.get(call.code, {})
    long = len(call.arguments) > LONG_BYTES
    carried = graph.carried or Carried()
    return LoneCall(
        _digest(graph.functions[call.function]),
        b"" if long else call.arguments,
        _digest(call.arguments) if long else "",
        dict(results),
        {task: file.digest for task, file in files.items()},
        reached.get("python", ""),
        {
            part.removeprefix("package "): version
            for part, version in reached.items()
            if part.startswith("package ")
        },
        carried.directory,
        carried.beside,
    )


def named(digest: str, size: int) -> FileRecord:
    """Some data of a call, where the call finds it."""
    return FileRecord(f"{CALL_DIRECTORY}/{digest}", digest, size)


def _record(data: bytes) -> FileRecord:
    return named(_digest(data), len(data))


@lru_cache(maxsize=4096)
def _digest(data: bytes) -> str:
    return str(blake3(data).hexdigest())


# -- with a store ----------------------------------------------------------------------------------


def carrying(graph: Graph, directory: Path, store: BlobStore) -> Graph:
    """The graph with what its calls take along; their modules are in the store then, and each needs
    a machine with this Python."""
    calls = [task.action for task in graph.tasks if isinstance(task.action, Call)]
    if not calls:
        return graph
    parts = {part for call in calls for part in graph.reached.get(call.code, {})}
    modules = {
        name: file
        for name in sorted(part[7:] for part in parts if part.startswith("module "))
        if (file := _module(name, store)) is not None
    }
    with os.scandir(directory) as entries:
        beside = sorted(f"{one.name}/" if one.is_dir() else one.name for one in entries)
    beside = [name for name in beside if name != ".sureline/"][:BESIDE_MAX]
    carried = Carried(modules, str(directory), tuple(beside))
    tasks = [_needing_python(task, graph) for task in graph.tasks]
    return graph.with_carried(carried, tasks)


def store_calls(graph: Graph, store: BlobStore) -> None:
    """Put functions and long arguments of a graph's calls into a store, unless they are there."""
    calls = [task.action for task in graph.tasks if isinstance(task.action, Call)]
    data = [graph.functions[name] for name in dict.fromkeys(call.function for call in calls)]
    data += [call.arguments for call in calls if len(call.arguments) > LONG_BYTES]
    _store(data, store)


def _store(data: Iterable[bytes], store: BlobStore) -> None:
    for one in data:
        path = store.blob_path(_digest(one))
        if not os.path.exists(path) or os.path.getsize(path) != len(one):
            store.put_pieces([one], "", _digest(one))


def _needing_python(task: Task, graph: Graph) -> Task:
    if not isinstance(task.action, Call) or PYTHON_ENVIRONMENT in task.env:
        return task  # what another environment has is found out there
    version = graph.reached.get(task.action.code, {}).get("python", "")
    if not version:
        return task
    tags = tuple(sorted({**dict(task.needs.tags), python_tag(version): 1}.items()))
    needs: Needs = msgspec.structs.replace(task.needs, tags=tags)
    return msgspec.structs.replace(task, needs=needs)


def _module(name: str, store: BlobStore) -> FileRecord | None:
    path = origin(name)
    if path is None:
        return None  # it has no file: what imports it says so
    words = name.split(".")
    file = os.path.basename(path)
    if not file.startswith("__init__."):
        words.pop()
        if file.partition(".")[0] != name.rpartition(".")[2]:
            file = f"{name.rpartition('.')[2]}.py"
    try:
        stored = store.ingest(path, name)
    except OSError as error:
        raise UserError(f"module {name} cannot be read: {error.strerror}: {path}") from None
    return FileRecord("/".join([MODULES, *words, file]), stored.digest, stored.size)
