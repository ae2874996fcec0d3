"""The writer of a grid run with terms: deals with providers, spends money, keeps to the budget.

It is the submitter of `grid_submitter`, with a placer that chooses by cost and time, and:
- Before the run begins the providers are asked for bids, BIDS_WAIT_S at most, and a plan is made:
  which of them are used (`outset`). Nobody waits longer: what bids later counts from then on.
- An attempt on a provider that asks a price is bound under a contract, and the contract is settled
  when the attempt is over, however it ended.
- What is later than promised is asked after (`examining`).
- What was agreed and paid is in the journal, so that the next process goes on with the same book.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import msgspec

from sureline.journal.events import RunEnded
from sureline.peer.capacity import Capacity
from sureline.peer.messages import Bind, Finished, Progressed, Refused
from sureline.run.attempts import Binding
from sureline.run.fleet import Answer as Told
from sureline.run.fleet import Peer
from sureline.run.grid_submitter import GridSubmitter
from sureline.run.options import CancelRun, Options, Past
from sureline.run.states import State
from sureline.run.strategy import Repairer
from sureline.strategies.surety.broker import Broker
from sureline.strategies.surety.examining import Examiner, Late
from sureline.strategies.surety.invocation import Answer, Declined, Examined, Invoked, Offered
from sureline.strategies.surety.money import Money
from sureline.strategies.surety.outset import Outset
from sureline.strategies.surety.placer import SuretyPlacer
from sureline.strategies.surety.pricing import Ending
from sureline.strategies.surety.repairer import MoneyRepairer
from sureline.strategies.surety.services import Services
from sureline.strategies.surety.trust import Trust
from sureline.workflow.files import FileRecord
from sureline.workflow.model import Graph, Takes
from sureline.world.address import Node, name_of
from sureline.world.agent import handles
from sureline.world.protocol import AgentId, World

BIDS_WAIT_S = 3.0
LOOK_S = 0.1


class SuretySubmitter(GridSubmitter):
    """`on_told` hears what the user should know, a sentence at a time. If no plan meets the terms,
    `on_refused` hears why, and nothing is begun; without it, the best that can be done is. `known`
    is what tasks of a kind took in earlier runs, for providers that have no experience."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        run: str,
        graph: Graph,
        options: Options,
        on_end: Callable[[RunEnded], None],
        past: Past | None = None,
        *,
        epoch: int,
        on_fenced: Callable[[str], None],
        on_told: Callable[[str], None] = lambda sentence: None,
        on_refused: Callable[[str], None] | None = None,
        known: Mapping[str, Takes] | None = None,
    ) -> None:
        self._services = Services(graph, known or {})
        self._surety = SuretyPlacer(run, self._services)
        super().__init__(
            me,
            world,
            run,
            graph,
            self._surety,
            options,
            on_end,
            past,
            epoch=epoch,
            on_fenced=on_fenced,
        )
        self._on_told = on_told
        self._on_refused = on_refused
        self._prices: dict[str, float] = {}
        self._trust = Trust()
        self._broker = Broker(self.world, run, epoch, self._services, self._bids_came)
        self._money = Money(
            self.world,
            self._broker,
            options.budget,
            self._past.money,
            lambda name: self._services.of[graph.index[name]],
        )
        self._surety.attach(self._broker, self._money, self._trust, self)
        self._outset = Outset(
            self.world, graph, self._services, self._surety, options.terms, self._following
        )
        self._examiner = Examiner(self.world, run)
        self._begun = False
        self._begin_by = 0.0
        self._told_poor = False
        self._unsigned: set[int] = set()
        """Tasks that were not bound because there was no contract for the attempt."""

    # -- what the placer asks ------------------------------------------------------------------

    def now(self) -> float:
        return self.world.now()

    def wanted(self, task: int) -> bool:
        return self._state[task] is State.QUEUED and self._cancel is None

    def next_attempt(self, task: int) -> int:
        return self._attempt[task] + 1

    def name(self, task: int) -> str:
        return self.graph.tasks[task].name

    def later(self, seconds: float, action: Callable[[], None]) -> None:
        self.world.after(seconds, action)

    def wake(self) -> None:
        self._settled()

    # -- peers and bids ------------------------------------------------------------------------

    def peer_asks(self, node: Node, price: float, site: str = "") -> None:
        """What a core costs there for an hour; told before the peer is told of, and whenever it
        changes."""
        name = name_of(node)
        self._trust.at_site(name, site)
        before = self._prices.get(name)
        self._prices[name] = price
        known = self._fleet.get(name)
        if known is not None and before is not None and (before > 0) != (price > 0):
            self.peer_left(known.node, "it asks another price now")

    def peer_joined(self, node: Node, capacity: Capacity, site: str = "") -> None:
        name = name_of(node)
        self._broker.joined(name, node, capacity, self._prices.get(name, 0.0))
        super().peer_joined(node, capacity, site)

    def peer_left(self, node: Node, reason: str) -> None:
        peer = self._fleet.get(name_of(node))
        if peer is not None and peer.node == node:
            self._broker.left(name_of(node))
        super().peer_left(node, reason)

    @handles(Offered)
    def on_offered(self, sender: AgentId, message: Offered) -> None:
        self._hear(sender, message)

    @handles(Declined)
    def on_declined(self, sender: AgentId, message: Declined) -> None:
        self._hear(sender, message)

    @handles(Invoked)
    def on_invoked(self, sender: AgentId, message: Invoked) -> None:
        self._hear(sender, message)

    def _hear(self, sender: AgentId, message: Answer) -> None:
        self._broker.heard(name_of(sender), message)

    @handles(Examined)
    def on_examined(self, sender: AgentId, message: Examined) -> None:
        if message.run != self.run:
            return
        self._examiner.heard(sender, message)
        if message.state == "running" and message.fraction is not None:
            told = Progressed(self.run, message.task, message.attempt, message.fraction)
            self.on_progressed(sender, told)

    def _late(self) -> Iterator[Late]:
        for binding in self._attempts.all():
            peer = self._fleet.get(binding.peer)
            if peer is not None and self._surety.is_overdue(binding.task, binding.peer):
                yield Late(peer.node, self.name(binding.task), binding.attempt)

    def _bids_came(self) -> None:
        if not self._over:
            self._surety.bids_changed()
            self._settled()

    def _tick(self) -> None:
        self._surety.look_again()
        self._examiner.look_at(list(self._late()))
        self._settled()
        self._tell_if_poor()
        super()._tick()

    def _tell_if_poor(self) -> None:
        """Nothing is under way, and all that could be done costs more than is left."""
        busy = self._over or self._attempts.all() or self._surety.is_agreeing
        if self._told_poor or busy or not self._begun:
            return
        waiting = [task for task, state in enumerate(self._state) if state is State.QUEUED]
        if not waiting:
            return
        least = self._surety.least_cost(waiting[0])
        if least is not None and least > self._surety.spendable(waiting[0]):
            self._told_poor = True
            self._on_told(
                f"{len(waiting)} tasks wait: no free peer is there, {max(0.0, self._money.left):g} "
                "is left of the budget, and the cheapest way to do all that is open costs "
                f"{self._surety.needed:g}; cancel the run, or let free peers join"
            )

    # -- beginning -----------------------------------------------------------------------------

    def start(self, peers: Mapping[Node, Capacity]) -> None:
        self._broker.start()
        for service in range(len(self._services)):
            if self._surety.is_open(service):
                self._broker.deal_in(service)
        self._begin_by = self.world.now() + BIDS_WAIT_S
        super().start(peers)

    def _begin(self) -> None:
        """Once the bids are there, or have been waited for long enough, and the plan is made."""
        if not self._checking or self._begun:
            return
        late = self.world.now() >= self._begin_by
        if not late and (self._broker.asks() or not all(p.attached for p in self._fleet.all())):
            self.world.after(LOOK_S, self._begin)
            return
        self._begun = True
        progress = None
        if self._following is not None:
            self._following.restore(self._past.committed.values())
            progress = self._following.snapshot(self.world.now())
        self._outset.plan(self._open_tasks(), progress, self._begin_planned)

    def _begin_planned(self) -> None:
        reason = self._outset.refused
        if reason and self._on_refused is not None and self._checking:
            self._on_refused(reason)
            self._checking = 0  # nothing was begun, so it is over at once
            self.on_cancel(self.me, CancelRun(reason=reason))
            return
        if reason:
            self._on_told(reason)
        super()._begin()

    def _open_tasks(self) -> list[int]:
        """In the order in which they would start."""
        found = [task for task, s in enumerate(self._state) if s is not State.COMMITTED]
        return sorted(found, key=lambda task: (-self._urgency[task], task))

    def _make_repairer(self) -> Repairer:
        return MoneyRepairer(
            self.graph,
            self._services,
            self._broker,
            self._money,
            self._surety,
            self._outset,
            self,
        )

    def open_tasks(self) -> list[int]:
        return self._open_tasks()

    # -- contracts -----------------------------------------------------------------------------

    def _make_bind(self, task: int, attempt: int, peer: str) -> Bind | None:
        bind = super()._make_bind(task, attempt, peer)
        if bind is None:
            return None
        contract = self._money.signed((peer, bind.task, attempt))
        if contract is not None:
            return msgspec.structs.replace(bind, contract=contract.number)
        if self._broker.price(peer) > 0:
            self._unsigned.add(task)
            return None
        return bind

    def _bind_to(self, task: int, name: str) -> tuple[AgentId, Bind] | None:
        bound = super()._bind_to(task, name)
        if bound is None:
            self._settle_unused(task, name)
            if self.wanted(task) and task in self._unsigned:
                self._queue_now(task)  # its attempt has another number now: agree anew
            self._unsigned.discard(task)
        return bound

    def _settle_unused(self, task: int, provider: str) -> None:
        name = self.name(task)
        for attempted in self._money.of_provider(provider):
            known = self._attempts.get(provider, task, attempted[2]) is not None
            if attempted[1] == name and not known:
                self._money.settle(attempted, "unused", "it was not needed")

    def _give_back(self, binding: Binding, told: Finished | Refused | None = None) -> None:
        since = self._surety.running_since(binding.task, binding.peer)
        at_once = self._surety.ours_at(binding.peer)
        super()._give_back(binding, told)
        ending, reason = _ending(binding, told)
        attempted = (binding.peer, self.name(binding.task), binding.attempt)
        if ending == "broken":
            self._trust.broke(binding.peer)
        if since is not None and ending in ("done", "cancelled"):
            took_s = self.world.now() - since
            expected_s = self._surety.promised(self._services.of[binding.task], binding.peer)
            if ending == "done" or took_s > expected_s:
                self._trust.kept(binding.peer, expected_s, took_s, at_once)
        self._money.settle(attempted, ending, reason)

    def _adopt(self, peer: Peer, answer: Told) -> None:
        super()._adopt(peer, answer)
        for attempted in self._money.of_provider(peer.name):
            task = self.graph.index[attempted[1]]
            known = self._attempts.get(peer.name, task, attempted[2]) is not None
            if not known and not self._surety.is_agreed(task, peer.name):
                self._money.settle(attempted, "broken", "it is not under way any more")

    def _keep_result(
        self, task: int, outputs: tuple[FileRecord, ...], result: bytes | None
    ) -> None:
        super()._keep_result(task, outputs, result)
        self._surety.done(task)

    def _revoke(self, task: int, reason: str) -> None:
        self._surety.undone(task)
        super()._revoke(task, reason)

    def _closing(self) -> None:
        for attempted in self._money.open():
            self._money.settle(attempted, "cancelled", "the run is over")
        super()._closing()


def _ending(binding: Binding, told: Finished | Refused | None) -> tuple[Ending, str]:
    """How the contract of an attempt ends, and why, in words."""
    if isinstance(told, Refused):
        return "unused", "it was refused"
    if told is None:
        if binding.withdrawn:
            return "cancelled", "it was withdrawn"
        return "broken", f"{binding.peer} lost it"
    outcome = told.ended.outcome
    if outcome == "cancelled":
        if not binding.withdrawn:
            return "broken", f"{binding.peer} stopped it"
        began = binding.started or told.ended.elapsed_s > 0
        return ("cancelled" if began else "unused"), "it was withdrawn"
    if outcome == "lost":
        return "broken", f"{binding.peer} lost it"
    return "done", outcome
