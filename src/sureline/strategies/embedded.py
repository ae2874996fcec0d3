"""Everything on this machine: the most urgent ready task that fits starts now."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from sureline.peer.agent import PeerAgent
from sureline.peer.capacity import Capacity, Ledger
from sureline.run.ready import ReadyQueue
from sureline.run.strategy import Placement, Strategy
from sureline.workflow.model import Needs
from sureline.world.protocol import AgentId


class EmbeddedPlacer:
    """Mirrors the one machine's ledger; what it places fits, or follows an equal task there.

    `_held` counts the tasks that hold their needs, `_ahead` those that are to take over from one
    of them: whichever of equal needs ends first, one that is ahead takes its place.
    """

    def __init__(self) -> None:
        self._queue = ReadyQueue()
        self._peer: AgentId = ""
        self._ledger: Ledger | None = None
        self._held: Counter[Needs] = Counter()
        self._ahead: Counter[Needs] = Counter()

    def peer_joined(self, peer: AgentId, capacity: Capacity) -> None:
        self._peer = peer
        self._ledger = Ledger(capacity)

    def peer_left(self, peer: AgentId) -> None:
        self._ledger = None

    def peer_load(self, peer: AgentId, load: float) -> None:
        """This machine's load does not matter: nobody else is asked."""

    def ready(self, task: int, needs: Needs, urgency: float) -> None:
        self._queue.push(task, needs, urgency)

    def released(self, task: int, needs: Needs, peer: AgentId) -> None:
        if self._ahead[needs]:
            self._ahead[needs] -= 1
            return
        self._held[needs] -= 1
        if self._ledger is not None:
            self._ledger.give_back(needs)

    def adopted(self, needs: Needs, peer: AgentId) -> None:
        assert self._ledger is not None
        self._ledger.take(needs)
        self._held[needs] += 1

    def spare(self, needs: Needs, but: Sequence[AgentId]) -> AgentId | None:
        """There is no choice of peers: the one there is, if there is room."""
        room = self._ledger is not None and self._ledger.fits(needs)
        return self._peer if room else None

    def place(self, ahead: bool = False) -> Iterator[Placement]:
        while self._ledger is not None:
            found = self._queue.pop_fitting(self._ledger)
            if found is None:
                break
            task, needs = found
            self._ledger.take(needs)
            self._held[needs] += 1
            yield Placement(task, self._peer)
        if ahead and len(self._queue):
            yield from self._place_ahead()

    def _place_ahead(self) -> Iterator[Placement]:
        for needs, held in self._held.items():
            while self._ahead[needs] < held:
                task = self._queue.pop_equal(needs)
                if task is None:
                    break
                self._ahead[needs] += 1
                yield Placement(task, self._peer, ahead=True)


embedded = Strategy("embedded", EmbeddedPlacer, PeerAgent)
