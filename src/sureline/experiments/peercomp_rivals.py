"""Other ways to find a machine that has the time, on the same grid and the same workloads.

All of them book whole workflows as ours does, and every machine admits by the same rule; what
differs is which machine is asked:
- `oracle`: somebody who knows all queues as they are now, and asks the machine with the smallest
  hole that holds the sequence; its question takes no time. If there is none, it cuts the sequence
  where a branch of the tree could: the largest first piece for which the rest fits, too.
- `probing`: PROBES machines at random, one after the other.
- `spread`: the machine with the least promised work, then the next, PROBES of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal

import msgspec
import numpy as np

from sureline.compiled import kernel
from sureline.experiments.peercomp_grid import Grid
from sureline.experiments.peercomp_lane import best_hole
from sureline.experiments.peercomp_warm import Warm
from sureline.overlay.tree.agent import Tree
from sureline.overlay.tree.leaf import HoleSought
from sureline.overlay.tree.messages import Nowhere, TimeRequest, TreeAnswer
from sureline.overlay.tree.points import FIRST, bounds_of, slot_of
from sureline.overlay.tree.shelf import cut
from sureline.strategies.peercomp.owner import Desk
from sureline.strategies.peercomp.queues import Floats, Ints, expire
from sureline.world.protocol import AgentId

Way = Literal["tree", "oracle", "probing", "spread"]
WAYS: tuple[Way, ...] = ("tree", "oracle", "probing", "spread")
PROBES = 8
SOON_S = 5.0


class Rivalry(msgspec.Struct, frozen=True):
    """What one way got of the workload."""

    way: str
    nodes: int
    load: float
    seed: int
    workflows: int
    accepted: float
    """The share."""
    missed: int
    messages_per_workflow: float
    busiest_messages_per_s: float


@kernel
def smallest(
    queues: Floats, ids: Ints, sizes: Ints, busy: Floats, power: Floats, now_s: float,
    from_s: float, middle_s: float, works: Floats, dues_s: Floats, early: int, placed: Floats,
) -> int:  # fmt: skip
    """The row with the smallest hole that holds a sequence; -1 if there is none."""
    best_s, best = np.inf, -1
    for row in range(len(sizes)):
        sizes[row] = expire(queues[row], ids[row], sizes[row], now_s)
        if sizes[row] + len(works) > len(queues[row]):
            continue
        length_s = best_hole(
            queues[row], sizes[row], max(now_s, busy[row, 0]), max(from_s, now_s), middle_s,
            works / power[row], dues_s, early, now_s + SOON_S, placed,
        )  # fmt: skip
        if length_s < best_s:
            best_s, best = length_s, row
    return best


def cuts(ask: HoleSought, slot: int) -> Iterator[tuple[HoleSought, HoleSought]]:
    """All ways to cut a sequence that `search.cut_two` knows, in its order."""
    for count in range(len(ask.works) - 1, 0, -1):
        for point_s in (ask.middle_s, *bounds_of(slot)[FIRST:].tolist()):
            if not ask.startline_s < point_s < ask.deadline_s:
                continue
            too_late = count < ask.early and point_s >= ask.middle_s
            too_soon = count > ask.early and point_s <= ask.middle_s
            if not too_late and not too_soon:
                yield cut(ask, count, point_s)


class RivalGrid(Grid):
    """A grid in which requests go straight to machines."""

    def __init__(self, peers: int, seed: int, warm: Warm, way: Way) -> None:
        super().__init__(peers, seed, state=warm.queues, epoch_s=warm.time_s)
        self._way = way
        self._draw = np.random.RandomState(seed)
        self._asked: dict[int, tuple[HoleSought, list[int]]] = {}

    def desk(self, row: int) -> Desk:
        if self._way == "tree":
            return super().desk(row)
        return _RivalDesk(self.agents[row], self.again)

    def asker(self, row: int) -> Callable[[HoleSought], None] | None:
        if self._way == "tree":
            return None
        return lambda ask: self._ask(self.agents[row], ask)

    def _ask(self, owner: Tree, ask: HoleSought) -> None:
        nowhere = Nowhere(ask.number, 0, "no machine that was asked has the time")
        if self._way == "oracle":
            found = self._known(ask)
            for piece, row in found:
                request = TimeRequest(piece, owner.me, True, self.settings.hops_max)
                self.agents[row].receive(owner.me, request)
            asked = bool(found)
        else:
            self._asked[ask.number] = (ask, self._candidates())
            asked = self.again(owner, nowhere)
        if not asked:
            owner.world.send(owner.me, nowhere)

    def _known(self, ask: HoleSought) -> list[tuple[HoleSought, int]]:
        """The oracle's machine; or two, if it must cut."""
        row = self._smallest(ask)
        if row >= 0:
            return [(ask, row)]
        for first, rest in cuts(ask, slot_of(self.now_s)):
            row = self._smallest(first)
            lane = self.agents[row].leaf
            if row < 0 or lane is None or not lane.reserve(first, self.now_s):
                continue
            other = self._smallest(rest)
            if other >= 0:
                return [(first, row), (rest, other)]
            lane.release(first.number, first.first, len(first.works), self.now_s)
        return []

    def _smallest(self, ask: HoleSought) -> int:
        q = self.queues
        q.advance_all(self.now_s)
        return smallest(
            q.queue, q.ids, q.sizes, q.busy, q.power, self.now_s, ask.startline_s, ask.middle_s,
            np.array(ask.works), np.array(ask.dues_s), ask.early, np.empty((len(ask.works), 2)),
        )  # fmt: skip

    def again(self, owner: Tree, nowhere: Nowhere) -> bool:
        """Ask the next machine; False if there is none."""
        ask, left = self._asked.get(nowhere.number, (None, []))
        if ask is None or not left:
            self._asked.pop(nowhere.number, None)
            return False
        to = AgentId(f"n{left.pop(0)}")
        # As if it had come a long way: a machine that has no time says so, and asks nobody.
        owner.world.send(to, TimeRequest(ask, owner.me, True, self.settings.hops_max))
        return True

    def _candidates(self) -> list[int]:
        q = self.queues
        if self._way == "probing":
            return [int(row) for row in self._draw.randint(0, self.peers, PROBES)]
        promised = np.maximum(0.0, q.busy[:, 0] - self.now_s)
        promised += np.where(
            np.arange(q.queue.shape[1])[None, :] < q.sizes[:, None], q.queue[:, :, 2], 0.0
        ).sum(axis=1)
        return [int(row) for row in np.argpartition(promised, PROBES)[:PROBES]]


