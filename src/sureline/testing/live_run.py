"""One real run that has to bear everything: a peer and its driver are killed, another machine takes
it over, it is cancelled, and resumed to its end.

The run is put into the journal as `submit` does and driven by `sureline resume`, so that a strategy
is met in the process that a user would start. A strategy for one machine has no peers, nor has a
run at sites of a catalog; all of it happens in one directory then.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path
from subprocess import Popen
from typing import Any

from sureline.compose import create_run
from sureline.journal.errors import NoJournalError
from sureline.journal.events import (
    COMMITS,
    AnyEvent,
    Opened,
    PeerJoined,
    PeerLeft,
    TaskEnded,
    TaskStarted,
    Voters,
)
from sureline.journal.store import Journal
from sureline.run.options import Options
from sureline.run.port import Strategy
from sureline.strategies import resolved
from sureline.testing import laws
from sureline.testing.live import GRID, PATIENCE_S, LiveGrid, Said, command, driving, until
from sureline.workflow.read import read_workflow

PEERS = 3
SLOTS = 2
VICTIM = f"p{PEERS - 1}"
TASKS = PEERS * SLOTS + 3
SITES = ("one", "two")

_FLOW = """
name: bears-all
tasks:
  first:
    for: {i: [1, 2]}
    run: echo {{i}} > first.{{i}}
    outputs: ["first.{{i}}"]
  part:
    for: {i: [NUMBERS]}
    run: |
      until [ -e GATE ]; do sleep 0.05; done
      cat first.1 first.2 > part.{{i}}
    inputs: [first.1, first.2]
    outputs: ["part.{{i}}"]
    takes: 1s
  all:
    run: cat part.* > all.txt
    inputs: ["part.*"]
    outputs: [all.txt]
