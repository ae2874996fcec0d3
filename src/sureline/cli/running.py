"""Commands that run workflows: run, resume, cancel."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.entry import is_own_process
from sureline.cli.options import Directory, Flow, Json, RunSelector, machine, working_directory
from sureline.cli.reading import OnGrid
from sureline.cli.terms import REFUSED
from sureline.cli.wanted import Cores, Gpus, Memory, RunSettings, Tags
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.compose import Outcome
    from sureline.workflow.model import Graph

Quiet = Annotated[
    bool, Parameter(name=["--quiet", "-q"], negative="", help="Tell of failures only.")
]
Progress = Annotated[
    Literal["auto", "live", "lines", "none"],
    Parameter(
        help="How to show progress on stderr: live (a display that a terminal keeps up to date), "
        "lines, none; auto is live on a terminal, lines elsewhere."
    ),
]


def adopt_orphans() -> None:
    """Have this process end what a task leaves that has killed its slot."""
    if is_own_process():
        from sureline.peer import orphans

        orphans.adopt()


def run(
    flow: Flow,
    /,
    *,
    pretend: Annotated[
        bool, Parameter(negative="", help="Sleep for each task's known duration instead.")
    ] = False,
    speed: Annotated[float, Parameter(help="With --pretend: how many times faster.")] = 1.0,
    progress: Progress = "auto",
    quiet: Quiet = False,
    json: Json = False,
    directory: Directory = Path("."),
    wanted: RunSettings = RunSettings(),  # noqa: B008 - it is immutable
) -> int:
    """Run a workflow to its end: on this machine, or on the peers of a grid.

    Results appear in the working directory as tasks finish. The first Ctrl-C lets running tasks
    finish, the second stops them; 'sureline resume' continues either way, and after a crash.
    With a deadline (--within, --by) the run is forecast first, watched, and repaired when late.

    Example: sureline run wordcount.yaml --set big=other.txt
    """
    from sureline.cli.progress import watching
    from sureline.compose import HOME, run_workflow

    where = working_directory(directory)
    if not 0 < speed < 1e9:
        raise UserError(f"--speed {speed:g} is not a factor; give a number above 0")
    if speed != 1.0 and not pretend:
        raise UserError("--speed goes with --pretend; add --pretend, or leave --speed out")
    ready = wanted.ready(flow, where, pretend=pretend, speed=speed, as_json=json)
    if ready.refused:
        return REFUSED
    with watching(progress, where / HOME, ready.capacity, quiet=quiet, as_json=json) as watcher:
        adopt_orphans()
        outcome = run_workflow(ready.graph, where, ready.capacity, ready.options, watcher)
    return report(outcome, json)


def resume(
    run: RunSelector = "last",
    /,
    *,
    grid: Annotated[
        str | None,
        Parameter(
            help="Take over a run that was driven from elsewhere on this grid, if it is not here: "
            "its results will come to this directory."
        ),
    ] = None,
    alone: Annotated[
        bool,
        Parameter(
            negative="",
            help="Of a grid run: go on without asking whether another process drives it. If one "
            "does, tasks run twice, and what one of the two has recorded is lost.",
        ),
    ] = False,
    cores: Cores = None,
    memory: Memory = None,
    gpus: Gpus = None,
    tag: Tags = None,
    progress: Progress = "auto",
    quiet: Quiet = False,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Continue a run that crashed, was cancelled, or failed; finished tasks do not run again.

    Of a run on a grid, what was done meanwhile is learnt first. If another process drives it, this
    one follows it to its end and brings its results here.

    Example: sureline resume last
    """
    from sureline.cli.progress import watching
    from sureline.compose import HOME, resume_elsewhere, resume_run

    where = working_directory(directory)
    elsewhere = "" if grid is None else _found_elsewhere(grid, run, where / HOME, copy=alone)
    capacity = machine(where, cores, memory, gpus, tag)
    if not elsewhere or alone:
        run = _chosen(where, elsewhere or run)
    with watching(progress, where / HOME, capacity, quiet=quiet, as_json=json) as watcher:
        adopt_orphans()
        if grid is not None and elsewhere and not alone:
            outcome = resume_elsewhere(where, grid, elsewhere, watcher)
        else:
            outcome = resume_run(where, run, capacity, watcher, alone=alone)
    return report(outcome, json)


def _chosen(where: Path, selector: str) -> str:
    """The run that is to go on; says if its workflow's file is not what it was."""
    from sureline.compose import HOME
    from sureline.journal.select import select_to_resume
    from sureline.journal.store import Journal

    with Journal.open(where / HOME, create=False, read_only=True) as journal:
        one = select_to_resume(selector, journal.runs())
        graph = journal.workflow(one.run)
    why = _changed(graph, where, one.created)
    if why:
        console.note(
            f"note: {graph.source} {why} since run {one.run} began, which goes on as it was; for "
            f"the new one: sureline run {graph.source} (what is unchanged is reused)"
        )
    return one.run


