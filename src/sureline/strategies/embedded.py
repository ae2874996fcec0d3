"""Everything on this machine: the most urgent ready task that fits starts now."""

from __future__ import annotations

from collections.abc import Iterator

from sureline.peer.agent import PeerAgent
from sureline.peer.capacity import Capacity, Ledger
from sureline.run.ready import ReadyQueue
from sureline.run.strategy import Placement, Strategy
from sureline.workflow.model import Needs
from sureline.world.protocol import AgentId


class EmbeddedPlacer:
    """Mirrors the one machine's ledger; what it places always fits."""

    def __init__(self) -> None:
        self._queue = ReadyQueue()
        self._peer: AgentId = ""
        self._ledger: Ledger | None = None

    def peer_joined(self, peer: AgentId, capacity: Capacity) -> None:
        self._peer = peer
        self._ledger = Ledger(capacity)

    def peer_left(self, peer: AgentId) -> None:
        self._ledger = None

    def ready(self, task: int, needs: Needs, urgency: float) -> None:
        self._queue.push(task, needs, urgency)

    def released(self, task: int, needs: Needs, peer: AgentId) -> None:
        if self._ledger is not None:
            self._ledger.give_back(needs)

    def place(self) -> Iterator[Placement]:
        while self._ledger is not None:
            found = self._queue.pop_fitting(self._ledger)
            if found is None:
                return
            task, needs = found
            self._ledger.take(needs)
            yield Placement(task, self._peer)


embedded = Strategy("embedded", EmbeddedPlacer, PeerAgent)
