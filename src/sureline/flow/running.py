"""A run that goes on in a thread of this process: its handle."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from sureline.compose import HOME, Outcome, Watcher, run_workflow
from sureline.flow.asking import Asked
from sureline.flow.results import Results
from sureline.forecast.result import Forecast
from sureline.journal.events import Event, Foreseen
from sureline.journal.store import Journal
from sureline.peer.describing import Describer
from sureline.workflow.mistakes import UserError
from sureline.workflow.model import Graph

NAMED_WITHIN_S = 60.0


class Status(msgspec.Struct, frozen=True):
    """How a run stands: `state` is running, succeeded, failed or cancelled."""

    run: str
    state: str
    total: int
    succeeded: int
    reused: int
    failed: int
    surety: float | None
    """The chance of being done by the deadline, as last forecast; None without one."""


class Running:
    """`wait` for it, look at its `status` and `surety`, `cancel` it. `run` is its name."""

    def __init__(
        self,
        graph: Graph,
        where: Path,
        asked: Asked,
        *,
        code: Describer,
        prepare: Callable[[], None],
        progress: str | None,
        watcher: Watcher | None,
    ) -> None:
        self._where = where
        self._code = code
        self._named = threading.Event()
        self._over = threading.Event()
        self._run = ""
        self._outcome: Outcome | None = None
        self._error: BaseException | None = None
        self._surety: float | None = None

        def work() -> None:
            try:
                prepare()
                with shown(progress, where, asked, graph, self) as display:
                    heard = _Heard(self, [one for one in (display, watcher) if one is not None])
                    self._outcome = run_workflow(graph, where, asked.machine, asked.options, heard)
            except BaseException as error:
                self._error = error
            finally:
                self._over.set()
                self._named.set()

        threading.Thread(target=work, name="sureline").start()

    @property
    def run(self) -> str:
        """Its name, once it has one."""
        self._named.wait()
        return self._run

    @property
    def done(self) -> bool:
        return self._over.is_set()

    @property
    def surety(self) -> float | None:
        """The chance of being done by the deadline, as last forecast."""
        return self._surety

    @property
    def status(self) -> Status:
        run = self.run
        if not run:
            self.join()
            raise self._error or UserError("the run did not begin")
        with Journal.open(self._where / HOME, create=False, read_only=True) as journal:
            one = journal.summary(run)
        state = one.seen(alive=not self.done)
        return Status(run, state, one.total, one.succeeded, one.reused, one.failed, self._surety)

    def join(self, timeout: float | None = None) -> bool:
        """Wait until it has ended, however; whether it has."""
        return self._over.wait(timeout)  # a thread's own join does not survive an interrupt

    def wait(self, timeout: float | None = None) -> Results:
        """Its results, when it has ended. Raises TimeoutError if it has not by then, and
        RunFailedError if it did not succeed."""
        if not self.join(timeout):
            raise TimeoutError(f"run {self.run} has not ended within {timeout:g} s")
        if self._error is not None:
            raise self._error
        assert self._outcome is not None, "a run that ended has an outcome or an error"
        results = Results(self._where, self._outcome, self._code)
        if self._outcome.state != "succeeded":
            raise results.failure()
        return results

    def cancel(self, *, drain: bool = False) -> None:
        """Stop it; with `drain`, what runs may finish. Asked again, it is killed. Returns at once;
        what was finished is kept."""
        if self.done or not self.run:
            return
        with Journal.open(self._where / HOME, create=False) as journal:
            journal.ask(self.run, "drain" if drain else "cancel", time.time())

    def stop(self) -> None:
        """Stop it and wait for its end; an interrupt meanwhile kills what runs."""
        self.cancel()
        while not self.done:
            try:
                self.join()
            except KeyboardInterrupt:
                self.cancel()

    def _repr_html_(self) -> str:
        from sureline.flow.notebook import html_of

        return html_of(self.status)


class _Heard(Watcher):
    """Notes what the handle tells, and passes everything on."""

    def __init__(self, running: Running, others: list[Watcher]) -> None:
        self._running = running
        self._others = others

    def submitted(self, run: str, graph: Graph, notice: str | None, done: int) -> None:
        self._running._run = run
        self._running._named.set()
        for one in self._others:
            one.submitted(run, graph, notice, done)

    def event(self, event: Event) -> None:
        if isinstance(event, Foreseen) and event.surety is not None:
            self._running._surety = event.surety
        for one in self._others:
            one.event(event)

    def told(self, sentence: str) -> None:
        if not self._others:
            logging.getLogger("sureline").warning(sentence)
        for one in self._others:
            one.told(sentence)

    def foreseen(self, forecast: Forecast) -> None:
        if forecast.surety is not None:
            self._running._surety = forecast.surety
        for one in self._others:
            one.foreseen(forecast)

    def interrupted(self, drain: bool, running: int) -> None:
        for one in self._others:
            one.interrupted(drain, running)


@contextmanager
def shown(
    progress: str | None, where: Path, asked: Asked, graph: Graph, running: Running
) -> Iterator[Watcher | None]:
    """The display that was asked for; in a notebook, unless told otherwise, one that it draws."""
    from sureline.flow import notebook

    if progress is None:
        if notebook.is_here():
            with notebook.display(running) as display:
                yield display
            return
        yield None
        return
    if progress not in ("auto", "live", "lines", "none"):
        raise UserError(f"progress={progress!r} is not known; give live, lines, none or auto")
    from sureline.cli.progress import watching

    mode = progress
    with watching(
        mode,  # type: ignore[arg-type]  # checked above
        where / HOME,
        asked.machine,
        quiet=False,
        as_json=False,
    ) as watcher:
        yield watcher
