"""Commands before a run: init, validate."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.console import counted
from sureline.cli.options import (
    Directory,
    Flow,
    Json,
    Settings,
    machine,
    read_flow,
    working_directory,
)
from sureline.workflow.mistakes import UserError

STARTER_FILE = "workflow.yaml"
STARTER_INPUT = "big.txt"
STARTER = """\
# A first workflow: count the words of a text, in four parts at once.
# Run it:             sureline run workflow.yaml
# With another text:  sureline run workflow.yaml --set big=other.txt
name: wordcount
params: {big: big.txt}
tasks:
  split:
    run: split -n l/4 -d {{big}} part.
    inputs: ["{{big}}"]
    outputs: [part.00, part.01, part.02, part.03]
    takes: 1s .. 3s .. 10s          # optimistic .. likely .. pessimistic; optional
  count:
    for: {i: ["00", "01", "02", "03"]}
    run: wc -w part.{{i}} > count.{{i}}
    inputs: ["part.{{i}}"]
    outputs: ["count.{{i}}"]
    needs: {cores: 1, memory: 50MB}
    retries: 2
    timeout: 5 min
  total:
    run: cat count.* | awk '{s+=$1} END {print s}' > total.txt
    inputs: ["count.*"]
    outputs: [total.txt]
"""


def init(
    where: Annotated[Path, Parameter(help="A directory; made if it is not there.")] = Path("."),
    /,
    *,
    json: Json = False,
) -> int:
    """Write a first workflow (workflow.yaml) and a text for it to count (big.txt).

    Overwrites nothing: an existing file is a mistake, and then neither is written.

    Example: sureline init my-project
    """
    files = {STARTER_FILE: STARTER, STARTER_INPUT: _starter_text()}
    taken = [name for name in files if (where / name).exists()]
    if taken:
        raise UserError(
            f"{where / taken[0]} is there already; move it away or name another directory"
        )
    try:
        where.mkdir(parents=True, exist_ok=True)
        for name, text in files.items():
            (where / name).write_text(text)
    except OSError as error:
        raise UserError(
            f"{where} cannot be written ({os.strerror(error.errno or 0)}); name another directory"
        ) from None
    if json:
        console.print_json({"directory": str(where), "files": list(files)})
    else:
        inside = "" if where == Path(".") else f"cd {where} && "
        console.say(f"wrote {', '.join(str(where / name) for name in files)}")
        console.say(f"run it with: {inside}sureline run {STARTER_FILE}")
    return 0


def _starter_text() -> str:
    """A few thousand words, always the same."""
    sentence = "a workflow is a graph of tasks and the files that they read and make"
    words = sentence.split(" ")
    lines = [
        " ".join(words[(k * step) % len(words)] for k in range(1, 9)) for step in range(1, 501)
    ]
    return "\n".join(lines) + "\n"


def validate(
    flow: Flow,
    /,
    *,
    set_: Settings = None,
    cores: Annotated[float | None, Parameter(help="Check needs against so many cores.")] = None,
    memory: Annotated[str | None, Parameter(help="Check needs against so much memory.")] = None,
    gpus: Annotated[int | None, Parameter(help="Check needs against so many GPUs.")] = None,
    tag: Annotated[
        list[str] | None,
        Parameter(name="--tag", negative="", consume_multiple=False, help="A tag to offer."),
    ] = None,
    pretend: Annotated[
        bool, Parameter(negative="", help="Check it as 'run --pretend' would read it.")
    ] = False,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Check a workflow without running it; every mistake is told, with its line.

    Example: sureline validate wordcount.yaml
    """
    from sureline.workflow.shapes import levels

    where = working_directory(directory)
    capacity = machine(where, cores, memory, gpus, tag)
    reading = read_flow(flow, where, set_, capacity, pretend=pretend, to_run=False)
    graph = reading.graph
    depth = max(levels(graph), default=-1) + 1
    kinds = len({task.kind_name for task in graph.tasks})
    edges = sum(len(parents) for parents in graph.parents)
    for warning in reading.warnings:
        console.note(f"note: {warning}")
    if json:
        console.print_json(
            {
                "valid": True,
                "name": graph.name,
                "tasks": len(graph),
                "kinds": kinds,
                "edges": edges,
                "levels": depth,
                "inputs": len(graph.external),
                "outputs": len(graph.producer),
            }
        )
    else:
        console.say(
            f"{flow} is valid: {counted(len(graph), 'task')} of {counted(kinds, 'kind')} "
            f"in {counted(depth, 'level')}, {counted(edges, 'dependency', 'dependencies')}, "
            f"{counted(len(graph.external), 'input file')}, "
            f"{counted(len(graph.producer), 'output')}"
        )
    return 0
