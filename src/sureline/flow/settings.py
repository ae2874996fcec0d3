"""The settings of tasks as Python gives them, and as a `Task` has them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from sureline.peer.calls import Handle
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Needs, Takes
from sureline.workflow.quantities import parse_cores, parse_duration, parse_size, parse_takes
from sureline.workflow.wishes import parse_rank, parse_requires

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
NEEDS = ("cores", "memory", "disk", "gpus")


def paths_of(paths: Paths) -> tuple[str, ...]:
    if isinstance(paths, str | os.PathLike):
        return (os.fspath(paths),)
    return tuple(os.fspath(path) for path in paths)


def kind_of_function(function: Callable[..., object]) -> str:
    """A task name made of a function's: letters, digits, '_', '.' and '-' only."""
    name = getattr(function, "__name__", type(function).__name__)
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "-" for c in name)


def settings_of(
    name: str,
    after: str | Handle | Iterable[str | Handle],
    needs: Mapping[str, object] | None,
    takes: str | float | None,
    retries: int,
    timeout: str | float | None,
    env: Mapping[str, str] | None,
) -> dict[str, Any]:
    """The fields of a Task that commands and calls share. Raises UserError naming the task."""
    before = (after,) if isinstance(after, str | Handle) else after
    try:
        return {
            "after": tuple(b.task if isinstance(b, Handle) else b for b in before),
            "needs": _needs(needs or {}),
            "takes": _takes(takes),
            "retries": retries,
            "timeout_s": None if timeout is None else parse_duration(str(timeout)),
            "env": {key: str(value) for key, value in (env or {}).items()},
        }
    except ValueError as error:
        raise UserError(f"{name}: {error}") from None


def wishes_of(name: str, requires: str, rank: str) -> dict[str, Any]:
    """Raises UserError naming the task."""
    try:
        return {"requires": parse_requires(requires), "rank": parse_rank(rank)}
    except ValueError as error:
        raise UserError(f"{name}: {error}") from None


def _takes(takes: str | float | None) -> Takes | None:
    return None if takes is None else parse_takes(str(takes))


def _needs(needs: Mapping[str, object]) -> Needs:
    tags = {key: value for key, value in needs.items() if key not in NEEDS}
    for tag, count in tags.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"needs {tag}: {count!r} is not a count; give 1 or more")
    return Needs(
        cores=parse_cores(str(needs.get("cores", 1))),
        memory_bytes=parse_size(str(needs.get("memory", 0))),
        disk_bytes=parse_size(str(needs.get("disk", 0))),
        gpus=int(str(needs.get("gpus", 0))),
        tags=tuple(sorted((tag, int(str(count))) for tag, count in tags.items())),
    )
