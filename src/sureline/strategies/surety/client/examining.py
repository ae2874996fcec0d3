"""Asking after attempts that are late: EXAMINE, and EXTRACT for those that have ended.

Peers tell of progress and ends by themselves; but a word may be lost, and a provider that lets a
job stand has no reason to speak. So whatever is later than it was promised to be is asked after,
every EXAMINE_S, a bounded number at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sureline.strategies.surety.client.broker import MARKET
from sureline.strategies.surety.invocation import Examine, Examined, Extract
from sureline.world.address import Node, at
from sureline.world.protocol import AgentId, World

EXAMINE_S = 10.0
EXAMINED_MAX = 32
"""Attempts that are asked after in one round."""


class Late(NamedTuple):
    """An attempt that is later than promised."""

    node: Node
    task: str
    attempt: int


class Examiner:
    """Part of a run's submitter, whose address answers come to."""

    def __init__(self, world: World, run: str) -> None:
        self._world = world
        self._run = run
        self._asked_at: dict[Late, float] = {}
        self._serial = 0

    def look_at(self, late: Sequence[Late]) -> None:
        """These are late now; nothing is remembered of others."""
        now = self._world.elapsed()
        asked_at = {one: self._asked_at[one] for one in late if one in self._asked_at}
        due = [one for one in late if now - asked_at.get(one, -EXAMINE_S) >= EXAMINE_S]
        for one in due[:EXAMINED_MAX]:
            asked_at[one] = now
            self._serial += 1
            examine = Examine(self._run, 0, self._serial, one.task, one.attempt)
            self._world.send(at(one.node, MARKET), examine)
        self._asked_at = asked_at

    def heard(self, sender: AgentId, message: Examined) -> None:
        """What has ended there is told once more: the first report was lost, or is on its way."""
        if message.state == "ended":
            self._serial += 1
            extract = Extract(self._run, 0, self._serial, message.task, message.attempt)
            self._world.send(sender, extract)
