"""Fetching a run that others have driven: what was done meanwhile, and its results."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sureline.compose import HOME, grid_of, in_own_thread
from sureline.compose.elsewhere import RunElsewhere
from sureline.compose.grid_run import GridRun, bring_home
from sureline.compose.overwriting import telling_replaced
from sureline.compose.session import Outcome, lock_run, place_explained
from sureline.compose.signing import PAPERS
from sureline.journal.errors import NoJournalError
from sureline.journal.select import select
from sureline.journal.store import Journal
from sureline.workflow.mistakes import UserError
from sureline.world.identity.home import GridHome

LOCK_S = 10.0
"""The peer of this home may just be fetching it, too."""


class FetchedRun(msgspec.Struct, frozen=True):
    """What came of it; `fetch --json` prints this."""

    run: str
    state: str
    done: int
    total: int
    files: int
    missing: list[str]
    """Sentences on what could not be had."""
    driver: str = ""
    """Who drives the run just now; '' for nobody."""


def fetch_run(directory: Path, selector: str, grid: str | None) -> FetchedRun:
    """Have a run of a grid here as it is there, with its results. Raises UserError."""
    return in_own_thread(lambda: _fetch(directory, selector, grid))


def follow_run(directory: Path, run: str, timeout_s: float) -> Outcome:
    """Look on while others drive a run that was submitted here, and have its results here. Raises
    SurelineError if nobody does, or when the time is over."""

    def follow() -> Outcome:
        with (
            Journal.open(directory / HOME, create=False) as journal,
            place_explained(journal),
            telling_replaced(journal.directory, None),
        ):
            home = GridHome.open(grid_of(journal, run))
            return GridRun(journal, run, directory, home, None).look_on(timeout_s)

    return in_own_thread(follow)


def _fetch(directory: Path, selector: str, grid: str | None) -> FetchedRun:
    run, grid = _named(directory, selector, grid)
    with RunElsewhere.found(grid, run) as found, Journal.open(directory / HOME) as journal:
        known = {one.run for one in journal.runs()}
        lock = lock_run(journal, found.run, LOCK_S) if found.run in known else None
        try:
            with place_explained(journal), telling_replaced(journal.directory, None):
                _learn(found, journal, known)
                brought = bring_home(journal, found.run, directory, GridHome.open(grid))
        finally:
            if lock is not None:
                lock.release()
        summary = journal.summary(found.run)
        return FetchedRun(
            found.run,
            summary.seen(alive=found.driver is not None),
            summary.succeeded + summary.reused,
            summary.total,
            brought.files,
            brought.missing,
            "" if found.driver is None else found.driver_name,
        )


def _named(directory: Path, selector: str, grid: str | None) -> tuple[str, str]:
    """The run, or how its name begins, and its grid."""
    try:
        with Journal.open(directory / HOME, create=False, read_only=True) as journal:
            here = journal.runs()
            if grid is None or any(one.run.startswith(selector) for one in here):
                run = select(selector, here).run
                found = grid_of(journal, run)
                if not found:
                    raise UserError(f"run {run} was not on a grid: its results are here")
                return run, found
    except NoJournalError:
        if grid is None:
            raise
    return selector, grid


def _learn(found: RunElsewhere, journal: Journal, known: set[str]) -> None:
    """Take over what the grid has, unless more is here."""
    with Journal.open(found.directory, read_only=True) as copy:
        there = copy.last_position(found.run)
        if found.run not in known or there > journal.last_position(found.run):
            journal.adopt(found.run, copy.graph(found.run), list(copy.events(found.run)))
            journal.keep(found.run, PAPERS, found.papers)
