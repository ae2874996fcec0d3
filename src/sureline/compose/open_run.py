"""A run on a grid that takes more tasks while it goes on, until it is closed."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from pathlib import Path

from sureline.assembly.driver import RunDriver
from sureline.compose import HOME, create_in
from sureline.compose.driving import GridSession
from sureline.compose.grid_run import GridRun
from sureline.compose.session import Watcher
from sureline.journal.store import Journal
from sureline.run.options import Options
from sureline.strategies import resolved
from sureline.workflow.model import Graph
from sureline.world.identity.home import GridHome


class OpenRun:
    """`drive` belongs to one thread; `grow` and `close` may be called from any."""

    def __init__(self, name: str, directory: Path, grid: str, watcher: Watcher) -> None:
        self._name = name
        self._directory = directory
        self._home = GridHome.open(grid)
        self._options = resolved(Options(grid=grid))
        self._watcher = watcher
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._driver: RunDriver | None = None
        self._waiting: list[Callable[[RunDriver], None]] = []

    def drive(self) -> None:
        """Until it is closed and all is done. Raises what keeps it from going on."""
        graph = Graph(self._name, [])
        with Journal.open(self._directory / HOME) as journal:
            run = create_in(journal, graph, self._options)
            session = _OpenSession(
                journal, run, graph, self._directory, self._home, self._watcher, self._made
            )
            try:
                session.drive()
            finally:
                with self._lock:
                    self._loop = None

    def grow(self, graph: Graph) -> None:
        """These are its tasks now: those that it had, and more."""
        self._do(lambda driver: driver.writer.grow(graph))

    def close(self) -> None:
        """No more tasks will come."""
        self._do(lambda driver: driver.writer.close())

    def _do(self, what: Callable[[RunDriver], None]) -> None:
        with self._lock:
            self._waiting.append(what)
            if self._loop is not None:
                self._loop.call_soon_threadsafe(self._work_off)

    def _made(self, driver: RunDriver, guard: Callable[..., None]) -> None:
        driver.writer.stays_open = True
        with self._lock:
            self._driver, self._guard = driver, guard
            self._loop = asyncio.get_running_loop()
            self._loop.call_soon(self._work_off)

    def _work_off(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for what in waiting:
            self._guard(what, self._driver)


class _OpenSession(GridSession):
    def __init__(
        self,
        journal: Journal,
        run: str,
        graph: Graph,
        directory: Path,
        home: GridHome,
        watcher: Watcher,
        on_made: Callable[[RunDriver, Callable[..., None]], None],
    ) -> None:
        held = GridRun(journal, run, directory, home, watcher).first()
        super().__init__(journal, run, graph, directory, home, watcher, held)
        self._on_made = on_made

    def _made(self, driver: RunDriver) -> None:
        self._on_made(driver, self._world.guard)
