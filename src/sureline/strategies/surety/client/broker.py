"""The scheduler's side of the seven calls: asks providers for bids, and makes contracts.

One *deal* is made for each service (tasks of one kind and needs) with each provider that is asked,
not for each task. Of many providers ASKED_MAX are asked per service: half of them the cheapest by
what they say of themselves, the others at even steps up to the dearest, because price is all that
is known of them before they have been asked. SETUP, SETPARAM and ESTIMATE go out together, a
bounded number in a second; what is not answered is said again a few times, then after a pause.

A bid that another one beats in both cost and time is answered once with the terms of the better
one. The provider may match it, hold its bid or withdraw: nothing is lost with it.

A contract (INVOKE) must be there in time, or the task goes elsewhere; an answer that comes later is
terminated at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
from blake3 import blake3

from sureline.peer.capacity import Capacity, Ledger
from sureline.strategies.surety.client.services import Services
from sureline.strategies.surety.contract import Bid
from sureline.strategies.surety.invocation import (
    Declined,
    EstimateCall,
    Invoke,
    Invoked,
    Offered,
    Parameters,
    ProviderAnswer,
    SetParam,
    Setup,
    Terminate,
)
from sureline.strategies.surety.pricing import is_sensible
from sureline.world.address import Node, PeerName, at
from sureline.world.protocol import World

MARKET = "market"
"""The part of a node that answers the seven calls."""
ASKED_MAX = 32
DEALS_MAX = 4096
ASKS_PER_TICK = 150
TICK_S = 1.0
ANSWER_S = 2.0
TRIES_MAX = 4
PAUSE_S = 60.0
"""Before a provider that declined, or never answered, is asked again."""
FRESH_S = 120.0
RENEW_AT_ONCE_S = 5.0
"""A bid younger than this is not asked for again, whatever happened."""
TELL_S = 0.02
"""Bids that come within this time are told of together."""
CONTRACT_S = 1.5
CONTRACT_TRIES = 2
NUMBER_MAX = 200
"""Characters in the number of a contract."""

OnContract = Callable[[str, Bid | None, str], None]
"""Hears the contract's number and terms; or ('', None, why there is none)."""


class _Provider(msgspec.Struct):
    name: PeerName
    node: Node
    capacity: Capacity
    price: float
    whole: Ledger


class Deal(msgspec.Struct):
    number: int
    service: int
    provider: PeerName
    offered: Offered | None = None
    at: float = -math.inf
    """When the bid came."""
    serial: int = 0
    """Of the last ESTIMATE; 0 when it has been answered."""
    tries: int = 0
    again_at: float = 0.0
    wished: bool = False


class _Agreeing(msgspec.Struct):
    deal: Deal
    bid: Bid
    task: str
    attempt: int
    on_done: OnContract
    tries: int = 0


