"""Whom a machine favours when not all can be promised time: fairness and priorities, which the
paper leaves to later work.

What is promised is kept, so a policy can only say who is promised something. A machine keeps a
share of its time free of those whom it does not favour, as telephone exchanges keep lines: whoever
asks gets a promise only if, of the time until his deadline, that share stays free. A lane that has
promised nothing takes anybody: nothing stands idle for somebody who may never come.

- `deadline`: nobody is favoured; who comes first is promised first. The paper's.
- `priority`: runs that say that they matter more (`--with priority=high`), which is believed.
- `fair`: those who had less of this machine lately than others: of who had n times the mean, all
  but an n-th is kept free. Nobody's word is needed for that: the machine has counted itself what it
  promised, and to whom.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from sureline.overlay.tree.leaf import HoleSought
from sureline.strategies.peercomp.queues import FAR_S, Queues
from sureline.world.address import peer_of
from sureline.world.protocol import AgentId

Policy = Literal["deadline", "priority", "fair"]
Priority = Literal["low", "normal", "high"]
KEPT_FREE: dict[Priority, float] = {"low": 0.45, "normal": 0.2, "high": 0.0}
"""Of the time until the deadline, by the priority of who asks."""
GREEDY = 1.5
"""Who had so many times as much as submitters had on average, or more, is not favoured."""
HALF_LIFE_S = 3600.0
"""What was had so long ago counts half."""
REMEMBERED_MAX = 1000
"""Submitters, and sequences that wait for their commitment."""


class Favour:
    """What one machine keeps free of whom, by its policy."""

    def __init__(self, policy: Policy = "deadline") -> None:
        self.policy = policy
        self._had_s: dict[str, float] = {}
        """By submitter, as its certificate names it."""
        self._since_s = 0.0
        self._asked: dict[tuple[int, int], str] = {}
        """Of leases, by number and first task."""

    def lets(
        self, ask: HoleSought, owner: AgentId, queues: Queues, row: int, power: float, now_s: float
    ) -> bool:
        """Whether this lane may promise it, as far as the policy goes."""
        kept = self._kept_free(peer_of(owner), ask.priority, now_s)
        if not kept or queues.is_idle(row, now_s):
            return True
        holes = np.clip(queues.holes(row, now_s, FAR_S), now_s, ask.deadline_s)
        free_s = float((holes[:, 1] - holes[:, 0]).sum()) - sum(ask.works) / power
        return free_s >= kept * (ask.deadline_s - now_s)

    def _kept_free(self, who: str, priority: Priority, now_s: float) -> float:
        if self.policy == "priority":
            return KEPT_FREE[priority]
        if self.policy == "deadline":
            return 0.0
        self._forget(now_s)
        had = self._had_s
        times = had.get(who, 0.0) * len(had) / sum(had.values()) if had else 0.0
        return 1 - 1 / times if times > GREEDY else 0.0

    def promised(self, ask: HoleSought, owner: AgentId) -> None:
        """For as long as a lease lasts."""
        if self.policy == "fair":
            self._asked[ask.number, ask.first] = peer_of(owner)
            if len(self._asked) > REMEMBERED_MAX:
                del self._asked[next(iter(self._asked))]

    def keeps(self, key: tuple[int, int], sender: AgentId, lasts_s: float, now_s: float) -> bool:
        """Whether this sender may commit a lease, who then had so much more. A request goes through
        many hands, and any of them can write another's name into it."""
        asked = self._asked.get(key)
        if asked is None:  # it is committed already and moves forward, or nobody counts
            return True
        if asked != peer_of(sender):
            return False
        del self._asked[key]
        self._forget(now_s)
        self._had_s[asked] = self._had_s.get(asked, 0.0) + lasts_s
        if len(self._had_s) > REMEMBERED_MAX:
            del self._had_s[min(self._had_s, key=self._had_s.__getitem__)]
        return True

    def _forget(self, now_s: float) -> None:
        share = 0.5 ** max(0.0, (now_s - self._since_s) / HALF_LIFE_S)
        self._since_s = max(now_s, self._since_s)
        self._had_s = {who: had * share for who, had in self._had_s.items() if had * share > 1.0}
