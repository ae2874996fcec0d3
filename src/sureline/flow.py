"""Workflows in Python: describe tasks and calls, run them here, read results by handle.

    flow = Workflow("sums")
    parts = [flow.call(sum, range(k)) for k in range(10)]
    total = flow.call(sum, parts)
    print(flow.run()[total])

A call's arguments may hold handles of other calls, also inside lists and dictionaries. Calls are
journalled like commands: a crash loses nothing, and an unchanged call is not made again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from pathlib import Path
from types import ModuleType
from typing import Any

from sureline.compose import HOME, Outcome, Watcher, run_workflow
from sureline.journal.events import TaskEnded
from sureline.journal.store import Journal
from sureline.peer import code
from sureline.peer.calls import Handle, load_error
from sureline.peer.capacity import Capacity, this_machine
from sureline.peer.code import Named, named_here
from sureline.peer.describing import Dependence, Describer
from sureline.peer.packed import bundled, mapped
from sureline.peer.store import BlobStore
from sureline.run.options import Options
from sureline.workflow.check import Draft, check
from sureline.workflow.files import result_path
from sureline.workflow.mistakes import SurelineError, UserError
from sureline.workflow.model import Command, Graph, Needs, Takes, Task
from sureline.workflow.quantities import parse_cores, parse_duration, parse_size, parse_takes

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]
NEEDS = ("cores", "memory", "disk", "gpus")


class RunFailedError(SurelineError):
    """A run that did not succeed. Its cause is the first failed call's exception, if there is one.

    `results` holds what was finished; `results.outcome` says how the run ended.
    """

    def __init__(self, message: str, results: Results) -> None:
        super().__init__(message)
        self.results = results


class Workflow:
    """A workflow in the making. Nothing is checked or run before `run` (or `graph`)."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: list[Task] = []
        self._names: set[str] = set()
        self._describer = Describer(Path(HOME))
        self._calls: dict[str, dict[str, Named]] = {}
        """What code of the script the result of each call may hold."""
        self._counts: dict[str, int] = {}

    def task(
        self,
        name: str,
        *,
        run: str,
        inputs: Paths = (),
        outputs: Paths = (),
        after: str | Handle | Iterable[str | Handle] = (),
        needs: Mapping[str, object] | None = None,
        takes: str | float | None = None,
        retries: int = 0,
        timeout: str | float | None = None,
        env: Mapping[str, str] | None = None,
        stdin: str | os.PathLike[str] | None = None,
        in_place: bool | Paths = False,
        shell: str = "",
        repeatable: bool = True,
    ) -> Handle:
        """Add a command. The arguments are the keys of a workflow file; see its reference."""
        read = _paths(inputs)
        lying = read if in_place is True else () if in_place is False else _paths(in_place)
        fed = None if stdin is None else os.fspath(stdin)
        self._add(
            Task(
                name,
                Command(run, shell),
                read if fed is None or fed in read else (*read, fed),
                _paths(outputs),
                stdin=fed,
                in_place=lying,
                repeatable=repeatable,
                **_settings(name, after, needs, takes, retries, timeout, env),
            )
        )
        return Handle(name)

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Handle:
        """Add a call of `function`. Its result, by handle, may be an argument of later calls."""
        return self.using().call(function, *args, **kwargs)

    def using(
        self,
        *,
        name: str | None = None,
        after: str | Handle | Iterable[str | Handle] = (),
        needs: Mapping[str, object] | None = None,
        takes: str | float | None = None,
        retries: int = 0,
        timeout: str | float | None = None,
        env: Mapping[str, str] | None = None,
        depends: Dependence | Iterable[Dependence] = (),
    ) -> _Using:
        """Settings for a call: `flow.using(retries=2, timeout="5 min").call(f, x)`.

        `depends` names what the call reads beyond its arguments and the code that it imports: files
        and directories, modules that are imported by name only, functions and classes.
        """
        return _Using(self, name, after, needs, takes, retries, timeout, env, depends)

    def graph(self, directory: str | Path = ".", machine: Capacity | None = None) -> Graph:
        """The checked graph, for a machine if one is given. Raises WorkflowError with every
        mistake in it."""
        return check(
            Draft(
                self.name,
                list(self._tasks),
                functions=self._describer.functions,
                reached=self._describer.reached,
            ),
            directory=Path(directory).resolve(),
            capacity=machine,
        )

    def run(
        self,
        directory: str | Path = ".",
        *,
        fresh: bool = False,
        stop_on_failure: bool = False,
        retry_delay: str | float = 1.0,
        cores: float | None = None,
        memory: str | int | None = None,
        gpus: int | None = None,
        tags: Mapping[str, int | None] | None = None,
        watcher: Watcher | None = None,
    ) -> Results:
        """Run it on this machine, to its end; its results by handle.

        Raises WorkflowError if it cannot be run, RunFailedError if it did not succeed. A run that
        was interrupted can be continued with `sureline resume`.
        """
        where = Path(directory).resolve()
        try:
            memory_bytes = None if memory is None else parse_size(str(memory))
            delay_s = parse_duration(str(retry_delay))
        except ValueError as error:
            raise UserError(str(error)) from None
        machine = this_machine(where, cores=cores, memory_bytes=memory_bytes, gpus=gpus, tags=tags)
        graph = self.graph(where, machine)
        options = Options(fresh, stop_on_failure, delay_s)
        self._store_data(where)
        outcome = run_workflow(graph, where, machine, options, watcher)
        results = Results(where, outcome, self._describer.names)
        if outcome.state != "succeeded":
            raise results.failure()
        return results

    def _add(self, task: Task) -> None:
        if task.name in self._names:
            raise UserError(f"there are two tasks called {task.name!r}; give each its own name")
        self._names.add(task.name)
        self._tasks.append(task)

    def _store_data(self, where: Path) -> None:
        home = where / HOME
        (home / "work").mkdir(parents=True, exist_ok=True)
        self._describer.store(BlobStore(home))

    def _free_name(self, kind: str) -> str:
        while True:
            number = self._counts.get(kind, 0)
            self._counts[kind] = number + 1
            name = f"{kind}:{number}"
            if name not in self._names:
                return name