"""
RIGHT = "1\n2\n" * (PEERS * SLOTS)


class LiveRun:
    """`grid` is None for a strategy that has no use for one; with `at_sites` the tasks go to two
    sites of a catalog of its own."""

    def __init__(
        self,
        where: Path,
        grid: LiveGrid | None,
        strategy: Strategy,
        settings: Mapping[str, Any],
        within_s: float | None = None,
        *,
        at_sites: bool = False,
    ) -> None:
        self._grid = grid
        self._home = where / "home" if at_sites else None
        self.gate = where / "gate"
        self.first = where / "first"
        self.second = where / "second" if grid is not None else self.first
        """Where it is driven at first, and after it was taken over."""
        self.first.mkdir()
        self.second.mkdir(exist_ok=True)
        flow = self.first / "flow.yaml"
        numbers = ", ".join(str(n) for n in range(PEERS * SLOTS))
        flow.write_text(_FLOW.replace("NUMBERS", numbers).replace("GATE", str(self.gate)))
        graph = read_workflow(flow, directory=self.first).graph
        options = Options(
            grid=GRID if grid is not None else "",
            sites=",".join(SITES) if at_sites else "",
            strategy=strategy.name,
            settings=dict(settings),
            budget=0.0 if strategy.spends else None,
            deadline_at=None if within_s is None else time.time() + within_s,
        )
        self.run = create_run(graph, self.first, resolved(options))
        for site in SITES if at_sites else ():
            processors = str(-(-PEERS * SLOTS // len(SITES)))
            add = ("catalog", "sites", "add", site, "--engine=local", f"--processors={processors}")
            said = self._do(*add)
            assert said.code == 0, said

    def bear_all(self) -> list[AnyEvent]:
        """The events of the run, from the machine that brought it to its end."""
        try:
            self._be_killed()
            self._be_cancelled()
        finally:
            self.gate.touch()  # also if all went wrong: others want the slots
        with self._driving(self.second) as process:
            assert process.wait(PATIENCE_S) == 0, self._told(self.second)
        return self.events(self.second)

    def be_cut_off(self) -> list[AnyEvent]:
        """A peer stands still until it is believed gone, and is back before all is done."""
        assert self._grid is not None
        victim = self._grid.peers[VICTIM]
        try:
            with self._driving(self.first) as process:
                self._until(self.first, lambda events: self._working(events) >= self._slots)
                victim.stop()
                self._until(self.first, lambda events: VICTIM in self._gone(events))
                victim.go_on()
                self._until(self.first, lambda events: VICTIM not in self._gone(events))
                self.gate.touch()
                assert process.wait(PATIENCE_S) == 0, self._told(self.first)
        finally:
            victim.go_on()
            self.gate.touch()
        return self.events(self.first)

    def _be_killed(self) -> None:
        """All slots are busy when a peer dies, and then whoever drives the run."""
        with self._driving(self.first) as process:
            self._until(self.first, lambda events: self._working(events) >= self._slots)
            if self._grid is not None:
                self._until(self.first, self._has_voters)
                self._grid.until(self._is_kept, "a copy of the run to be kept")
                self._grid.peers[VICTIM].kill()
                self._grid.serve(VICTIM, f"--slots={SLOTS}")
            process.send_signal(signal.SIGKILL)
            process.wait(PATIENCE_S)

    def _be_cancelled(self) -> None:
        """Once it is under way again."""
        with self._driving(self.second) as process:
            self._until(self.second, lambda events: laws.processes(events) == 2)
            self._until(self.second, lambda events: self._working(events) > 0)
            said = self._do("cancel", self.run)
            assert said.code == 0, said
            assert process.wait(PATIENCE_S) == 130, self._told(self.second)

    @property
    def _slots(self) -> int:
        return 1 if self._grid is None else PEERS * SLOTS

    def _driving(self, where: Path) -> AbstractContextManager[Popen[bytes]]:
        known = (where / ".sureline").exists()
        from_grid = () if known else ("--grid", GRID)
        return driving(where, "resume", self.run, *from_grid, env=self._env(where))

    def _env(self, where: Path) -> Mapping[str, str]:
        if self._home is not None:
            return {"SURELINE_HOME": str(self._home)}
        if self._grid is None:
            return {}
        return self._grid.env("p0" if where == self.first else "p1")

    def _do(self, *arguments: str) -> Said:
        return command(self.second, *arguments, env=self._env(self.second))

    def _is_kept(self) -> bool:
        assert self._grid is not None
        said = self._grid.do("p1", "status", self.run, "--grid", GRID, "--json", where=self.second)
        return said.code == 0 and said.json["tasks"]["succeeded"] >= 2

    # -- what it left --------------------------------------------------------------------------

    def events(self, where: Path) -> list[AnyEvent]:
        """All that is on record there; nothing, as long as there is no journal."""
        try:
            with Journal.open(where / ".sureline", create=False, read_only=True) as journal:
                if not any(one.run == self.run for one in journal.runs()):
                    return []
                return [entry.event for entry in journal.events(self.run)]
        except NoJournalError:
            return []

    def _until(self, where: Path, holds: Callable[[list[AnyEvent]], bool]) -> None:
        until(lambda: holds(self.events(where)), self._told(where), every_s=0.05)

    @staticmethod
    def _has_voters(events: list[AnyEvent]) -> bool:
        """Whether others than the directory itself may say who writes the run."""
        return any(isinstance(event, Voters) and len(event.voters) > 1 for event in events)

    @staticmethod
    def _gone(events: list[AnyEvent]) -> set[str]:
        """The peers that have left and not come back."""
        gone: set[str] = set()
        for event in events:
            if isinstance(event, PeerLeft):
                gone.add(event.peer)
            elif isinstance(event, PeerJoined):
                gone.discard(event.peer)
        return gone

    @staticmethod
    def _working(events: list[AnyEvent]) -> int:
        """Attempts of parts that have started and not ended, by the newest process's word."""
        newest = max((n for n, e in enumerate(events) if isinstance(e, Opened)), default=0)
        started = {e.task for e in events[newest:] if isinstance(e, TaskStarted)}
        ended = {e.task for e in events if isinstance(e, TaskEnded) and e.outcome in COMMITS}
        return len(started - ended)

    @staticmethod
    def _told(where: Path) -> str:
        log = where / "driver.err"
        return log.read_text() if log.exists() else ""
