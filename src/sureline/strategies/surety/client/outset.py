"""The plan of a run with terms: which providers are used, and at which price of time.

With a deadline, it is the cheapest plan whose forecast meets the wanted surety within the budget,
found by bisection over the plans that there are, one forecast a step; if none does, the surest.
Without a deadline as much of the budget is used as makes the run quicker.

A forecast of a plan counts only on the machines that the plan uses: money that is not spent buys no
lanes.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from sureline.forecast.progress import Progress
from sureline.forecast.result import QUANTILE_SHARES, Forecast
from sureline.run.outlook import Following, OutlookFound
from sureline.strategies.surety.client.placing import Placing, PlacingPlan
from sureline.strategies.surety.client.services import Services
from sureline.strategies.surety.planning.assignment import Assignment, assign, plans
from sureline.workflow.model import Graph, Takes
from sureline.workflow.shapes import upward_ranks
from sureline.workflow.terms import Terms
from sureline.world.address import PeerName
from sureline.world.protocol import Fetched, World

PROMISES_MAX = 20_000
"""Tasks of which a forecast is told what a provider promised; others it expects by itself."""


class _Judged(NamedTuple):
    plan: Assignment
    surety: float
    sure_in_s: float
    """In how many seconds it is done with the surety that is wanted."""


class Outset:
    """`following` is there if the terms have a deadline."""

    def __init__(
        self,
        world: World,
        graph: Graph,
        services: Services,
        placing: Placing,
        terms: Terms,
        following: Following | None,
    ) -> None:
        self._world = world
        self._following = following
        self._graph = graph
        self._services = services
        self._placing = placing
        self._terms = terms
        self.current: Assignment | None = None
        self.used: frozenset[PeerName] = frozenset()
        """The providers that are used."""
        self.planned_cost = 0.0
        """What the run is to cost in all."""
        self.refused = ""
        """Why no plan meets the terms, and which terms would do; '' if one does."""

    def plan(
        self, open_tasks: Sequence[int], progress: Progress | None, on_done: Callable[[], None]
    ) -> None:
        """Choose a plan; `on_done` hears when that is done. `progress` is there if the terms have a
        deadline."""
        found = self.plans(open_tasks)
        spendable = max(0.0, self._placing.spendable_in_all)
        affordable = [made for made in found if made.cost <= spendable]
        if not found:
            on_done()
        elif not affordable:
            self._refuse_budget(found[0], spendable)
            self.adopt(found[0])
            on_done()
        elif progress is None:
            # The next dearer one is begun, too: when the money is used up, cheaper ones go on.
            self.adopt(found[min(len(affordable), len(found) - 1)])
            on_done()
        else:
            self._search(affordable, found[len(affordable) :], progress, on_done)

    def _search(
        self,
        affordable: Sequence[Assignment],
        dearer: Sequence[Assignment],
        progress: Progress,
        on_done: Callable[[], None],
    ) -> None:
        def chosen(surest: _Judged | None) -> None:
            self.adopt(affordable[-1] if surest is None else surest.plan)
            if surest is None or surest.surety >= self._terms.surety:
                on_done()
            else:
                _Search(self, dearer, progress, self._terms.surety, refuse(surest)).step()

        def refuse(surest: _Judged) -> Callable[[_Judged | None], None]:
            def judged(dear: _Judged | None) -> None:
                enough = dear is not None and dear.surety >= self._terms.surety
                self._refuse_deadline(surest, dear if enough else None, progress)
                on_done()

            return judged

        _Search(self, affordable, progress, self._terms.surety, chosen).step()

    def _refuse_budget(self, cheapest: Assignment, spendable: float) -> None:
        self.refused = (
            f"the cheapest plan costs {cheapest.cost:g}, and the budget leaves {spendable:g}; it "
            f"would do with --budget {self._placing.spent + cheapest.cost:.6g}"
        )

    def _refuse_deadline(self, surest: _Judged, dearer: _Judged | None, progress: Progress) -> None:
        """Say which change of one term would do."""
        would = [f"--within {surest.sure_in_s:.0f}s"]
        if dearer is not None:
            would.append(f"--budget {self._placing.spent + dearer.plan.cost:.6g}")
        if surest.surety > 0:
            would.append(f"--surety {surest.surety:.2g}")
        self.refused = (
            f"no plan meets the terms: the surest, for {surest.plan.cost:g}, is in time with "
            f"{surest.surety:.0%}, and {self._terms.surety:.0%} is wanted; it would do with "
            + " or ".join(would)
        )

    def plans(self, open_tasks: Sequence[int]) -> list[Assignment]:
        """Those that can be told apart, the cheapest first."""
        return plans(self._graph, open_tasks, self._services.of, self._placing.market())

    def again(self, made: Assignment, open_tasks: Sequence[int]) -> Assignment | None:
        """The plan that is followed, as things are now."""
        return assign(
            self._graph,
            open_tasks,
            self._services.of,
            self._placing.market(),
            made.price_of_time,
            self.used,
        )

    def adopt(self, made: Assignment) -> None:
        """Only its providers are used from now on, and the free ones."""
        self.current = made
        self.used = frozenset(made.providers)
        self.planned_cost = self._placing.spent + made.cost
        usual_s = [self._placing.usual_s(number) for number in range(len(self._services))]
        ranks_s = upward_ranks(self._graph, [usual_s[service] for service in self._services.of])
        deadline_at = self._terms.deadline_at
        self._placing.follow(PlacingPlan(made.price_of_time, self.used, ranks_s, deadline_at))

    def promises(self, made: Assignment, open_tasks: Sequence[int]) -> dict[int, Takes]:
        """What the plan's providers promise of the tasks that are open."""
        known: dict[tuple[int, str], Takes | None] = {}
        found: dict[int, Takes] = {}
        for task in open_tasks[:PROMISES_MAX]:
            service = self._services.of[task]
            terms = made.terms_of(task, service)
            if terms is None:
                continue
            key = (service, terms.provider)
            if key not in known:
                known[key] = self._placing.takes(*key)
            takes = known[key]
            if takes is not None:
                found[task] = takes
        return found

    def peers(self, providers: Collection[PeerName]) -> list[PeerName]:
        """Whom a plan with these providers uses: them, and all that are free."""
        return self._placing.peers_of(providers)

    def judge(
        self, made: Assignment, progress: Progress, on_done: Callable[[_Judged | None], None]
    ) -> None:
        """Have a forecast made of it; None if there is none to be had."""
        wanted = None
        if self._following is not None:
            promises = self.promises(made, list(made.provider_of))
            wanted = self._following.outlook(
                progress, self._terms.deadline_at, promises, peers=self.peers(made.providers)
            )
        if wanted is None:
            on_done(None)
            return

        def found(answer: Fetched) -> None:
            if not isinstance(answer, OutlookFound) or answer.forecast.surety is None:
                on_done(None)
                return
            forecast = answer.forecast
            sure_in_s = _quantile(forecast, self._terms.surety)
            on_done(_Judged(made, answer.forecast.surety, sure_in_s))

        self._world.fetch(wanted, (), found)


