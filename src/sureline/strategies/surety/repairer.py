"""What can be done about a late run where providers ask a price; see `run.strategy.Repairer`.

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
from typing import Protocol

from sureline.forecast.change import Change
from sureline.forecast.result import Forecast
from sureline.run.repair import late_first
from sureline.run.strategy import Action, Applied, Running, Situation
from sureline.strategies.surety.assignment import Assignment
from sureline.strategies.surety.broker import Broker
from sureline.strategies.surety.money import Money
from sureline.strategies.surety.outset import Outset
from sureline.strategies.surety.placer import Chosen, SuretyPlacer
from sureline.strategies.surety.services import Services
from sureline.workflow.model import Graph, Takes
from sureline.world.protocol import AgentId

BIDS_WAIT_S = 3.0
LOOK_S = 0.1
LATE_MAX = 8
"""Tasks under way that something is offered for."""
SUSPECT = 1.5
"""Where everything takes so many times longer than was said, nothing is run a second time, unless
there is nobody else."""


class Hands(Protocol):
    """What the repairer has done by the submitter it belongs to."""

    def now(self) -> float: ...

    def later(self, seconds: float, action: Callable[[], None]) -> None: ...

    def name(self, task: int) -> str: ...

    def next_attempt(self, task: int) -> int: ...

    def open_tasks(self) -> list[int]: ...

    def duplicate(self, task: int, peer: AgentId) -> int: ...

    def withdraw(self, task: int, attempt: int) -> None: ...


class MoneyRepairer:
    def __init__(
        self,
        graph: Graph,
        services: Services,
        broker: Broker,
        money: Money,
        placer: SuretyPlacer,
        outset: Outset,
        hands: Hands,
    ) -> None:
        self._graph = graph
        self._services = services
        self._broker = broker
        self._money = money
        self._placer = placer
        self._outset = outset
        self._hands = hands
        self._dearer: dict[str, Assignment] = {}
        """The plans that were offered last, by their token."""

    @property
    def left(self) -> float:
        return max(0.0, self._placer.spendable())

    def promises(self) -> Mapping[int, Takes]:
        found: dict[int, Takes] = {}
        if self._outset.current is not None:
            found = self._outset.promises(self._outset.current, self._hands.open_tasks())
        for task, provider in self._placer.under_way():
            takes = self._placer.takes(self._services.of[task], provider)
            if takes is None:
                found.pop(task, None)
            else:
                found[task] = takes
        return found

    def peers(self) -> Sequence[AgentId] | None:
        """Those of the plan, and those that have something of ours; None for all."""
        if self._outset.current is None:
            return None
        used = dict.fromkeys(self._outset.peers(self._outset.used))
        return list(used | dict.fromkeys(peer for _, peer in self._placer.under_way()))

    def planned(self, forecast: Forecast) -> tuple[float, Mapping[str, int]]:
        plan = self._outset.current
        if plan is None:
            return self._placer.spent, {}
        return self._outset.planned_cost, plan.counts()

    # -- what could be done --------------------------------------------------------------------

    def candidates(self, situation: Situation, offer: Callable[[Sequence[Action]], None]) -> None:
        late = late_first(self._graph, situation)[:LATE_MAX]
        for service in dict.fromkeys(self._services.of[found[0].task] for found in late):
            self._broker.renew(service)
        self._when_bid(self._hands.now() + BIDS_WAIT_S, lambda: offer(self._actions(late)))

    def _when_bid(self, at_most: float, then: Callable[[], None]) -> None:
        if self._broker.asks() and self._hands.now() < at_most:
            self._hands.later(LOOK_S, lambda: self._when_bid(at_most, then))
        else:
            then()

    def _actions(self, late: Sequence[Sequence[Running]]) -> list[Action]:
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
        self, late: Sequence[Sequence[Running]], key: Callable[[Chosen], tuple[float, float]]
    ) -> list[tuple[Sequence[Running], Chosen]]:
        """Where each would be run again: the least by `key` of those that have room beside what
        the others were given, and that can be believed. What went wrong once already goes to the
        quickest."""
        given: Counter[AgentId] = Counter()
        found = []
        left = self.left
        for attempts in late:
            task, runs_at = attempts[0].task, [one.peer for one in attempts]
            options = [
                option
                for option in self._placer.anywhere(task)
                if option.has_room
                and option.provider not in runs_at
                and option.cost <= left
                and given[option.provider] < self._placer.places_at(task, option.provider)
            ]
            believed = [o for o in options if self._placer.slower(o.provider) < SUSPECT]
            if options:
                again = attempts[-1].attempt > 1
                best = min(believed or options, key=_soonest if again else key)
                given[best.provider] += 1
                left -= best.cost
                found.append((attempts, best))
        return found

    def _again(self, attempts: Sequence[Running], option: Chosen) -> Action:
        task = attempts[0].task
        change = Change(task, "duplicate", self._takes(task, option), delay_s=option.wait_s)
        runs_at, to = attempts[-1].peer, option.provider
        return Action("duplicate", (change,), task, runs_at, to, option.cost, peers=self._with(to))

    def _with(self, provider: AgentId) -> tuple[AgentId, ...] | None:
        """The peers that are used, and this one: there is no room in a forecast elsewhere."""
        used = self.peers()
        return None if used is None else tuple(dict.fromkeys((*used, provider)))

    def _swap(self, attempts: Sequence[Running], option: Chosen) -> Action | None:
        """Instead of its one attempt, if that is plainly late and breaking it off gives money back:
        else what was done of it would be lost."""
        task, runs_at = attempts[-1].task, attempts[-1].peer
        contract = self._money.signed((runs_at, self._hands.name(task), attempts[-1].attempt))
        back = 0.0 if contract is None else contract.bid.cancel_fee
        if len(attempts) > 1 or not back or not self._placer.is_overdue(task, runs_at):
            return None
        change = Change(task, "replace", self._takes(task, option), delay_s=option.wait_s)
        cost, to = max(0.0, option.cost - back), option.provider
        return Action("swap", (change,), task, runs_at, to, cost, peers=self._with(to))

    def _takes(self, task: int, option: Chosen) -> Takes | None:
        return self._placer.takes(self._services.of[task], option.provider)

    def _substitutes(self) -> list[Action]:
        """The next dearer plan for what has not started, and the quickest. What is known of the
        providers by now is in both: who lost trust is left out where that is worth it."""
        current = self._outset.current
        running = {task for task, _ in self._placer.under_way()}
        open_tasks = [task for task in self._hands.open_tasks() if task not in running]
        if not open_tasks or current is None:
            return []
        as_now = self._outset.again(current, open_tasks)
        cost_now = 0.0 if as_now is None else as_now.cost
        dearer = [
            made
            for made in self._outset.plans(open_tasks)
            if (as_now is None or made.seconds < as_now.seconds)
            and made.cost <= self._placer.spendable_in_all
        ]
        tried = dearer[:1] + dearer[1:][-1:]
        self._dearer = {f"{made.cost:g} {made.price_of_time:.6g}": made for made in tried}
        return [
            self._substitute(made, max(0.0, made.cost - cost_now), token, open_tasks)
            for token, made in self._dearer.items()
        ]

    def _substitute(
        self, made: Assignment, more: float, token: str, open_tasks: Sequence[int]
    ) -> Action:
        promised = self._outset.promises(made, open_tasks)
        changes = tuple(Change(task, "replace", takes) for task, takes in promised.items())
        peers = dict.fromkeys(self._outset.peers(made.providers))
        peers |= dict.fromkeys(peer for _, peer in self._placer.under_way())
        return Action("substitute", changes, -1, cost=more, token=token, peers=tuple(peers))

    # -- doing it ------------------------------------------------------------------------------

    def apply(self, action: Action, told: Callable[[Applied], None]) -> None:
        if action.how == "substitute":
            made = self._dearer.get(action.token)
            if made is not None:
                self._outset.adopt(made)
            told(Applied(made is not None, cost=action.cost))
            return
        task, provider = action.task, action.to_peer
        service = self._services.of[task]
        offered = self._broker.offer(service, provider)
        bid = None if offered is None else offered.bid
        if bid is None or not self._money.needs_contract(provider, bid):
            self._start(action, 0.0, told)
            return
        attempted = (provider, self._hands.name(task), self._hands.next_attempt(task))

        def agreed(why: str) -> None:
            if why:
                told(Applied(False, why=why))
                return
            self._start(action, bid.cost, told)
            if self._placer.running_since(task, provider) is None:
                self._money.settle(attempted, "unused", "it was not needed")

        within = bid.cost <= self.left
        if not within or not self._money.agree(service, attempted, bid, agreed):
            told(Applied(False, why=f"{bid.cost:g} is more than is left of the budget"))

    def _start(self, action: Action, cost: float, told: Callable[[Applied], None]) -> None:
        before = self._hands.next_attempt(action.task) - 1
        attempt = self._hands.duplicate(action.task, action.to_peer)
        if attempt:
            self._placer.started_also(action.task, action.to_peer)
            if action.how == "swap":
                self._hands.withdraw(action.task, before)
        told(Applied(bool(attempt), attempt, cost, "" if attempt else "it was over by then"))


def _soonest(option: Chosen) -> tuple[float, float]:
    return option.took_s, option.cost
