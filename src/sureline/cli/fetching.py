"""The command that brings results of a grid run home: fetch."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Directory, Json, RunSelector, working_directory

SAID_MAX = 5


def fetch(
    run: RunSelector = "last",
    /,
    *,
    grid: Annotated[
        str | None,
        Parameter(help="Which grid, for a run that was not submitted from this directory."),
    ] = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Bring the results of a run on a grid here, whoever has driven it meanwhile.

    The journal here learns what was done. A run that goes on is left to its driver: what is done
    so far comes, and the rest with the next fetch.

    Example: sureline fetch wordcount-k3x7qa
    """
    from sureline.compose.fetched import fetch_run

    got = fetch_run(working_directory(directory), run, grid)
    if json:
        console.print_json(got)
        return 1 if got.missing else 0
    console.say(
        f"run {got.run}: {got.state}, {got.done} of {console.counted(got.total, 'task')} done; "
        f"{console.counted(got.files, 'file')} fetched"
    )
    for sentence in got.missing[:SAID_MAX]:
        console.note(sentence)
    if got.driver:
        console.say(f"it is driven by {got.driver}; fetch the rest later")
    return 1 if got.missing else 0
