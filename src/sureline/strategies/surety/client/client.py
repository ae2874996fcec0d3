"""The half of `surety` beside a run's writer: deals with providers, spends money, keeps the budget.

- Before the run begins the providers are asked for bids, BIDS_WAIT_S at most, and a plan is made:
  which of them are used (`outset`). Nobody waits longer: what bids later counts from then on.
- A ready task goes where its cost, and its time at a price, are least (`placing`). An attempt on a
  provider that asks a price is bound under a contract, which its Bind claims, and the contract is
  settled when the attempt is over, however it ended (`money`).
- What is later than promised is asked after (`examining`); how promises were kept counts (`trust`).
- What was agreed and paid is noted in the journal, so that the next process goes on with the same
  book.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from sureline.peer.messages import Refused
from sureline.run.port import Action, Bound, Deciding, Engine, Noted, Over, Seat, Target, Unknown
from sureline.run.repair import Repairer
from sureline.run.states import State
from sureline.strategies.surety.client.broker import Broker
from sureline.strategies.surety.client.examining import Examiner, Late
from sureline.strategies.surety.client.money import Money
from sureline.strategies.surety.client.outset import Outset
from sureline.strategies.surety.client.placing import Placing
from sureline.strategies.surety.client.repairer import MoneyRepairer
from sureline.strategies.surety.client.services import Services, took_before
from sureline.strategies.surety.client.trust import ProviderTrust
from sureline.strategies.surety.invocation import (
    Declined,
    Examined,
    Invoked,
    Offered,
    ProviderAnswer,
)
from sureline.strategies.surety.pricing import Ending
from sureline.workflow.model import Needs
from sureline.world.address import PeerName, name_of, node_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId

BIDS_WAIT_S = 3.0
LOOK_S = 0.1
TICK_S = 1.0


class Mailbox(Agent):
    """Where providers' answers come to."""

    def __init__(self, seat: Seat, client: Client) -> None:
        super().__init__(seat.me, seat.world)
        self._client = client

    @handles(Offered)
    def on_offered(self, sender: AgentId, message: Offered) -> None:
        self._client.answered(sender, message)

    @handles(Declined)
    def on_declined(self, sender: AgentId, message: Declined) -> None:
        self._client.answered(sender, message)

    @handles(Invoked)
    def on_invoked(self, sender: AgentId, message: Invoked) -> None:
        self._client.answered(sender, message)

    @handles(Examined)
    def on_examined(self, sender: AgentId, message: Examined) -> None:
        self._client.examined(sender, message)


