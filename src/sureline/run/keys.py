"""What a result depends on, hashed: two tasks with equal keys make equal results.

A command's key covers its text, its shell, its inputs by content, its `env:`, its standard input
and the names of its outputs. A call's covers all code of the user's that it reaches (see
`peer.fingerprint`), its pickled arguments, the results these refer to and the files that it
declares. The caller's environment, the time and the machine are left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
from blake3 import blake3

from sureline.workflow.files import FileRecord
from sureline.workflow.model import Call, Command, Task

VERSION = 2
"""Raised when what a key covers changes, so that old results are not mistaken for new ones."""


def result_key(
    task: Task, inputs: Iterable[FileRecord], results: Sequence[tuple[str, str]] = ()
) -> str:
    """The key of a task whose inputs are known; '' for a task whose result cannot be reused.

    `results` are (task name, digest of its result) for the results a call's arguments refer to.
    """
    read = sorted((r.path, r.digest, r.executable) for r in inputs)
    match task.action:
        case Command(run=run, shell=shell):
            parts: tuple[object, ...] = ("command", run, shell, task.stdin, sorted(task.outputs))
        case Call(unkept=why) if why:
            return ""
        case Call(function=function, code=code, arguments=arguments):
            parts = ("call", code or function, arguments, results)
        case _:
            return ""
    data = msgspec.msgpack.encode((VERSION, parts, read, sorted(task.env.items())))
    return digest_of(data)


def digest_of(data: bytes) -> str:
    digest: str = blake3(data).hexdigest()
    return digest
