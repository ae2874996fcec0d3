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
    carried = graph.carried or Carried()
    return LoneCall(
        _digest(graph.functions[call.function]),
        call.arguments,
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
    names = modules_of(graph.reached.get(call.code, {}) for call in calls)
    carried = carried_from(directory, store_modules(names, store))
    return graph.with_carried(
        carried, [needing_python(task, graph.reached) for task in graph.tasks]
    )


def carried_from(directory: Path, modules: Mapping[str, FileRecord]) -> Carried:
    with os.scandir(directory) as entries:
        beside = sorted(f"{one.name}/" if one.is_dir() else one.name for one in entries)
    beside = [name for name in beside if name != ".sureline/"][:BESIDE_MAX]
    return Carried(dict(modules), str(directory), tuple(beside))


def modules_of(reached: Iterable[Mapping[str, str]]) -> list[str]:
    """The user's own modules among what calls reach."""
    parts = {part for one in reached for part in one}
    return sorted(part[7:] for part in parts if part.startswith("module "))


def store_modules(names: Iterable[str], store: BlobStore) -> dict[str, FileRecord]:
    found = {name: _module(name, store) for name in names}
    return {name: file for name, file in found.items() if file is not None}


def store_calls(graph: Graph, store: BlobStore) -> None:
    """Put the functions of a graph's calls into a store, unless they are there."""
    calls = [task.action for task in graph.tasks if isinstance(task.action, Call)]
    store_functions([graph.functions[f] for f in dict.fromkeys(c.function for c in calls)], store)


def store_functions(functions: Iterable[bytes], store: BlobStore) -> None:
    for data in functions:
        path = store.blob_path(_digest(data))
        if not os.path.exists(path) or os.path.getsize(path) != len(data):
            store.put_pieces([data], "", _digest(data))


def needing_python(task: Task, reached: Mapping[str, Mapping[str, str]]) -> Task:
    """The task; if it is a call, one that needs a machine with the Python it was described with."""
    if not isinstance(task.action, Call) or PYTHON_ENVIRONMENT in task.env:
        return task  # what another environment has is found out there
    version = reached.get(task.action.code, {}).get("python", "")
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
