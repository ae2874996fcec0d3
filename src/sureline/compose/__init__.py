"""The composition root: builds a world out of its parts and runs workflows in it.

Rooms do not construct each other; this package does. `run_workflow` and `resume_run` drive one run
on this machine from its first event to its last and return how it ended; `cancel_run` stops one
from another process. `session` is one process's work on one run, `parts` the adapters it needs.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from sureline import __version__
from sureline.compose.overwriting import refuse_to_overwrite, telling_replaced
from sureline.compose.session import (
    Outcome,
    Session,
    Watcher,
    lock_run,
    opened,
    outcome_of,
    place_explained,
)
from sureline.compose.terms import TermsRefusedError
from sureline.journal.events import RunEnded, Submitted
from sureline.journal.locks import RunLock
from sureline.journal.select import select, select_to_resume
from sureline.journal.store import Journal
from sureline.peer import orphans
from sureline.peer.capacity import Capacity
from sureline.peer.removing import remove_tree
from sureline.peer.store import BlobStore
from sureline.run.options import Options
from sureline.workflow.check import check_needs
from sureline.workflow.files import FileRecord
from sureline.workflow.mistakes import SurelineError
from sureline.workflow.model import Graph

if TYPE_CHECKING:
    from sureline.compose.grid_run import GridRun
    from sureline.compose.pilots.running import PilotedRun

__all__ = [
    "HOME",
    "bring_result",
    "Outcome",
    "Watcher",
    "cancel_run",
    "create_run",
    "outcome_of",
    "resume_elsewhere",
    "resume_run",
    "run_workflow",
]

HOME = ".sureline"
CANCEL_WAIT_S = 600.0
"""How long `cancel_run` waits for the tasks that may finish."""

T = TypeVar("T")


def run_workflow(
    graph: Graph,
    directory: Path,
    machine: Capacity,
    options: Options | None = None,
    watcher: Watcher | None = None,
) -> Outcome:
    """Submit a workflow and run it to its end on this machine."""
    return in_own_thread(lambda: _submit(graph, directory, machine, options or Options(), watcher))


def create_run(graph: Graph, directory: Path, options: Options) -> str:
    """Record a run durably, for a process to drive it later; its name."""
    if not options.overwrite:
        refuse_to_overwrite(graph, directory / HOME)
    with Journal.open(directory / HOME) as journal:
        return create_in(journal, graph, options)


def create_in(journal: Journal, graph: Graph, options: Options) -> str:

    def submitted(run: str) -> Submitted:
        return Submitted(
            time.time(),
            run,
            graph.name,
            len(graph),
            graph.source,
            graph.params,
            msgspec.to_builtins(options),
            __version__,
        )

    return journal.create_run(graph.name, graph.to_bytes(), submitted)


def _submit(
    graph: Graph, directory: Path, machine: Capacity, options: Options, watcher: Watcher | None
) -> Outcome:
    home = directory / HOME
    if not options.overwrite:
        refuse_to_overwrite(graph, home)
    is_first = not home.exists()
    try:
        with Journal.open(home) as journal:
            run = create_in(journal, graph, options)
            try:
                with place_explained(journal), telling_replaced(home, watcher):
                    return _session(journal, run, graph, directory, machine, watcher).drive()
            except TermsRefusedError:
                journal.forget(run)
                raise
    except TermsRefusedError:
        if is_first:
            remove_tree(str(home))
        raise


def _session(
    journal: Journal,
    run: str,
    graph: Graph,
    directory: Path,
    machine: Capacity,
    watcher: Watcher | None,
    *,
    alone: bool = False,
) -> Session | GridRun | PilotedRun:
    """What drives the run: on this machine, on the grid that it was submitted to, or on pilots of
    its own."""
    grid = grid_of(journal, run)
    if on_sites(journal, run):
        from sureline.compose.site_run import SiteRun

        return SiteRun(journal, run, graph, directory, machine, watcher)
    if not grid:
        check_needs(graph, machine)
        return Session(journal, run, graph, directory, machine, watcher)
    from sureline.compose.grid_run import GridRun  # the network takes a while to load
    from sureline.compose.pilots.running import PilotedRun, order_of
    from sureline.world.identity.home import GridHome

    order = order_of(journal, run)
    if order is not None:
        return PilotedRun(journal, run, directory, grid, order, watcher, alone=alone)
    return GridRun(journal, run, directory, GridHome.open(grid), watcher, alone=alone)


def grid_of(journal: Journal, run: str) -> str:
    """The grid that a run was submitted to; '' for none."""
    first = next(journal.events(run)).event
    assert isinstance(first, Submitted), "a run's first event is its submission"
    return str(first.options.get("grid", ""))


def on_sites(journal: Journal, run: str) -> bool:
    """Whether a run was submitted to sites of the user's catalog."""
    first = next(journal.events(run)).event
    assert isinstance(first, Submitted), "a run's first event is its submission"
    return bool(first.options.get("sites"))


