"""Commands that draw: graph, report."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import (
    Directory,
    Json,
    RunSelector,
    Settings,
    overrides,
    working_directory,
)
from sureline.cli.reading import OnGrid, run_journal
from sureline.cli.sequencing import show_sequences
from sureline.workflow.mistakes import UserError

if TYPE_CHECKING:
    from sureline.web.boxes import Drawing
    from sureline.web.record import Record
    from sureline.workflow.model import Graph


def graph(
    flow_or_run: Annotated[
        str,
        Parameter(
            help="A workflow file (YAML, or a WfFormat JSON trace), or a run as for 'show', such "
            "as 'last'. If both exist, the file is meant.",
            allow_leading_hyphen=True,
        ),
    ],
    /,
    *,
    format: Annotated[
        Literal["dot", "svg"] | None,
        Parameter(help="Default: svg if the output's name ends in .svg, else dot."),
    ] = None,
    output: Annotated[
        str | None,
        Parameter(
            name=["--output", "-o"],
            allow_leading_hyphen=True,
            help="Where to write; '-' is stdout, the default.",
        ),
    ] = None,
    by_kind: Annotated[
        bool, Parameter(negative="", help="Fold tasks of one kind and level into one box.")
    ] = False,
    every_task: Annotated[
        bool, Parameter(negative="", help="Draw every task, however many there are.")
    ] = False,
    sequences: Annotated[
        bool,
        Parameter(
            negative="",
            help="Instead of drawing, show the sequences of tasks that 'peercomp' reserves time "
            "for: startlines, deadlines and stages, for the tightest deadline there is.",
        ),
    ] = False,
    chem: Annotated[
        bool,
        Parameter(
            negative="",
            help="Instead of drawing, write the workflow in the chemical notation, to stdout or "
            "to --output FILE.chem; it can be run and read again.",
        ),
    ] = False,
    set_: Settings = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Draw a workflow or a run: levels from left to right, the critical path marked.

    Of a run, boxes show the states of their tasks. More than 300 tasks are folded, those of one
    kind and level into one box. With --json, stdout gets the boxes and edges instead, and a
    drawing is made only if --output names a file.

    Example: sureline graph wordcount.yaml --output wordcount.svg
    """
    from sureline.web.dot import dot
    from sureline.web.svg import standalone

    if by_kind and every_task:
        raise UserError("--by-kind and --every-task exclude each other; leave one out")
    if chem:
        if by_kind or every_task or format or sequences:
            raise UserError("--chem draws nothing; leave out what says how to draw")
        described = _described(flow_or_run, working_directory(directory), set_)
        return _write_chemical(described, output, json)
    if sequences:
        if by_kind or every_task or format or output:
            raise UserError("--sequences draws nothing; leave out what says how to draw")
        return show_sequences(_described(flow_or_run, working_directory(directory), set_), json)
    fold = True if by_kind else False if every_task else None
    drawing = _drawing(flow_or_run, working_directory(directory), set_, fold)
    to_file = output is not None and output != "-"
    suffix = os.path.splitext(output or "")[1].lower()
    chosen = format or ("svg" if suffix == ".svg" else "dot")
    if to_file or not json:
        text = standalone(drawing) if chosen == "svg" else dot(drawing)
        if to_file:
            write_file(Path(output or ""), text)
        else:
            console.write(text)
    if json:
        console.print_json(_as_data(drawing, output if to_file else None))
    elif to_file:
        console.note(f"wrote {output}")
    return 0


def _write_chemical(described: Graph, output: str | None, json: bool) -> int:
    from sureline.workflow.chemical import write_chemical

    text = write_chemical(described)
    to_file = output is not None and output != "-"
    if to_file:
        write_file(Path(output or ""), text)
    if json:
        told = {"name": described.name, "tasks": len(described), "chemical": text}
        console.print_json({**told, "output": output if to_file else None})
    elif to_file:
        console.note(f"wrote {output}")
    else:
        console.write(text)
    return 0


def _drawing(selector: str, where: Path, settings: list[str] | None, fold: bool | None) -> Drawing:
    from sureline.web.boxes import draw, expected_path
    from sureline.web.happened import longest_path

    if _is_file(selector):
        described = _described(selector, where, settings)
        path, words = expected_path(described)
        return draw(described, path=path, path_words=words, fold=fold)
    record = _record_without(settings, selector, where)
    path, words = longest_path(record)
    states = dict(enumerate(record.states))
    return draw(record.graph, states=states, path=path, path_words=words, fold=fold)


