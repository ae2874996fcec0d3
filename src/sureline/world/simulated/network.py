"""The network of a simulation: which link lies between two nodes, and who is cut off from whom."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from random import Random
from typing import TYPE_CHECKING

import numpy as np

from sureline.world.address import Node
from sureline.world.simulated.flows import Flow, Flows
from sureline.world.simulated.links import LAN, Link, LinkChannel

if TYPE_CHECKING:
    from sureline.world.simulated.simulation import Simulation


class Network:
    """Links by pair of nodes, else by pair of sites, else the one link for all. Between agents of
    one node there is no link: their messages arrive at once."""

    def __init__(self, link: Link = LAN) -> None:
        self._link = link
        self._pairs: dict[tuple[str, str], Link] = {}
        self._sites: dict[tuple[str, str], Link] = {}
        self._groups: dict[str, int] | None = None
        self._severed: frozenset[tuple[Node, Node]] = frozenset()
        self._channels: dict[Link, LinkChannel] = {}
        self._sim: Simulation | None = None

    def bind(self, sim: Simulation, seed: int) -> None:
        """Become the network of this simulation, once."""
        if self._sim is not None:
            raise ValueError("a Network belongs to one Simulation: make another one")
        self._sim = sim
        self.random = Random(f"{seed} network")
        self._draws = np.random.RandomState(self.random.getrandbits(32))
        self.flows = Flows(sim)
        self.default = self._channel(self._link)

    @property
    def plain(self) -> bool:
        """Whether every message merely takes the default link's delay."""
        usual = not (self._pairs or self._sites or self._severed) and self._groups is None
        return usual and self.default.link.plain

    def set_default(self, link: Link) -> None:
        """The link wherever no other is set, from now on."""
        self._link = link
        if self._sim is not None:
            self.default = self._channel(link)
            self._changed()

    def set_link(self, a: Node, b: Node, link: Link | None, *, both_ways: bool = True) -> None:
        """The link from node `a` to node `b` (and back); None to forget what was set."""
        _set(self._pairs, a, b, link, both_ways)
        self._changed()

    def set_site_link(self, a: str, b: str, link: Link | None, *, both_ways: bool = True) -> None:
        """The link between the machines of two sites, or within one."""
        _set(self._sites, a, b, link, both_ways)
        self._changed()

    def partition(self, groups: Sequence[Collection[Node]]) -> None:
        """Cut the nodes of each group off from all others. Nodes in no group stay together."""
        self._groups = {node: number for number, group in enumerate(groups, 1) for node in group}
        self._changed()

    def sever(self, some: Collection[Node], others: Collection[Node]) -> None:
        """Cut the links between these nodes and those, and no other: all else can still be heard
        by both. A partition that hardly anybody sees."""
        self._severed = frozenset(
            pair for a in some for b in others for pair in ((a, b), (b, a)) if a != b
        )
        self._changed()

    def heal(self) -> None:
        self._groups, self._severed = None, frozenset()
        self._changed()

    @property
    def parted(self) -> bool:
        return self._groups is not None or bool(self._severed)

    def cut(self, a: Node, b: Node) -> bool:
        """Whether a partition lies between two nodes."""
        if self._severed and (a, b) in self._severed:
            return True
        groups = self._groups
        return groups is not None and groups.get(a, 0) != groups.get(b, 0)

    def channel(self, source: Node, target: Node) -> LinkChannel:
        link = self._pairs.get((source, target)) if self._pairs else None
        if link is None and self._sites and self._sim is not None:
            sites = (self._sim.site_of(source), self._sim.site_of(target))
            link = self._sites.get(sites)
        return self.default if link is None else self._channel(link)

    def transfer(
        self, source: Node, target: Node, size_bytes: int, on_done: Callable[[int], None]
    ) -> Flow:
        """Move bulk data. `on_done` runs on the target, with the bytes that have arrived: fewer
        than asked for if the source went down. It does not run if the target goes down; across a
        partition, or to and from a frozen machine, data waits."""
        return self.flows.start(source, target, size_bytes, on_done)

    def _channel(self, link: Link) -> LinkChannel:
        made = self._channels.get(link)
        if made is None:
            made = self._channels[link] = LinkChannel(link, self._draws)
        return made

    def _changed(self) -> None:
        if self._sim is not None:
            self._sim.network_changed()
            self.flows.all_changed()


def _set(
    links: dict[tuple[str, str], Link], a: str, b: str, link: Link | None, both_ways: bool
) -> None:
    for pair in ((a, b), (b, a)) if both_ways else ((a, b),):
        if link is None:
            links.pop(pair, None)
        else:
            links[pair] = link
