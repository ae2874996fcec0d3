"""A simulated grid of membership agents, with faults and with what must hold, apart from the code.

`Grid` keeps its own account of who is up; the agents' accounts are compared with it.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Literal

from sureline.overlay.membership import Member, Membership, MembershipSettings, Offer
from sureline.overlay.membership.settings import (
    ERRANDS_MAX,
    GONE_MAX,
    INQUIRIES_MAX,
    RUMOURS_MAX,
)
from sureline.world.address import at, name_of
from sureline.world.simulated import Link, MachineSpec, Network, Simulation

PART = "membership"


class Grid:
    """Nodes by address. `seen` is every change that any watcher of a live node was told of:
    (time, at which node, the member)."""

    def __init__(
        self,
        seed: int,
        *,
        settings: MembershipSettings | None = None,
        link: Link | None = None,
        watched: bool = True,
        detail: Literal["light", "full"] = "light",
    ) -> None:
        network = Network(link) if link else Network()
        self.sim = Simulation(seed=seed, network=network, detail=detail)
        self.settings = settings or MembershipSettings()
        self.agents: dict[str, Membership] = {}
        self.up: dict[str, None] = {}
        """The addresses of the members whose process runs, frozen or not."""
        self.seen: list[tuple[float, str, Member]] = []
        self.joined: dict[str, int] = {}
        self._watched = watched

    def add(
        self,
        node: str,
        contacts: Sequence[str] = (),
        *,
        observer: bool = False,
        spec: MachineSpec | None = None,
    ) -> Membership:
        """Start a node, now and again after every restart."""
        if spec is not None:
            self.sim.machine(node, spec)

        def start() -> None:
            agent = self._make(node, observer)
            agent.join(contacts, lambda others: self.joined.__setitem__(node, others))

        self.sim.boot(node, start)
        return self.agents[node]

    def _make(self, node: str, observer: bool) -> Membership:
        me = at(node, PART)
        offer = None if observer else Offer(4.0, 8 << 30, site="lab", roles=("run", "submit"))
        agent = Membership(me, self.sim.place(me), offer, self.settings)
        self.sim.join(agent)
        self.agents[node] = agent
        if not observer:
            self.up[node] = None
        if self._watched:
            agent.watch(lambda member: self.seen.append((self.sim.time, node, member)))
        return agent

    def add_acquainted(self, count: int) -> list[str]:
        """Start nodes that know each other already, which saves the time of joining."""
        nodes = [f"n{number}" for number in range(count)]
        for node in nodes:
            self.sim.boot(node, lambda node=node: self._acquaint(node, nodes))
        for node in nodes:
            for other in nodes:
                if other != node:
                    own = self.agents[other].knowledge.own
                    self.agents[node].knowledge.table.put(own, 0.0)
        return nodes

    def _acquaint(self, node: str, nodes: Sequence[str]) -> None:
        first = node not in self.agents
        agent = self._make(node, False)
        agent.join((), lambda others: None) if first else agent.join(nodes, lambda others: None)

    # Faults.

    def crash(self, node: str) -> None:
        self.sim.crash(node)
        self.up.pop(node, None)

    def restart(self, node: str) -> None:
        self.sim.restart(node)

    def cut_off(self, nodes: Collection[str]) -> None:
        self.sim.partition([list(nodes)])

    def run_for(self, seconds: float) -> None:
        self.sim.run(until=self.sim.time + seconds)

    def run_until(self, condition, within_s: float, step_s: float = 0.1) -> float:
        """How long it took until the condition held; fails if it takes longer than allowed."""
        began = self.sim.time
        while not condition():
            assert self.sim.time - began < within_s, (
                f"seed {self.sim.seed}: not within {within_s} s of {began:.1f}"
            )
            self.run_for(step_s)
        return self.sim.time - began

    # What the agents think.

    def state_at(self, node: str, name: str) -> str | None:
        record = self.agents[node].knowledge.table.records.get(name)
        return record.state if record else None

    def states_of(self, name: str, among: Collection[str] | None = None) -> dict[str, str | None]:
        nodes = self.up if among is None else among
        return {node: self.state_at(node, name) for node in nodes if name_of(node) != name}

    def agree_on(self, nodes: Collection[str], among: Collection[str] | None = None) -> bool:
        """Whether all nodes show exactly these as alive, at these addresses, in the lives that
        they are in, and nobody as suspect."""
        wanted = {
            name_of(node): (node, self.agents[node].knowledge.own.life) for node in sorted(nodes)
        }
        return all(
            present(self.agents[node]) == wanted for node in (nodes if among is None else among)
        )

    def deaths_seen(self) -> list[tuple[float, str, str]]:
        return [(time, node, m.name) for time, node, m in self.seen if m.state == "dead"]

    def check_bounds(self) -> None:
        for node in self.up:
            agent = self.agents[node]
            assert len(agent.inquiries._open) <= INQUIRIES_MAX
            assert len(agent.inquiries._asked) <= 32 * INQUIRIES_MAX
            assert len(agent.inquiries._errands) <= ERRANDS_MAX
            assert len(agent.knowledge.rumours) <= RUMOURS_MAX
            assert len(agent.knowledge.table.gone) <= GONE_MAX
            records = agent.knowledge.table.records.items()
            suspects = {name for name, record in records if record.state == "suspect"}
            assert suspects == set(agent.knowledge.hearsay), "a suspicion nobody looks into"
            assert len(agent.knowledge.lacking) <= 200
            assert len(agent._timers) <= 5


def present(agent: Membership) -> dict[str, tuple[str, int]] | None:
    """Whom an agent shows as alive; None if anybody is suspect."""
    members = agent.members()
    if any(member.state == "suspect" for member in members.values()):
        return None
    return {
        name: (member.node, member.life)
        for name, member in sorted(members.items())
        if member.state == "alive"
    }
