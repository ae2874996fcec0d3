"""Opening a journal to look into it: of the working directory, or of a run driven elsewhere on a
grid, which is fetched first."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sureline.cli.options import working_directory
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.journal.store import Journal

OnGrid = Annotated[
    str | None,
    Parameter(
        name="--grid",
        help="Look for the run on this grid, whoever drives it. Give its name, or its start.",
    ),
]


@contextmanager
def local_journal(directory: Path) -> Iterator[Journal]:
    """The journal of the working directory, which must have one."""
    from sureline.compose import HOME
    from sureline.journal.store import Journal

    where = working_directory(directory)
    with Journal.open(where / HOME, create=False, read_only=True) as journal:
        yield journal


@contextmanager
def run_journal(
    directory: Path, grid: str | None, selector: str
) -> Iterator[tuple[Journal, Callable[[], None]]]:
    """A journal that has the run, and an action that brings it up to date.

    With `grid`, the run is found and copied into a directory that is thrown away afterwards.
    """
    if grid is None:
        with local_journal(directory) as journal:
            yield journal, lambda: None
        return
    from sureline.compose.elsewhere import RunElsewhere
    from sureline.journal.store import Journal

    check_selector(selector)
    with (
        RunElsewhere.found(grid, selector) as found,
        Journal.open(found.directory, create=False, read_only=True) as journal,
    ):
        yield journal, found.refresh


def check_selector(selector: str) -> None:
    """On a grid, runs have no order and no working directory."""
    if selector in ("last", "last-failed") or selector.startswith("-"):
        raise UserError(
            f"{selector!r} names no run of a grid; give a run's name: sureline runs --grid GRID"
        )
