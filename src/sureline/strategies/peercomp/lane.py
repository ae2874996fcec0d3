"""One lane of a machine as a leaf of the tree: admits sequences, leases, commits, gives time back.

The paper leaves memory and disk out "although they can be easily applied as additional
constraints". Here a lane has its share of the machine's memory, cores and disk. It runs one task at
a time, so a task whose needs fit the lane can never make it hold more than it has.
"""

from __future__ import annotations

import numpy as np

from sureline.overlay.tree.leaf import HoleSought, PromisedTime
from sureline.overlay.tree.points import bounds_of, slot_of
from sureline.overlay.tree.summary import Amounts, Summary, summary_of
from sureline.strategies.peercomp.queues import Queues, commit, release, reserve

LEASE_S = 30.0
"""How long a reservation waits for its commitment."""
SOON_S = 5.0
"""A task that could begin at once is promised for a little later: its commitment is on its way."""
PIECES_MAX = 64
"""Tasks of one sequence on one lane."""
AMPLE = Amounts(30, 30, 30)


class Lane:
    """Row `row` of `queues`. With `watched`, tasks are started and ended by whoever runs them; else
    the lane works on its own, as simulated machines do."""

    __slots__ = ("limits", "queues", "row", "shortfall", "watched")

    def __init__(
        self,
        queues: Queues,
        row: int,
        limits: Amounts = AMPLE,
        *,
        watched: bool = False,
        shortfall: float = 1.0,
    ) -> None:
        self.queues = queues
        self.row = row
        self.limits = limits
        self.watched = watched
        self.shortfall = shortfall
        """What a task really takes, of what was reserved for it."""

    def summary(self, now_s: float) -> Summary:
        self.queues.see(self.row, now_s, self.watched)
        slot = slot_of(now_s)
        holes = self.queues.holes(self.row, now_s, float(bounds_of(slot)[-1]))
        return summary_of(slot, holes, float(self.queues.power[self.row]), self.limits)

    def reserve(self, ask: HoleSought, now_s: float) -> tuple[PromisedTime, ...]:
        if not 0 < len(ask.works) == len(ask.dues_s) <= PIECES_MAX:
            return ()
        if not 0 <= ask.early <= len(ask.works):
            return ()
        if any(need > has for need, has in zip(ask.limits, self.limits, strict=True)):
            return ()
        q = self.queues
        placed = np.empty((len(ask.works), 2))
        taken = reserve(
            q.queue, q.ids, q.sizes, q.busy, q.power, self.row, now_s, self.watched, ask.number,
            ask.first, ask.startline_s, ask.middle_s, np.array(ask.works), np.array(ask.dues_s),
            ask.early, self.shortfall, SOON_S, LEASE_S, q.log, placed,
        )  # fmt: skip
        return _slots(placed) if taken else ()

    def commit(
        self, number: int, first: int, startlines_s: tuple[float, ...], now_s: float
    ) -> tuple[PromisedTime, ...]:
        q = self.queues
        placed = np.empty((len(startlines_s), 2))
        kept = commit(
            q.queue, q.ids, q.sizes, q.busy, self.row, now_s, self.watched, number, first,
            np.array(startlines_s), q.log, placed,
        )  # fmt: skip
        return _slots(placed) if kept else ()

    def release(self, number: int, now_s: float) -> None:
        q, row = self.queues, self.row
        q.see(row, now_s, self.watched)
        q.sizes[row] = release(q.queue[row], q.ids[row], q.sizes[row], number, now_s)


def _slots(placed: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> tuple[PromisedTime, ...]:
    return tuple([PromisedTime(*pair) for pair in placed.tolist()])
