"""The agents that every node of a grid has: who is there, where things are, who is out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from sureline.assembly.ground import NOBODY_OUT, Ground, Standing
from sureline.overlay.kademlia import Kademlia, key_of
from sureline.overlay.membership import Member, Membership, Offer
from sureline.overlay.news import News
from sureline.run.port import Strategy
from sureline.world.address import Node, at, name_of
from sureline.world.agent import Agent
from sureline.world.identity.revocations import RevocationList
from sureline.world.protocol import World

PRESENT = ("alive", "suspect")


@runtime_checkable
class Departing(Protocol):
    """A strategy's half that has something to hand over before its node goes."""

    def leave(self, on_done: Callable[[], None]) -> None: ...


class GridNode:
    """Made on a ground that is up; nobody is spoken to before `join`. Without an `offer` the node
    only looks on: it is no member.

    `strategies` are those whose halves on every node it has; to them this is their `port.Host`.
    """

    def __init__(
        self,
        ground: Ground,
        offer: Offer | None,
        standing: Standing = NOBODY_OUT,
        strategies: Sequence[Strategy] = (),
    ) -> None:
        self.ground = ground
        self.id = ground.id
        self._standing = standing
        me = at(self.id, "membership")
        self.membership = Membership(me, ground.place(me), offer)
        me = at(self.id, "kademlia")
        self.kademlia = Kademlia(me, ground.place(me))
        self.membership.watch(self._see, loads=False)
        me = at(self.id, "news")
        self.news = News(
            me,
            ground.place(me),
            standing.verified,
            self._on_new_list,
            known=standing.known,
            neighbours=lambda: [member.node for member in self.present()],
        )
        self.membership.news = self.news.version
        self.membership.on_news = self.news.heard_of
        for agent in (self.membership, self.kademlia, self.news):
            ground.join(agent)
        self.halves: dict[str, Sequence[Agent]] = {}
        """The agents of strategies on this node, by the strategy's name."""
        for strategy in strategies:
            if strategy.node is not None:
                self.halves[strategy.name] = strategy.node(self)
            for half in self.halves.get(strategy.name, ()):
                ground.join(half)

    def _on_new_list(self, revocations: RevocationList) -> None:
        self.membership.news = revocations.version
        self._standing.on_new(revocations)

    def join(self, contacts: Sequence[Node], on_met: Callable[[int], None]) -> None:
        """Knock at the contacts until one answers; without any, this is the first node of its grid.
        `on_met` hears how many others there are, once this node also finds its way in the hash
        table."""

        def met(others: int) -> None:
            at_kademlia = [at(node, "kademlia") for node in contacts]
            self.kademlia.join(at_kademlia, lambda known: on_met(others))

        self.membership.join([at(node, "membership") for node in contacts], met)

    def _see(self, member: Member) -> None:
        """Who knows all members need not search for those who are near a key."""
        agent = at(member.node, "kademlia")
        if member.state in PRESENT:
            self.kademlia.meet(agent)
        else:
            self.kademlia.went(agent)

    # -- for strategies' halves here (`port.Host`) ------------------------------------------------

    @property
    def node(self) -> Node:
        return self.id

    def place(self, part: str) -> World:
        return self.ground.place(at(self.id, part))

    def members(self) -> list[Member]:
        return self.present()

    def has(self, node: Node) -> bool:
        record = self.membership.knowledge.table.records.get(name_of(node))
        return record is not None and record.present and record.node == node

    def watch(self, hear: Callable[[Member], None]) -> None:
        self.membership.watch(hear, loads=False)

    def attending(self) -> bool:
        return self.membership.knowledge.own is not None

    def advertise(self, extras: Mapping[str, float | str]) -> None:
        """What this node's machine says of itself besides its capacity; before joining."""
        self.membership.advertise(extras)

    def present(self) -> list[Member]:
        """The members that are not known to be gone."""
        return [m for m in self.membership.members().values() if m.state in PRESENT]

    def partings(self) -> list[Callable[[Callable[[], None]], None]]:
        """What is to be done before this node goes, one after the other: hand over what only it
        has, say goodbye. Each is given what to call when it is done."""
        halves = [half for halves in self.halves.values() for half in halves]
        leaving = [half.leave for half in halves if isinstance(half, Departing)]
        return [*leaving, self.kademlia.leave, self.membership.leave]

    def stop(self) -> None:
        """Go without a word: members notice, guests are missed by nobody."""
        self.membership.stop()
        self.kademlia.stop()

    # -- where files are ------------------------------------------------------------------------

    def announce(self, digest: str) -> None:
        self.kademlia.store(key_of(digest), self.id.encode(), lambda replicas: None)

    def withdraw(self, digest: str) -> None:
        self.kademlia.forget(key_of(digest), self.id.encode())

    def locate(self, digest: str, on_done: Callable[[Sequence[Node]], None]) -> None:
        """Calls back once, with the nodes that have announced a content. The values under a digest
        are addresses; whoever stored something else is not heard."""

        def heard(values: Sequence[bytes]) -> None:
            told = [value.decode(errors="replace") for value in values]
            on_done([Node(text) for text in told if self.ground.is_node(text)])

        self.kademlia.find(key_of(digest), heard)