class _Using:
    """Settings, waiting for the call they are for."""

    def __init__(
        self,
        flow: Workflow,
        name: str | None,
        after: str | Handle | Iterable[str | Handle],
        needs: Mapping[str, object] | None,
        takes: str | float | None,
        retries: int,
        timeout: str | float | None,
        env: Mapping[str, str] | None,
        depends: Dependence | Iterable[Dependence],
    ) -> None:
        self._flow = flow
        self._name = name
        if isinstance(depends, str | os.PathLike | ModuleType) or callable(depends):
            depends = (depends,)
        self._depends: tuple[Dependence, ...] = tuple(depends)
        self._settings = _settings(name or "a call", after, needs, takes, retries, timeout, env)

    def call(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Handle:
        flow = self._flow

        def names_of(used: str) -> Mapping[str, Named]:
            if used not in flow._calls:
                raise UserError(
                    f"{used!r} is not a call of this workflow, so it has no result to pass on; "
                    f"give using(after={used!r}) and read its files in the call"
                )
            return flow._calls[used]

        described = flow._describer.describe(function, args, kwargs, names_of, self._depends)
        kind = _kind(function)
        name = self._name or flow._free_name(kind)
        flow._add(Task(name, described.call, described.inputs, kind=kind, **self._settings))
        flow._calls[name] = described.names
        return Handle(name)


class Results:
    """Results of a run by handle: a call's value, or the paths of the files a command made."""

    def __init__(
        self, directory: Path, outcome: Outcome, names: Mapping[str, Named] | None = None
    ) -> None:
        self.outcome = outcome
        self._directory = directory
        self._names = names or {}

    @property
    def run(self) -> str:
        return self.outcome.run

    def __getitem__(self, handle: Handle | str) -> Any:
        task = handle.task if isinstance(handle, Handle) else handle
        ended = self._committed.get(task)
        if ended is None:
            raise KeyError(f"{task} has no result in run {self.run}")
        if ended.result is not None:
            return self._load(ended.result, ())
        for file in ended.outputs:
            if file.path == result_path(task):
                path = BlobStore(self._directory / HOME).blob_path(file.digest)
                return self._load(*bundled(mapped(path)))
        return [self._directory / file.path for file in ended.outputs]

    def _load(self, pickled: Any, buffers: Iterable[Any]) -> Any:
        return code.load(pickled, buffers, lambda key: named_here(key, self._names))

    @cached_property
    def _committed(self) -> dict[str, TaskEnded]:
        with Journal.open(self._directory / HOME, create=False, read_only=True) as journal:
            return {ended.task: ended for ended in journal.commits(self.run)}

    def failure(self) -> RunFailedError:
        """The exception that tells how the run went wrong."""
        first = self._first_failure()
        told = f"run {self.run} {self.outcome.state}"
        if first is not None:
            told += f": {first.task}: {first.reason}"
        elif self.outcome.reason:
            told += f": {self.outcome.reason}"
        failed = RunFailedError(f"{told}; continue it with: sureline resume {self.run}", self)
        if first is not None and first.error is not None:
            failed.__cause__ = load_error(first.error)
        return failed

    def _first_failure(self) -> TaskEnded | None:
        """The last attempt of the task that failed for good first."""
        failed: dict[str, TaskEnded] = {}
        with Journal.open(self._directory / HOME, create=False, read_only=True) as journal:
            for entry in journal.events(self.run):
                event = entry.event
                if isinstance(event, TaskEnded):
                    failed.pop(event.task, None)
                    if event.outcome in ("failed", "timeout", "lost"):
                        failed[event.task] = event
        return next(iter(failed.values()), None)


def _paths(paths: Paths) -> tuple[str, ...]:
    if isinstance(paths, str | os.PathLike):
        return (os.fspath(paths),)
    return tuple(os.fspath(path) for path in paths)


def _kind(function: Callable[..., object]) -> str:
    """A task name made of a function's: letters, digits, '_', '.' and '-' only."""
    name = getattr(function, "__name__", type(function).__name__)
    return "".join(c if c.isascii() and (c.isalnum() or c in "_.-") else "-" for c in name)


def _settings(
    name: str,
    after: str | Handle | Iterable[str | Handle],
    needs: Mapping[str, object] | None,
    takes: str | float | None,
    retries: int,
    timeout: str | float | None,
    env: Mapping[str, str] | None,
) -> dict[str, Any]:
    """The fields of a Task that commands and calls share. Raises UserError naming the task."""
    before = (after,) if isinstance(after, str | Handle) else after
    try:
        return {
            "after": tuple(b.task if isinstance(b, Handle) else b for b in before),
            "needs": _needs(needs or {}),
            "takes": _takes(takes),
            "retries": retries,
            "timeout_s": None if timeout is None else parse_duration(str(timeout)),
            "env": {key: str(value) for key, value in (env or {}).items()},
        }
    except ValueError as error:
        raise UserError(f"{name}: {error}") from None


def _takes(takes: str | float | None) -> Takes | None:
    return None if takes is None else parse_takes(str(takes))


def _needs(needs: Mapping[str, object]) -> Needs:
    tags = {key: value for key, value in needs.items() if key not in NEEDS}
    for tag, count in tags.items():
        if not isinstance(count, int) or count < 1:
            raise ValueError(f"needs {tag}: {count!r} is not a count; give 1 or more")
    return Needs(
        cores=parse_cores(str(needs.get("cores", 1))),
        memory_bytes=parse_size(str(needs.get("memory", 0))),
        disk_bytes=parse_size(str(needs.get("disk", 0))),
        gpus=int(str(needs.get("gpus", 0))),
        tags=tuple(sorted((tag, int(str(count))) for tag, count in tags.items())),
    )
