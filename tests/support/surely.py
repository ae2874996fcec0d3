"""Driving the real `sureline` command in tests: start it, wait for conditions, read its JSON.

Every wait has a deadline that is generous (these tests share their machine) and ends as soon as
what is waited for holds. Processes of a directory are found by the token they carry.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import warm

from sureline.journal.events import AnyEvent
from sureline.journal.locks import RunLock
from sureline.journal.store import Journal
from sureline.journal.views import RunView
from sureline.peer import orphans
from sureline.testing.live import PATIENCE_S, Said, until
from sureline.workflow.model import Graph

__all__ = ["PATIENCE_S", "Said", "until"]
"""Of what tests take from here, that which stands elsewhere."""

COMMAND = str(Path(sys.executable).parent / "sureline")
HOME = ".sureline"


def sureline(
    where: Path,
    *arguments: str,
    timeout_s: float = PATIENCE_S,
    env: dict[str, str] | None = None,
    **options: Any,
) -> Said:
    """Run the command in `where` to its end."""
    if not options and warm.fits(env or {}):
        return Said(*warm.warm().run(arguments, where, {**os.environ, **(env or {})}, timeout_s))
    done = subprocess.run(
        [COMMAND, *arguments],
        cwd=where,
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=timeout_s,
        check=False,
        **({} if "input" in options else {"stdin": subprocess.DEVNULL}),
        **options,
    )
    return Said(done.returncode, done.stdout, done.stderr)


class Started:
    """The command, running; its output goes to files beside the directory it works in."""

    def __init__(
        self, where: Path, *arguments: str, env: dict[str, str] | None = None, cold: bool = False
    ) -> None:
        self.where = where
        self.process: subprocess.Popen[bytes] | warm.Forked
        variables = {**os.environ, **(env or {})}
        self._out = where.parent / f"{where.name}.{time.monotonic_ns()}.out"
        self._err = self._out.with_suffix(".err")
        with open(self._out, "wb") as out, open(self._err, "wb") as err:
            if not cold and warm.fits(env or {}):
                self.process = warm.warm().start(arguments, where, variables, out, err)
                self.pid = self.process.pid
                return
            self.process = subprocess.Popen(
                [COMMAND, *arguments],
                cwd=where,
                env=variables,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )
        self.pid = self.process.pid

    @property
    def err(self) -> str:
        return self._err.read_text()

    @property
    def out(self) -> str:
        return self._out.read_text()

    def signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL the process itself, and only it; returns when it is dead."""
        self.signal(signal.SIGKILL)
        self.process.wait(PATIENCE_S)

    def end(self, timeout_s: float = PATIENCE_S) -> Said:
        """What it said, when it has ended by itself."""
        code = self.process.wait(timeout_s)
        return Said(code, self.out, self.err)

    def over(self) -> bool:
        return self.process.poll() is not None


@contextlib.contextmanager
def started(
    where: Path, *arguments: str, env: dict[str, str] | None = None, cold: bool = False
) -> Iterator[Started]:
    """The command, running; nothing of it is left when the block is left. With `cold`, what it
    does before its first step is part of the test."""
    one = Started(where, *arguments, env=env, cold=cold)
    try:
        yield one
    finally:
        if not one.over():
            one.kill()
        orphans.kill(f"{home(where)}:", prefix=True)


def home(where: Path) -> str:
    return os.path.abspath(where / HOME)


def survivors(where: Path) -> list[int]:
    """Living processes that any run of this directory started."""
    return [pid for pid in orphans.find(f"{home(where)}:", prefix=True) if not _is_zombie(pid)]


def _is_zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


def slots(where: Path, run: str) -> list[int]:
    """The slot processes of a run, not their jobs."""
    token = orphans.token_of(home(where), run, "slot-")
    return [
        pid for pid in orphans.find(token, prefix=True) if _command_line(pid).count(b"slot") > 0
    ]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not _is_zombie(pid)


def none_survives(where: Path, timeout_s: float = PATIENCE_S) -> None:
    """Wait until no process of this directory's runs is left."""
    give_up = time.monotonic() + timeout_s
    while left := survivors(where):
        if time.monotonic() > give_up:
            told = [f"{pid}: {_command_line(pid)!r}" for pid in left]
            raise AssertionError(f"still alive after {timeout_s:g} s: {told}")
        time.sleep(0.01)


def write(where: Path, name: str, text: str) -> Path:
    path = where / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def show(where: Path, run: str = "last", *arguments: str) -> Any:
    """What the command `show` says, as data."""
    said = sureline(where, "show", run, "--tasks", "--json", *arguments)
    assert said.code == 0, said
    return said.json


def runs(where: Path) -> list[Any]:
    """What the command `runs` says, as data."""
    said = sureline(where, "runs", "--limit", "0", "--json")
    assert said.code == 0, said
    found: list[Any] = said.json["runs"]
    return found


# The next ones read the journal in this process: starting the command costs a third of a second.


def state(where: Path) -> str:
    """The state of the newest run; 'interrupted' if no process drives it."""
    with _journal(where) as journal:
        newest = journal.runs()[-1]
        return newest.seen(RunLock.held_elsewhere(journal.work_directory(newest.run)))


def newest_run(where: Path) -> str:
    with _journal(where) as journal:
        return journal.runs()[-1].run


def view(where: Path) -> RunView:
    """All about the newest run, with its tasks."""
    with _journal(where) as journal:
        run = journal.runs()[-1].run
        names = [task.name for task in Graph.from_bytes(journal.graph(run)).tasks]
        return RunView.of((entry.event for entry in journal.events(run)), names)


def states(where: Path) -> dict[str, str]:
    """The tasks of the newest run."""
    return {name: task.state for name, task in view(where).tasks.items()}


def events(where: Path, run: str | None = None) -> list[AnyEvent]:
    with _journal(where) as journal:
        return [entry.event for entry in journal.events(run or journal.runs()[-1].run)]


def _journal(where: Path) -> Journal:
    return Journal.open(where / HOME, create=False, read_only=True)


def rows(where: Path, query: str, *values: object) -> list[tuple[Any, ...]]:
    """Read the journal's tables as another program would."""
    path = f"file:{home(where)}/journal.db?mode=ro"
    with contextlib.closing(sqlite3.connect(path, 30.0, uri=True)) as connection:
        return connection.execute(query, values).fetchall()


def committed(where: Path, run: str) -> set[str]:
    """The tasks of a run that have a result in the journal just now."""
    found = rows(
        where, "SELECT task FROM commits c JOIN runs r ON r.id = c.run WHERE r.run = ?", run
    )
    return {task for (task,) in found}


def leftovers(where: Path) -> list[str]:
    """What lies about that should not: working files of runs, and unfinished moves."""
    work = where / HOME / "work"
    found = [str(path.relative_to(where)) for path in sorted(work.rglob("*"))]
    found += [str(path.relative_to(where)) for path in where.rglob(".sureline-*")]
    return found


def tree(where: Path) -> dict[str, bytes]:
    """Every file of the user's directory, by its relative path."""
    return {
        str(path.relative_to(where)): path.read_bytes()
        for path in sorted(where.rglob("*"))
        if path.is_file() and HOME not in path.relative_to(where).parts
    }


def no_traceback(said: Said) -> None:
    assert "Traceback" not in said.err, said.err
    assert "Exception ignored" not in said.err, said.err


def sentences(said: Said) -> Sequence[str]:
    """The complaints on stderr, one line each."""
    return [line for line in said.err.splitlines() if line.startswith("sureline: ")]
