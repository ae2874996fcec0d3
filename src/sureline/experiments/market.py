"""Providers of a simulated grid: honest ones, and those that the paper warns of.

A *greedy* one overbooks: it claims more cores than it has, takes as many contracts, and lets all
of them run at once, each of them slower. It bids as if every task had the machine to itself.
A *stalling* one overbooks too, and then runs what pays best; what pays less stands still until
there is a core for it, and sometimes hangs for good. Both bid what they always bid, and learn
nothing from what happens.
"""

from __future__ import annotations

from random import Random

import msgspec

from sureline.experiments.invariants import Ran
from sureline.experiments.machine_files import SimulatedStore
from sureline.experiments.machine_runner import RunningJob, SimulatedRunner, Working
from sureline.experiments.scenario import GREEDY, HONEST, STALLING, Dealing
from sureline.experiments.work import Work
from sureline.peer.admitting import Machine
from sureline.peer.capacity import Capacity
from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Bind
from sureline.run.port import Place, Strategy
from sureline.strategies.surety import surety
from sureline.strategies.surety.invocation import Parameters
from sureline.strategies.surety.pricing import Tariff
from sureline.strategies.surety.provider.agent import PART, Provider
from sureline.strategies.surety.provider.experience import GUESS, scaled
from sureline.workflow.model import Takes
from sureline.world.address import at, node_of
from sureline.world.protocol import Action, AgentId, World
from sureline.world.simulated.machine import Life
from sureline.world.simulated.work import SlotWork


class Seller(msgspec.Struct):
    """How a machine's provider behaves, and what its runner must know of that."""

    tariff: Tariff = Tariff()
    behaviour: str = HONEST
    overbook: float = 1.0
    hang: float = 0.0
    speed: float = 1.0
    seed: str = ""
    pays: dict[str, float] = {}
    """What each job under way pays, by its label."""

    def claimed(self, capacity: Capacity) -> Capacity:
        """What the machine says it has."""
        if self.overbook == 1.0:
            return capacity
        return msgspec.structs.replace(
            capacity,
            cores=float(round(capacity.cores * self.overbook)),
            memory_bytes=round(capacity.memory_bytes * self.overbook),
            disk_bytes=round(capacity.disk_bytes * self.overbook),
        )

    def half(self, strategy: Strategy) -> Strategy:
        """A strategy with the half that this machine has of it: of the one that deals, a provider
        that behaves like this."""
        if strategy.name != surety.name:
            return strategy
        return msgspec.structs.replace(strategy, machine=self._provider)

    def _provider(self, machine: Machine, place: Place, settings: object) -> Provider:
        me, world = at(node_of(machine.me), PART), place(PART)
        if self.behaviour == GREEDY:
            return Greedy(me, world, machine, self.tariff, self.speed)
        if self.behaviour == STALLING:
            return Stalling(me, world, machine, self.tariff, self.speed, self.pays)
        return Provider(me, world, machine, self.tariff, self.speed)

    def runner(
        self, life: Life, work: Work, store: SimulatedStore, log: list[Ran]
    ) -> SimulatedRunner:
        if self.behaviour == STALLING:
            return StallingRunner(life, work, store, log, self)
        return SimulatedRunner(life, work, store, log)


def seller_of(dealing: Dealing, price: float, speed: float, seed: str) -> Seller:
    """The provider of one machine of a site, whose price has been drawn."""
    overbook = 1.0 if dealing.behaviour == HONEST else dealing.overbook
    tariff = Tariff(
        price, dealing.late_fee, dealing.cancel_fee, dealing.reserve_fee, dealing.discount
    )
    return Seller(tariff, dealing.behaviour, overbook, dealing.hang, speed, seed)


class Greedy(Provider):
    """Bids as if each task were alone on the machine."""

    def __init__(
        self, me: AgentId, world: World, machine: Machine, tariff: Tariff, speed: float
    ) -> None:
        super().__init__(me, world, machine, tariff, speed)
        self._speed = speed

    def _expects(self, client: str, service: str, parameters: Parameters) -> Takes:
        return scaled(parameters.takes or GUESS, self._speed)


class Stalling(Greedy):
    """Tells the runner what each job pays."""

    def __init__(
        self,
        me: AgentId,
        world: World,
        machine: Machine,
        tariff: Tariff,
        speed: float,
        pays: dict[str, float],
    ) -> None:
        super().__init__(me, world, machine, tariff, speed)
        self._pays = pays
        pays.clear()  # what an earlier process ran is gone

    def admitted(self, bind: Bind) -> None:
        super().admitted(bind)
        self._pays[_label(bind)] = self.cost_of(bind)

    def over(self, bind: Bind, ended: JobEnded | None, *, began: bool) -> None:
        self._pays.pop(_label(bind), None)
        super().over(bind, ended, began=began)


def _label(bind: Bind) -> str:
    """What its job is called on the machine."""
    return f"{bind.run}.{bind.job.label}"


class _Share:
    """A job that wants cores of a stalling machine."""

    def __init__(self, runner: StallingRunner, task: Working, left_s: float, done: Action) -> None:
        self._runner = runner
        self.task = task
        self.left_s = left_s
        """Work still to do, as of when it last stood still."""
        self.done = done
        self.work: SlotWork | None = None
        self.hangs = False

    def cancel(self) -> None:
        """It is over. Idempotent."""
        self._runner.drop(self)


class StallingRunner(SimulatedRunner):
    """Gives the cores to those who pay most; of equals, to those who came first."""

    def __init__(
        self, life: Life, work: Work, store: SimulatedStore, log: list[Ran], seller: Seller
    ) -> None:
        super().__init__(life, work, store, log)
        self._seller = seller
        self._shares: list[_Share] = []

    def _work_on(self, job: RunningJob, task: Working, seconds: float, done: Action) -> None:
        share = _Share(self, task, seconds, done)
        job.timers.append(share)
        self._shares.append(share)
        self._deal_out()

    def drop(self, share: _Share) -> None:
        if share in self._shares:
            self._shares.remove(share)
            if share.work is not None:
                share.work.cancel()
            self._deal_out()

    def _deal_out(self) -> None:
        machine, pays = self._life.machine, self._seller.pays
        left = float(machine.spec.slots)
        for share in sorted(self._shares, key=lambda one: -pays.get(one.task.label, 0.0)):
            works = not share.hangs and share.task.cores <= left
            if works:
                left -= share.task.cores
            if works and share.work is None:
                share.work = machine.processor.work(
                    share.left_s, share.done, cores=share.task.cores
                )
            elif not works and share.work is not None:
                share.left_s = machine.processor.left_s(share.work)
                share.work.cancel()
                share.work = None
                share.hangs = self._is_forgotten(share)

    def _is_forgotten(self, share: _Share) -> bool:
        drawn = Random(f"{self._seller.seed}/{share.task.label}").random()
        return drawn < self._seller.hang
