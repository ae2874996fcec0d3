"""What a peer has beyond what every node has: it keeps runs of others, runs tasks, and deals."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from sureline.assembly.node import GridNode
from sureline.assembly.relief import Relief, TakeOver
from sureline.overlay.renewal import PART as RENEWAL
from sureline.overlay.renewal import Renewal
from sureline.peer.capacity import Capacity
from sureline.peer.grid_agent import GridPeerAgent
from sureline.peer.marks import Marks
from sureline.run.copies import TOPIC, answer_with, merge_copies, plainly_asked
from sureline.run.keeper import Keeper
from sureline.run.kept import KeptRuns
from sureline.run.port import Strategy
from sureline.strategies import machine_settings_of
from sureline.world.address import Node, at, name_of
from sureline.world.agent import Agent
from sureline.world.identity.signing import DRIVE, Trust, verify
from sureline.world.protocol import AgentId, World


class Certificates(NamedTuple):
    """How a machine has its certificate renewed; see `overlay.renewal`."""

    issuer: str
    """The name of the peer whose home holds the CA."""
    request: Callable[[], bytes | None]
    accept: Callable[[bytes], None]
    issue: Callable[[str, bytes], bytes | None] | None = None
    asked: Callable[[bytes, Node], str | None] = plainly_asked
    """What a node asks of the runs that are kept here, None if it may not; see `run.copies`."""


class Workplace(NamedTuple):
    """What a machine that runs tasks does them with, the strategies that have a half there, and
    what its owner has set of them."""

    capacity: Capacity
    marks: Marks
    strategies: Sequence[Strategy] = ()
    settings: Mapping[str, Any] = {}


class GridPeer:
    """Made on a node; it acts from `start` on. Without a `workplace` it only keeps runs of
    others; with `take_over`, it has them driven on."""

    def __init__(
        self,
        node: GridNode,
        kept: KeptRuns,
        trust: Trust,
        workplace: Workplace | None,
        certificates: Certificates | None = None,
        take_over: TakeOver | None = None,
        ahead_s: float = 0.0,
    ) -> None:
        self._node = node
        self._trust = trust
        self._starts: list[Callable[[], None]] = []
        me, world = self._place("keeper")
        self.keeper = Keeper(me, world, kept, trust)
        self._joined(self.keeper)
        if take_over is not None:
            relief = Relief(world, me, self.keeper, kept, self._drivers, take_over, ahead_s)
            self._starts.append(relief.start)
        asked = plainly_asked if certificates is None else certificates.asked
        answer = answer_with(node.id, kept.known, asked)
        node.kademlia.on_broadcast(TOPIC, answer, merge_copies)
        if certificates is not None:
            self._renew(certificates)
        self.agent = None if workplace is None else self._work_at(workplace)

    def _drivers(self) -> list[str]:
        """The peers that may drive runs of others and are there."""
        present = self._node.present()
        return [name_of(m.node) for m in present if DRIVE in m.offer.roles]

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
        agent = GridPeerAgent(
            me,
            world,
            workplace.capacity,
            workplace.marks,
            report,
            check=lambda run, epoch, papers: verify(papers, run, epoch, self._trust, world.now()),
        )
        self._joined(agent, agent.start)
        extras: dict[str, float | str] = {}
        for strategy in workplace.strategies:
            if strategy.machine is not None:
                settings = machine_settings_of(strategy, workplace.settings)
                half = strategy.machine(agent, lambda part: self._place(part)[1], settings)
                half.beside(self._node.halves.get(strategy.name, ()))
                extras |= half.advertised()
                agent.admit_by(half)
                for one in half.agents:
                    self._joined(one)
                self._starts.append(half.start)
        self._node.advertise(extras)
        return agent

    def _place(self, part: str) -> tuple[AgentId, World]:
        me = at(self._node.id, part)
        return me, self._node.ground.place(me)

    def _joined(self, agent: Agent, start: Callable[[], None] | None = None) -> None:
        self._node.ground.join(agent)
        if start is not None:
            self._starts.append(start)
