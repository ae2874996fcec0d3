"""Virtual data: how a file was made, by the journal of its directory, and how it is made again."""

from __future__ import annotations

from pathlib import Path

import msgspec

from sureline.compose import HOME, Outcome, Watcher, run_workflow
from sureline.journal.events import Submitted, TaskEnded
from sureline.journal.store import Journal
from sureline.peer.capacity import Capacity
from sureline.run.options import Options
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Command, Graph
from sureline.workflow.targets import needed_for

STEPS_MAX = 1000
"""Of how many tasks it is told how they led to a file."""


class Derivation(msgspec.Struct, frozen=True):
    """One task that led to a file: the file's own maker, or one that made what that one read."""

    run: str
    task: str
    command: str
    site: str
    """The machine or site that it ran at; of a reused result, '' if that is not known here."""
    at: float
    inputs: list[tuple[str, str, str]]
    """(name, digest, the task that made it or '' for what the user gave)."""
    outputs: list[str]
    key: str


def derivation(directory: Path, file: str) -> list[Derivation]:
    """The newest way in which it was made here: its maker first, then what that one read. Raises
    UserError for a file that no run here made."""
    with Journal.open(directory / HOME, create=False, read_only=True) as journal:
        run, graph, maker = _found(journal, file)
        ended = {one.task: one for one in journal.commits(run)}
    steps: list[Derivation] = []
    waiting, seen = [maker], {maker}
    while waiting and len(steps) < STEPS_MAX:
        task = waiting.pop(0)
        name = graph.tasks[task].name
        if name in ended:
            steps.append(_step(run, graph, task, ended[name]))
        fresh = [parent for parent in graph.parents[task] if parent not in seen]
        seen.update(fresh)
        waiting += fresh
    return steps


def make_again(
    directory: Path, file: str, machine: Capacity, watcher: Watcher | None = None
) -> Outcome:
    """Run what leads to the file, at the sites where it was made, or else on this machine; what is
    still stored is not run again."""
    with Journal.open(directory / HOME, create=False, read_only=True) as journal:
        run, graph, maker = _found(journal, file)
        options = _options(journal, run)
    part = needed_for(graph, [graph.tasks[maker].name])
    return run_workflow(part, directory, machine, options, watcher)


def _options(journal: Journal, run: str) -> Options:
    for entry in journal.events(run):
        if isinstance(entry.event, Submitted):
            before = msgspec.convert(entry.event.options, Options)
            if before.sites:
                return Options(
                    sites=before.sites, strategy=before.strategy, settings=before.settings
                )
    return Options()


def _found(journal: Journal, file: str) -> tuple[str, Graph, int]:
    for summary in reversed(journal.runs()):
        graph = journal.workflow(summary.run)
        maker = graph.maker(file)
        if maker is not None and graph.tasks[maker].name in journal.committed(summary.run):
            return summary.run, graph, maker
    raise UserError(f"no run in this directory has made {file}; see: sureline runs")


def _step(run: str, graph: Graph, task: int, ended: TaskEnded) -> Derivation:
    action = graph.tasks[task].action
    inputs = []
    for record in ended.inputs:
        maker = graph.maker(record.path)
        by = "" if maker is None else graph.tasks[maker].name
        inputs.append((record.path, record.digest, by))
    if not ended.inputs:  # a reused result: its inputs are named by the workflow alone
        for path in graph.tasks[task].inputs:
            maker = graph.maker(path)
            inputs.append((path, "", "" if maker is None else graph.tasks[maker].name))
    return Derivation(
        ended.from_run or run,
        ended.task,
        action.run if isinstance(action, Command) else "(a Python call)",
        ended.peer,
        ended.at,
        inputs,
        [record.path for record in ended.outputs],
        ended.key,
    )