class _RivalDesk(Desk):
    """Asks another machine before a booking hears that one has no time."""

    def __init__(self, tree: Tree, again: Callable[[Tree, Nowhere], bool]) -> None:
        super().__init__(tree)
        self._mine = tree
        self._again = again

    def told(self, sender: AgentId, message: TreeAnswer) -> None:
        if not (isinstance(message, Nowhere) and self._again(self._mine, message)):
            super().told(sender, message)


def rivalry(warm: Warm, way: Way, load: float, seed: int, minutes: float) -> Rivalry:
    """Some minutes at this load, from this state, which is used up."""
    grid = RivalGrid(len(warm.queues), seed, warm, way)
    grid.begin(load, minutes * 60)
    grid.run(minutes * 60 + 60.0)
    ended = grid.finished
    updates = grid.sweeps.updates if grid.sweeps is not None and way == "tree" else 0
    messages = int(grid.tally.total[2].sum()) - (grid.sweeps.updates if grid.sweeps else 0)
    return Rivalry(
        way, grid.peers, load, seed, len(ended),
        sum(not one.booked.reason for one in ended) / max(1, len(ended)), grid.missed(),
        (messages + updates) / max(1, len(ended)),
        float((grid.tally.peak[2] + grid.tally.peak[3]).max()),
    )  # fmt: skip
