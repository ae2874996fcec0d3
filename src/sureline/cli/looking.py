"""Commands that look at one moment or one task of a run: status, explain, story."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.display import Sink
from sureline.cli.options import Directory, Json, RunSelector
from sureline.cli.reading import OnGrid, run_journal
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.cli.display_live import Signs
    from sureline.cli.display_status import RunStatus
    from sureline.journal.explain_reuse import Made
    from sureline.journal.store import Journal
    from sureline.workflow.model import Graph

EARLIER_RUNS_MAX = 50
"""How far back `explain` looks for an earlier result of a task."""

REFRESH_S = 1.0
PLAIN_WIDTH, PLAIN_ROWS = 160, 40
"""Of a screen that is none."""

RunOrTask = Annotated[
    str,
    Parameter(
        name="run",
        help="Which run, as for 'show'. With one argument only, that is the TASK, and the run is "
        "the last.",
        allow_leading_hyphen=True,
    ),
]
TaskName = Annotated[str | None, Parameter(name="task", help="The task.")]


def explain(
    first: RunOrTask,
    second: TaskName = None,
    /,
    *,
    grid: OnGrid = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Explain a task: why it waits, why it ran when it did, why again, why it was reused or not.

    Works while the run goes on, and of any run that is recorded.

    Example: sureline explain count:00
    """
    from sureline.journal.explain import explain as explained
    from sureline.journal.locks import RunLock

    with run_journal(directory, grid, _selector(first, second)) as (journal, _):
        run, task, graph = _find(journal, first, second)
        alive = RunLock.held_elsewhere(journal.work_directory(run))
        found = explained(
            graph,
            task,
            (entry.event for entry in journal.events(run)),
            now=time.time(),
            alive=alive,
            earlier=_earlier(journal, run, graph.name, task),
        )
    if json:
        console.print_json(_with_moments(msgspec.to_builtins(found)))
        return 0
    console.say(f"{task} of run {run}: {found.state}")
    for sentence in found.sentences:
        console.say(f"  {sentence}")
    return 0


def _with_moments(data: Any) -> Any:
    """Times for programs: `ready_at` in seconds becomes `ready` in ISO 8601, here and below."""
    if isinstance(data, list):
        return [_with_moments(one) for one in data]
    if not isinstance(data, dict):
        return data
    return {
        key.removesuffix("_at"): console.moment(value)
        if key.endswith("_at") and value is not None
        else _with_moments(value)
        for key, value in data.items()
    }


def story(
    first: RunOrTask,
    second: TaskName = None,
    /,
    *,
    grid: OnGrid = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Tell all that was recorded of a task, in order.

    Times are the clock's, and seconds since the run was submitted.

    Example: sureline story last count:00
    """
    from sureline.journal.story import in_words

    with run_journal(directory, grid, _selector(first, second)) as (journal, _):
        run, task, _ = _find(journal, first, second)
        submitted_at = journal.summary(run).created
        events = [entry.event for entry in journal.events(run, task=task)]
    if json:
        console.print_json(
            {"run": run, "task": task, "submitted_at": submitted_at, "events": events}
        )
        return 0
    console.say(f"{task} of run {run}, submitted {console.moment(submitted_at)}")
    if not events:
        console.say("  nothing was recorded of it; why: sureline explain " + f"{run} {task}")
    offsets = [f"+{event.at - submitted_at:.3f} s" for event in events]
    width = max((len(offset) for offset in offsets), default=0)
    for event, offset in zip(events, offsets, strict=True):
        clock = datetime.datetime.fromtimestamp(event.at).strftime("%H:%M:%S.%f")[:-3]
        console.say(f"  {clock}  {offset.rjust(width)}  {in_words(event)}")
        for line in getattr(event, "trace", "").splitlines():
            console.say(f"    {line}")
    return 0


def _find(journal: Journal, first: str, second: str | None) -> tuple[str, str, Graph]:
    """The run and the task that are meant: RUN TASK, or a TASK of the last run."""
    import difflib

    from sureline.journal.select import select

    task = first if second is None else second
    run = select(_selector(first, second), journal.runs()).run
    graph = journal.workflow(run)
    if task not in graph.index:
        near = difflib.get_close_matches(task, list(graph.index)[:50_000], 3, cutoff=0.5)
        hint = f"is it {', '.join(near)}?" if near else "'sureline show --tasks' lists them"
        raise UserError(f"run {run} has no task {task!r}; {hint}")
    return run, task, graph


def _selector(first: str, second: str | None) -> str:
    return "last" if second is None else first


def _earlier(journal: Journal, run: str, name: str, task: str) -> Made | None:
    """What the task's newest result in an earlier run of the same workflow was made of."""
    from sureline.journal.events import COMMITS, TaskEnded
    from sureline.journal.explain_reuse import made_in

    runs = journal.runs()
    before = runs[: next(k for k, one in enumerate(runs) if one.run == run)]
    alike = [one.run for one in before if one.name == name]
    for earlier in alike[: -EARLIER_RUNS_MAX - 1 : -1]:
        ends = (entry.event for entry in journal.events(earlier, task=task))
        if any(isinstance(e, TaskEnded) and e.outcome in COMMITS for e in ends):
            graph = journal.workflow(earlier)
            events = (entry.event for entry in journal.events(earlier))
            return made_in(earlier, graph, events, task)
    return None


def status(
    run: RunSelector = "last",
    /,
    *,
    watch: Annotated[bool, Parameter(negative="", help="Refresh until the run has ended.")] = False,
    grid: OnGrid = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Show how a run stands just now: what runs, when it will be done, what failed, who runs it.

    Works from any terminal while the run goes on. 'status' is the moment, on one screen; 'show' is
    the record. With --watch, --json prints a line of JSON whenever something has happened.

    Example: sureline status --watch
    """
    from sureline.cli.display_status import RunStatus
    from sureline.journal.select import select

    with run_journal(directory, grid, run) as (journal, update):
        standing = RunStatus(journal, select(run, journal.runs()).run, update)
        standing.refresh()
        if not watch and json:
            console.print_json(standing.data())
        elif not watch:
            _say_standing(standing)
        elif json:
            _watch(standing, lambda: console.print_json_line(standing.data()), always=False)
        else:
            _watch(standing, _repainting(standing), always=Sink(sys.stdout).is_terminal)
    return 0


def _watch(standing: RunStatus, show: Callable[[], None], *, always: bool) -> None:
    """Show it, and again every REFRESH_S (unless `always`: if something happened), to its end."""
    show()
    console.flush()
    while standing.state == "running":
        time.sleep(REFRESH_S)
        if standing.refresh() or always:
            show()
            console.flush()


def _say_standing(standing: RunStatus) -> None:
    sink = Sink(sys.stdout)
    if sink.is_terminal:
        _repainting(standing)()
        return
    for line in standing.lines(PLAIN_WIDTH, PLAIN_ROWS, _signs(sink)):
        console.say(line.plain.rstrip())


def _repainting(standing: RunStatus) -> Callable[[], None]:
    """Something that puts the standing on the terminal, over where it put it before."""
    from sureline.cli.display_live import Painter

    sink = Sink(sys.stdout)
    if not sink.is_terminal:
        return lambda: _say_standing(standing)
    painter = Painter()

    def paint() -> None:
        width, rows = sink.size()
        lines = standing.lines(max(1, width - 1), rows - 1, _signs(sink))
        console.write(painter.painted(lines, width))

    return paint


def _signs(sink: Sink) -> Signs:
    from sureline.cli.display_live import ASCII, UNICODE

    return UNICODE if sink.speaks_unicode else ASCII