def _quantile(forecast: Forecast, share: float) -> float:
    """In how many seconds it is done with this chance, on the safe side."""
    place = min(bisect_left(QUANTILE_SHARES, share), len(forecast.quantiles_s) - 1)
    return forecast.quantiles_s[place]


class _Search:
    """Bisection for the first plan, of ever quicker ones, that is sure enough; else the surest of
    those that were looked at. `on_done` hears None if no forecast could be had."""

    def __init__(
        self,
        outset: Outset,
        found: Sequence[Assignment],
        progress: Progress,
        wanted: float,
        on_done: Callable[[_Judged | None], None],
    ) -> None:
        self._outset = outset
        self._plans = found
        self._progress = progress
        self._wanted = wanted
        self._on_done = on_done
        self._low, self._high = 0, len(found) - 1
        self._best: _Judged | None = None

    def step(self) -> None:
        if self._low > self._high:
            self._on_done(self._best)
            return
        middle = (self._low + self._high) // 2
        self._outset.judge(
            self._plans[middle], self._progress, lambda judged: self._judged(middle, judged)
        )

    def _judged(self, number: int, judged: _Judged | None) -> None:
        if judged is None:
            self._on_done(self._best)
            return
        if judged.surety >= self._wanted:
            self._best = judged
            self._high = number - 1
        else:
            if self._best is None or judged.surety >= self._best.surety:
                self._best = judged
            self._low = number + 1
        self.step()