def resume_run(
    directory: Path,
    selector: str,
    machine: Capacity,
    watcher: Watcher | None = None,
    *,
    alone: bool = False,
) -> Outcome:
    """Continue a run that another process left; its finished tasks are not run again. With `alone`,
    nobody is asked whether another process drives it."""
    return in_own_thread(lambda: _resume(directory, selector, machine, watcher, alone))


def _resume(
    directory: Path, selector: str, machine: Capacity, watcher: Watcher | None, alone: bool
) -> Outcome:
    with Journal.open(directory / HOME, create=False) as journal:
        run = select_to_resume(selector, journal.runs()).run
        graph = journal.workflow(run)
        with place_explained(journal), telling_replaced(journal.directory, watcher):
            try:
                return _session(
                    journal, run, graph, directory, machine, watcher, alone=alone
                ).drive()
            except TermsRefusedError:  # it was submitted, and never began
                journal.forget(run)
                raise


def resume_elsewhere(
    directory: Path, grid: str, run: str, watcher: Watcher | None = None
) -> Outcome:
    """Go on here with a run that was driven elsewhere on a grid; `run` is its whole name."""
    from sureline.compose.grid_run import GridRun
    from sureline.world.identity.home import GridHome

    def resume() -> Outcome:
        with (
            Journal.open(directory / HOME) as journal,
            place_explained(journal),
            telling_replaced(journal.directory, watcher),
        ):
            return GridRun(journal, run, directory, GridHome.open(grid), watcher).drive()

    return in_own_thread(resume)


def bring_result(home: Path, run: str, peer: str, file: FileRecord) -> None:
    """Fetch a call's long result, which stayed on the grid where it was made, into a directory's
    store. Raises SurelineError if nobody has it any more."""
    with Journal.open(home, create=False, read_only=True) as journal:
        grid = grid_of(journal, run)
    if grid:
        from sureline.compose.driving import bring  # the network takes a while to load

        in_own_thread(lambda: bring(grid, home, file, peer))
    if not grid or not os.path.exists(BlobStore(home).blob_path(file.digest)):
        made = f" (it was made on {peer})" if peer else ""
        raise SurelineError(
            f"the result {file.path.rpartition('/')[2]} of run {run} is not here any more{made}; "
            "run the workflow again"
        )


def cancel_run(directory: Path, selector: str, *, drain: bool, wait: bool) -> tuple[str, str]:
    """Stop a run; returns its name and state. One that no process drives is closed here."""
    with Journal.open(directory / HOME, create=False) as journal:
        run = select(selector, journal.runs()).run
        if journal.summary(run).ended is not None:
            return run, journal.summary(run).state
        work = journal.work_directory(run)
        if RunLock.held_elsewhere(work):
            journal.ask(run, "drain" if drain else "cancel", time.time())
            if not wait:
                return run, "cancelling"
            _wait_for_end(journal, run)
        if journal.summary(run).ended is None:
            _close_abandoned(journal, run)
        return run, journal.summary(run).state


def _wait_for_end(journal: Journal, run: str) -> None:
    """Until the process that drives the run has ended it, or has gone."""
    give_up_at = time.monotonic() + CANCEL_WAIT_S
    while RunLock.held_elsewhere(journal.work_directory(run)):
        if journal.summary(run).ended is not None:
            return
        if time.monotonic() > give_up_at:
            raise SurelineError(
                f"run {run} was asked to stop but has not, within {CANCEL_WAIT_S:.0f} s; its "
                f"running tasks may need longer: see them with 'sureline status {run}'"
            )
        time.sleep(0.05)


def _close_abandoned(journal: Journal, run: str) -> None:
    lock = lock_run(journal, run)
    try:
        orphans.clear_run(journal.directory, run)
        writer = journal.take(run, opened)
        writer.record(RunEnded(time.time(), "cancelled", "cancelled after its process had died"))
        writer.close()
        if grid_of(journal, run):
            from sureline.compose.pilots.running import end_pilots, order_of

            if order_of(journal, run) is not None:
                end_pilots(run)
    finally:
        lock.release()


def in_own_thread(action: Callable[[], T]) -> T:
    """Run an event loop of our own; in a thread if this one already runs a loop (a notebook).

    The journal belongs to the thread that opened it, so all of the work goes there.
    """
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return action()
    with ThreadPoolExecutor(1, thread_name_prefix="sureline") as own:
        return own.submit(action).result()
