"""The machines and the network of a scenario, drawn from its seed."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

import msgspec

from sureline.experiments.distributions import Distribution
from sureline.experiments.invariants import Ran
from sureline.experiments.machine_files import SimulatedFetcher, SimulatedStore
from sureline.experiments.machine_journal import SimulatedRecorder
from sureline.experiments.machine_kept import KeptOnDisk
from sureline.experiments.machine_runner import SimulatedRunner
from sureline.experiments.market import Seller, seller_of
from sureline.experiments.others import OthersJobs
from sureline.experiments.scenario import LinkSettings, Scenario, SiteSettings
from sureline.experiments.work import Work
from sureline.peer.capacity import Capacity
from sureline.strategies import strategy
from sureline.world.address import Node
from sureline.world.simulated.delays import (
    Constant,
    Delay,
    Empirical,
    Exponential,
    LogNormal,
    Uniform,
)
from sureline.world.simulated.links import Link
from sureline.world.simulated.machine import Ending, Life, MachineParts, MachineSpec
from sureline.world.simulated.network import Network
from sureline.world.simulated.simulation import Simulation

EPOCH_S = 1_700_000_000.0
"""What an exact clock says when a simulation begins: journals should look like real ones."""


class SimulatedPeer(msgspec.Struct):
    """A simulated machine with its contents, over all its lives."""

    node: Node
    site: str
    capacity: Capacity
    store: SimulatedStore
    log: list[Ran]
    kept: KeptOnDisk
    """Copies of runs that others drive."""
    unknown: tuple[str, ...] = ()
    """Messages that its version does not know."""
    seller: Seller = msgspec.field(default_factory=Seller)
    others: OthersJobs = OthersJobs()

    @property
    def claimed(self) -> Capacity:
        """What it says it has; the capacity, unless it overbooks."""
        return self.seller.claimed(self.capacity)


def make_network(scenario: Scenario) -> Network:
    settings = scenario.network
    # What each machine can send and receive is its own limit, not the link's.
    network = Network(_link(settings.link, None))
    for a, b, between in settings.between:
        network.set_site_link(a, b, _link(between, between.bandwidth_bytes_s))
    return network


def _link(settings: LinkSettings, bandwidth_bytes_s: float | None) -> Link:
    return Link(
        _delay(settings.delay_s),
        bandwidth_bytes_s,
        settings.loss,
        settings.duplication,
        settings.reordering,
    )


def _delay(drawn: Distribution) -> Delay:
    a = drawn.arguments
    match drawn.form:
        case "uniform":
            return Uniform(a[0], a[1])
        case "lognormal":
            return LogNormal(a[0], a[1])
        case "exponential":
            return Exponential(a[0])
        case "choice":
            return Empirical(a)
        case _:
            return Constant(a[0])


def make_machines(
    scenario: Scenario, seed: int, sim: Simulation, work: Work | None
) -> dict[Node, SimulatedPeer]:
    """Describe every machine of the scenario to the simulation, submitters last; by node."""
    random, prices = Random(f"{seed}/machines"), Random(f"{seed}/prices")
    boxes: dict[Node, SimulatedPeer] = {}
    stores: dict[Node, SimulatedStore] = {}
    bandwidth = scenario.network.link.bandwidth_bytes_s
    for node, site, is_peer in _described(scenario):
        spec = MachineSpec(
            power=site.speed.draw(random),
            slots=max(1, round(site.cores.draw(random))),
            background_load=site.background.draw(random),
            site=site.name,
            clock_offset_s=site.clock_offset_s.draw(random),
            clock_drift=site.clock_drift.draw(random),
            up_bytes_per_s=bandwidth,
            down_bytes_per_s=bandwidth,
        )
        capacity = Capacity(float(spec.slots), site.memory_bytes, site.disk_bytes)
        # Whoever submits keeps everything; so does a machine whose agent marks nothing.
        bounded = is_peer and strategy(scenario.workload.strategy).where != "here"
        bound_bytes = min(site.cache_bytes, site.disk_bytes) if bounded else float("inf")
        store = stores[node] = SimulatedStore(
            node, bound_bytes, keeps=site.keeps_cache or not bounded
        )
        seller = seller_of(
            site.dealing,
            site.dealing.price.draw(prices),
            spec.power * (1.0 - spec.background_load),
            f"{seed}/{node}",
        )
        kept = KeptOnDisk(sim, node)
        unknown = site.unknown if is_peer else ()
        box = boxes[node] = SimulatedPeer(
            node, site.name, capacity, store, [], kept, unknown, seller, site.others
        )
        sim.machine(node, spec, make_parts(box, stores, work) if work is not None else None)
    return boxes


def _described(scenario: Scenario) -> Iterator[tuple[Node, SiteSettings, bool]]:
    for site in scenario.sites:
        for node in site.names():
            yield node, site, True
    wanted = scenario.workload.site or scenario.sites[0].name
    home = next(site for site in scenario.sites if site.name == wanted)
    for node in [*scenario.submitter_names(), *scenario.standby_names()]:
        if node not in scenario.machine_names():
            yield node, home, False


def make_parts(box: SimulatedPeer, stores: dict[Node, SimulatedStore], work: Work) -> MachineParts:
    def runner(life: Life) -> SimulatedRunner:
        life.on_end(ended)
        return box.seller.runner(life, work, box.store, box.log)

    def fetcher(life: Life) -> SimulatedFetcher:
        life.on_end(ended)
        return SimulatedFetcher(life, work, box.store, stores)

    def recorder(life: Life) -> SimulatedRecorder:
        life.on_end(ended)
        return SimulatedRecorder(life)

    def ended(how: Ending) -> None:
        # Parts are made at their first use, so whichever was used hears of it; twice does no harm.
        box.store.process_died(power=how == "crash")

    return MachineParts(runner, fetcher, recorder)
