"""Commands that look at runs: runs, show, logs."""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Directory, Json, RunSelector
from sureline.cli.reading import OnGrid, local_journal, run_journal
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.journal.events import TaskEnded
    from sureline.journal.store import Journal, RunSummary
    from sureline.journal.views import RunView, TaskView


_LOG = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*\.(?:out|err)")
_BLOB = re.compile(r"[0-9a-f]{64}:[0-9]{1,15}")


def runs(
    *,
    limit: Annotated[int, Parameter(help="Show so many of the newest; 0 for all.")] = 20,
    grid: Annotated[
        str | None,
        Parameter(help="List the runs of which peers of this grid keep a copy, whoever drives."),
    ] = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """List the runs of this directory, the newest last.

    Example: sureline runs --limit 5
    """
    from sureline.journal.errors import NoJournalError

    if limit < 0:
        raise UserError(f"--limit {limit} is negative; give 0 for all runs")
    if grid is not None:
        return _runs_of_grid(grid, limit, json)
    try:
        with local_journal(directory) as journal:
            found = journal.runs()[-limit:] if limit else journal.runs()
            rows = [_summary(journal, summary) for summary in found]
    except NoJournalError:
        rows = []
    if json:
        console.print_json({"runs": rows})
    elif not rows:
        console.say("no runs here yet; start one with: sureline run FILE")
    else:
        _table(rows)
    return 0


def _runs_of_grid(grid: str, limit: int, as_json: bool) -> int:
    from sureline.compose.elsewhere import find_copies, reader_on, visiting

    with visiting(grid) as (node, loop):
        copies = loop.run(find_copies(node, reader_on(node), ""))
    known = {copy.about.run: copy.about for copy in reversed(copies)}
    newest = sorted(known.values(), key=lambda about: (about.submitted_at, about.run))[-limit:]
    rows = [
        {
            "run": about.run,
            "name": about.name,
            "state": about.state,
            "submitted": console.moment(about.submitted_at),
            "done": about.done,
            "total": about.total,
            "driver": about.writer,
            "epoch": about.epoch,
        }
        for about in newest
    ]
    if as_json:
        console.print_json({"grid": grid, "runs": rows})
    elif not rows:
        console.say(f"no peer of grid {grid} keeps a run yet")
    else:
        _print_table(
            ("RUN", "STATE", "SUBMITTED", "DRIVER", "DONE", "TOTAL"),
            [
                (
                    str(row["run"]),
                    str(row["state"]),
                    str(row["submitted"])[:19].replace("T", " "),
                    str(row["driver"]),
                    str(row["done"]),
                    str(row["total"]),
                )
                for row in rows
            ],
            left=4,
        )
    return 0


def _summary(journal: Journal, summary: RunSummary) -> dict[str, Any]:
    from sureline.journal.locks import RunLock

    alive = RunLock.held_elsewhere(journal.work_directory(summary.run))
    return {
        "run": summary.run,
        "name": summary.name,
        "state": summary.seen(alive),
        "submitted": console.moment(summary.created),
        "ended": None if summary.ended is None else console.moment(summary.ended),
        "tasks": {
            "total": summary.total,
            "succeeded": summary.succeeded,
            "reused": summary.reused,
            "failed": summary.failed,
            "cancelled": summary.cancelled,
        },
        "source": summary.source,
    }


def _table(rows: list[dict[str, Any]]) -> None:
    cells = [
        (
            row["run"],
            row["state"],
            row["submitted"][:19].replace("T", " "),
            str(row["tasks"]["succeeded"] + row["tasks"]["reused"]),
            str(row["tasks"]["failed"]),
            str(row["tasks"]["total"]),
        )
        for row in rows
    ]
    _print_table(("RUN", "STATE", "SUBMITTED", "DONE", "FAILED", "TOTAL"), cells, left=3)


def _print_table(head: tuple[str, ...], rows: Sequence[tuple[str, ...]], left: int) -> None:
    """Columns under their heads; the first `left` of them are text, the others numbers."""
    lines = [head, *rows]
    widths = [max(len(line[k]) for line in lines) for k in range(len(head))]
    for line in lines:
        cells = [
            cell.ljust(width) if k < left else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(line, widths, strict=True))
        ]
        console.say("  ".join(cells).rstrip())


