"""What a run with a deadline has besides: it is followed, watched, and may get more attempts."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from sureline.forecast.progress import Progress
from sureline.forecast.result import Forecast
from sureline.journal.events import Event
from sureline.run.free_repair import Allowance
from sureline.run.monitor import Monitor
from sureline.run.options import Options
from sureline.run.outlook import Following, Overheard
from sureline.run.port import Bound
from sureline.run.repair import Repairer, RunningAttempt, Situation
from sureline.workflow.model import Graph
from sureline.world.protocol import World

UnderWay = Callable[[], list[Bound]]
"""Every attempt that has not ended."""


class Watch:
    """`committed` are the results of earlier processes."""

    def __init__(
        self,
        world: World,
        run: str,
        graph: Graph,
        options: Options,
        committed: Iterable[Event],
    ) -> None:
        self._graph = graph
        self._options = options
        self.following = Following(run, graph)
        self.following.restore(committed)
        self.allowance = Allowance(graph)
        self.world: World = Overheard(world, self.following.hear)
        """The run's world, for its agent to act through: what is recorded there is followed."""
        self._monitor: Monitor | None = None

    def begin(self, repairer: Repairer, under_way: UnderWay) -> None:
        """The run begins, or goes on."""
        self._monitor = Monitor(
            self.world,
            self._graph,
            self._options.terms,
            self.following,
            repairer,
            lambda forecast, progress: self._situation(forecast, progress, under_way),
            repair=self._options.repair,
        )
        self._monitor.begin()

    def grow(self, graph: Graph) -> None:
        self._graph = graph
        self.following.grow(graph)
        self.allowance.grow(graph)
        if self._monitor is not None:
            self._monitor.grow(graph)

    def end(self) -> None:
        if self._monitor is not None:
            self._monitor.end()

    def _situation(self, forecast: Forecast, progress: Progress, under_way: UnderWay) -> Situation:
        running = sorted(
            RunningAttempt(
                one.task, one.attempt, one.target, progress.started.get(one.task, progress.at)
            )
            for one in under_way()
            if not one.withdrawn
        )
        allowed = frozenset(one.task for one in running if self.allowance.allows(one.task))
        return Situation(self._options.terms, forecast, progress, tuple(running), allowed)
