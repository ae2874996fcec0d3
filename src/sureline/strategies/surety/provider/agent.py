"""The provider's side of the seven calls: the agent at NODE/market of a peer.

It bids from what it has learned of its own machine, promises no place twice, and lets the machine
run an attempt only as agreed:

    deal      SETUP -> SETPARAM -> ESTIMATE (as often as wanted, with or without a wish)
    contract  made by INVOKE -> bound by a Bind that names it -> over
                     |  reserved: a place is held; a second INVOKE names the attempt
                     `-> lapsed, if no Bind comes in time

- A contract is for one attempt (run, task, attempt) of one client, with the needs of its deal, and
  is good for one Bind. On a machine with a price, a Bind without one is refused. A free machine
  makes contracts too, and takes Binds without.
- Time counts from the Bind: `late` is when the result is to be there, whatever happens here.
- A bid stands until it expires. INVOKE names a bid as it was offered; anything else is declined.
- Asked to renegotiate it grants what `pricing.answer_to` allows, else holds; a full one withdraws.
- Contracts and deals are in memory: a provider that starts again has broken its contracts, and
  says so (an unknown contract). What it learned of durations is on disk.

Clients are known by the name in their certificate, so that a process that takes a run over from
another one of the same home finds its deals. Everything may come twice; it is answered alike.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from sureline.peer.admitting import Admitting, Key, Look, Machine
from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Bind
from sureline.strategies.surety.contract import Bid
from sureline.strategies.surety.invocation import (
    Declined,
    EstimateCall,
    Examine,
    Examined,
    Extract,
    Extracted,
    Invoke,
    Invoked,
    Offered,
    Parameters,
    ProviderCall,
    Ready,
    SetParam,
    Setup,
    Terminate,
    Terminated,
)
from sureline.strategies.surety.pricing import (
    Ending,
    Tariff,
    answer_to,
    bid_for,
    is_sensible,
)
from sureline.strategies.surety.provider.experience import Experience
from sureline.strategies.surety.provider.promises import DealKey, InvokedBy, Promise, Promises
from sureline.strategies.surety.provider.sense import is_within, makes_sense
from sureline.workflow.model import Takes, kind_of
from sureline.world.address import NO_AGENT, name_of, peer_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, World

PART = "market"
"""The provider of a node is its agent of this name."""
DEALS_MAX = 5000
OFFERS_MAX = 8
HAGGLES_MAX = 3
"""How often a client may wish for other terms in one deal before the bid is held for good."""
FULL_S = 3600.0
"""A provider that has no place for longer than this makes no bid."""
NAME_MAX = 500
ARRIVING_BYTES_S = 20e6
"""How fast inputs are assumed to come while nothing has been observed."""


class _Deal(msgspec.Struct):
    key: DealKey
    service: str
    parameters: Parameters | None = None
    offers: list[Bid] = []
    """Those that stand, the latest last."""
    haggled: int = 0


class Provider(Agent, Admitting):
    """Deals in what a machine does."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        machine: Machine,
        tariff: Tariff | None = None,
        speed: float = 1.0,
    ) -> None:
        super().__init__(me, world)
        self.name = name_of(me)
        self.tariff = tariff or Tariff()
        self._machine = machine
        self._promises = Promises(machine.capacity, world)
        self._places = self._promises.places
        self._experience = Experience(world, speed)
        self._deals: dict[DealKey, _Deal] = {}
        """The one heard of last at the end."""
        self._guests: dict[Key, int] = {}
        """The places of attempts without a contract."""

    @property
    def earned(self) -> float:
        """What contracts that are over have brought."""
        return self._promises.earned

    @property
    def agents(self) -> Sequence[Agent]:
        return (self,)

    def advertised(self) -> Mapping[str, float | str]:
        price = self.tariff.per_core_hour
        return {"price": price} if price else {}

    def start(self) -> None:
        """Take up what earlier processes learned."""
        self._experience.load()

    # -- the dealing -----------------------------------------------------------------------------

    @handles(Setup)
    def on_setup(self, sender: AgentId, message: Setup) -> None:
        if not message.service or len(message.service) > NAME_MAX or len(message.run) > NAME_MAX:
            self._decline(sender, message, "cannot make sense of it")
        elif self._machine.leaving:
            self._decline(sender, message, "is leaving")
        else:
            key = _deal_key(sender, message)
            known = self._deals.pop(key, None)
            if known is None or known.service != message.service:
                known = _Deal(key, message.service)
            self._deals[key] = known
            while len(self._deals) > DEALS_MAX:
                del self._deals[next(iter(self._deals))]
            self.world.send(sender, Ready(message.run, message.deal, message.serial))

    @handles(SetParam)
    def on_set_param(self, sender: AgentId, message: SetParam) -> None:
        deal = self._dealing(sender, message)
        if deal is None:
            return
        if not makes_sense(message.parameters):
            self._decline(sender, message, "cannot make sense of it")
        elif not self._places.is_large_enough(message.parameters.needs):
            self._decline(sender, message, "is too small for it")
        else:
            if deal.parameters != message.parameters:
                deal.parameters = message.parameters
                deal.offers = []
            self.world.send(sender, Ready(message.run, message.deal, message.serial))

    @handles(EstimateCall)
    def on_estimate(self, sender: AgentId, message: EstimateCall) -> None:
        deal = self._dealing(sender, message)
        if deal is None:
            return
        if deal.parameters is None:
            self._decline(sender, message, "has not heard what it is like; SETPARAM comes first")
            return
        now = self.world.now()
        self._promises.lapse(now)
        if self._machine.leaving or not self._promises.room:
            self._decline(sender, message, "takes nothing more on")
        elif message.wish is None:
            self._offer(sender, message, deal, deal.parameters, now)
        else:
            self._renegotiate(sender, message, deal, deal.parameters, message.wish, now)

    def _offer(
        self,
        sender: AgentId,
        message: ProviderCall,
        deal: _Deal,
        parameters: Parameters,
        now: float,
    ) -> None:
        wait_s = self._places.wait_s(parameters.needs, now)
        if wait_s > FULL_S:
            self._decline(sender, message, "is full for more than an hour")
            return
        bid = self._bid(deal, parameters, now)
        self._stand_by(deal, bid, now)
        self._send_offer(sender, message, bid, parameters, held=False)

    def _bid(self, deal: _Deal, parameters: Parameters, now: float) -> Bid:
        takes = self._expects(deal.key[0], deal.service, parameters)
        return bid_for(deal.service, self.name, parameters.needs, takes, self.tariff, now)

    def _expects(self, client: str, service: str, parameters: Parameters) -> Takes:
        """How long one execution will take here, from its Bind to its end."""
        takes = self._experience.expects(client, service, parameters.takes)
        if self._experience.knows(client, service):
            return takes
        arriving_s = parameters.input_bytes / ARRIVING_BYTES_S
        return Takes(
            takes.optimistic_s, takes.likely_s + arriving_s, takes.pessimistic_s + 2 * arriving_s
        )

    def _renegotiate(
        self,
        sender: AgentId,
        message: ProviderCall,
        deal: _Deal,
        parameters: Parameters,
        wish: Bid,
        now: float,
    ) -> None:
        self._forget_expired(deal, now)
        if not is_sensible(wish):
            self._decline(sender, message, "cannot make sense of it")
            return
        if not self._places.fits(parameters.needs):
            deal.offers = []
            self._decline(sender, message, "is full now and withdraws its bid")
            return
        if not deal.offers:
            self._stand_by(deal, self._bid(deal, parameters, now), now)
        own = deal.offers[-1]
        deal.haggled += 1
        granted = own
        if deal.haggled <= HAGGLES_MAX:
            granted = answer_to(wish, own, self.tariff, self._places.load)
        if granted != own:
            self._stand_by(deal, granted, now)
        self._send_offer(sender, message, granted, parameters, held=granted == own)

    def _send_offer(
        self,
        sender: AgentId,
        message: ProviderCall,
        bid: Bid,
        parameters: Parameters,
        *,
        held: bool,
    ) -> None:
        needs = parameters.needs
        slots = min(self._places.count(needs), self._promises.room)
        wait_s = self._places.wait_s(needs, self.world.now())
        self.world.send(
            sender,
            Offered(message.run, message.deal, message.serial, bid, slots, wait_s, held),
        )

    def _stand_by(self, deal: _Deal, bid: Bid, now: float) -> None:
        self._forget_expired(deal, now)
        deal.offers = [*(one for one in deal.offers if one != bid), bid][-OFFERS_MAX:]

    def _forget_expired(self, deal: _Deal, now: float) -> None:
        deal.offers = [bid for bid in deal.offers if bid.expires is None or bid.expires > now]

    # -- contracts -------------------------------------------------------------------------------

    @handles(Invoke)
    def on_invoke(self, sender: AgentId, message: Invoke) -> None:
        deal = self._dealing(sender, message)
        if deal is None:
            return
        now = self.world.now()
        self._promises.lapse(now)
        attempt = (message.run, message.task, message.attempt) if message.task else None
        promise = self._made_before(deal, message, attempt)
        if promise is None:
            reason = self._why_not(deal, message, attempt, now)
            if reason:
                self._decline(sender, message, reason)
                return
            promise = self._promise(deal, message, now)
        if attempt is not None and promise.attempt is None:
            self._promises.assign(promise, attempt, now)
        answer = (promise.contract.number, promise.contract.bid)
        self.world.send(sender, Invoked(message.run, message.deal, message.serial, *answer))

    def _made_before(self, deal: _Deal, message: Invoke, attempt: Key | None) -> Promise | None:
        """The contract that this INVOKE is about, if it is there: it was asked for before, or it
        is reserved and to be used now."""
        if attempt is None:
            made = self._promises.of_deal(deal.key)
            return next((p for p in made if p.serial == message.serial), None)
        found = self._promises.of_attempt(deal.key[0], attempt)
        if found is not None:
            return found
        reserved = self._promises.get(message.contract)
        usable = reserved is not None and reserved.deal == deal.key and reserved.attempt is None
        return reserved if usable else None

    def _why_not(self, deal: _Deal, message: Invoke, attempt: Key | None, now: float) -> str:
        """Why there is no contract to be had; '' if there is."""
        self._forget_expired(deal, now)
        if message.contract:
            return "knows of no such contract to be used"
        if self._machine.leaving or not self._promises.room:
            return "takes nothing more on"
        if deal.parameters is None or message.bid not in deal.offers:
            return "does not bid that (any more); ask for an estimate"
        if attempt is None and not self.tariff.reserve_share:
            return "holds no places; it asks no fee for that"
        if attempt is not None and not (len(message.task) <= NAME_MAX and message.attempt > 0):
            return "cannot make sense of it"
        if not self._places.fits(deal.parameters.needs):
            return "is full just now"
        return ""

    def _promise(self, deal: _Deal, message: Invoke, now: float) -> Promise:
        """A new contract. Its deal has parameters, and the bid stands."""
        assert deal.parameters is not None
        asked = InvokedBy(deal.key, message.serial, reserved=not message.task)
        parameters = deal.parameters
        return self._promises.make(asked, message.bid, parameters.needs, parameters.takes, now)

    @handles(Terminate)
    def on_terminate(self, sender: AgentId, message: Terminate) -> None:
        key = _deal_key(sender, message)
        numbers = [message.contract]
        if not message.contract:
            numbers = [promise.contract.number for promise in self._promises.of_deal(key)]
            self._deals.pop(key, None)
        refund = sum([self._terminated(number, key) for number in numbers])
        self.world.send(
            sender,
            Terminated(message.run, message.deal, message.serial, message.contract, refund),
        )

    def _terminated(self, number: str, deal: DealKey) -> float:
        """End a contract of this deal; what goes back. One that is over is told again."""
        promise = self._promises.get(number)
        if promise is None:
            closed = self._promises.closed(number)
            return 0.0 if closed is None else closed.refunded
        if promise.deal != deal:
            return 0.0
        attempt = promise.attempt if promise.bound_at is not None else None
        began = attempt is not None and self._machine.look(attempt).state == "running"
        due = self._promises.close(promise, "cancelled" if began else "unused", self.world.now())
        if attempt is not None:
            self._machine.end(attempt)
        return due.refunded if began else promise.contract.bid.cost

    # -- the machine -----------------------------------------------------------------------------

    def objection(self, sender: AgentId, bind: Bind) -> str:
        self._promises.lapse(self.world.now())
        number = contract_of(bind)
        promise = self._promises.get(number)
        if promise is None:
            if not self.tariff.per_core_hour:
                return ""
            if not number:
                return f"{self.name} asks a price; agree on a contract first"
            return f"{self.name} knows of no contract {number[:40]} (any more)"
        if promise.client != peer_of(sender) or promise.attempt != _attempt_of(bind):
            return f"contract {number} is for something else"
        if not is_within(bind.needs, promise.needs):
            return f"{bind.task} needs more than its contract says"
        return ""

    def admitted(self, bind: Bind) -> None:
        now, promise = self.world.now(), self._promises.get(contract_of(bind))
        if promise is None:
            usually_s = self._experience.usually_s(self._writer(bind), kind_of(bind.task))
            self._guests[_attempt_of(bind)] = self._places.take(bind.needs, now + usually_s)
            return
        self._promises.bound(promise, now)

    def _writer(self, bind: Bind) -> str:
        """The client of an attempt without a contract."""
        return peer_of(self._machine.writer(bind.run) or NO_AGENT)

    def cost_of(self, bind: Bind) -> float:
        """What an attempt that is here pays."""
        promise = self._promises.get(contract_of(bind))
        return 0.0 if promise is None else promise.contract.bid.cost

    def over(self, bind: Bind, ended: JobEnded | None, *, began: bool) -> None:
        attempt, now = _attempt_of(bind), self.world.now()
        succeeded = ended is not None and ended.outcome == "succeeded"
        guest = self._guests.pop(attempt, None)
        if guest is not None:
            self._places.give_back(guest)
            if succeeded and ended is not None:
                self._experience.note(self._writer(bind), kind_of(bind.task), ended.elapsed_s)
            return
        promise = self._promises.get(contract_of(bind))
        if promise is None or promise.attempt != attempt or promise.bound_at is None:
            return  # it was terminated
        if succeeded:
            took_s = now - promise.bound_at
            service = promise.contract.bid.service
            self._experience.note(promise.client, service, took_s, promise.takes)
        ending = _ending(ended, began=began, leaving=self._machine.leaving)
        self._promises.close(promise, ending, now)

    @handles(Examine)
    def on_examine(self, sender: AgentId, message: Examine) -> None:
        look = self._look(sender, (message.run, message.task, message.attempt))
        self.world.send(
            sender,
            Examined(
                message.run,
                message.deal,
                message.serial,
                look.state,
                message.task,
                message.attempt,
                look.fraction,
                look.elapsed_s,
            ),
        )

    @handles(Extract)
    def on_extract(self, sender: AgentId, message: Extract) -> None:
        key = (message.run, message.task, message.attempt)
        look = self._look(sender, key)
        if look.state == "ended":
            self._machine.tell_again(key)
        self.world.send(sender, Extracted(message.run, message.deal, message.serial, look.state))

    def _look(self, sender: AgentId, key: Key) -> Look:
        """How far an attempt is; nobody hears of the runs of others."""
        writer = self._machine.writer(key[0])
        if writer is None or peer_of(writer) != peer_of(sender):
            return Look("unknown")
        return self._machine.look(key)

    # -- answering -------------------------------------------------------------------------------

    def _dealing(self, sender: AgentId, message: ProviderCall) -> _Deal | None:
        """The deal that a call is about; None, and it is declined, if there is none."""
        key = _deal_key(sender, message)
        deal = self._deals.pop(key, None)
        if deal is None:
            self._decline(sender, message, "knows of no such deal; SETUP comes first")
            return None
        self._deals[key] = deal
        return deal

    def _decline(self, sender: AgentId, message: ProviderCall, reason: str) -> None:
        answer = Declined(message.run, message.deal, message.serial, f"{self.name} {reason}")
        self.world.send(sender, answer)


def _deal_key(sender: AgentId, message: ProviderCall) -> DealKey:
    return (peer_of(sender), message.run, message.deal)


def contract_of(bind: Bind) -> str:
    """The number of the contract that a Bind claims; '' if it claims none."""
    return bind.claim.decode(errors="replace") if bind.strategy == "surety" else ""


def _attempt_of(bind: Bind) -> Key:
    return (bind.run, bind.task, bind.attempt)


def _ending(ended: JobEnded | None, *, began: bool, leaving: bool) -> Ending:
    if ended is None:
        return "unused"  # its inputs could not be had
    if ended.outcome == "lost" or (ended.outcome == "cancelled" and leaving):
        return "broken"
    if ended.outcome == "cancelled":
        return "cancelled" if began else "unused"
    return "done"