def show(
    run: RunSelector = "last",
    task: Annotated[str | None, Parameter(help="One task, in detail.")] = None,
    /,
    *,
    tasks: Annotated[
        bool, Parameter(negative="", help="List every task, not only those that failed or run.")
    ] = False,
    grid: OnGrid = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Show a run: its state, its counts, what runs and what failed; or one task of it.

    Works while the run goes on, from any terminal.

    Example: sureline show last count:00
    """
    from sureline.cli.terms_told import repairs_data, terms_data
    from sureline.journal.locks import RunLock
    from sureline.journal.select import select

    with run_journal(directory, grid, run) as (journal, _):
        name = select(run, journal.runs()).run
        view = _view(journal, name)
        alive = RunLock.held_elsewhere(journal.work_directory(name))
    if task is not None:
        one = _find_task(view, task)
        return _show_task(name, task, one, json)
    shown = [
        _task_data(key, one)
        for key, one in view.tasks.items()
        if tasks or one.state in ("failed", "running", "retrying")
    ]
    data = {
        "run": name,
        "name": view.name,
        "state": view.state(alive),
        "reason": view.reason,
        "source": view.source,
        "submitted": None if view.submitted_at is None else console.moment(view.submitted_at),
        "elapsed_s": round(view.elapsed_s, 3),
        "tasks": view.counts,
        "by_state": view.by_state,
        "terms": terms_data(view),
        "repairs": repairs_data(view),
        "set_aside": [
            {"peer": one.peer, "reason": one.reason, "aside_s": one.aside_s, "strikes": one.strikes}
            for one in view.aside.values()
        ],
        "listed": shown,
    }
    if json:
        console.print_json(data)
    else:
        _say_run(data, view, shown)
    return 0


def _view(journal: Journal, run: str) -> RunView:
    from sureline.journal.views import RunView

    names = [task.name for task in journal.workflow(run).tasks]
    view = RunView.of((entry.event for entry in journal.events(run)), names)
    if view.ended_state is not None:
        # In a run that is over nothing waits any more; `counts` says the same.
        for task in view.tasks.values():
            if task.state not in ("succeeded", "reused", "failed"):
                task.state = "cancelled"
        view.by_state = dict(Counter(task.state for task in view.tasks.values()))
    return view


def _say_run(data: dict[str, Any], view: RunView, shown: list[dict[str, Any]]) -> None:
    from sureline.cli.terms_told import terms_lines

    c = view.counts
    console.say(f"run {data['run']}: {data['state']}" + _in_brackets(view.reason))
    console.say(f"  workflow   {view.name}" + _in_brackets(view.source or ""))
    console.say(f"  submitted  {data['submitted']}")
    console.say(f"  time spent {console.duration(view.elapsed_s)}")
    console.say(
        f"  tasks      {c.total}: "
        + ", ".join(f"{count} {state}" for state, count in sorted(view.by_state.items()))
    )
    for line in terms_lines(view):
        console.say(line)
    for left in view.aside.values():
        console.say(f"  set aside  {left.peer}: {left.reason}")
    for one in shown:
        line = f"  {one['task']}: {one['state']}"
        if one["elapsed_s"]:
            line += f", {console.duration(one['elapsed_s'])}"
        if one["failures"] and one["state"] != "succeeded":
            line += f", {one['failures'][-1]['reason']}"
        console.say(line)


def _in_brackets(text: str) -> str:
    return f" ({text})" if text else ""


def _find_task(view: RunView, name: str) -> TaskView:
    import difflib

    found = view.tasks.get(name)
    if found is None:
        near = difflib.get_close_matches(name, list(view.tasks)[:50_000], 3, cutoff=0.5)
        hint = f"is it {', '.join(near)}?" if near else "'sureline show --tasks' lists them"
        raise UserError(f"run {view.run} has no task {name!r}; {hint}")
    return found


def _task_data(name: str, one: TaskView) -> dict[str, Any]:
    return {
        "task": name,
        "state": one.state,
        "attempts": one.attempts,
        "peer": one.peer,
        "started": None if one.started_at is None else console.moment(one.started_at),
        "ended": None if one.ended_at is None else console.moment(one.ended_at),
        "elapsed_s": round(one.elapsed_s, 3),
        "from_run": one.from_run or None,
        "outputs": [{"path": f.path, "size": f.size, "digest": f.digest} for f in one.outputs],
        "failures": [
            {
                "attempt": f.attempt,
                "outcome": f.outcome,
                "reason": f.reason,
                "exit_code": f.exit_code,
                "signal": f.signal,
                "trace": f.trace,
            }
            for f in one.failures
        ],
    }


def _show_task(run: str, name: str, one: TaskView, as_json: bool) -> int:
    data = {"run": run, **_task_data(name, one)}
    if as_json:
        console.print_json(data)
        return 0
    source = f" (from run {one.from_run})" if one.from_run else ""
    console.say(f"{name}: {one.state}{source}")
    if one.attempts:
        took = f", the last took {console.duration(one.elapsed_s)}" if one.ended_at else ""
        console.say(f"  attempts  {one.attempts}{took}")
    if one.peer:
        console.say(f"  machine   {one.peer}")
    for file in one.outputs:
        console.say(f"  output    {file.path} ({console.size(file.size)})")
    for failure in one.failures:
        console.say(f"  attempt {failure.attempt} {failure.outcome}: {failure.reason}")
        for line in failure.trace.splitlines():
            console.say(f"    {line}")
    return 0


def logs(
    run: RunSelector,
    task: Annotated[str, Parameter(help="The task.")],
    /,
    *,
    attempt: Annotated[
        int | None, Parameter(help="Which attempt. Default: the latest that ended.")
    ] = None,
    stdout: Annotated[bool, Parameter(negative="", help="Only standard output.")] = False,
    stderr: Annotated[bool, Parameter(negative="", help="Only standard error.")] = False,
    grid: OnGrid = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Print what a task wrote to its standard output and standard error.

    Example: sureline logs last count:00 --stderr
    """
    from sureline.journal.events import TaskEnded
    from sureline.journal.select import select

    with run_journal(directory, grid, run) as (journal, _):
        name = select(run, journal.runs()).run
        ends = [
            entry.event
            for entry in journal.events(name, task=task)
            if isinstance(entry.event, TaskEnded)
        ]
        if not ends:
            state = _find_task(_view(journal, name), task).state
            raise UserError(
                f"task {task!r} of run {name} is {state} and has no logs; "
                "there are some once an attempt has ended"
            )
        chosen = [e for e in ends if attempt is None or e.attempt == attempt]
        if not chosen:
            known = ", ".join(str(e.attempt) for e in ends)
            raise UserError(f"{task} has no attempt {attempt} that ended; there is {known}")
        logs = (
            (chosen[-1].stdout_file, chosen[-1].stdout),
            (chosen[-1].stderr_file, chosen[-1].stderr),
        )
        out, err = (_whole(journal, name, chosen[-1].peer, file, text) for file, text in logs)
    if json:
        console.print_json(
            {
                "run": name,
                "task": task,
                "attempt": chosen[-1].attempt,
                "outcome": chosen[-1].outcome,
                "stdout": out,
                "stderr": err,
            }
        )
        return 0
    _print_logs(
        chosen[-1], out if stdout or not stderr else "", err if stderr or not stdout else ""
    )
    return 0


def _whole(journal: Journal, run: str, peer: str, file: str | None, text: str) -> str:
    """The whole of a log; its tail if the file has been removed since, or is no log of this run: a
    report may have come from anybody."""
    from sureline.peer.jobs import BLOB

    if file is None:
        return text
    if file.startswith(BLOB):
        return _from_grid(journal, run, peer, file.removeprefix(BLOB)) or text
    directory, _, name = file.rpartition("/")
    path = journal.directory / file
    if directory != f"logs/{run}" or not _LOG.fullmatch(name) or path.is_symlink():
        return text
    try:
        return path.read_text(errors="replace")
    except OSError:
        return text


def _from_grid(journal: Journal, run: str, peer: str, name: str) -> str:
    """A long log that lies on the peers of a grid, first on the one that ran the task; '' if it
    cannot be had."""
    from sureline.compose import grid_of
    from sureline.compose.elsewhere import visiting
    from sureline.compose.node import NobodyAnswersError
    from sureline.peer.files.service import FetchError
    from sureline.workflow.files import FileRecord

    if not _BLOB.fullmatch(name):
        return ""
    digest, _, size = name.partition(":")
    wanted = FileRecord("log", digest, int(size))
    try:
        with visiting(grid_of(journal, run)) as (node, loop):
            loop.run(node.files.fetch(wanted, node.nodes_of(peer)))
            path = node.cache.path(digest)
            return "" if path is None else Path(path).read_text(errors="replace")
    except (FetchError, NobodyAnswersError) as error:
        console.note(f"note: only the end of the log is here ({error})")
        return ""


def _print_logs(ended: TaskEnded, out: str, err: str) -> None:
    """As it was written; but nothing that a task wrote may play tricks with a terminal."""
    if sys.stdout.isatty():
        out = console.harmless(out)
    console.write(out if out.endswith("\n") or not out else out + "\n")
    if err:
        console.flush()
        console.note(err.removesuffix("\n"))
    if ended.reason:
        console.note(f"({ended.task}, attempt {ended.attempt}: {ended.reason})")