class Client(Deciding):
    def __init__(self, seat: Seat) -> None:
        self._seat = seat
        self._world = seat.world
        self._mailbox = Mailbox(seat, self)
        self._begun = False
        self._begin_by = 0.0
        self._told_poor = False
        self._is_over = False

    @property
    def agent(self) -> Agent:
        return self._mailbox

    # -- beginning -----------------------------------------------------------------------------

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        graph, world = engine.graph, self._world
        self._engine = engine
        self._services = Services(graph, took_before(self._seat.history()))
        self._trust = ProviderTrust()
        self._broker = Broker(world, engine.run, engine.epoch, self._services, self._bids_came)
        self._money = Money(
            engine, world, self._broker, past, lambda name: self._services.of[graph.index[name]]
        )
        self.placing = Placing(
            engine, world, self._services, self._broker, self._money, self._trust, self._bind
        )
        self._outset = Outset(
            world, graph, self._services, self.placing, engine.terms, engine.following
        )
        self._examiner = Examiner(world, engine.run)
        self._broker.start()
        for service in range(len(self._services)):
            self._broker.deal_in(service)
        world.after(TICK_S, self._tick)
        self._begin_by = world.elapsed() + BIDS_WAIT_S
        # The targets are told of after this: look for them a moment later.
        world.after(0.0, lambda: engine.when_attached(BIDS_WAIT_S, lambda: self._plan(go)))

    def _plan(self, go: Action) -> None:
        """Once the bids are there, or have been waited for long enough."""
        if self._begun or self._is_over:
            return
        if self._broker.asks() and self._world.elapsed() < self._begin_by:
            self._world.after(LOOK_S, lambda: self._plan(go))
            return
        self._begun = True
        following = self._engine.following
        progress = None if following is None else following.snapshot(self._world.now())
        self._outset.plan(self._engine.open_tasks(), progress, lambda: self._planned(go))

    def _planned(self, go: Action) -> None:
        if not (self._outset.refused and self._engine.refuse(self._outset.refused)):
            go()

    def repairer(self) -> Repairer:
        return MoneyRepairer(
            self._engine,
            self._world,
            self._services,
            self._broker,
            self._money,
            self.placing,
            self._outset,
        )

    # -- what happens --------------------------------------------------------------------------

    def target(self, target: Target) -> None:
        self._trust.at_site(target.name, target.site)
        self._broker.joined(target.name, node_of(target.agent), target.capacity, target.price)
        self.placing.target(target)

    def gone(self, target: PeerName) -> None:
        self._broker.left(target)
        self.placing.gone(target)

    def load(self, target: PeerName, cores: float) -> None:
        self.placing.load(target, cores)

    def ready(self, task: int) -> None:
        self.placing.ready(task)

    def bound(self, bound: Bound) -> None:
        self.placing.bound(bound)

    def over(self, over: Over) -> None:
        bound, name = over.bound, self._name(over.bound.task)
        since = self.placing.running_since(bound.task, bound.target)
        at_once = self.placing.ours_at(bound.target)
        self.placing.over(bound)
        ending, reason = _ending(over)
        if ending == "broken":
            self._trust.broke(bound.target)
        if since is not None and ending in ("done", "cancelled"):
            took_s = self._world.elapsed() - since
            expected_s = self.placing.promised(self._services.of[bound.task], bound.target)
            if ending == "done" or took_s > expected_s:
                self._trust.kept(bound.target, expected_s, took_s, at_once)
        self._money.settle((bound.target, name, bound.attempt), ending, reason)

    def stands(self, task: int, committed: bool) -> None:
        if committed:
            self.placing.done(task)
        else:
            self.placing.undone(task)

    def decide(self) -> None:
        self.placing.decide()

    def spare(self, needs: Needs, but: Sequence[PeerName]) -> PeerName | None:
        return self.placing.spare(needs, but)

    def end(self) -> None:
        self._is_over = True
        for attempted in self._money.open():
            self._money.settle(attempted, "cancelled", "the run is over")

    def _name(self, task: int) -> str:
        return self._engine.graph.tasks[task].name

    # -- binding -------------------------------------------------------------------------------

    def _bind(self, task: int, provider: PeerName) -> bool:
        """Bind it under its contract, if it needs one. If it cannot be, the contract is over."""
        attempted = (provider, self._name(task), self._engine.next_attempt(task))
        contract = self._money.signed(attempted)
        unsigned = contract is None and self._broker.price(provider) > 0
        if not unsigned:
            claim = b"" if contract is None else contract.number.encode()
            if self._engine.bind(task, provider, claim):
                return True
        self._settle_unused(task, provider)
        if unsigned and self._engine.wanted(task):
            self.placing.ready(task)  # its attempt has another number now: agree anew
        return False

    def _settle_unused(self, task: int, provider: PeerName) -> None:
        name = self._name(task)
        for attempted in self._money.of_provider(provider):
            on_book = self._engine.attempt(provider, task, attempted[2]) is not None
            if attempted[1] == name and not on_book:
                self._money.settle(attempted, "unused", "it was not needed")

    def _settle_vanished(self) -> None:
        """Contracts of an earlier process, or of attempts that a provider forgot."""
        for provider in self._engine.targets():
            for attempted in self._money.of_provider(provider):
                task = self._engine.graph.index[attempted[1]]
                on_book = self._engine.attempt(provider, task, attempted[2]) is not None
                if not on_book and not self.placing.is_agreed(task, provider):
                    self._money.settle(attempted, "broken", "it is not under way any more")

    # -- what providers say --------------------------------------------------------------------

    def answered(self, sender: AgentId, message: ProviderAnswer) -> None:
        self._broker.heard(name_of(sender), message)

    def examined(self, sender: AgentId, message: Examined) -> None:
        task = self._engine.graph.index.get(message.task)
        if message.run != self._engine.run or task is None:
            return
        self._examiner.heard(sender, message)
        if message.state == "running" and message.fraction is not None:
            target = name_of(sender)
            self._engine.progressed(target, task, message.attempt, message.fraction)

    def _bids_came(self, bids: Sequence[tuple[int, Offered]]) -> None:
        if not self._is_over:
            self.placing.bids_came(bids)
            self._engine.wake()

    def _tick(self) -> None:
        if self._is_over:
            return
        self.placing.look_again()
        self._settle_vanished()
        self._examiner.look_at(list(self._late()))
        self._engine.wake()
        self._tell_if_poor()
        self._world.after(TICK_S, self._tick)

    def _late(self) -> Iterator[Late]:
        targets = self._engine.targets()
        for bound in self._engine.attempts():
            target = targets.get(bound.target)
            if target is not None and self.placing.is_overdue(bound.task, bound.target):
                yield Late(node_of(target.agent), self._name(bound.task), bound.attempt)

    def _tell_if_poor(self) -> None:
        """Nothing is under way, and all that could be done costs more than is left."""
        busy = self._engine.attempts() or self.placing.is_agreeing
        if self._told_poor or busy or not self._begun:
            return
        waiting = [t for t in self._engine.open_tasks() if self._engine.state(t) is State.QUEUED]
        if not waiting:
            return
        least = self.placing.least_cost(waiting[0])
        if least is not None and least > self.placing.spendable(waiting[0]):
            self._told_poor = True
            self._engine.tell(
                f"{len(waiting)} tasks wait: no free peer is there, {max(0.0, self._money.left):g} "
                "is left of the budget, and the cheapest way to do all that is open costs "
                f"{self.placing.needed:g}; cancel the run, or let free peers join"
            )


def _ending(over: Over) -> tuple[Ending, str]:
    """How the contract of an attempt ends, and why, in words."""
    bound, told = over.bound, over.told
    if isinstance(told, Refused):
        return "unused", "it was refused"
    if told is None:
        if bound.withdrawn:
            return "cancelled", "it was withdrawn"
        return "broken", f"{bound.target} lost it"
    if over.ending == "cancelled":
        return "broken", f"{bound.target} stopped it"
    if over.ending == "withdrawn":
        began = bound.started or told.ended.elapsed_s > 0
        return ("cancelled" if began else "unused"), "it was withdrawn"
    if over.ending == "lost":
        return "broken", f"{bound.target} lost it"
    return "done", over.ending
