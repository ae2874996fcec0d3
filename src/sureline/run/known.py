"""What a run knows of files and results: identities of inputs, short results, and what is made of
them: the key of a task's result, and the job that makes it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sureline.peer.jobs import PYTHON_ENVIRONMENT, CallJob, CommandJob, PauseJob
from sureline.peer.messages import TaskJob
from sureline.peer.travelling import data_of, lone_call, named
from sureline.run.keys import digest_of, result_key
from sureline.workflow.files import FileRecord, result_path
from sureline.workflow.model import Call, Command, Graph, Pause


class Known:
    """Tasks are given by index. A task's `inputs`, `key` and `job` may be asked for once nothing
    of it is `missing` and its parents' results were kept."""

    def __init__(self, graph: Graph, *, here: bool = True, trust: bool = False) -> None:
        """`here`: tasks run on this machine, and calls in the user's directory. `trust`: what other
        machines returned is read as if it had been made here."""
        self._trust = trust
        self._graph = graph
        self._here = here
        self._foreign: set[int] = set()
        """Tasks whose results are to be read with care."""
        self._data: dict[int, tuple[FileRecord, ...]] = {}
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

    def record(self, path: str) -> FileRecord | None:
        """The identity of a file; None while it has none."""
        return self._files.get(path)

    def add(self, files: Iterable[FileRecord]) -> None:
        for record in files:
            self._files[record.path] = record

    def keep_result(self, task: int, result: bytes | None) -> None:
        """Keep a short result for those that read it."""
        if result is not None and self._graph.children[task]:
            self._results[task] = result

    def note_foreign(self, task: int) -> None:
        if not self._trust:
            self._foreign.add(task)

    def read_by(self, task: int) -> None:
        """The task has committed: a result in memory is dropped once its last reader has. On a grid
        a reader's result may be lost, and be made again."""
        if not self._here:
            return
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

    def reads(self, task: int) -> tuple[FileRecord, ...]:
        """All that must be on the machine that runs it: its inputs and, of a call that is made on
        another machine, its data and the long results that it uses."""
        action = self._graph.tasks[task].action
        if self._here or not isinstance(action, Call):
            return self.inputs(task)
        if task not in self._data:
            self._data[task] = tuple(data_of(self._graph, action))
        results = [named(file.digest, file.size) for file in self._long_results(action).values()]
        found = (*self.inputs(task), *self._data[task], *results)
        return tuple({file.path: file for file in found}.values())

    def asks(self, task: int) -> object:
        """What the task asks of a machine beyond its needs: equal for tasks that ask the same."""
        described = self._graph.tasks[task]
        if not isinstance(described.action, Call):
            return task
        parts = self._graph.reached.get(described.action.code, {}).items()
        packages = [item for item in parts if item[0] == "python" or item[0].startswith("package ")]
        return tuple(sorted(packages)), described.env.get(PYTHON_ENVIRONMENT, "")

    def data(self, task: int) -> tuple[FileRecord, ...]:
        """What a call needed besides its inputs and results, as far as it was asked for."""
        return self._data.get(task, ())

    def result_file(self, task: int) -> FileRecord | None:
        """The long result of a call."""
        return self._files.get(result_path(self._graph.tasks[task].name))

    def made(self, task: int) -> set[str]:
        """Of what the task reads, the paths of what other tasks made."""
        described = self._graph.tasks[task]
        found = {r.path for r in self.inputs(task) if self._graph.maker(r.path) is not None}
        if not self._here and isinstance(described.action, Call):
            long = self._long_results(described.action).values()
            own = {file.path for file in self._data.get(task, ())}
            found |= {named(file.digest, file.size).path for file in long} - own
        return found

    def _short_results(self, call: Call) -> dict[str, bytes]:
        index = self._graph.index
        return {n: r for n in call.uses if (r := self._results.get(index[n])) is not None}

    def _long_results(self, call: Call) -> dict[str, FileRecord]:
        index = self._graph.index
        return {n: self._files[result_path(n)] for n in call.uses if index[n] not in self._results}

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
                    memory_bytes=t.needs.memory_bytes,
                    gpus=t.needs.gpus,
                )
            case Call() as call if not self._here:
                return CommandJob(
                    label,
                    t.name,
                    attempt,
                    "",
                    self.reads(task),
                    env=t.env,
                    timeout_s=t.timeout_s,
                    cores=t.needs.cores,
                    call=lone_call(
                        self._graph, call, self._short_results(call), self._long_results(call)
                    ),
                )
            case Call() as call:
                return CallJob(
                    label,
                    t.name,
                    attempt,
                    call.function,
                    call.arguments,
                    self._short_results(call),
                    self._long_results(call),
                    t.env,
                    t.timeout_s,
                    t.needs.cores,
                    declared=t.inputs,
                    foreign=tuple(n for n in call.uses if self._graph.index[n] in self._foreign),
                )
            case Pause(seconds=seconds):
                return PauseJob(label, t.name, attempt, seconds)