def _changed(graph: Graph, where: Path, since: float) -> str:
    """What became of a workflow's file; '' if it is as it was, or was none."""
    from sureline.workflow.model import Pause
    from sureline.workflow.read import read_workflow

    if graph.source is None or graph.source == "-":
        return ""
    path = next((p for p in (Path(graph.source), where / graph.source) if p.exists()), None)
    if path is None:
        return "is gone"
    if path.stat().st_mtime <= since or any(isinstance(t.action, Pause) for t in graph.tasks):
        return ""
    try:
        now = read_workflow(path, directory=where, overrides=graph.params or None).graph
    except UserError:
        return "has changed and cannot be read"
    return "" if now.tasks == graph.tasks else "has changed"


def _found_elsewhere(grid: str, selector: str, home: Path, *, copy: bool) -> str:
    """The whole name of a run of the grid that is not in the journal here; '' if it is. With
    `copy`, it is then."""
    from sureline.cli.reading import check_selector
    from sureline.compose.elsewhere import RunElsewhere, name_on_grid
    from sureline.journal.errors import NoJournalError
    from sureline.journal.store import Journal

    check_selector(selector)
    try:
        with Journal.open(home, create=False, read_only=True) as journal:
            here = [one.run for one in journal.runs() if one.run.startswith(selector)]
    except NoJournalError:
        here = []
    if len(here) == 1:
        return ""
    if not copy:
        return name_on_grid(grid, selector)
    with RunElsewhere.found(grid, selector) as found:
        found.copy_into(home)
        return found.run


def cancel(
    run: RunSelector = "last",
    /,
    *,
    drain: Annotated[
        bool, Parameter(negative="", help="Let running tasks finish; start nothing more.")
    ] = False,
    wait: Annotated[
        bool, Parameter(negative="--no-wait", help="Wait until the run has ended.")
    ] = True,
    grid: OnGrid = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Stop a run, from any terminal. 'sureline resume' can continue it later.

    Example: sureline cancel last --drain
    """
    from sureline.compose import cancel_run

    if grid is not None:
        name, state = _cancel_elsewhere(grid, run, drain, wait)
    else:
        name, state = cancel_run(working_directory(directory), run, drain=drain, wait=wait)
    if json:
        console.print_json({"run": name, "state": state})
    else:
        console.say(f"run {name}: {state}")
    return 0


def _cancel_elsewhere(grid: str, selector: str, drain: bool, wait: bool) -> tuple[str, str]:
    import time

    from sureline.cli.reading import check_selector
    from sureline.compose import CANCEL_WAIT_S
    from sureline.compose.elsewhere import RunElsewhere

    check_selector(selector)
    give_up_at = time.monotonic() + CANCEL_WAIT_S
    with RunElsewhere.found(grid, selector) as found:
        if found.state() != "running":
            return found.run, found.state()
        if not found.cancel(drain=drain):
            raise UserError(
                f"nobody drives run {found.run} just now; take it over with: "
                f"sureline resume {found.run} --grid {grid}"
            )
        while wait and found.state() == "running":
            if time.monotonic() > give_up_at:
                break
            time.sleep(0.2)
            found.refresh()
        state = found.state()
        return found.run, "cancelling" if state == "running" else state


def report(outcome: Outcome, as_json: bool) -> int:
    """Say how a run ended; the exit code it earned."""
    if as_json:
        console.print_json(outcome)
    else:
        console.say(_sentence(outcome))
    if outcome.state == "succeeded" and outcome.late_s:
        return REFUSED
    return {"succeeded": 0, "cancelled": 130}.get(outcome.state, 1)


def _sentence(outcome: Outcome) -> str:
    t = outcome.tasks
    parts = [f"{t.succeeded} succeeded"]
    if t.reused:
        parts.append(f"{t.reused} reused")
    if t.failed:
        parts.append(f"{t.failed} failed")
    if t.cancelled:
        parts.append(f"{t.cancelled} not run")
    told = f"run {outcome.run} {outcome.state}: {', '.join(parts)} of "
    told += f"{console.counted(t.total, 'task')} in {console.duration(outcome.elapsed_s)}"
    if outcome.reason:
        told += f" ({outcome.reason})"
    if outcome.late_s:
        told += f"; {console.duration(outcome.late_s)} later than the deadline"
    if outcome.state != "succeeded":
        told += f"\ncontinue with: sureline resume {outcome.run}"
    return told
