"""How a simulated grid is put together: which agents live on a node, and what joins them.

The agents are the real ones; `compose` puts the same ones together on a real network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random

from sureline.experiments.driver import Driver
from sureline.experiments.machines import EPOCH_S, Box, make_machines, make_network
from sureline.experiments.scenario import Scenario
from sureline.experiments.work import Work
from sureline.overlay.kademlia import Kademlia
from sureline.overlay.membership import Member, Membership, Offer
from sureline.peer.capacity import Capacity
from sureline.peer.grid_agent import GridPeerAgent
from sureline.run.grid_submitter import GridSubmitter
from sureline.run.options import Past
from sureline.run.submitter import Submitter
from sureline.strategies.embedded import embedded
from sureline.strategies.spread import SpreadPlacer
from sureline.strategies.surety.provider import PART as MARKET
from sureline.strategies.surety.services import took_before
from sureline.strategies.surety.submitter import SuretySubmitter
from sureline.world.address import at
from sureline.world.simulated.counters import Detail
from sureline.world.simulated.simulation import Simulation

FULL_DETAIL_MAX = 20_000
"""Of more machines, messages are counted by type only, to save memory."""
PRESENT = ("alive", "suspect")
CONTACTS = 8
"""Through how many others a node tries to join."""


class SimulatedGrid:
    """The machines of a scenario in a simulation, and what faults do to them."""

    def __init__(self, scenario: Scenario, seed: int, work: Work | None) -> None:
        detail: Detail = "light" if len(scenario.machine_names()) > FULL_DETAIL_MAX else "full"
        self.sim = Simulation(seed, make_network(scenario), detail=detail, epoch_s=EPOCH_S)
        self.boxes = make_machines(scenario, seed, self.sim, work)
        self._history = {} if work is None else work.history
        self._peers = scenario.machine_names()
        self._known: list[str] = []
        """The nodes that have ever been up, in the order in which they first were."""
        self._started: set[str] = set()
        """The same, to look one up."""
        self._random = Random(f"{seed}/grid")
        self._starts_within_s = scenario.starts_within_s

    # -- what lives on a node ------------------------------------------------------------------

    def boot_peers(self) -> None:
        self.boot_each(lambda node: self._boot_peer(self.boxes[node]))

    def boot_each(self, start: Callable[[str], None]) -> None:
        """Have every machine run `start` when it starts, for the first time and ever after."""
        for number, node in enumerate(self._peers):
            at_s = self._starts_within_s * number / len(self._peers)
            self.at(at_s, partial(self.boot, node, partial(self._start, node, start)))

    def boot(self, node: str, start: Callable[[], None]) -> None:
        """Start it now, and whenever it comes back; only then, if a fault has it down already."""
        if self.state(node) == "down":
            self.sim.machine(node).boot = start
        else:
            self.sim.boot(node, start)

    def _start(self, node: str, start: Callable[[str], None]) -> None:
        start(node)
        if node not in self._started:
            self._started.add(node)
            self._known.append(node)

    def _boot_peer(self, box: Box) -> None:
        sim, node = self.sim, box.node
        offer = offer_of(box, sim.machine(node).clock())
        membership = Membership(at(node, "membership"), sim.place(at(node, "membership")), offer)
        peer = GridPeerAgent(
            at(node, "peer"),
            sim.place(at(node, "peer")),
            box.claimed,
            box.store,
            membership.report,
        )
        market = at(node, MARKET)
        provider = box.seller.provider(market, sim.place(market), peer)
        for agent in (membership, peer, provider):
            sim.join(agent)
        self.boot_kademlia(node)
        membership.join(self._contacts(node, "membership"), lambda others: None)
        peer.start()
        provider.start()

    def boot_kademlia(self, node: str) -> Kademlia:
        me = at(node, "kademlia")
        made = Kademlia(me, self.sim.place(me))
        self.sim.join(made)
        made.join(self._contacts(node, "kademlia"), lambda contacts: None)
        return made

    def _contacts(self, node: str, part: str) -> list[str]:
        """Some who are up; if hardly anybody is, some who may come back. The first node of all
        knows nobody."""
        tries = 4 * CONTACTS if self._known else 0
        drawn = dict.fromkeys(self._random.choice(self._known) for _ in range(tries))
        others = [other for other in drawn if other != node]
        up = [other for other in others if self.state(other) == "up"]
        return [at(other, part) for other in (up or others)[:CONTACTS]]

    def drive_spread(self, driver: Driver, epoch: int, past: Past) -> None:
        """A submitter that hears of peers from a membership that it only observes."""
        sim, node = self.sim, driver.node
        me, watcher = at(node, f"run.{driver.run}"), at(node, "membership")
        membership = Membership(watcher, sim.place(watcher), None)
        submitter = GridSubmitter(
            me,
            sim.place(me),
            driver.run,
            driver.graph,
            SpreadPlacer(driver.run),
            driver.options,
            driver.on_end,
            past,
            epoch=epoch,
            on_fenced=driver.on_fenced,
        )
        sim.join(membership)
        sim.join(submitter)

        def joined(others: int) -> None:
            members = membership.members().values()
            free = [m for m in members if m.state in PRESENT and not m.offer.price]
            submitter.start({m.node: capacity_of(m.offer) for m in free})
            membership.watch(lambda member: enlist_free(submitter, member))

        membership.join(self._contacts(node, "membership"), joined)

    def drive_surety(
        self,
        driver: Driver,
        epoch: int,
        past: Past,
        sort: type[SuretySubmitter] = SuretySubmitter,
    ) -> None:
        """As `drive_spread`, with terms: providers are asked for bids, and paid. `sort` is what
        drives the run: the strategy itself, or one to compare it with."""
        sim, node = self.sim, driver.node
        me, watcher = at(node, f"run.{driver.run}"), at(node, "membership")
        membership = Membership(watcher, sim.place(watcher), None)
        submitter = sort(
            me,
            sim.place(me),
            driver.run,
            driver.graph,
            driver.options,
            driver.on_end,
            past,
            epoch=epoch,
            on_fenced=driver.on_fenced,
            known=took_before(self._history),
        )
        sim.join(membership)
        sim.join(submitter)

        def joined(others: int) -> None:
            members = [m for m in membership.members().values() if m.state in PRESENT]
            for member in members:
                submitter.peer_asks(member.node, member.offer.price, member.offer.site)
            submitter.start({m.node: capacity_of(m.offer) for m in members})
            membership.watch(lambda member: enlist_priced(submitter, member))

        membership.join(self._contacts(node, "membership"), joined)

    def drive_embedded(self, driver: Driver, epoch: int, past: Past) -> None:
        """Submitter and machine in one process."""
        sim, node = self.sim, driver.node
        here, me = at(node, "peer"), at(node, f"run.{driver.run}")
        capacity = self.boxes[node].capacity
        sim.join(embedded.peer(here, sim.place(here), capacity))
        submitter = Submitter(
            me,
            sim.place(me),
            driver.run,
            driver.graph,
            embedded.placer(),
            driver.options,
            driver.on_end,
            past,
        )
        sim.join(submitter)
        submitter.start({here: capacity})

    # -- what faults do ------------------------------------------------------------------------

    def at(self, time_s: float, action: Callable[[], None]) -> None:
        self.sim.at(time_s, action)

    def state(self, node: str) -> str:
        machine = self.sim.machine(node)
        if machine.life is None:
            return "down"
        return "frozen" if machine.frozen else "up"

    def crash(self, node: str) -> None:
        self.sim.crash(node)

    def kill(self, node: str) -> None:
        self.sim.kill(node)

    def restart(self, node: str) -> None:
        self.sim.restart(node)

    def freeze(self, node: str) -> None:
        self.sim.freeze(node)

    def thaw(self, node: str) -> None:
        self.sim.thaw(node)

    def slow(self, node: str, factor: float) -> None:
        self.sim.slow(node, 1.0 / factor)

    def step_clock(self, node: str, seconds: float) -> None:
        self.sim.step_clock(node, seconds)

    def partition(self, groups: Sequence[Sequence[str]]) -> None:
        self.sim.partition(groups)

    def heal(self) -> None:
        self.sim.heal()


def offer_of(box: Box, started_at: float) -> Offer:
    c = box.claimed
    return Offer(
        c.cores,
        c.memory_bytes,
        c.disk_bytes,
        c.gpus,
        c.tags,
        site=box.site,
        price=box.seller.tariff.per_core_hour,
        roles=("run",),
        started_at=started_at,
    )


def capacity_of(offer: Offer) -> Capacity:
    return Capacity(offer.cores, offer.memory_bytes, offer.disk_bytes, offer.gpus, offer.tags)


def enlist_priced(submitter: SuretySubmitter, member: Member) -> None:
    """As `enlist`, for a submitter that pays."""
    submitter.peer_asks(member.node, member.offer.price, member.offer.site)
    enlist(submitter, member)


def enlist_free(submitter: GridSubmitter, member: Member) -> None:
    """As `enlist`, for a submitter that pays nobody."""
    if not member.offer.price:
        enlist(submitter, member)


def enlist(submitter: GridSubmitter, member: Member) -> None:
    """Tell a run's submitter what became of a member."""
    if member.state in PRESENT:
        submitter.peer_joined(member.node, capacity_of(member.offer), member.offer.site)
        submitter.peer_load(member.node, member.load)
    else:
        submitter.peer_left(member.node, f"it is {member.state}")
