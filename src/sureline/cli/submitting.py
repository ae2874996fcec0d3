"""Commands for runs that go on without a terminal: submit, wait."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from sureline.cli import console
from sureline.cli.options import Directory, Flow, Json, RunSelector, working_directory
from sureline.cli.running import report
from sureline.cli.terms import REFUSED
from sureline.cli.wanted import RunSettings
from sureline.workflow.mistakes import SurelineError, UserError

if TYPE_CHECKING:
    from sureline.compose import Outcome
    from sureline.journal.away import Away
    from sureline.journal.store import Journal
    from sureline.run.options import Options

TAKEN_WITHIN_S = 60.0
"""Longer than any process takes from its start to taking a run over, on the busiest machine."""
AWAY_WITHIN_S = 10.0
"""So long a submitted run may take to stand on its own before this is said to take longer."""
LOOK_EVERY_S = 0.05
WAIT_EVERY_S = 0.2
SAID_MAX = 2000


def submit(
    flow: Flow,
    /,
    *,
    json: Json = False,
    directory: Directory = Path("."),
    wanted: RunSettings = RunSettings(),  # noqa: B008 - it is immutable
) -> int:
    """Start a run in the background and return at once; follow it with status, wait or cancel.

    When this returns, the run is recorded durably and a process of its own drives it, which goes
    on when the terminal is closed. On a grid it says whether the run needs this machine any more:
    its inputs go to other peers, and a peer with the role drive goes on with it.

    Example: sureline submit wordcount.yaml --grid lab
    """
    from sureline.compose import HOME, create_run
    from sureline.compose.terms import TermsRefusedError
    from sureline.peer.removing import remove_tree

    where = working_directory(directory)
    ready = wanted.ready(flow, where, as_json=json)
    if ready.refused:
        return REFUSED
    is_first = not (where / HOME).exists()
    run = create_run(ready.graph, where, ready.options)
    try:
        pid = _drive(where, run, ready.limits, judged=_is_judged(ready.options))
    except TermsRefusedError:
        remove_tree(str(where / HOME if is_first else where / HOME / "logs" / run))
        raise
    away = _until_settled(where, run)
    stays = away.why_stay() if away.on_grid and not away.is_over else ""
    if json:
        console.print_json({"run": run, "pid": pid, "grid": wanted.grid, "stays": stays})
    else:
        console.say(f"run {run} goes on in the background; follow it with: sureline status {run}")
        if stays:
            console.say(f"this machine must stay on for now: {stays}")
        elif away.on_grid and not away.is_over:
            console.say(f"this machine may be switched off: {away.where()}")
    return 0


def _until_settled(where: Path, run: str) -> Away:
    """Whether the run needs this machine; what it needs goes to the grid within a few seconds, if
    it is not much."""
    from sureline.journal.away import Away

    give_up_at = time.monotonic() + AWAY_WITHIN_S
    with _journal(where) as journal:
        while True:
            away = Away(entry.event for entry in journal.events(run))
            if away.is_settled or time.monotonic() > give_up_at:
                return away
            time.sleep(WAIT_EVERY_S)


def _is_judged(options: Options) -> bool:
    """Whether the grid's peers or the strategy say, before anything begins, if the terms can be
    met."""
    from sureline.strategies import strategy

    asked = options.deadline_at is not None and not options.anyway
    return asked and (bool(options.grid) or strategy(options.strategy).judges)


def _drive(where: Path, run: str, limits: list[str], *, judged: bool) -> int:
    """Start the process that drives the run; its pid, once it has taken the run over and, if that
    is `judged` first, has begun. Raises TermsRefusedError if it does not."""
    from sureline.compose import HOME
    from sureline.compose.terms import TermsRefusedError

    logs = where / HOME / "logs" / run
    logs.mkdir(parents=True, exist_ok=True)
    with open(logs / "driver.log", "ab") as log:
        driver = subprocess.Popen(
            [sys.executable, "-m", "sureline", "resume", run, "--progress=lines", *limits],
            cwd=where,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    give_up_at = time.monotonic() + TAKEN_WITHIN_S
    while True:
        code = driver.poll()
        if code == REFUSED and judged:
            said = (logs / "driver.log").read_text(errors="replace")[-SAID_MAX:].strip()
            raise TermsRefusedError(said.rpartition("\n")[2].removeprefix("sureline: "))
        if _taken(where, run, judged):
            return driver.pid
        if code is not None or time.monotonic() > give_up_at:
            said = (logs / "driver.log").read_text(errors="replace")[-SAID_MAX:].strip()
            happened = "does not begin" if code is None else "could not begin"
            raise SurelineError(
                f"run {run} is recorded, but the process that is to drive it {happened}: {said}"
            )
        time.sleep(LOOK_EVERY_S)


def _taken(where: Path, run: str, judged: bool) -> bool:
    """Whether a process drives the run, or did to its end; with `judged`, has begun with it."""
    from sureline.journal.events import TaskReady
    from sureline.journal.locks import RunLock

    with _journal(where) as journal:
        if run not in [one.run for one in journal.runs()]:
            return False  # it was refused, and is gone
        summary = journal.summary(run)
        if judged and not any(isinstance(e.event, TaskReady) for e in journal.events(run)):
            return summary.state == "succeeded"  # else it may be refused yet, and forgotten
        if summary.ended is not None:
            return True
        alive = RunLock.held_elsewhere(journal.work_directory(run))
        return alive and summary.state == "running"


def _journal(where: Path) -> Journal:
    from sureline.compose import HOME
    from sureline.journal.store import Journal

    return Journal.open(where / HOME, create=False, read_only=True)


def wait(
    run: RunSelector = "last",
    /,
    *,
    timeout: Annotated[
        str | None, Parameter(help="Give up after so long, e.g. 10min; the run goes on.")
    ] = None,
    json: Json = False,
    directory: Directory = Path("."),
) -> int:
    """Wait until a run has ended; the exit code is the one 'sureline run' would have had.

    Works from any terminal, for runs started by 'submit' or 'run'. A run on a grid that others go
    on with is followed, and its results come here.

    Example: sureline wait last --timeout 1h
    """
    from sureline.journal.locks import RunLock
    from sureline.journal.select import select

    where = working_directory(directory)
    limit_s = _timeout_s(timeout)
    give_up_at = time.monotonic() + limit_s
    with _journal(where) as journal:
        name = select(run, journal.runs()).run
        work = journal.work_directory(name)
        while journal.summary(name).ended is None:
            # Asked in this order: it may end between the two.
            if not RunLock.held_elsewhere(work) and journal.summary(name).ended is None:
                if _may_go_on(journal, name):
                    left_s = give_up_at - time.monotonic()
                    break
                raise SurelineError(
                    f"run {name} was left by its process; continue with: sureline resume {name}"
                )
            if time.monotonic() > give_up_at:
                raise SurelineError(f"run {name} has not ended within {timeout}; it goes on")
            time.sleep(min(WAIT_EVERY_S, max(0.0, give_up_at - time.monotonic()) + 0.001))
        else:
            return report(_outcome(journal, name), json)
    from sureline.compose.fetched import follow_run

    return report(follow_run(where, name, left_s), json)


def _may_go_on(journal: Journal, run: str) -> bool:
    """Whether peers of a grid could go on with a run whose process here is gone."""
    from sureline.journal.away import Away

    away = Away(entry.event for entry in journal.events(run))
    return away.on_grid and away.is_taken_over


def _timeout_s(timeout: str | None) -> float:
    from sureline.workflow.quantities import parse_duration

    if timeout is None:
        return float("inf")
    try:
        return parse_duration(timeout)
    except ValueError as error:
        raise UserError(f"--timeout: {error}") from None


def _outcome(journal: Journal, run: str) -> Outcome:
    from sureline.compose import outcome_of
    from sureline.journal.views import RunView

    return outcome_of(run, RunView.of(entry.event for entry in journal.events(run)))
