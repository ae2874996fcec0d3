"""When a run will be done, as something that a world can be asked for.

The agent that drives a run follows it in a `Following`; what it wants to know it fetches as an
`Outlook`. How long the answer takes is the world's affair: the live one computes it in a thread,
the simulator at once. Both use a `Seer`, so both answer alike.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from sureline.forecast.change import Change
from sureline.forecast.follow import Forecaster
from sureline.forecast.machines import Machines, Together
from sureline.forecast.progress import Progress, Tracker
from sureline.forecast.result import Forecast
from sureline.journal.events import (
    Event,
    TaskBound,
    TaskEnded,
    TaskEvent,
    TaskReady,
    TaskStarted,
)
from sureline.journal.history import Observed
from sureline.run.estimates import QUANTILE_SHARES, Estimate, Estimates, EstimatesFound
from sureline.workflow.model import Graph, Takes
from sureline.world.protocol import Fetched, Recordable, Wanted, World

Plan = tuple[Change, ...]


class Outlook(Wanted, frozen=True):
    """A forecast of a run as it stands, and one for each plan: as if its changes were made."""

    run: str
    graph: Graph
    progress: Progress
    machines: Together
    deadline_at: float | None = None
    promises: Mapping[int, Takes] = {}
    """What providers have promised of tasks that are not done."""
    plans: tuple[Plan, ...] = ()
    machines_of: tuple[Together | None, ...] = ()
    """For each plan: the machines that it would use, if they are others."""


class OutlookFound(Fetched, frozen=True):
    forecast: Forecast
    plans: tuple[Forecast, ...] = ()
    """In the order of the plans asked about, with the random numbers of `forecast`."""
    cost_s: float = 0.0
    """Processor time that all of them took."""


class OutlookMissing(Fetched, frozen=True):
    """No forecast could be made; `reason` is one sentence."""

    reason: str


class Following:
    """What a run's own events say of how far it is and which machines it has.

    A run may have thousands of events in a second, and hearing them must cost next to nothing. So
    what begins is only kept at first: if its result comes before anybody looks, that is all that
    is taken in; else, and if anything else happens to the task, it is taken in event by event."""

    def __init__(self, run: str, graph: Graph) -> None:
        self._run = run
        self._graph = graph
        self._tracker = Tracker(graph)
        self._machines = Machines()
        self._bound: dict[str, TaskBound] = {}
        """Tasks that were bound and have not been taken in since."""
        self._started: dict[str, TaskStarted] = {}
        """Those of them that have started."""
        self._hearers: dict[type, Callable[[Any], None]] = {
            TaskReady: lambda event: None,
            TaskBound: self._note_bound,
            TaskStarted: self._note_started,
            TaskEnded: self._note_ended,
        }

    def grow(self, graph: Graph) -> None:
        self._graph = graph
        self._tracker.grow(graph)

    def hear(self, event: Recordable) -> None:
        self._hearers.get(type(event), self._take_in)(event)

    def _note_bound(self, event: TaskBound) -> None:
        if event.task in self._bound:
            self._take_in_task(event.task)
        self._bound[event.task] = event

    def _note_started(self, event: TaskStarted) -> None:
        bound = self._bound.get(event.task)
        if bound is None or bound.attempt != event.attempt or event.task in self._started:
            self._take_in(event)
        else:
            self._started[event.task] = event

    def _note_ended(self, event: TaskEnded) -> None:
        bound = self._bound.get(event.task)
        if event.outcome != "succeeded" or bound is None or bound.attempt != event.attempt:
            self._take_in(event)
            return
        del self._bound[event.task]
        started = self._started.pop(event.task, None)
        began_at = event.at
        if not bound.ahead:
            began_at = bound.at
        elif started is not None:
            began_at = started.at
        held_s = max(event.elapsed_s, event.at - began_at)
        self._tracker.committed(event.task, event.kind, held_s)

    def _take_in(self, event: Recordable) -> None:
        if isinstance(event, TaskEvent):
            self._take_in_task(event.task)
            self._tracker.apply(event)
        elif isinstance(event, Event):
            self._take_in_all()
            self._tracker.apply(event)
            self._machines.apply(event)

    def _take_in_task(self, task: str) -> None:
        bound, started = self._bound.pop(task, None), self._started.pop(task, None)
        if bound is not None:
            self._tracker.apply(bound)
        if started is not None:
            self._tracker.apply(started)

    def _take_in_all(self) -> None:
        for task in list(self._bound):
            self._take_in_task(task)

    def restore(self, committed: Iterable[Event]) -> None:
        """What earlier processes did."""
        for event in committed:
            self._tracker.apply(event)

    def snapshot(self, at: float) -> Progress:
        self._take_in_all()
        return self._tracker.snapshot(at)

    def outlook(
        self,
        progress: Progress,
        deadline_at: float | None,
        promises: Mapping[int, Takes],
        plans: Sequence[Plan] = (),
        peers: Collection[str] | None = None,
        peers_of: Sequence[Collection[str] | None] = (),
    ) -> Outlook | None:
        """What to fetch; None if there is no machine that a forecast could count on. `peers` are
        those that are used, None for all; `peers_of` the same for each plan, None for `peers`."""
        machines = self._machines.together(peers)
        if machines is None:
            return None
        of_plans = tuple(None if p is None else self._machines.together(p) for p in peers_of)
        return Outlook(
            self._run,
            self._graph,
            progress,
            machines,
            deadline_at,
            promises,
            tuple(plans),
            of_plans,
        )


class Overheard:
    """A world whose records are also told to `hear`; all else goes straight through."""

    def __init__(self, world: World, hear: Callable[[Recordable], None]) -> None:
        self._record = world.record
        self._hear = hear
        self.random = world.random
        self.now = world.now
        self.elapsed = world.elapsed
        self.awake = world.awake
        self.send = world.send
        self.after = world.after
        self.start = world.start
        self.stop = world.stop
        self.fetch = world.fetch
        self.flush = world.flush
        self.sync = world.sync
        self.put = world.put
        self.get = world.get
        self.busy = world.busy

    def record(self, event: Recordable) -> None:
        self._record(event)
        self._hear(event)


class Seer:
    """Answers the outlooks of one run; what was prepared for one serves the next. For worlds: any
    thread may ask, one at a time. `history` is what tasks took before, by kind."""

    def __init__(self, history: Mapping[str, Sequence[Observed]]) -> None:
        self._history = history
        self._forecaster: Forecaster | None = None
        self._promised: Mapping[int, Takes] = {}

    def answer(self, wanted: Outlook) -> OutlookFound:
        forecaster = self._ready(wanted)
        base = forecaster.what_if(wanted.progress, ())
        plans = tuple(
            self._of_plan(forecaster, wanted, plan, number)
            for number, plan in enumerate(wanted.plans)
        )
        return OutlookFound(base, plans, base.cost_s + sum(plan.cost_s for plan in plans))

    def estimates(self, wanted: Estimates) -> EstimatesFound:
        from sureline.forecast.expected import expected  # numpy is loaded when it is needed

        found = expected(wanted.graph, self._history, wanted.run, QUANTILE_SHARES)
        return EstimatesFound(tuple(Estimate(*one) for one in found))

    def _of_plan(
        self, forecaster: Forecaster, wanted: Outlook, plan: Plan, number: int
    ) -> Forecast:
        others = wanted.machines_of[number] if number < len(wanted.machines_of) else None
        forecaster.move_to(others or wanted.machines)
        return forecaster.what_if(wanted.progress, plan)

    def _ready(self, wanted: Outlook) -> Forecaster:
        if self._forecaster is None or len(self._forecaster.graph) < len(wanted.graph):
            self._promised = {}
            self._forecaster = Forecaster(wanted.graph, wanted.machines, self._history, wanted.run)
        self._forecaster.move_to(wanted.machines)
        self._forecaster.ask_deadline(wanted.deadline_at)
        for task in self._promised.keys() - wanted.promises.keys():
            self._forecaster.promise(task, None)
        for task, takes in wanted.promises.items():
            if self._promised.get(task) != takes:
                self._forecaster.promise(task, takes)
        self._promised = dict(wanted.promises)
        return self._forecaster
