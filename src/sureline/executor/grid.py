"""The calls of an executor, made by the machines of a grid.

One run, in a directory that does not outlive the executor, grows by the calls that are submitted.
Each is described as a workflow's are, so that its code and arguments travel by content; it is made
in a sandbox. What comes back is read with care: data only, unless
these machines are trusted as one's own (`peer.careful`).
"""

from __future__ import annotations

import pathlib
import sys
import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import BrokenExecutor, Future
from pathlib import Path
from typing import Any

from sureline.compose import HOME, Watcher
from sureline.executor.janitor import Janitor
from sureline.executor.lost import WorkerLostError
from sureline.executor.shown import echo
from sureline.journal.events import Event, FileFetched, TaskEnded
from sureline.peer import careful, code
from sureline.peer.describing import Describer
from sureline.peer.jobs import PYTHON_ENVIRONMENT
from sureline.peer.packed import bundled, mapped
from sureline.peer.store import BlobStore
from sureline.peer.travelling import (
    carried_from,
    modules_of,
    needing_python,
    store_functions,
    store_modules,
)
from sureline.workflow.files import FileRecord, result_path
from sureline.workflow.model import Call, Carried, Graph, Task

GROWTH_BYTES = 256 << 10
"""So much is added to the run at once; twice as much would be refused."""
TASK_BYTES = 400
"""What a call adds beside its arguments and code."""
LOSSES_MAX = 10
"""A call that was lost with its machine more often than this is given up by the run."""