def _is_file(selector: str) -> bool:
    files = (".yaml", ".yml", ".json", ".txt", ".clam", ".flow")
    return os.path.exists(selector) or selector.endswith(files)


def _described(selector: str, where: Path, settings: list[str] | None) -> Graph:
    """The graph of a workflow file, or of a run."""
    from sureline.workflow.read import read_workflow

    if not _is_file(selector):
        return _record_without(settings, selector, where).graph
    # Pretended, a trace's input files need not be here, and its tasks have durations.
    trace = selector.lower().endswith(".json")
    return read_workflow(
        Path(selector),
        directory=where,
        overrides=overrides(settings),
        pretend=trace,
        to_run=False,
    ).graph


def _record_without(settings: list[str] | None, selector: str, where: Path) -> Record:
    if settings:
        raise UserError(f"--set suits a workflow file; {selector} would be a run")
    return _record(selector, where, None)


def _record(selector: str, where: Path, grid: str | None) -> Record:
    from sureline.journal.locks import RunLock
    from sureline.journal.select import select
    from sureline.web.record import Record

    with run_journal(where, grid, selector) as (journal, _):
        name = select(selector, journal.runs()).run
        # Asked before reading: a run that ends meanwhile has told so in its events.
        alive = RunLock.held_elsewhere(journal.work_directory(name))
        described = journal.workflow(name)
        events = (entry.event for entry in journal.events(name))
        return Record.of(described, events, alive=alive, now=time.time())


def _as_data(drawing: Drawing, file: str | None) -> dict[str, Any]:
    names = {i: box.label for box in drawing.boxes for i in box.tasks}
    return {
        "name": drawing.name,
        "tasks": sum(len(box.tasks) for box in drawing.boxes),
        "folded": drawing.folded,
        "file": file,
        "critical_path": [names[i] for i in drawing.path] if not drawing.folded else None,
        "critical_path_by": drawing.path_words,
        "boxes": [
            {
                "label": box.label,
                "kind": box.kind or None,
                "column": box.level,
                "tasks": len(box.tasks),
                "states": box.states,
                "critical": box.critical,
            }
            for box in drawing.boxes
        ],
        "edges": [
            {"from": e.parent, "to": e.child, "number": e.number, "critical": e.critical}
            for e in drawing.edges
        ],
    }


def report(
    run: RunSelector = "last",
    /,
    *,
    output: Annotated[
        str | None,
        Parameter(
            name=["--output", "-o"],
            help="The file to write. Default: the run's name with .html, in the working directory.",
        ),
    ] = None,
    open: Annotated[
        bool, Parameter(name="--open", negative="", help="Show it in a browser too.")
    ] = False,
    grid: OnGrid = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Write a run's report: one HTML file that needs nothing else, to keep or to send.

    Timeline, graph, durations, time lost, failures, and the story of every task. Works while the
    run goes on, too: the report then says how far it has come.

    Example: sureline report last --open
    """
    from sureline.web.report import report as page

    where = working_directory(directory)
    record = _record(run, where, grid)
    file = Path(output) if output else where / f"{record.view.run}.html"
    text = page(record)
    write_file(file, text)
    shown = open and _show(file)
    if json:
        console.print_json(
            {
                "run": record.view.run,
                "state": record.state,
                "file": str(file),
                "size_bytes": len(text.encode()),
                "opened": shown,
            }
        )
    else:
        console.say(f"wrote {file} ({console.size(len(text.encode()))})")
        if open and not shown:
            console.note("no browser could be started here; open the file yourself")
    return 0


def _show(file: Path) -> bool:
    import webbrowser

    try:
        return webbrowser.open(file.resolve().as_uri())
    except webbrowser.Error:
        return False


def write_file(file: Path, text: str, option: str = "--output") -> None:
    """Write a file whole or not at all; an earlier one stays until the new one is complete.

    `option` is where the user named it."""
    if file.is_dir():
        raise UserError(f"{file} is a directory; name a file with {option}")
    partial: str | None = None
    try:
        descriptor, partial = tempfile.mkstemp(dir=file.parent, prefix=f".{file.name}.")
        with os.fdopen(descriptor, "w", encoding="utf-8", newline="\n") as stream:
            stream.write(text)
        os.chmod(partial, 0o666 & ~_umask())
        os.replace(partial, file)
    except OSError as error:
        if partial is not None and os.path.exists(partial):
            os.unlink(partial)
        reason = os.strerror(error.errno or 0)
        raise UserError(
            f"{file} cannot be written ({reason}); name another with {option}"
        ) from None


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
