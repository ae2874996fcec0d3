"""What can be done about a late run where providers ask a price; see `run.repair.Repairer`.

For the tasks under way that decide the end, new bids are asked for, and each is offered to be run a
second time elsewhere (duplicate), or instead of where it runs (swap): there the contract that is
broken off gives its cancellation fee back. For what has not started, the next higher prices of time
are offered (substitute): faster providers, or more of them, for all that is still to come.

Nothing is offered that costs more than is left beyond the cheapest way of all that is open, and
what is done is paid from the same ledger as everything else.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from sureline.forecast.change import Change
from sureline.forecast.result import Forecast
from sureline.run.free_repair import late_first
from sureline.run.port import Engine
from sureline.run.repair import Applied, Remedy, RunningAttempt, Situation
from sureline.strategies.surety.client.broker import Broker
from sureline.strategies.surety.client.money import Money
from sureline.strategies.surety.client.outset import Outset
from sureline.strategies.surety.client.placing import Chosen, Placing
from sureline.strategies.surety.client.services import Services
from sureline.strategies.surety.planning.assignment import Assignment
from sureline.workflow.model import Takes
from sureline.world.address import PeerName
from sureline.world.protocol import World

BIDS_WAIT_S = 3.0
LOOK_S = 0.1
LATE_MAX = 8
"""Tasks under way that something is offered for."""
SUSPECT = 1.5
"""Where everything takes so many times longer than was said, nothing is run a second time, unless
there is nobody else."""


class MoneyRepairer:
    def __init__(
        self,
        engine: Engine,
        world: World,
        services: Services,
        broker: Broker,
        money: Money,
        placing: Placing,
        outset: Outset,
    ) -> None:
        self._engine = engine
        self._world = world
        self._services = services
        self._broker = broker
        self._money = money
        self._placing = placing
        self._outset = outset
        self._dearer: dict[str, Assignment] = {}
        """The plans that were offered last, by their token."""

    @property
    def left(self) -> float:
        return max(0.0, self._placing.spendable())

    def promises(self) -> Mapping[int, Takes]:
        found: dict[int, Takes] = {}
        if self._outset.current is not None:
            found = self._outset.promises(self._outset.current, self._engine.open_tasks())
        for task, provider in self._placing.under_way():
            takes = self._placing.takes(self._services.of[task], provider)
            if takes is None:
                found.pop(task, None)
            else:
                found[task] = takes
        return found

    def peers(self) -> Sequence[PeerName] | None:
        """Those of the plan, and those that have something of ours; None for all."""
        if self._outset.current is None:
            return None
        used = dict.fromkeys(self._outset.peers(self._outset.used))
        return list(used | dict.fromkeys(peer for _, peer in self._placing.under_way()))

    def planned(self, forecast: Forecast) -> tuple[float, Mapping[PeerName, int]]:
        plan = self._outset.current
        if plan is None:
            return self._placing.spent, {}
        return self._outset.planned_cost, plan.counts()

    # -- what could be done --------------------------------------------------------------------

    def candidates(self, situation: Situation, offer: Callable[[Sequence[Remedy]], None]) -> None:
        late = late_first(self._engine.graph, situation)[:LATE_MAX]
        for service in dict.fromkeys(self._services.of[found[0].task] for found in late):
            self._broker.renew(service)
        self._when_bid(self._world.elapsed() + BIDS_WAIT_S, lambda: offer(self._actions(late)))

    def _when_bid(self, at_most: float, then: Callable[[], None]) -> None:
        if self._broker.asks() and self._world.elapsed() < at_most:
            self._world.after(LOOK_S, lambda: self._when_bid(at_most, then))
        else:
            then()

    def _actions(self, late: Sequence[Sequence[RunningAttempt]]) -> list[Remedy]:
        """The first for each task, and the second, are what can be done together: the late tasks
        at the cheapest providers, then a dearer plan; the quickest plan, then the late tasks at the
        quickest providers."""
        cheap = self._spread(late, lambda option: (option.cost, option.took_s))
        quick = self._spread(late, _soonest)
        swaps = [self._swap(attempts, option) for attempts, option in cheap]
        again = [self._again(attempts, option) for attempts, option in cheap]
        sooner = [self._again(attempts, option) for attempts, option in quick]
        return again + self._substitutes() + sooner + [one for one in swaps if one is not None]

    def _spread(
        self, late: Sequence[Sequence[RunningAttempt]], key: Callable[[Chosen], tuple[float, float]]
    ) -> list[tuple[Sequence[RunningAttempt], Chosen]]:
        """Where each would be run again: the least by `key` of those that have room beside what
        the others were given, and that can be believed. What went wrong once already goes to the
        quickest."""
        given: Counter[PeerName] = Counter()
        found = []
        left = self.left
        for attempts in late:
            task, runs_at = attempts[0].task, [one.peer for one in attempts]
            options = [
                option
                for option in self._placing.anywhere(task)
                if option.has_room
                and option.provider not in runs_at
                and option.cost <= left
                and given[option.provider] < self._placing.places_at(task, option.provider)
            ]
            believed = [o for o in options if self._placing.slower(o.provider) < SUSPECT]
            if options:
                again = attempts[-1].attempt > 1
                best = min(believed or options, key=_soonest if again else key)
                given[best.provider] += 1
                left -= best.cost
                found.append((attempts, best))
        return found

    def _again(self, attempts: Sequence[RunningAttempt], option: Chosen) -> Remedy:
        task = attempts[0].task
        change = Change(task, "duplicate", self._takes(task, option), delay_s=option.wait_s)
        runs_at, to = attempts[-1].peer, option.provider
        return Remedy("duplicate", (change,), task, runs_at, to, option.cost, peers=self._with(to))

    def _with(self, provider: PeerName) -> tuple[PeerName, ...] | None:
        """The peers that are used, and this one: there is no room in a forecast elsewhere."""
        used = self.peers()
        return None if used is None else tuple(dict.fromkeys((*used, provider)))

    def _swap(self, attempts: Sequence[RunningAttempt], option: Chosen) -> Remedy | None:
        """Instead of its one attempt, if that is plainly late and breaking it off gives money back:
        else what was done of it would be lost."""
        task, runs_at = attempts[-1].task, attempts[-1].peer
        contract = self._money.signed(
            (runs_at, self._engine.graph.tasks[task].name, attempts[-1].attempt)
        )
        back = 0.0 if contract is None else contract.bid.cancel_fee
        if len(attempts) > 1 or not back or not self._placing.is_overdue(task, runs_at):
            return None
        change = Change(task, "replace", self._takes(task, option), delay_s=option.wait_s)
        cost, to = max(0.0, option.cost - back), option.provider
        return Remedy("swap", (change,), task, runs_at, to, cost, peers=self._with(to))

    def _takes(self, task: int, option: Chosen) -> Takes | None:
        return self._placing.takes(self._services.of[task], option.provider)

    def _substitutes(self) -> list[Remedy]:
        """The next dearer plan for what has not started, and the quickest. What is known of the
        providers by now is in both: who lost trust is left out where that is worth it."""
        current = self._outset.current
        running = {task for task, _ in self._placing.under_way()}
        open_tasks = [task for task in self._engine.open_tasks() if task not in running]
        if not open_tasks or current is None:
            return []
        as_now = self._outset.again(current, open_tasks)
        cost_now = 0.0 if as_now is None else as_now.cost
        dearer = [
            made
            for made in self._outset.plans(open_tasks)
            if (as_now is None or made.seconds < as_now.seconds)
            and made.cost <= self._placing.spendable_in_all
        ]
        tried = dearer[:1] + dearer[1:][-1:]
        self._dearer = {f"{made.cost:g} {made.price_of_time:.6g}": made for made in tried}
        return [
            self._substitute(made, max(0.0, made.cost - cost_now), token, open_tasks)
            for token, made in self._dearer.items()
        ]

    def _substitute(
        self, made: Assignment, more: float, token: str, open_tasks: Sequence[int]
    ) -> Remedy:
        promised = self._outset.promises(made, open_tasks)
        changes = tuple(Change(task, "replace", takes) for task, takes in promised.items())
        peers = dict.fromkeys(self._outset.peers(made.providers))
        peers |= dict.fromkeys(peer for _, peer in self._placing.under_way())
        return Remedy("substitute", changes, -1, cost=more, token=token, peers=tuple(peers))

    # -- doing it ------------------------------------------------------------------------------

    def apply(self, remedy: Remedy, told: Callable[[Applied], None]) -> None:
        if remedy.how == "substitute":
            made = self._dearer.get(remedy.token)
            if made is not None:
                self._outset.adopt(made)
            told(Applied(made is not None, cost=remedy.cost))
            return
        task, provider = remedy.task, remedy.to_peer
        service = self._services.of[task]
        offered = self._broker.offer(service, provider)
        bid = None if offered is None else offered.bid
        if bid is None or not self._money.needs_contract(provider, bid):
            self._start(remedy, 0.0, told)
            return
        attempted = (provider, self._engine.graph.tasks[task].name, self._engine.next_attempt(task))

        def agreed(why: str) -> None:
            if why:
                told(Applied(False, why=why))
                return
            self._start(remedy, bid.cost, told)
            if self._placing.running_since(task, provider) is None:
                self._money.settle(attempted, "unused", "it was not needed")

        within = bid.cost <= self.left
        if not within or not self._money.agree(service, attempted, bid, agreed):
            told(Applied(False, why=f"{bid.cost:g} is more than is left of the budget"))

    def _start(self, remedy: Remedy, cost: float, told: Callable[[Applied], None]) -> None:
        task, provider, engine = remedy.task, remedy.to_peer, self._engine
        before = engine.next_attempt(task) - 1
        contract = self._money.signed((provider, engine.graph.tasks[task].name, before + 1))
        claim = b"" if contract is None else contract.number.encode()
        attempt = engine.duplicate(task, provider, claim)
        if attempt and remedy.how == "swap":
            engine.withdraw(task, before)
        told(Applied(bool(attempt), attempt, cost, "" if attempt else "it was over by then"))


def _soonest(option: Chosen) -> tuple[float, float]:
    return option.took_s, option.cost