class Broker:
    """Answers that come to the client's address are handed to `heard`. `on_bids` hears of the bids
    that have come, (service, bid), once for all within TELL_S."""

    def __init__(
        self,
        world: World,
        run: str,
        epoch: int,
        services: Services,
        on_bids: Callable[[Sequence[tuple[int, Offered]]], None],
    ) -> None:
        self._world = world
        self._run = run
        self._epoch = epoch
        self._services = services
        self._on_bids = on_bids
        self._providers: dict[PeerName, _Provider] = {}
        self._deals: dict[int, Deal] = {}
        self._by_service: dict[int, dict[PeerName, Deal]] = {}
        """The services that are dealt in, and with whom."""
        self._to_ask: deque[int] = deque()
        self._waiting: dict[int, None] = {}
        """Deals whose ESTIMATE is not answered."""
        self._agreeing: dict[int, _Agreeing] = {}
        self._serial = 0
        self._numbers = 0
        self._told = False
        self._fresh: list[tuple[int, Offered]] = []

    def start(self) -> None:
        self._world.after(TICK_S, self._tick)

    # -- who is there --------------------------------------------------------------------------

    def joined(self, name: PeerName, node: Node, capacity: Capacity, price: float) -> None:
        """Told again, it may have moved; a new price makes its old bids void."""
        known = self._providers.get(name)
        if known is not None and (known.capacity, known.price) == (capacity, price):
            known.node = node
            return
        self.left(name)
        self._providers[name] = _Provider(name, node, capacity, price, Ledger(capacity))
        for service, deals in self._by_service.items():
            if len(deals) < ASKED_MAX and self._fits(service, name):
                self._open(service, name)
        self._send_asks()

    def left(self, name: PeerName) -> None:
        self._providers.pop(name, None)
        for deals in self._by_service.values():
            deal = deals.pop(name, None)
            if deal is not None:
                self._drop(deal)
        for serial, agreeing in list(self._agreeing.items()):
            if agreeing.deal.provider == name:
                self._agreed(serial, "", None, f"{name} is gone")

    def price(self, provider: PeerName) -> float:
        known = self._providers.get(provider)
        return 0.0 if known is None else known.price

    # -- bids ----------------------------------------------------------------------------------

    def deal_in(self, service: int) -> None:
        """Bids for this service are wanted from now on."""
        if service not in self._by_service:
            self._by_service[service] = {}
            for name in self._to_be_asked(service):
                self._open(service, name)
            self._send_asks()

    def done_with(self, service: int) -> None:
        """No task of it is left: the deals are over."""
        for deal in self._by_service.pop(service, {}).values():
            provider = self._providers[deal.provider]
            self._drop(deal)
            if deal.offered is not None:
                self._serial += 1
                self._world.send(
                    at(provider.node, MARKET), Terminate(self._run, deal.number, self._serial)
                )

    def offers(self, service: int) -> list[Offered]:
        """Every bid that still holds, in the order in which the providers were first asked."""
        now = self._world.now()
        return [
            deal.offered
            for deal in self._by_service.get(service, {}).values()
            if deal.offered is not None and not _expired(deal.offered.bid, now)
        ]

    def offer(self, service: int, provider: PeerName) -> Offered | None:
        deal = self._by_service.get(service, {}).get(provider)
        if deal is None or deal.offered is None:
            return None
        return None if _expired(deal.offered.bid, self._world.now()) else deal.offered

    def asks(self) -> int:
        """How many bids are being waited for."""
        return len(self._waiting) + len(self._to_ask)

    def renew(self, service: int) -> None:
        """Ask for new bids, of all who are dealt with in it."""
        now = self._world.elapsed()
        for deal in self._by_service.get(service, {}).values():
            if not deal.serial and now - deal.at >= RENEW_AT_ONCE_S:
                self._to_ask.append(deal.number)
        self._send_asks()

    def _to_be_asked(self, service: int) -> list[PeerName]:
        fitting = [name for name in self._providers if self._fits(service, name)]
        fitting.sort(key=lambda name: (self._providers[name].price, _fraction(self._run, name)))
        if len(fitting) <= ASKED_MAX:
            return fitting
        half = ASKED_MAX // 2
        dearer = fitting[half:]
        last = len(dearer) - 1
        return fitting[:half] + [dearer[last * i // (half - 1)] for i in range(half)]

    def _fits(self, service: int, name: PeerName) -> bool:
        return self._providers[name].whole.fits(self._services.all[service].needs)

    def _open(self, service: int, name: PeerName) -> None:
        if len(self._deals) < DEALS_MAX:
            self._numbers += 1
            deal = self._deals[self._numbers] = Deal(self._numbers, service, name)
            self._by_service[service][name] = deal
            self._to_ask.append(deal.number)

    def _drop(self, deal: Deal) -> None:
        self._deals.pop(deal.number, None)
        self._waiting.pop(deal.number, None)

    def _send_asks(self) -> None:
        """As many as may go out now; the tick goes on with the rest."""
        while self._to_ask and len(self._waiting) < ASKS_PER_TICK:
            deal = self._deals.get(self._to_ask.popleft())
            if deal is not None and deal.number not in self._waiting:
                deal.tries = 0
                self._ask(deal)

    def _ask(self, deal: Deal, wish: Bid | None = None) -> None:
        """The three calls at once: they arrive in order, and each may be said again."""
        market = at(self._providers[deal.provider].node, MARKET)
        service = self._services.all[deal.service]
        if wish is None:
            about = Parameters(
                service.needs, service.input_bytes, service.tasks, takes=service.takes
            )
            self._serial += 1
            self._world.send(
                market, Setup(self._run, deal.number, self._serial, service.kind, self._epoch)
            )
            self._serial += 1
            self._world.send(market, SetParam(self._run, deal.number, self._serial, about))
        self._serial += 1
        deal.serial = self._serial
        deal.tries += 1
        deal.again_at = self._world.elapsed() + ANSWER_S * deal.tries
        self._waiting[deal.number] = None
        self._world.send(market, EstimateCall(self._run, deal.number, self._serial, wish))

    def _tick(self) -> None:
        now = self._world.elapsed()
        for number in list(self._waiting):
            deal = self._deals[number]
            if now < deal.again_at:
                continue
            if deal.tries < TRIES_MAX:
                self._ask(deal)
            else:
                self._answered(deal, None)
        for deal in self._deals.values():
            if not deal.serial and now >= deal.again_at:
                deal.again_at = now + PAUSE_S  # asked when its turn comes
                self._to_ask.append(deal.number)
        self._send_asks()
        self._world.after(TICK_S, self._tick)

    def _answered(self, deal: Deal, offered: Offered | None) -> None:
        now = self._world.elapsed()
        self._waiting.pop(deal.number, None)
        deal.serial, deal.tries, deal.at, deal.offered = 0, 0, now, offered
        deal.again_at = now + (PAUSE_S if offered is None else FRESH_S)
        if offered is not None and offered.bid.expires is not None:
            expires_s = now + offered.bid.expires - self._world.now()
            deal.again_at = max(now + RENEW_AT_ONCE_S, min(deal.again_at, expires_s))
        if offered is not None:
            self._fresh.append((deal.service, offered))
        self._send_asks()
        if not self._told:
            self._told = True
            self._world.after(TELL_S, self._tell)

    def _tell(self) -> None:
        self._told = False
        fresh, self._fresh = self._fresh, []
        self._bargain()
        self._on_bids(fresh)

    def _bargain(self) -> None:
        """Ask those whose bid is beaten, once, for the terms of the best that beats it."""
        for deals in self._by_service.values():
            bids = [d.offered.bid for d in deals.values() if d.offered is not None]
            for deal in deals.values():
                if deal.offered is None or deal.wished or deal.serial:
                    continue
                mine = deal.offered.bid
                better = [b for b in bids if 0 < b.price < mine.price and mean_s(b) <= mean_s(mine)]
                if better:
                    deal.wished = True
                    best = min(better, key=lambda b: b.price)
                    self._ask(deal, msgspec.structs.replace(mine, cost=best.cost))

    # -- contracts -----------------------------------------------------------------------------

    def agree(
        self,
        service: int,
        provider: PeerName,
        task: str,
        attempt: int,
        bid: Bid,
        on_done: OnContract,
    ) -> None:
        """Make a contract for this attempt under this bid; `on_done` hears once, never at once."""
        deal = self._by_service.get(service, {}).get(provider)
        self._serial += 1
        serial = self._serial
        if deal is None:
            self._world.after(0.0, lambda: on_done("", None, f"{provider} is gone"))
            return
        self._agreeing[serial] = _Agreeing(deal, bid, task, attempt, on_done)
        self._invoke(serial)

    def end(self, service: int, provider: PeerName, contract: str) -> None:
        """A contract that is not (any more) of use."""
        deal = self._by_service.get(service, {}).get(provider)
        if deal is not None:
            self._terminate(deal, contract)

    def _terminate(self, deal: Deal, contract: str) -> None:
        provider = self._providers.get(deal.provider)
        if provider is not None:
            self._serial += 1
            self._world.send(
                at(provider.node, MARKET),
                Terminate(self._run, deal.number, self._serial, contract),
            )

    def _invoke(self, serial: int) -> None:
        agreeing = self._agreeing.get(serial)
        if agreeing is None:
            return
        provider = self._providers.get(agreeing.deal.provider)
        if provider is None or agreeing.tries >= CONTRACT_TRIES:
            self._agreed(serial, "", None, f"{agreeing.deal.provider} did not answer in time")
            return
        agreeing.tries += 1
        self._world.send(
            at(provider.node, MARKET),
            Invoke(
                self._run,
                agreeing.deal.number,
                serial,
                agreeing.bid,
                agreeing.task,
                agreeing.attempt,
            ),
        )
        self._world.after(CONTRACT_S, lambda: self._invoke(serial))

    def _agreed(self, serial: int, contract: str, bid: Bid | None, why: str) -> None:
        agreeing = self._agreeing.pop(serial)
        deal = agreeing.deal
        if bid is None and deal.number in self._deals and not deal.serial:
            self._to_ask.append(deal.number)  # what it bid does not hold
            self._send_asks()
        agreeing.on_done(contract, bid, why)

    # -- what providers say --------------------------------------------------------------------

    def heard(self, provider: PeerName, answer: ProviderAnswer) -> None:
        """An answer from a provider by this name."""
        if answer.run != self._run:
            return
        if answer.serial in self._agreeing:
            self._heard_of_contract(provider, answer)
            return
        deal = self._deals.get(answer.deal)
        if deal is None or deal.provider != provider:
            return
        if isinstance(answer, Invoked):
            self._terminate(deal, answer.contract)  # too late: the task went elsewhere
        elif deal.serial and answer.serial == deal.serial:
            if isinstance(answer, Offered):
                sane = _makes_sense(answer)
                self._answered(deal, _named(answer, provider) if sane else None)
            elif isinstance(answer, Declined):
                self._answered(deal, None)

    def _heard_of_contract(self, provider: PeerName, answer: ProviderAnswer) -> None:
        agreeing = self._agreeing[answer.serial]
        if agreeing.deal.provider != provider or agreeing.deal.number != answer.deal:
            return
        if isinstance(answer, Declined):
            self._agreed(answer.serial, "", None, answer.reason)
        elif isinstance(answer, Invoked):
            if 0 < len(answer.contract) <= NUMBER_MAX and _no_worse(answer.bid, agreeing.bid):
                self._agreed(answer.serial, answer.contract, agreeing.bid, "")
            else:
                self._terminate(agreeing.deal, answer.contract)
                self._agreed(answer.serial, "", None, f"{provider} changed the terms")


def mean_s(bid: Bid) -> float:
    """The expected duration under a bid, as PERT has it."""
    return (bid.early + 4 * bid.time + bid.late) / 6


def _expired(bid: Bid, now: float) -> bool:
    return bid.expires is not None and bid.expires <= now


def _no_worse(bid: Bid, agreed: Bid) -> bool:
    """Whether a contract's terms are those that were asked for, or better."""
    return is_sensible(bid) and bid.cost <= agreed.cost and bid.reserve_fee <= agreed.reserve_fee


def _makes_sense(offered: Offered) -> bool:
    return is_sensible(offered.bid) and 0 <= offered.wait_s < math.inf and offered.slots >= 0


def _named(offered: Offered, provider: PeerName) -> Offered:
    """Under the name that its sender proved to have, whatever it calls itself."""
    bid = msgspec.structs.replace(offered.bid, provider=provider)
    return msgspec.structs.replace(offered, bid=bid)


def _fraction(salt: str, name: PeerName) -> float:
    digest = blake3(f"{salt} {name}".encode()).digest(length=6)
    return int.from_bytes(digest, "big") / (1 << 48)
