"""Peers of a tree that come, go and die, in the simulator: afterwards the tree is that of those who
are there, and every branch knows what lies below it.

Members hear of each other by the real membership, over links that lose messages. A failing seed is
in the message; `history(SEED)` repeats it.
"""

from __future__ import annotations

from random import Random

import numpy as np
import pytest
from test_tree_shape import check

from sureline.overlay.membership import Membership, Offer
from sureline.overlay.tree.agent import Tree, TreeSettings
from sureline.overlay.tree.following import follow
from sureline.overlay.tree.leaf import PromisedTime
from sureline.overlay.tree.points import slot_of
from sureline.overlay.tree.summary import Amounts, Summary, summary_of
from sureline.world.address import at
from sureline.world.simulated import Exponential, Link, Network, Simulation

SETTINGS = TreeSettings(beat_s=5.0, beat_max_s=15.0)
HOLE_S = 7 * 86_400.0
PRESENT = ("alive", "suspect")


class Idle:
    """A leaf that is free, and promises nothing."""

    def summary(self, now_s: float) -> Summary:
        holes = np.array([[now_s, now_s + HOLE_S]])
        return summary_of(slot_of(now_s), holes, 1000.0, Amounts(), now_s)

    def reserve(self, ask, now_s, owner="") -> tuple[PromisedTime, ...]:
        return ()

    def commit(self, number, first, startlines_s, now_s, owner="") -> tuple[PromisedTime, ...]:
        return ()

    def release(self, number: int, first: int, count: int, now_s: float) -> None: ...


class Net:
    def __init__(self, seed: int, loss: float = 0.0) -> None:
        link = Link(Exponential(0.02, least_s=0.02), loss=loss)
        self.sim = Simulation(seed, Network(link))
        self.live: dict[str, Tree] = {}
        self.members: dict[str, Membership] = {}
        self.random = Random(seed)

    def start(self, node: str, *, routes_only: bool = False) -> None:
        contacts = sorted(self.live)
        if self.sim.machine(node).life is None:
            self.sim.restart(node)
        me = at(node, "membership")
        offer = Offer(1.0, 1 << 30, roles=("submit",) if routes_only else ("run",))
        membership = Membership(me, self.sim.place(me), offer)
        me = at(node, "tree")
        tree = Tree(me, self.sim.place(me), None if routes_only else Idle(), SETTINGS)
        self.sim.join(membership)
        self.sim.join(tree)

        def present():  # type: ignore[no-untyped-def]  # a list of members
            return [m for m in membership.members().values() if m.state in PRESENT]

        follow(tree, present, membership.watch)
        membership.join(contacts, lambda others: None)
        self.live[node], self.members[node] = tree, membership

    def crash(self, node: str) -> None:
        del self.live[node]
        self.sim.crash(node)

    def leave(self, node: str) -> None:
        del self.live[node]
        self.members[node].leave(lambda: self.sim.crash(node))

    def wrong(self) -> str:
        """What is not yet as it should be."""
        try:
            check({tree.me: tree.links for tree in self.live.values()})
        except (AssertionError, KeyError) as error:
            return f"{type(error).__name__}: {error}"
        roots = [tree for tree in self.live.values() if not tree.branch_parent and tree.kids]
        free = sum(tree.leaf is not None for tree in self.live.values())
        known = roots[0].shelf.below(0).holes if roots else free
        return "" if known == free else f"the root knows {known} of {free} holes"

    def settle(self, seconds: float = 300.0) -> None:
        until = self.sim.time + seconds
        while self.wrong() and self.sim.time < until:
            self.sim.run(until=self.sim.time + 2.0)
        assert not self.wrong(), f"seed {self.sim.seed}: {self.wrong()}"


@pytest.mark.parametrize("count", [1, 2, 3, 12])
def test_peers_join_one_after_the_other(count: int) -> None:
    net = Net(1)
    for number in range(count):
        net.start(f"n{number:03}")
        net.settle()


def test_the_host_of_the_root_and_its_neighbours_die_at_once() -> None:
    net = Net(5)
    for number in range(12):
        net.start(f"n{number:03}", routes_only=number % 4 == 0)
    net.settle()
    names = sorted(net.live)
    root = next(n for n, tree in net.live.items() if tree.kids and not tree.branch_parent)
    place = names.index(root)
    for victim in names[max(0, place - 1) : place + 2]:
        net.crash(victim)
    net.settle()


def history(seed: int, peers: int = 12, steps: int = 16) -> None:
    """Peers come, leave and die at any time, some of them many at once."""
    net = Net(seed, loss=0.02)
    for number in net.random.sample(range(1000), peers):
        net.start(f"n{number:03}", routes_only=net.random.random() < 0.2)
    net.sim.run(until=2.0)  # whoever has met nobody cannot find anybody when all he knew are gone
    for _ in range(steps):
        net.sim.run(until=net.sim.time + net.random.choice((0.0, 0.3, 3.0, 20.0)))
        what = net.random.choice(("start", "leave", "crash"))
        if what == "start":
            node = f"n{net.random.randrange(1000):03}"
            if node not in net.live:
                net.start(node)
        elif len(net.live) > 3:
            getattr(net, what)(net.random.choice(sorted(net.live)))
    net.settle()


@pytest.mark.parametrize("seed", range(4))
def test_random_comings_and_goings(seed: int) -> None:
    history(seed)


@pytest.mark.soak
@pytest.mark.parametrize("block", range(20))
def test_a_thousand_histories(block: int) -> None:
    for seed in range(50 * block, 50 * block + 50):
        history(seed)