class GridPool:
    """As `pool.Pool`: what an executor asks of those who make its calls."""

    def __init__(self, grid: str, env: str, trust: bool) -> None:
        self._grid = grid
        self._env = {PYTHON_ENVIRONMENT: env} if env else {}
        self._trust = trust
        self._begin()

    def _begin(self) -> None:
        self._lock = threading.Lock()
        self._janitor: Janitor | None = None
        self._thread: threading.Thread | None = None
        self._run: Any = None
        self._closing = False
        self.broken = ""
        self._count = 0
        self._waiting: deque[tuple[Task, Future[Any]]] = deque()
        self._futures: dict[str, Future[Any]] = {}
        self._away: dict[str, TaskEnded] = {}
        """Calls whose results are on their way."""
        self._losses: dict[str, int] = {}
        self._growing = threading.Event()

    def forked(self) -> None:
        """In a child process: all that there was is the parent's."""
        if self._janitor is not None:
            self._janitor.forget()
        closing = self._closing
        self._begin()
        self._closing = closing

    # -- callers' threads ----------------------------------------------------------------------

    def submit(self, fn: Any, args: Any, kwargs: Any) -> Future[Any]:
        with self._lock:
            if self.broken:
                raise BrokenExecutor(self.broken)
            if self._closing:
                raise RuntimeError("cannot schedule new futures after shutdown")
            if self._thread is None:
                self._start()
            described = self._describer.describe(fn, args, kwargs, lambda task: {})
            name = f"call:{self._count}"
            self._count += 1
            future: Future[Any] = Future()
            self._waiting.append((Task(name, described.call, env=self._env, kind="call"), future))
        self._growing.set()
        return future

    def _start(self) -> None:
        from sureline.compose.open_run import OpenRun  # the network takes a while to load

        self._janitor = Janitor("sureline-executor-")
        where = Path(self._janitor.directory)
        (where / HOME / "work").mkdir(parents=True)
        self._store = BlobStore(where / HOME)
        self._describer = Describer(where / HOME)
        self._graph = Graph("executor", [], carried=Carried())
        self._modules: dict[str, FileRecord] = {}
        self._run = OpenRun("executor", where, self._grid, _Heard(self))
        self._thread = threading.Thread(target=self._drive, daemon=True, name="sureline")
        self._thread.start()
        threading.Thread(target=self._grow, daemon=True, name="sureline growing").start()

    def close(self, cancel_futures: bool) -> None:
        with self._lock:
            self._closing = True
            cancelled = [future for _, future in self._waiting] if cancel_futures else []
            if cancel_futures:
                self._waiting.clear()
        for future in cancelled:
            if future.cancel():
                future.set_running_or_notify_cancel()
        self._growing.set()

    def join(self) -> None:
        thread = self._thread
        if thread is not None and thread is not threading.current_thread():
            thread.join()

    # -- the thread that describes what comes to the run ---------------------------------------

    def _grow(self) -> None:
        """What was submitted goes to the run, in parts that it can take."""
        run = self._run
        while True:
            self._growing.wait()
            self._growing.clear()
            while (graph := self._grown()) is not None:
                run.grow(graph)
            with self._lock:
                if self._closing and not self._waiting:
                    break
        run.close()

    def _grown(self) -> Graph | None:
        """The graph with some of what waits; None if nothing does."""
        with self._lock:
            tasks: list[Task] = []
            size = 0
            describer, before = self._describer, self._graph
            functions: dict[str, bytes] = {}
            reached: dict[str, Mapping[str, str]] = {}
            while self._waiting and size < GROWTH_BYTES:
                task, future = self._waiting.popleft()
                if not future.set_running_or_notify_cancel():
                    continue
                self._futures[task.name] = future
                call = task.action
                assert isinstance(call, Call)
                tasks.append(needing_python(task, describer.reached))
                size += len(call.arguments) + TASK_BYTES
                if call.function not in before.functions and call.function not in functions:
                    functions[call.function] = describer.functions[call.function]
                    size += len(functions[call.function])
                if call.code not in before.reached and call.code not in reached:
                    parts = reached[call.code] = describer.reached.get(call.code, {})
                    size += sum(len(part) + len(version) for part, version in parts.items())
            if not tasks:
                return None
            describer.store(self._store)
            store_functions(functions.values(), self._store)
            names = [n for n in modules_of(reached.values()) if n not in self._modules]
            carried = before.carried
            if names or not before.tasks:
                self._modules |= store_modules(names, self._store)
                carried = carried_from(Path.cwd(), self._modules)
            self._graph = Graph(
                before.name,
                (*before.tasks, *tasks),
                functions={**before.functions, **functions},
                reached={**before.reached, **reached},
                carried=carried,
            )
            return self._graph

    # -- the run's own thread ------------------------------------------------------------------

    def _drive(self) -> None:
        error: BaseException = BrokenExecutor("the run on the grid is over")
        try:
            self._run.drive()
        except BaseException as why:
            error = why
        with self._lock:
            self._closing = True
            self.broken = "" if not self._futures and not self._waiting else str(error)
            left = [*self._futures.values(), *(future for _, future in self._waiting)]
            self._futures, self._waiting = {}, deque()
        for future in left:
            if future.running() or future.set_running_or_notify_cancel():
                future.set_exception(error)
        self._growing.set()
        if self._janitor is not None:
            self._janitor.close()

    def hear(self, event: Event) -> None:
        if isinstance(event, FileFetched):
            ended = self._away.pop(event.file.path, None)
            if ended is not None:
                self._complete(ended, event.file)
        elif isinstance(event, TaskEnded) and event.task in self._futures:
            if event.outcome == "succeeded" and event.result is None:
                self._away[result_path(event.task)] = event
            elif event.outcome in ("succeeded", "failed", "timeout"):
                self._complete(event)
            elif event.outcome == "lost":
                self._losses[event.task] = self._losses.get(event.task, 0) + 1
                if self._losses[event.task] > LOSSES_MAX:
                    self._complete(event)

    def _complete(self, ended: TaskEnded, file: FileRecord | None = None) -> None:
        future = self._futures.pop(ended.task)
        echo(sys.stdout, ended.stdout, foreign=True)
        echo(sys.stderr, "" if ended.error else ended.stderr, foreign=True)
        try:
            if ended.outcome == "succeeded":
                future.set_result(self._value(ended, file))
            elif ended.error is not None:
                future.set_exception(careful.load_error(ended.error, self._named, self._own()))
            else:
                future.set_exception(WorkerLostError(ended.reason))
        except Exception as error:  # a result that is not taken is the call's failure
            future.set_exception(error)

    def _value(self, ended: TaskEnded, file: FileRecord | None) -> Any:
        pickled: Any = ended.result
        buffers: list[Any] = []
        if file is not None:
            path = self._store.blob_path(file.digest)
            pickled, buffers = bundled(mapped(path))
            pathlib.Path(path).unlink(missing_ok=True)
        if self._trust:
            return code.load(pickled, buffers, self._named)
        return careful.load(pickled, buffers, self._named, self._own())

    def _named(self, key: str) -> object:
        return careful.named_here(key, self._describer.names)

    def _own(self) -> list[str]:
        return self._describer.modules()


class _Heard(Watcher):
    def __init__(self, pool: GridPool) -> None:
        self._pool = pool

    def event(self, event: Event) -> None:
        self._pool.hear(event)
