"""Workflows in Python: describe tasks and calls, run them here, read results by handle.

    flow = Workflow("sums")
    parts = [flow.call(sum, range(k)) for k in range(10)]
    total = flow.call(sum, parts)
    print(flow.run()[total])

A call's arguments may hold handles of other calls, also inside lists and dictionaries. Calls are
journalled like commands: a crash loses nothing, and an unchanged call is not made again.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from sureline.compose import HOME, Watcher
from sureline.flow.asking import Asked, refuse_if_hopeless
from sureline.flow.results import Results, RunFailedError
from sureline.flow.running import Running
from sureline.flow.settings import Paths, kind_of_function, paths_of, settings_of, wishes_of
from sureline.peer.calls import Handle
from sureline.peer.capacity import Capacity
from sureline.peer.code import Named
from sureline.peer.describing import Dependence, Describer
from sureline.peer.jobs import PYTHON_ENVIRONMENT
from sureline.peer.store import BlobStore
from sureline.peer.travelling import carrying
from sureline.workflow.check import Draft, check
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Command, Graph, Task
from sureline.workflow.targets import needed_for

__all__ = ["Results", "RunFailedError", "Running", "Workflow"]


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
        requires: str = "",
        rank: str = "",
    ) -> Handle:
        """Add a command. The arguments are the keys of a workflow file; see its reference."""
        read = paths_of(inputs)
        lying = read if in_place is True else () if in_place is False else paths_of(in_place)
        fed = None if stdin is None else os.fspath(stdin)
        self._add(
            Task(
                name,
                Command(run, shell),
                read if fed is None or fed in read else (*read, fed),
                paths_of(outputs),
                stdin=fed,
                in_place=lying,
                repeatable=repeatable,
                **wishes_of(name, requires, rank),
                **settings_of(name, after, needs, takes, retries, timeout, env),
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
        env: Mapping[str, str] | str | None = None,
        inputs: Paths = (),
        depends: Dependence | Iterable[Dependence] = (),
    ) -> _Using:
        """Settings for a call: `flow.using(retries=2, timeout="5 min").call(f, x)`.

        `inputs` names the files and directories that the call reads; on a grid it sees no others.
        `depends` names what else it depends on beyond its arguments and the code that it imports:
        modules that are imported by name only, functions and classes, files elsewhere. `env` holds
        variables, or names the Python environment that makes the call on a grid.
        """
        variables = {PYTHON_ENVIRONMENT: env} if isinstance(env, str) else env
        settings = settings_of(name or "a call", after, needs, takes, retries, timeout, variables)
        return _Using(self, name, settings, paths_of(inputs), depends)

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

    def run(self, directory: str | Path = ".", **options: Any) -> Results:
        """Run it to its end; its results by handle. `options` are those of `submit`.

        Raises WorkflowError or TermsRefusedError if it is not run, RunFailedError if it did not
        succeed. Ctrl-C, or a notebook's stop button, stops what runs and raises KeyboardInterrupt;
        what was finished is kept. A run that was interrupted can be continued with `sureline
        resume`, or by running it again: what is done is reused.
        """
        running = self.submit(directory, **options)
        try:
            return running.wait()
        except KeyboardInterrupt:
            running.stop()
            raise

    async def run_async(self, directory: str | Path = ".", **options: Any) -> Results:
        """As `run`, without keeping the event loop from anything else. Cancelling stops it."""
        running = self.submit(directory, **options)
        ended = asyncio.get_running_loop().run_in_executor(None, running.join)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            running.cancel()
            await ended
            raise
        return running.wait()

    def submit(
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
        grid: str | None = None,
        strategy: str | None = None,
        settings: Mapping[str, bool | float | str] | None = None,
        within: str | float | None = None,
        by: str | None = None,
        budget: float | None = None,
        surety: str | float | None = None,
        repair: bool = True,
        anyway: bool = False,
        overwrite: bool = False,
        trust: bool = False,
        targets: Handle | str | Iterable[Handle | str] | None = None,
        progress: str | None = None,
        watcher: Watcher | None = None,
    ) -> Running:
        """Begin to run it, in a thread of this process; a handle to follow, stop and await it.

        The options are those of the command `sureline run`; `settings` are those of the strategy
        (`--with` there). `targets`: only these tasks, and what
        they need. `progress`: "live", "lines" or "none"; by default a notebook shows a display, and
        a script nothing. What is wrong is raised here, before anything runs.
        """
        where = Path(directory).resolve()
        asked = Asked.of(
            where,
            fresh=fresh,
            stop_on_failure=stop_on_failure,
            retry_delay=retry_delay,
            cores=cores,
            memory=memory,
            gpus=gpus,
            tags=tags,
            grid=grid,
            strategy=strategy,
            settings=settings,
            within=within,
            by=by,
            budget=budget,
            surety=surety,
            repair=repair,
            anyway=anyway,
            overwrite=overwrite,
            trust=trust,
        )
        graph = self.graph(where, None if grid else asked.machine)
        if targets is not None:
            chosen = (targets,) if isinstance(targets, str | Handle) else targets
            graph = needed_for(
                graph, [one.task if isinstance(one, Handle) else one for one in chosen]
            )
        if grid:
            graph = carrying(graph, where, self._store(where))
        refuse_if_hopeless(graph, where, asked)
        return Running(
            graph,
            where,
            asked,
            code=self._describer,
            prepare=lambda: self._store_data(where),
            progress=progress,
            watcher=watcher,
        )

    def _add(self, task: Task) -> None:
        if task.name in self._names:
            raise UserError(f"there are two tasks called {task.name!r}; give each its own name")
        self._names.add(task.name)
        self._tasks.append(task)

    def _store(self, where: Path) -> BlobStore:
        home = where / HOME
        (home / "work").mkdir(parents=True, exist_ok=True)
        return BlobStore(home)

    def _store_data(self, where: Path) -> None:
        self._describer.store(self._store(where))

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
        settings: dict[str, Any],
        inputs: tuple[str, ...],
        depends: Dependence | Iterable[Dependence],
    ) -> None:
        self._flow = flow
        self._name = name
        if isinstance(depends, str | os.PathLike | ModuleType) or callable(depends):
            depends = (depends,)
        self._depends: tuple[Dependence, ...] = (*inputs, *depends)
        self._settings = settings

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
        kind = kind_of_function(function)
        name = self._name or flow._free_name(kind)
        flow._add(Task(name, described.call, described.inputs, kind=kind, **self._settings))
        flow._calls[name] = described.names
        return Handle(name)
