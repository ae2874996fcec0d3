"""What a run knows of files and results: identities of inputs, short results, and what is made of
them: the key of a task's result, and the job that makes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sureline.peer.jobs import CallJob, CommandJob, PauseJob
from sureline.peer.messages import TaskJob
from sureline.run.keys import digest_of, result_key
from sureline.workflow.files import FileRecord, result_path
from sureline.workflow.model import Call, Command, Graph, Pause


class Known:
    """Tasks are given by index. A task's `inputs`, `key` and `job` may be asked for once nothing
    of it is `missing` and its parents' results were kept."""

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._files: dict[str, FileRecord] = {}
        self._results: dict[int, bytes] = {}
        self._readers = [len(children) for children in graph.children]
        """How many children of a task have not committed yet."""
        self._in_place = {path for task in graph.tasks for path in task.in_place}

    def grow(self, graph: Graph) -> None:
        """The graph has these tasks now."""
        old = len(self._readers)
        self._graph = graph
        self._readers.extend([0] * (len(graph) - old))
        for task in range(old, len(graph)):
            for parent in graph.parents[task]:
                self._readers[parent] += 1
            self._in_place.update(graph.tasks[task].in_place)

    def missing(self, task: int) -> list[str]:
        """The user's files that the task reads and that have no identity yet."""
        return [
            path
            for path in self._graph.tasks[task].inputs
            if path not in self._files and self._graph.maker(path) is None
        ]

    def lies_in_place(self, path: str) -> bool:
        """Whether a user's file is used where it lies."""
        return path in self._in_place

    def add(self, files: Iterable[FileRecord]) -> None:
        for record in files:
            self._files[record.path] = record

    def keep_result(self, task: int, result: bytes | None) -> None:
        """Keep a short result for those that read it."""
        if result is not None and self._graph.children[task]:
            self._results[task] = result

    def read_by(self, task: int) -> None:
        """The task has committed: a result in memory is dropped once its last reader has."""
        for parent in self._graph.parents[task]:
            self._readers[parent] -= 1
            if not self._readers[parent]:
                self._results.pop(parent, None)

    def inputs(self, task: int) -> tuple[FileRecord, ...]:
        """Identities of what the task reads; a part of a made directory counts as all of it."""
        found: dict[str, FileRecord] = {}
        for path in self._graph.tasks[task].inputs:
            maker = self._graph.maker(path)
            whole = path
            while maker is not None and whole not in self._files and "/" in whole:
                whole = whole.rsplit("/", 1)[0]
            record = self._files[whole]
            found[record.path] = record
        return tuple(found.values())

    def key(self, task: int) -> str:
        """What the task's result depends on; '' if it cannot be reused."""
        described = self._graph.tasks[task]
        results: list[tuple[str, str]] = []
        if isinstance(described.action, Call):
            for name in described.action.uses:
                inline = self._results.get(self._graph.index[name])
                if inline is not None:
                    results.append((name, digest_of(inline)))
                else:
                    results.append((name, self._files[result_path(name)].digest))
        return result_key(described, self.inputs(task), results)

    def job(self, task: int, attempt: int) -> TaskJob:
        """What a machine is asked to do for one attempt."""
        t = self._graph.tasks[task]
        label = f"{task}.{attempt}"
        match t.action:
            case Command(run=run, shell=shell):
                return CommandJob(
                    label,
                    t.name,
                    attempt,
                    run,
                    self.inputs(task),
                    t.outputs,
                    t.env,
                    t.stdin,
                    t.timeout_s,
                    t.needs.cores,
                    shell,
                )
            case Call(function=function, arguments=arguments, uses=uses):
                inline = {n: r for n in uses if (r := self._results.get(self._graph.index[n]))}
                files = {n: self._files[result_path(n)] for n in uses if n not in inline}
                return CallJob(
                    label,
                    t.name,
                    attempt,
                    function,
                    arguments,
                    inline,
                    files,
                    t.env,
                    t.timeout_s,
                    t.needs.cores,
                    declared=t.inputs,
                )
            case Pause(seconds=seconds):
                return PauseJob(label, t.name, attempt, seconds)
