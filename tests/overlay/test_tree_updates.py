"""What a parent hears of its children: bounded traffic, and always the newest."""

from __future__ import annotations

import numpy as np
import pytest
from test_tree_churn import Idle

from sureline.overlay.tree.agent import HEADER_BYTES, Tree, TreeSettings
from sureline.overlay.tree.messages import Update
from sureline.overlay.tree.points import slot_of
from sureline.overlay.tree.shape import Links
from sureline.overlay.tree.summary import Amounts, Summary, summary_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId
from sureline.world.simulated import Constant, Link, Network, Simulation

PARENT = AgentId("p/tree")


class Busy(Idle):
    """A leaf that is free from another moment on whenever it is told so."""

    free_s = 0.0

    def summary(self, now_s: float) -> Summary:
        holes = np.array([[max(now_s, self.free_s), now_s + 1e6]])
        return summary_of(slot_of(now_s), holes, 1000.0, Amounts(), now_s)


class Parent(Agent):
    heard: list[tuple[float, bytes]]

    @handles(Update)
    def _on_update(self, sender: AgentId, update: Update) -> None:
        self.heard.append((self.world.now(), update.cells))


@pytest.mark.parametrize(("bytes_per_s", "period_s"), [(10_000.0, 2.0), (50.0, 0.2)])
def test_the_newest_summary_replaces_one_that_waits(bytes_per_s: float, period_s: float) -> None:
    """However often the leaf changes, no more is said than was agreed on, the last change too."""
    sim = Simulation(1, Network(Link(Constant(0.01))), epoch_s=1000.0)
    settings = TreeSettings(bytes_per_s, period_s, beat_s=1e6, beat_max_s=1e6)
    parent, leaf = Parent(PARENT, sim.place(PARENT)), Busy()
    parent.heard = []
    child = Tree(AgentId("c/tree"), sim.place(AgentId("c/tree")), leaf, settings)
    child.placed(Links(PARENT))
    sim.join(parent)
    sim.join(child)
    child.begin()
    for step in range(200):
        leaf.free_s = 1000.0 + 500.0 * step
        child.changed(leaf=True)
        sim.run(until=0.1 * (step + 1))
    newest = leaf.summary(1020.0).packed()
    sim.run(until=60.0)
    times = [at for at, _ in parent.heard]
    sizes = [HEADER_BYTES + len(cells) for _, cells in parent.heard]
    assert 5 <= len(times) < 50
    for before, after, size in zip(times, times[1:], sizes, strict=False):
        assert after - before >= max(period_s, size / bytes_per_s) - 1e-3
    assert parent.heard[-1][1] == newest
