"""A process that drives a simulated run: takes it over, resumes it, and sees its end.

What outlives the process is the journal on its machine's disk. Each life of the machine boots a
driver anew: it reads the journal, opens it under the next epoch, and goes on.
"""

from __future__ import annotations

from collections.abc import Callable
from math import fsum

import msgspec

from sureline.experiments.machine_journal import entries, epoch_of, past_of, write_now
from sureline.experiments.outcome import RunResult
from sureline.journal.events import AnyEvent, Noted, Opened, RunEnded, Submitted
from sureline.journal.export import export_entries
from sureline.journal.views import RunView
from sureline.run.options import Options, Past
from sureline.run.port import Deciding, Seat
from sureline.workflow.model import Graph
from sureline.world.simulated.simulation import Simulation

Drive = Callable[["Driver", int, Past], None]
"""Makes and joins the agents that drive a run, given its epoch and what was done before."""


class Driver:
    """One run, over all processes that drive it. `node` is where they live, one after another."""

    def __init__(
        self,
        sim: Simulation,
        node: str,
        run: str,
        graph: Graph,
        drive: Drive,
        options: Options,
        deciding: Callable[[Seat], Deciding] | None = None,
    ) -> None:
        self.sim = sim
        self.node = node
        self.run = run
        self.graph = graph
        self.options = options
        self.deciding = deciding
        """In place of the strategy that the options name, to compare it with."""
        self._drive = drive
        self.submitted_s = 0.0
        self.ended_s: float | None = None
        self.problems: list[str] = []
        """What must not happen to a driver."""

    def boot(self) -> None:
        """Submit the run, or take it over after a crash."""
        machine = self.sim.machine(self.node)
        found = [entry.event for entry in entries(machine.disk)]
        if not found:
            self.submitted_s = self.sim.time
            write_now(machine.disk, self._submitted(machine.clock()))
        elif any(isinstance(event, RunEnded) for event in found[-1:]):
            self.ended_s = self.sim.time if self.ended_s is None else self.ended_s
            return
        epoch = epoch_of(found) + 1
        write_now(machine.disk, Opened(machine.clock(), epoch, self.node, epoch))
        self._drive(self, epoch, past_of(found))

    def _submitted(self, at: float) -> Submitted:
        options = msgspec.to_builtins(self.options)
        graph = self.graph
        return Submitted(at, self.run, graph.name, len(graph), graph.source, {}, options)

    def on_end(self, ended: RunEnded) -> None:
        self.ended_s = self.sim.time

    def on_fenced(self, reason: str) -> None:
        self.problems.append(reason)

    @property
    def over(self) -> bool:
        return self.ended_s is not None

    def events(self) -> list[AnyEvent]:
        return [entry.event for entry in entries(self.sim.machine(self.node).disk)]

    def lines(self) -> tuple[str, ...]:
        """The run as canonical JSON lines."""
        found = entries(self.sim.machine(self.node).disk)
        return tuple(export_entries(self.run, self.graph.to_bytes(), found))

    def result(self) -> RunResult:
        events = self.events()
        view = RunView.of(events, [task.name for task in self.graph.tasks])
        end_s = self.sim.time if self.ended_s is None else self.ended_s
        return RunResult(
            self.run,
            view.state(alive=True),
            view.counts,
            round(end_s - self.submitted_s, 6),
            epoch_of(events),
            view.reason,
            round(fsum(event.paid for event in events if isinstance(event, Noted)), 6),
            self._on_time(),
        )

    def _on_time(self) -> bool | None:
        """By the true time, whatever its machine's clock says."""
        deadline_at = self.options.deadline_at
        if deadline_at is None:
            return None
        return self.ended_s is not None and self.sim.epoch_s + self.ended_s <= deadline_at
