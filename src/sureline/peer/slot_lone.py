"""Python calls of others, as a slot sees them: each is an interpreter of its own, bound as every
command is, that finds its order in `CALL_DIRECTORY` and leaves its word there.

A call of the user's own runs in the slot itself, which is warm and may do what the user may. One
that came from elsewhere must not: code in the slot could write to the store, which others trust.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from typing import TYPE_CHECKING, Literal

import msgspec

from sureline.peer.jobs import CALL_DIRECTORY, PYTHON_ENVIRONMENT, CommandJob, JobEnded
from sureline.workflow.files import result_path

if TYPE_CHECKING:
    from sureline.peer.slot_sandbox import Sandbox

ORDER = f"{CALL_DIRECTORY}/order"
WORD = f"{CALL_DIRECTORY}/word"
RESULT = f"{CALL_DIRECTORY}/result"
WORD_BYTES_MAX = 4 << 20
_BOOT = """
import sys
own, sys.path[:] = sys.argv[1], sys.argv[2:] or sys.path
if own:
    from importlib.util import module_from_spec, spec_from_file_location
    first = f"{own}/__init__.py"
    spec = spec_from_file_location("sureline", first, submodule_search_locations=[own])
    sys.modules["sureline"] = module_from_spec(spec)
    spec.loader.exec_module(sys.modules["sureline"])
from sureline.peer.lone_call import main
main()
"""
"""This program is loaded from where it lies: a task may not look into the directory around it."""
_OWN = os.path.dirname(os.path.dirname(__file__))


class Word(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a call's interpreter leaves behind. `has_file`: the result lies in RESULT."""

    outcome: Literal["succeeded", "failed", "unfit"]
    reason: str = ""
    result: bytes | None = None
    has_file: bool = False
    error: bytes | None = None
    trace: str = ""
    unkept: str = ""


_decode = msgspec.msgpack.Decoder(Word).decode


def _environment(job: CommandJob) -> str:
    return job.env.get(PYTHON_ENVIRONMENT, "")


def prepared(job: CommandJob) -> list[str]:
    """Write the order, in the directory of the call; the argument vector that makes it."""
    assert job.call is not None
    os.makedirs(CALL_DIRECTORY, exist_ok=True)
    with open(ORDER, "xb") as file:
        file.write(msgspec.msgpack.encode((job.call, [r.path for r in job.inputs])))
    environment = _environment(job)
    if environment:
        return [f"{environment}/bin/python", "-P", "-c", _BOOT, ""]
    return [sys.executable, "-P", "-c", _BOOT, _OWN, *(path for path in sys.path if path)]


def told(job: CommandJob, ended: JobEnded, sandbox: Sandbox, *, alone: bool) -> JobEnded:
    """What the interpreter, which has ended well, left behind. It may be anything: it is checked.
    `alone`: no process of the call is left."""
    try:
        word = _decode(_left_behind(WORD))
        assert job.call is not None
        if word.result is not None and len(word.result) > job.call.inline_bytes:
            raise ValueError("its result is longer than agreed")
    except (OSError, ValueError, msgspec.MsgspecError) as error:
        reason = f"its Python left no word of how it went ({error})"
        return msgspec.structs.replace(ended, outcome="failed", reason=reason)
    if word.outcome == "unfit":
        return _unfit(ended, word.reason)
    if word.outcome == "succeeded" and word.has_file:
        ended = msgspec.structs.replace(
            ended, outputs=(sandbox.take(RESULT, result_path(job.task), move=alone),)
        )
    return msgspec.structs.replace(
        ended,
        outcome=word.outcome,
        reason=word.reason,
        exit_code=None,
        result=word.result,
        error=word.error,
        trace=word.trace,
        unkept=word.unkept,
    )


def _left_behind(path: str) -> bytes:
    """A file that the call wrote. It may be a link to what only this process can read; a pipe."""
    top, _, name = path.partition("/")
    directory = os.open(top, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with open(os.open(name, flags, dir_fd=directory), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise ValueError("it is no file")
            return file.read(WORD_BYTES_MAX)
    finally:
        os.close(directory)


def no_python(job: CommandJob, error: OSError) -> JobEnded:
    """The interpreter could not be started."""
    where = _environment(job) or sys.prefix
    if error.errno not in (errno.ENOENT, errno.EACCES, errno.ENOEXEC):
        return JobEnded("failed", reason=f"cannot start Python: {error.strerror}", fault="machine")
    return _unfit(JobEnded("failed"), f"has no Python environment {where} that tasks may use")


def unfit_if_alien(job: CommandJob, ended: JobEnded) -> JobEnded:
    """An environment of the user's choice that cannot even begin with the call does not fit."""
    if _environment(job) and not os.path.exists(WORD) and "sureline" in ended.stderr:
        told = ended.stderr.strip().rsplit("\n", 1)[-1]
        return _unfit(ended, f"its Python environment {_environment(job)} lacks Sureline: {told}")
    return ended


def _unfit(ended: JobEnded, reason: str) -> JobEnded:
    return msgspec.structs.replace(
        ended, outcome="failed", fault="unfit", exit_code=None, reason=reason
    )
