"""What a peer has beyond what every node has: it keeps runs of others, runs tasks, and deals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from sureline.assembly.node import GridNode
from sureline.overlay.renewal import PART as RENEWAL
from sureline.overlay.renewal import Renewal
from sureline.peer.capacity import Capacity
from sureline.peer.grid_agent import GridPeerAgent, Marks
from sureline.run.copies import TOPIC, answer_with, merge_copies
from sureline.run.keeper import Keeper, KeptRuns
from sureline.strategies.surety.pricing import Tariff
from sureline.strategies.surety.provider import PART as MARKET
from sureline.strategies.surety.provider import Provider
from sureline.world.address import at, name_of
from sureline.world.agent import Agent
from sureline.world.protocol import AgentId, World

MakeProvider = Callable[[AgentId, World, GridPeerAgent], Provider]


class Certificates(NamedTuple):
    """How a machine has its certificate renewed; see `overlay.renewal`."""

    issuer: str
    """The name of the peer whose home holds the CA."""
    request: Callable[[], bytes | None]
    accept: Callable[[bytes], None]
    issue: Callable[[str, bytes], bytes | None] | None = None


class Workplace(NamedTuple):
    """What a machine that runs tasks does them with, and how it deals."""

    capacity: Capacity
    marks: Marks
    provider: MakeProvider


def dealing_by(tariff: Tariff) -> MakeProvider:
    """Providers that ask these prices."""
    return lambda me, world, peer: Provider(me, world, peer, tariff)


class GridPeer:
    """Made on a node; it acts from `start` on. Without a `workplace` it only keeps runs of others.

    `halves` make further agents, such as strategies have on every machine that runs tasks.
    """

    def __init__(
        self,
        node: GridNode,
        kept: KeptRuns,
        workplace: Workplace | None,
        certificates: Certificates | None = None,
        halves: Sequence[Half] = (),
    ) -> None:
        self._node = node
        self._starts: list[Callable[[], None]] = []
        me, world = self._place("keeper")
        self._joined(Keeper(me, world, kept))
        node.kademlia.on_broadcast(TOPIC, answer_with(node.id, kept.known), merge_copies)
        if certificates is not None:
            self._renew(certificates)
        self.agent = None if workplace is None else self._work_at(workplace)
        for half in halves:
            self._joined(half(self))

    def start(self) -> None:
        for start in self._starts:
            start()

    def _renew(self, certificates: Certificates) -> None:
        me, world = self._place(RENEWAL)
        renewal = Renewal(
            me,
            world,
            request=certificates.request,
            accept=certificates.accept,
            issuers=lambda: [
                member.node
                for member in self._node.present()
                if name_of(member.node) == certificates.issuer
            ],
            issue=certificates.issue,
        )
        self._joined(renewal, renewal.start)

    def _work_at(self, workplace: Workplace) -> GridPeerAgent:
        me, world = self._place("peer")
        report = self._node.membership.report
        agent = GridPeerAgent(me, world, workplace.capacity, workplace.marks, report)
        self._joined(agent, agent.start)
        me, world = self._place(MARKET)
        provider = workplace.provider(me, world, agent)
        self._joined(provider, provider.start)
        return agent

    def _place(self, part: str) -> tuple[AgentId, World]:
        me = at(self._node.id, part)
        return me, self._node.ground.place(me)

    def _joined(self, agent: Agent, start: Callable[[], None] | None = None) -> None:
        self._node.ground.join(agent)
        if start is not None:
            self._starts.append(start)


Half = Callable[[GridPeer], Agent]
"""Makes one more agent of a peer."""
