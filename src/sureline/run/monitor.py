"""Watching a run that has a deadline, and acting before it is lost.

One round after another: fetch a forecast; record it if it says something new; if the chance of
being in time is below what was asked for, have the strategy's `Repairer` say what could be done,
have each of that forecast with the same random numbers, and do the cheapest that restores it. If
nothing does, the best there is is done if it helps, and the journal is told so at once.

Rounds are spaced so that forecasts cost at most SHARE_OF_CORE, and everything here is bounded:
what is recorded, what is judged, and (by the submitter) the attempts that are added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from sureline.forecast.follow import SHARE_OF_CORE
from sureline.forecast.progress import Progress
from sureline.forecast.result import QUANTILE_SHARES, Forecast, basis_words
from sureline.journal.events import Foreseen, Planned, Repaired
from sureline.journal.words import percent
from sureline.run.outlook import Following, OutlookFound
from sureline.run.repair import Applied, Remedy, Repairer, Situation
from sureline.workflow.model import Graph
from sureline.workflow.terms import Terms
from sureline.world.protocol import Fetched, World

GRACE_S = 0.5
COST_S_OF_TASK = 25e-6
"""What the first forecast will cost for each task, roughly: like every other it must not take more
than its share of the time, and the run must be that old before it is made."""
GRACE_TO_DEADLINE = 20
"""But after this part of the time to the deadline it is made in any case."""
ROUND_S_MIN = 0.5
ROUND_S_MAX = 30.0
ROUNDS_TO_DEADLINE = 200
"""While the deadline is far, rounds are apart by this part of what is left."""
ROUNDS_MAX = 250
"""But never by less than this part of the time that there was at first..."""
ROUNDS_IDLE = 50
"""...and by no less than this where nothing can be done about what is seen."""
TROUBLE_S = 30.0
"""Before another forecast after one that could not be made."""
ANSWER_S_MAX = 10.0
"""How long a repairer may take to answer."""
REMEDIES_MAX = 12
TOGETHER_MAX = 10
GAIN_MIN = 0.02
"""What does not restore surety is done if it adds at least so much."""
SOONER_MIN = 0.2
"""What does not even do that is done if all is done sooner by this share of the time to the end:
a run that will be late should not be later than it must, and forecasts err."""
NEWS_SURETY = 0.02
NEWS_FINISH = 0.05
"""A forecast is news if surety moved by that much, or the finish by this part of what is left."""
FORESEEN_MAX = 500
FORESEEN_PER_AGE = 200
"""So many forecasts are recorded at most while the age of the run doubles, roughly."""
NONE_MAX = 50
NONE_AGAIN = 0.1
"""That nothing helps is told again when the best achievable changed by so much."""


class Option(NamedTuple):
    """Remedies that are done together."""

    remedies: tuple[Remedy, ...]
    cost: float


class Monitor:
    """`situation` tells what is under way. With `repair` False it only watches. Begins with
    `begin`; after `end` nothing happens any more."""

    def __init__(
        self,
        world: World,
        graph: Graph,
        terms: Terms,
        following: Following,
        repairer: Repairer,
        situation: Callable[[Forecast, Progress], Situation],
        *,
        repair: bool,
    ) -> None:
        assert terms.deadline_at is not None
        self._world = world
        self._graph = graph
        self._terms = terms
        self._deadline_at = terms.deadline_at
        self._following = following
        self._repairer = repairer
        self._situation = situation
        self._repair = repair
        self._began_at = 0.0
        self._over = False
        self._round = 0
        """Counts questions: what answers an earlier one comes too late."""
        self._cost_s = 0.0
        self._planned = False
        self._newest: Foreseen | None = None
        self._foreseen = 0
        self._told_none: float | None = None
        self._nones = 0

    def grow(self, graph: Graph) -> None:
        self._graph = graph

    def begin(self) -> None:
        """Not at once: a run that is over in a moment never pays for a forecast."""
        self._began_at = self._world.now()
        left_s = max(0.0, self._deadline_at - self._began_at)
        paid_s = COST_S_OF_TASK * len(self._graph) / SHARE_OF_CORE
        self._look_in(min(max(GRACE_S, paid_s), left_s / GRACE_TO_DEADLINE))

    def end(self) -> None:
        self._over = True

    # -- looking -------------------------------------------------------------------------------

    def _look(self) -> None:
        if self._over:
            return
        self._cost_s = 0.0
        progress = self._following.snapshot(self._world.now())
        wanted = self._following.outlook(
            progress,
            self._deadline_at,
            self._repairer.promises(),
            peers=self._repairer.peers(),
        )
        if wanted is None:
            self._look_in(ROUND_S_MIN)
            return
        self._world.fetch(wanted, (), lambda found: self._seen(progress, found))

    def _look_in(self, seconds: float) -> None:
        self._world.after(seconds, self._look)

    def _look_again(self) -> None:
        """After what this round cost, and the sooner the nearer the deadline is."""
        now = self._world.now()
        left_s = abs(self._deadline_at - now)  # once it has passed, its distance is the scale too
        apart_s = min(ROUND_S_MAX, left_s / ROUNDS_TO_DEADLINE)
        rounds = ROUNDS_MAX if self._repair and now < self._deadline_at else ROUNDS_IDLE
        least_s = min(ROUND_S_MAX, abs(self._deadline_at - self._began_at) / rounds)
        self._look_in(max(ROUND_S_MIN, least_s, apart_s, self._cost_s / SHARE_OF_CORE))

    def _seen(self, progress: Progress, found: Fetched) -> None:
        if self._over:
            return
        if not isinstance(found, OutlookFound):
            self._look_in(TROUBLE_S)
            return
        self._cost_s += found.cost_s
        forecast = found.forecast
        if not self._planned:
            self._planned = True
            self._record_plan(forecast)
        self._record_if_news(forecast)
        if self._repair and self._is_low(forecast) and progress.at < self._deadline_at:
            self._ask(progress, forecast)
        else:
            self._told_none = None
            self._look_again()

    def _is_low(self, forecast: Forecast) -> bool:
        """Below what is wanted, and not only by chance."""
        surety = forecast.surety
        return surety is not None and surety + forecast.surety_error < self._terms.surety

    # -- recording -----------------------------------------------------------------------------

    def _record_plan(self, forecast: Forecast) -> None:
        cost, providers = self._repairer.planned(forecast)
        self._world.record(
            Planned(
                self._world.now(),
                forecast.method,
                self._deadline_at,
                self._terms.budget,
                self._terms.surety,
                cost,
                done_at(forecast, 0.5),
                done_at(forecast, 0.95),
                forecast.surety,
                dict(providers),
            )
        )

    def _record_if_news(self, forecast: Forecast) -> None:
        seen = foreseen(self._world.now(), forecast)
        last = self._newest
        if last is not None:
            apart_s = (seen.at - self._began_at) / FORESEEN_PER_AGE
            due = seen.at - last.at >= apart_s and self._foreseen < FORESEEN_MAX
            if not due or not is_news(last, seen):
                return
        self._newest = seen
        self._foreseen += 1
        self._world.record(seen)

    # -- repairing -----------------------------------------------------------------------------

    def _ask(self, progress: Progress, forecast: Forecast) -> None:
        situation = self._situation(forecast, progress)
        heard = self._expect()
        self._repairer.candidates(
            situation, lambda remedies: heard(lambda: self._judge(situation, remedies))
        )

    def _expect(self) -> Callable[[Callable[[], None]], None]:
        """A gate for the one answer that is waited for: the round goes on with it, or without it
        after ANSWER_S_MAX; what comes later is not heard."""
        self._round += 1
        number = self._round

        def heard(go_on: Callable[[], None]) -> None:
            if self._round == number and not self._over:
                self._round += 1
                timer.cancel()
                go_on()

        timer = self._world.after(ANSWER_S_MAX, lambda: heard(self._look_again))
        return heard

    def _judge(self, situation: Situation, remedies: Sequence[Remedy]) -> None:
        options = combined(remedies, self._repairer.left)
        plans = [tuple(c for a in option.remedies for c in a.changes) for option in options]
        wanted = self._following.outlook(
            situation.progress,
            self._deadline_at,
            self._repairer.promises(),
            plans,
            self._repairer.peers(),
            [_peers_of(option) for option in options],
        )
        if not options or wanted is None:
            self._say_none(situation, situation.forecast.surety or 0.0)
            self._look_again()
            return
        self._world.fetch(wanted, (), lambda found: self._choose(situation, options, found))

    def _choose(self, situation: Situation, options: Sequence[Option], found: Fetched) -> None:
        if self._over:
            return
        if not isinstance(found, OutlookFound):
            self._look_in(TROUBLE_S)
            return
        self._cost_s += found.cost_s
        before = found.forecast.surety or 0.0
        sureties = [plan.surety or 0.0 for plan in found.plans]
        best = chosen(options, sureties, self._terms.surety)
        after = sureties[best]
        if after < self._terms.surety:
            self._say_none(situation, max(before, after))
        if after >= self._terms.surety or after >= before + GAIN_MIN:
            self._do(list(options[best].remedies), before, after)
            return
        best = soonest(options, [_middle_s(plan) for plan in found.plans])
        if _middle_s(found.plans[best]) <= (1 - SOONER_MIN) * _middle_s(found.forecast):
            self._do(list(options[best].remedies), before, sureties[best])
        else:
            self._look_again()

    def _do(self, remedies: list[Remedy], before: float, after: float) -> None:
        """Do these, one after another; one that cannot be done ends it."""
        if not remedies:
            self._told_none = None if after >= self._terms.surety else self._told_none
            self._look_again()
            return
        remedy, heard = remedies.pop(0), self._expect()

        def told(applied: Applied) -> None:
            if applied.done:
                self._record_repair(remedy, applied, before, after)
                heard(lambda: self._do(remedies, before, after))
            else:
                heard(self._look_again)

        self._repairer.apply(remedy, told)

    def _record_repair(self, remedy: Remedy, applied: Applied, before: float, after: float) -> None:
        name = self._graph.tasks[remedy.task].name if remedy.task >= 0 else ""
        self._world.record(
            Repaired(
                self._world.now(),
                remedy.how,
                f"surety fell to {percent(before)}, {percent(self._terms.surety)} is wanted",
                before,
                after,
                name,
                applied.attempt,
                remedy.from_peer,
                remedy.to_peer,
                applied.cost,
            )
        )

    def _say_none(self, situation: Situation, best: float) -> None:
        told = self._told_none
        if self._nones >= NONE_MAX or (told is not None and abs(best - told) < NONE_AGAIN):
            return
        self._told_none = best
        self._nones += 1
        before = situation.forecast.surety or 0.0
        self._world.record(
            Repaired(
                self._world.now(),
                "none",
                f"surety fell to {percent(before)}, {percent(self._terms.surety)} is wanted, and "
                "nothing that can be done restores it",
                before,
                best,
            )
        )


def _peers_of(option: Option) -> tuple[str, ...] | None:
    """The peers that would be used, if one of the remedies changes that."""
    named = [remedy.peers for remedy in option.remedies if remedy.peers is not None]
    return None if not named else tuple(dict.fromkeys(peer for peers in named for peer in peers))


def combined(remedies: Sequence[Remedy], left: float) -> list[Option]:
    """Each remedy alone; then what is offered first for each task: two of them together, three, and
    so on; then the same of what is offered second. Several tasks may be late at once, and then
    doing something about one of them helps nothing."""
    found = [Option((remedy,), remedy.cost) for remedy in remedies[:REMEDIES_MAX]]
    for chain in _chains(remedies):
        for count in range(2, min(TOGETHER_MAX, len(chain)) + 1):
            first = tuple(chain[:count])
            found.append(Option(first, sum(remedy.cost for remedy in first)))
    return [option for option in found if option.cost <= left]


def _chains(remedies: Sequence[Remedy]) -> tuple[list[Remedy], list[Remedy]]:
    """What is offered first for each task, and second; in the order in which it is offered."""
    chains: tuple[list[Remedy], list[Remedy]] = ([], [])
    offered: Counter[int] = Counter()
    for remedy in remedies:
        rank = offered[remedy.task]
        offered[remedy.task] += 1
        if rank < len(chains):
            chains[rank].append(remedy)
    return chains


def chosen(options: Sequence[Option], sureties: Sequence[float], wanted: float) -> int:
    """The cheapest that restores surety, of equal ones the surest; else the surest, of equal ones
    the cheapest; among all that, the one with fewest remedies, and the first."""
    sized = [
        (option.cost, -surety, len(option.remedies), k)
        for k, (option, surety) in enumerate(zip(options, sureties, strict=True))
    ]
    restoring = [one for one in sized if -one[1] >= wanted]
    if restoring:
        return min(restoring)[3]
    return min((minus, cost, size, k) for cost, minus, size, k in sized)[3]


def soonest(options: Sequence[Option], middles_s: Sequence[float]) -> int:
    """The one that is done first, of equal ones the cheapest, and the one with fewest remedies."""
    sized = [
        (middle_s, option.cost, len(option.remedies), k)
        for k, (option, middle_s) in enumerate(zip(options, middles_s, strict=True))
    ]
    return min(sized)[3]


def _middle_s(forecast: Forecast) -> float:
    return forecast.quantiles_s[QUANTILE_SHARES.index(0.5)]


def done_at(forecast: Forecast, share: float) -> float:
    """By when the run is done with this chance, one of QUANTILE_SHARES."""
    return forecast.at + forecast.quantiles_s[QUANTILE_SHARES.index(share)]


def foreseen(now: float, forecast: Forecast) -> Foreseen:
    return Foreseen(
        now,
        done_at(forecast, 0.05),
        done_at(forecast, 0.5),
        done_at(forecast, 0.95),
        forecast.surety,
        forecast.surety_error,
        forecast.open_tasks,
        basis_words(forecast.basis),
    )


def is_news(last: Foreseen, new: Foreseen) -> bool:
    moved = abs((new.surety or 0.0) - (last.surety or 0.0))
    if moved >= max(NEWS_SURETY, 2 * new.surety_error):
        return True
    left_s = max(1.0, new.middle_at - new.at)
    return abs(new.middle_at - last.middle_at) >= NEWS_FINISH * left_s
