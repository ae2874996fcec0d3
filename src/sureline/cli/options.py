"""Options that several commands share, and how their texts become values."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.peer.capacity import Capacity
    from sureline.workflow.check import Reading
    from sureline.workflow.globs import UserFiles
    from sureline.workflow.model import Graph

Directory = Annotated[
    Path,
    Parameter(
        name=["--directory", "-C"],
        help="The working directory: paths in a workflow are relative to it, and it holds "
        ".sureline/. Default: the current directory.",
    ),
]
Json = Annotated[
    bool, Parameter(name="--json", negative="", help="Print one JSON document on stdout.")
]
Settings = Annotated[
    list[str] | None,
    Parameter(
        name="--set",
        negative="",
        consume_multiple=False,
        help="Override a parameter: --set NAME=VALUE. May be repeated.",
    ),
]
Flow = Annotated[
    str,
    Parameter(
        help="A workflow: YAML, a WfFormat JSON trace, or the chemical notation (.chem); - reads "
        "it from the standard input.",
        allow_leading_hyphen=True,
    ),
]
RunSelector = Annotated[
    str,
    Parameter(
        help="Which run: 'last', 'last-failed', a run's name or the start of it, a workflow's "
        "name (its newest run), or -2 for the one before the last.",
        allow_leading_hyphen=True,
    ),
]

Grid = Annotated[
    str | None,
    Parameter(
        name="--grid",
        help="A grid that this home belongs to: its peers run the tasks. Default: this machine.",
    ),
]


def retry_delay_s(text: str) -> float:
    from sureline.workflow.quantities import parse_duration

    try:
        return parse_duration(text)
    except ValueError as error:
        raise UserError(f"--retry-delay: {error}") from None


def working_directory(directory: Path) -> Path:
    """The directory as an absolute path; a user's mistake if it is none."""
    if not directory.is_dir():
        raise UserError(f"{directory} is not a directory; name an existing one with -C")
    try:
        where = directory.resolve()
        os.fspath(where).encode()
    except FileNotFoundError:
        raise UserError(f"{directory} has been removed; go to another directory") from None
    except UnicodeEncodeError:
        shown = os.fspath(where).encode(errors="backslashreplace").decode()
        raise UserError(
            f"the directory's name '{shown}' is not UTF-8 text; work in another"
        ) from None
    return where


def overrides(settings: list[str] | None, option: str = "--set") -> dict[str, str]:
    """`--set a=1 --set b=2` as a mapping."""
    found: dict[str, str] = {}
    for setting in settings or ():
        name, equals, value = setting.partition("=")
        if not equals or not name:
            raise UserError(f"{option} {setting!r} has no value; write {option} NAME=VALUE")
        found[name] = value
    return found


def read_flow(
    flow: str,
    directory: Path,
    settings: list[str] | None,
    capacity: Capacity | None,
    *,
    pretend: bool,
    speed: float = 1.0,
    to_run: bool = True,
    disk: UserFiles | None = None,
) -> Reading:
    """The workflow that the user named, checked for this machine; '-' is the standard input.

    Composition text can be planned and drawn, not run; see `read_workflow`."""
    from sureline.workflow.read import read_text, read_workflow

    if flow == "-":
        return read_text(
            sys.stdin.buffer.read(),
            file="-",
            directory=directory,
            overrides=overrides(settings),
            pretend=pretend,
            speed=speed,
            capacity=capacity,
            to_run=to_run,
            disk=disk,
        )
    return read_workflow(
        Path(flow),
        directory=directory,
        overrides=overrides(settings),
        pretend=pretend,
        speed=speed,
        capacity=capacity,
        to_run=to_run,
        disk=disk,
    )


def machine(
    directory: Path,
    cores: float | None,
    memory: str | None,
    gpus: int | None,
    tags: list[str] | None,
) -> Capacity:
    """What a run may use of this machine, as the options say."""
    from sureline.peer.capacity import this_machine
    from sureline.workflow.quantities import parse_size

    if cores is not None and not 0 < cores <= 100_000:
        raise UserError(f"--cores {cores:g} is not a number of cores; give one above 0")
    if gpus is not None and gpus < 0:
        raise UserError(f"--gpus {gpus} is negative; give 0 or more")
    try:
        memory_bytes = None if memory is None else parse_size(memory)
    except ValueError as error:
        raise UserError(f"--memory: {error}") from None
    return this_machine(
        directory, cores=cores, memory_bytes=memory_bytes, gpus=gpus, tags=_tags(tags)
    )


def _tags(tags: list[str] | None) -> dict[str, int | None]:
    """`--tag ssd --tag matlab=2`: a tag without a number is never used up."""
    found: dict[str, int | None] = {}
    for tag in tags or ():
        name, equals, count = tag.partition("=")
        if not name or (equals and not count.isdigit()):
            raise UserError(f"--tag {tag!r} is not a tag; write --tag NAME or --tag NAME=COUNT")
        found[name] = int(count) if equals else None
    return found


def limits(
    grid: str | None,
    cores: float | None,
    memory: str | None,
    gpus: int | None,
    tags: list[str] | None,
) -> list[str]:
    """The options that say how much of this machine may be used, for the process that drives."""
    given = [f"--cores={cores:g}"] if cores is not None else []
    given += [f"--memory={memory}"] if memory is not None else []
    given += [f"--gpus={gpus}"] if gpus is not None else []
    given += [f"--tag={tag}" for tag in tags or ()]
    if grid and given:
        raise UserError(
            f"{given[0].partition('=')[0]} limits this machine, but with --grid the peers run the "
            "tasks; set it where they serve: sureline peer --help"
        )
    return given


def check_grid(grid: str, graph: Graph) -> None:
    """Refuse, before anything starts, what the grid cannot run, or a grid we are not in."""
    from sureline.run.binds import check_travels
    from sureline.world.identity.credentials import Credentials
    from sureline.world.identity.home import GridHome

    mine = Credentials.load(GridHome.open(grid)).identity
    if "submit" not in mine.roles:
        raise UserError(
            f"{mine.name} may not submit to grid {grid} (it may {', '.join(sorted(mine.roles))}); "
            "ask for an invitation with the role submit"
        )
    check_travels(graph)
