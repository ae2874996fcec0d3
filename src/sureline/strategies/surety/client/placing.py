"""A ready task goes where its cost, and its time at a price, are least.

Of the providers that the plan uses, and all that are free, the score for a task is

    cost + price_of_time * (wait + duration - time saved by the inputs that it holds)

with cost and duration from its bid (corrected by how it kept its promises so far, `trust`), and the
wait as the bid says, or, where our own tasks fill it, until the first of them is expected to end.
If the best provider is full, the task waits for it only where that does the run no harm: it would
be done there no later than anywhere else, or all that hangs on it would be done in a part of the
time that is left until the deadline. Else it goes to the best that has room. So a forecast that
lets every task start as soon as one of the plan's machines has room is right.

A provider without a price, and one that was not asked for a bid, costs nothing; others need a
contract first. While it is being agreed on the task's place is booked, and if there is none in time
the task is decided on again, without that provider for a while. Money is only spent on a task as
long as enough is left for the cheapest way of all others.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple

from sureline.peer.capacity import Ledger
from sureline.run.estimates import BANDWIDTH_BYTES_S
from sureline.run.port import Bound, Engine, Target
from sureline.strategies.books import Books
from sureline.strategies.surety.client.broker import Broker, mean_s
from sureline.strategies.surety.client.money import Money
from sureline.strategies.surety.client.services import Services
from sureline.strategies.surety.client.trust import CAUGHT, ProviderTrust
from sureline.strategies.surety.client.underway import UnderWay
from sureline.strategies.surety.contract import Bid
from sureline.strategies.surety.invocation import Offered
from sureline.strategies.surety.planning.assignment import Market, TaskPrice
from sureline.workflow.model import Needs, Takes
from sureline.world.address import NO_NAME, PeerName
from sureline.world.protocol import World

AVOID_S = 30.0
"""For how long a task is not offered to a provider again that would not take it."""
DEFERRED_MAX = 32
"""Tasks of one service that are looked at and left waiting, in one pass."""
DECIDED_MAX = 256
"""Tasks that are looked at in one pass and not placed."""
UNKNOWN_S = 10.0
"""A duration of which nothing is known."""
DRIFT = 0.1
"""By how much bids may rise during the run: so much more than all others cost is kept back."""
UNASKED = NO_NAME
"""In plans: all free peers that were not asked for bids."""
MARGIN = 1.2
SLACK = 2.0
"""A provider is in time if what is left until the deadline is MARGIN times what is needed; a task
may wait for a cheaper one if it is SLACK times that."""
LATE_UNKNOWN = 2.0
"""Where nobody promised anything, an attempt is late after so many times what is expected."""


class Chosen(NamedTuple):
    provider: PeerName
    cost: float
    seconds: float
    wait_s: float
    bid: Bid | None
    """None where nobody bid: a free peer that was not asked."""
    has_room: bool

    @property
    def took_s(self) -> float:
        """Until it would be done."""
        return self.wait_s + self.seconds


class PlacingPlan(NamedTuple):
    """What a plan says to the placer."""

    price_of_time: float = 0.0
    """Money per second."""
    providers: frozenset[PeerName] | None = None
    """Those that ask a price and are used; None for all of them."""
    ranks_s: Sequence[float] = ()
    """Of each task: how long it, and what hangs on it, is expected to take."""
    deadline_at: float | None = None


class Placing:
    """`bind(task, provider)` has a task bound there; False if it could not be."""

    def __init__(
        self,
        engine: Engine,
        world: World,
        services: Services,
        broker: Broker,
        money: Money,
        trust: ProviderTrust,
        bind: Callable[[int, PeerName], bool],
    ) -> None:
        self._engine = engine
        self._world = world
        self._services = services
        self._broker = broker
        self._money = money
        self._trust = trust
        self._bind = bind
        self._books = Books(engine.run)
        self._free = Books(engine.run)
        """The same of the peers that ask no price: the best of very many is found at once."""
        self._whole: dict[PeerName, Ledger] = {}
        self._fitting_free: dict[Needs, int] = {}
        """How many free peers are large enough, for the needs of each service."""
        self._queues: dict[int, list[tuple[float, int]]] = {}
        self._under_way = UnderWay(services.of)
        self._ours_then: dict[tuple[int, PeerName], tuple[Offered, int]] = {}
        """How many of our tasks a provider had when it made an offer."""
        self._agreed: deque[tuple[int, PeerName]] = deque()
        self._agreeing: dict[int, PeerName] = {}
        self._avoid: dict[int, dict[PeerName, float]] = {}
        self._open_tasks = [service.tasks for service in services.all]
        self._least = [0.0] * len(services)
        """What one task of a service costs at least."""
        self._reserve = 0.0
        """What all open tasks cost at least."""
        self._is_stale = False
        """Whether `_least` and `_reserve` have to be found anew."""
        self._changed = False
        self._plan = PlacingPlan()
        for service in services.all:
            self._fitting_free.setdefault(service.needs, 0)

    # -- what happens --------------------------------------------------------------------------

    def target(self, target: Target) -> None:
        name, capacity = target.name, target.capacity
        self._books.join(name, capacity)
        whole = self._whole[name] = Ledger(capacity)
        if not target.price:
            self._free.join(name, capacity)
            self._count_free(whole, +1)
        self._is_stale = self._changed = True

    def gone(self, name: PeerName) -> None:
        whole = self._whole.pop(name)
        if name in self._free:
            self._count_free(whole, -1)
        self._books.leave(name)
        self._free.leave(name)
        self._is_stale = self._changed = True

    def _count_free(self, whole: Ledger, change: int) -> None:
        for needs in self._fitting_free:
            if whole.fits(needs):
                self._fitting_free[needs] += change

    def load(self, name: PeerName, cores: float) -> None:
        self._books.report(name, cores)
        self._free.report(name, cores)

    def ready(self, task: int) -> None:
        service = self._services.of[task]
        heapq.heappush(self._queues.setdefault(service, []), (-self._engine.urgency(task), task))
        self._broker.deal_in(service)
        self._changed = True

    def bound(self, bound: Bound) -> None:
        service = self._services.of[bound.task]
        self._hold(bound.task, bound.target, self.expected(service, bound.target))

    def over(self, bound: Bound) -> None:
        self._let_go(bound.task, bound.target)

    def spare(self, needs: Needs, but: Sequence[PeerName]) -> PeerName | None:
        """A free one: what costs money is chosen by the repairer."""
        return self._free.best_but(needs, but)

    def decide(self) -> None:
        while self._agreed:
            task, provider = self._agreed.popleft()
            self._let_go(task, provider)  # what is bound holds its place itself
            self._bind(task, provider)
        if self._changed:
            self._changed = False
            self._decide()

    # -- what the client tells -----------------------------------------------------------------

    def follow(self, plan: PlacingPlan) -> None:
        self._plan = plan
        self._changed = True

    def look_again(self) -> None:
        """Time has passed: what was worth waiting for may not be any more."""
        self._changed = True
        if self._under_way.most_overdue(self._world.elapsed()) >= CAUGHT:
            self._trust.caught()

    def bids_came(self, bids: Sequence[tuple[int, Offered]]) -> None:
        self._is_stale = self._changed = True
        for service, offered in bids:
            self._since_offer(service, offered)

    def _refresh(self) -> None:
        """Find out again what everything costs at least, if that may have changed."""
        if self._is_stale:
            self._is_stale = False
            self._least = [self._cheapest(number) for number in range(len(self._services))]
            self._reserve = sum(
                least * count for least, count in zip(self._least, self._open_tasks, strict=True)
            )

    def done(self, task: int) -> None:
        """It has a result."""
        self._count(task, -1)
        self._avoid.pop(task, None)

    def undone(self, task: int) -> None:
        """Its result is gone."""
        self._count(task, +1)

    def _count(self, task: int, change: int) -> None:
        self._refresh()
        service = self._services.of[task]
        self._open_tasks[service] += change
        self._reserve += change * self._least[service]
        if not self._open_tasks[service]:
            self._broker.done_with(service)

    def spendable(self, task: int = -1) -> float:
        """What may be spent, on this task or beyond what all need, so that enough is left for the
        cheapest way of all others."""
        self._refresh()
        mine = self._least[self._services.of[task]] if task >= 0 else 0.0
        others = max(0.0, self._reserve - self._on_order() - mine)
        left = self._money.left
        if task >= 0 and others + mine <= left * (1 + DRIFT):
            return max(min(left, mine), left - others * (1 + DRIFT))  # the cheapest way, at least
        return left - others * (1 + DRIFT)

    def _on_order(self) -> float:
        """What is counted as still needed, but is bound by contracts already."""
        return sum([self._least[s] * count for s, count in self._under_way.of_service.items()])

    # -- what a plan is made on ----------------------------------------------------------------

    @property
    def spent(self) -> float:
        """What was paid, or is bound by contracts."""
        return self._money.ledger.spent + self._money.ledger.committed

    @property
    def spendable_in_all(self) -> float:
        """What all open tasks together may cost."""
        return self._money.left

    @property
    def needed(self) -> float:
        """What all open tasks cost at least."""
        self._refresh()
        return self._reserve

    @property
    def is_agreeing(self) -> bool:
        return bool(self._agreeing or self._agreed)

    def is_agreed(self, task: int, provider: PeerName) -> bool:
        """Whether a contract was made for it there, and it is about to be bound."""
        return (task, provider) in self._agreed

    def is_open(self, service: int) -> bool:
        return self._open_tasks[service] > 0

    def least_cost(self, task: int) -> float | None:
        """What the task costs at least; None if nobody offers to do it."""
        self._refresh()
        service = self._services.of[task]
        offers = self._broker.offers(service)
        return self._least[service] if offers else None

    def market(self) -> Market:
        """Who offers what; free peers that were not asked for bids are one provider, ''."""
        offers = [self._broker.offers(number) for number in range(len(self._services))]
        asked = {offered.bid.provider for found in offers for offered in found}
        lanes = {name: self._lanes(name) for name in self._whole if name in asked}
        lanes[UNASKED] = sum(self._lanes(name) for name in self._unasked(asked))
        terms = [self._terms(number, found, lanes) for number, found in enumerate(offers)]
        return Market(terms, lanes, [service.needs.cores for service in self._services.all])

    def _terms(
        self, service: int, offers: Sequence[Offered], lanes: Mapping[PeerName, int]
    ) -> list[TaskPrice]:
        found = [
            TaskPrice(o.bid.provider, o.bid.cost, self.expected(service, o.bid.provider))
            for o in offers
            if o.bid.provider in lanes
        ]
        if lanes[UNASKED]:
            found.append(TaskPrice(UNASKED, 0.0, self.usual_s(service)))
        return found

    def _unasked(self, asked: Collection[PeerName]) -> list[PeerName]:
        return [name for name in self._whole if name in self._free and name not in asked]

    def peers_of(self, used: Collection[PeerName]) -> list[PeerName]:
        """These providers, and all that are free."""
        return [name for name in self._whole if name in used or name in self._free]

    def takes(self, service: int, provider: PeerName) -> Takes | None:
        """What the provider promises of a task, corrected by how it kept its promises, and by how
        late what it has now is; None if it promised nothing."""
        offered = self._broker.offer(service, provider)
        if offered is None:
            return None
        factor, bid = self.slower(provider), offered.bid
        return Takes(bid.early * factor, bid.time * factor, bid.late * factor)

    def promised(self, service: int, provider: PeerName) -> float:
        """How long it takes there, by the provider's word alone."""
        offered = self._broker.offer(service, provider)
        return self.usual_s(service) if offered is None else mean_s(offered.bid)

    def is_overdue(self, task: int, peer: PeerName) -> bool:
        """Whether it has been there for longer than it should ever take."""
        return self._under_way.is_overdue(task, peer, self._world.elapsed())

    def ours_at(self, provider: PeerName) -> int:
        """How many of our attempts it has."""
        return self._under_way.count(provider)

    def places_at(self, task: int, provider: PeerName) -> int:
        """For how many more tasks like this one the provider can be believed to have room."""
        width = max(1, math.ceil(self._services.all[self._services.of[task]].needs.cores))
        return self._lanes(provider) // width - self.ours_at(provider)

    def _lanes(self, provider: PeerName) -> int:
        return self._trust.lanes(provider, _lanes(self._whole[provider]))

    def under_way(self) -> list[tuple[int, PeerName]]:
        """(task, peer) of every attempt that was placed and is not over."""
        return self._under_way.all()

    def running_since(self, task: int, peer: PeerName) -> float | None:
        """When the task was given to the peer, if it is there."""
        return self._under_way.since(task, peer)

    # -- choosing ------------------------------------------------------------------------------

    def expected(self, service: int, provider: PeerName) -> float:
        """How long a task of the service takes there."""
        return self.promised(service, provider) * self.slower(provider)

    def slower(self, provider: PeerName) -> float:
        """How many times longer than it says everything is expected to take there."""
        overdue = self._under_way.overdue(provider, self._world.elapsed())
        return self._trust.factor(provider) * overdue

    def usual_s(self, service: int) -> float:
        """How long it takes wherever."""
        offers = self._broker.offers(service)
        if offers:
            means = sorted(mean_s(offered.bid) for offered in offers)
            return means[len(means) // 2]
        takes = self._services.all[service].takes
        if takes is None:
            return UNKNOWN_S
        return (takes.optimistic_s + 4 * takes.likely_s + takes.pessimistic_s) / 6

    def options(self, task: int, backlog: Mapping[PeerName, int] | None = None) -> list[Chosen]:
        """All that the task could be given to, the best first; those too that have no room now.
        Nobody beyond the plan, unless the plan has nobody for it."""
        found = self.anywhere(task, backlog)
        used = self._plan.providers
        if used is None:
            return found
        planned = [o for o in found if o.provider in used or o.provider in self._free]
        return planned or found

    def anywhere(self, task: int, backlog: Mapping[PeerName, int] | None = None) -> list[Chosen]:
        """As `options`, whatever the plan says."""
        service = self._services.of[task]
        needs = self._services.all[service].needs
        now, may_spend = self._world.elapsed(), self.spendable(task)
        avoid, unfit = self._avoid.get(task, {}), self._engine.unfit(task)
        found = []
        for offered in self._broker.offers(service):
            provider = offered.bid.provider
            whole = self._whole.get(provider)
            if whole is None or not whole.fits(needs) or avoid.get(provider, 0.0) > now:
                continue
            if provider in unfit:
                continue
            if offered.bid.cost > may_spend:
                continue
            seconds = self.expected(service, provider)
            fits = self._books.fits_on(provider, needs) is not None
            has_room = (
                fits
                and self._since_offer(service, offered) < offered.slots
                and self.places_at(task, provider) > 0
            )
            wait_s = offered.wait_s if has_room else self._wait_s(provider, seconds, backlog, now)
            found.append(Chosen(provider, offered.bid.cost, seconds, wait_s, offered.bid, has_room))
        free = self._free.best(needs, unfit)
        asked = {option.provider for option in found}
        if free is not None and free[0] not in asked and avoid.get(free[0], 0.0) <= now:
            seconds = self.expected(service, free[0])
            found.append(Chosen(free[0], 0.0, seconds, 0.0, None, True))
        saved_s = self._saved_s(task)
        found.sort(key=lambda c: self._score(c, saved_s.get(c.provider, 0.0)))
        return found

    def _since_offer(self, service: int, offered: Offered) -> int:
        """How many more of our tasks are there than when it told its free places."""
        provider = offered.bid.provider
        ours = self._under_way.count(provider)
        before = self._ours_then.get((service, provider))
        if before is None or before[0] is not offered:
            before = self._ours_then[service, provider] = (offered, ours)
        return ours - before[1]

    def _score(self, option: Chosen, saved_s: float) -> tuple[float, bool, float]:
        took_s = option.wait_s + option.seconds - saved_s
        return option.cost + self._plan.price_of_time * took_s, not option.has_room, took_s

    def _saved_s(self, task: int) -> dict[PeerName, float]:
        held = self._engine.held(task)
        return {peer: held_bytes / BANDWIDTH_BYTES_S for peer, held_bytes in held.items()}

    def _wait_s(
        self,
        provider: PeerName,
        seconds: float,
        backlog: Mapping[PeerName, int] | None,
        now: float,
    ) -> float:
        """Until a place is free there, after those that wait for it already."""
        before = (backlog or {}).get(provider, 0)
        left = self._under_way.left_s(provider, now)
        if not left:
            return seconds * (1 + before)  # others fill it, or it takes nothing
        rounds, place = divmod(before, len(left))
        return left[place] + rounds * seconds

    def _decide(self) -> None:
        backlog: dict[PeerName, int] = {}
        heads = [
            (*queue[0], service)
            for service, queue in self._queues.items()
            if queue and self._has_room(service)
        ]
        heapq.heapify(heads)
        waiting: list[tuple[float, int, int]] = []
        deferred = dict.fromkeys(self._queues, 0)
        while heads and len(waiting) < DECIDED_MAX:
            urgency, task, service = heapq.heappop(heads)
            queue = self._queues[service]
            heapq.heappop(queue)
            if not self._decide_one(task, service, backlog):
                waiting.append((urgency, task, service))
                deferred[service] += 1
            if queue and deferred[service] < DEFERRED_MAX:
                heapq.heappush(heads, (*queue[0], service))
        for urgency, task, service in waiting:
            heapq.heappush(self._queues[service], (urgency, task))

    def _has_room(self, service: int) -> bool:
        """Whether a task of it could be placed anywhere now: most often, when many wait, not."""
        needs = self._services.all[service].needs
        if self._free.best(needs) is not None:
            return True
        offers, used = self._broker.offers(service), self._plan.providers
        planned = [o for o in offers if used is None or o.bid.provider in used]
        return any(
            self._books.fits_on(o.bid.provider, needs) is not None
            and self._since_offer(service, o) < o.slots
            for o in planned or offers
        )

    def _decide_one(self, task: int, service: int, backlog: dict[PeerName, int]) -> bool:
        """Whether it is dealt with, or not wanted; else it waits."""
        if not self._engine.wanted(task):
            return True
        options = self.options(task, backlog)
        if not options:
            return False
        best = self._without_harm(task, options)
        if not best.has_room:
            backlog[best.provider] = backlog.get(best.provider, 0) + 1
            return False
        if not self._money.needs_contract(best.provider, best.bid):
            self._bind(task, best.provider)
            return True
        assert best.bid is not None, "who asks a price was asked for a bid"
        return self._contract(task, service, best)

    def _without_harm(self, task: int, options: Sequence[Chosen]) -> Chosen:
        """The best that is in time, if it has room or is worth waiting for; else the best of those
        with room. If none is surely in time, the quickest, as long as that may be."""
        timely = [option for option in options if self._is_timely(task, option, MARGIN)]
        if not timely:
            quickest = min(options, key=lambda option: option.took_s)
            timely = [quickest] if self._is_timely(task, quickest, 1.0) else list(options)
        best = timely[0]
        now = next((option for option in timely if option.has_room), best)
        if now is best or best.took_s <= now.took_s or self._is_timely(task, best, SLACK):
            return best
        return now

    def _is_timely(self, task: int, option: Chosen, times: float) -> bool:
        """Whether all that hangs on the task would be done by the deadline, given to this one, if
        everything took so many times longer than expected."""
        plan = self._plan
        if plan.deadline_at is None or not plan.ranks_s:
            return times < SLACK  # whoever is in no hurry is in time, and does not idle
        after_s = plan.ranks_s[task] - self.usual_s(self._services.of[task])
        needs_s = option.took_s + max(0.0, after_s)
        return times * needs_s <= plan.deadline_at - self._world.now()

    def _contract(self, task: int, service: int, option: Chosen) -> bool:
        provider, bid = option.provider, option.bid
        assert bid is not None, "a contract is about a bid"

        def agreed(why: str) -> None:
            del self._agreeing[task]
            if provider not in self._whole:
                why = why or f"{provider} is gone"
            if why:
                self._avoid.setdefault(task, {})[provider] = self._world.elapsed() + AVOID_S
                self._let_go(task, provider)
                self.ready(task)
            else:
                self._agreed.append((task, provider))
            self._engine.wake()

        name = self._engine.graph.tasks[task].name
        attempted = (provider, name, self._engine.next_attempt(task))
        if not self._money.agree(service, attempted, bid, agreed):
            return False
        self._agreeing[task] = provider
        self._hold(task, provider, option.seconds)
        return True

    # -- books ---------------------------------------------------------------------------------

    def _cheapest(self, service: int) -> float:
        if self._fitting_free[self._services.all[service].needs]:
            return 0.0
        return min((o.bid.cost for o in self._broker.offers(service)), default=0.0)

    def _hold(self, task: int, peer: PeerName, seconds: float) -> None:
        """A task's place there is taken, and it will be busy for so long."""
        service = self._services.of[task]
        needs = self._services.all[service].needs
        self._books.take(peer, needs)
        if peer in self._free:
            self._free.take(peer, needs)
        takes = self.takes(service, peer)
        late_s = LATE_UNKNOWN * seconds if takes is None else takes.pessimistic_s
        self._under_way.begin(task, peer, self._world.elapsed(), seconds, late_s)

    def _let_go(self, task: int, peer: PeerName) -> None:
        needs = self._services.all[self._services.of[task]].needs
        self._under_way.end(task, peer)
        self._books.give_back(peer, needs)
        self._free.give_back(peer, needs)
        self._changed = True


def _lanes(whole: Ledger) -> int:
    """How many tasks of one core fit at once."""
    return max(1, whole.millicores // 1000)
