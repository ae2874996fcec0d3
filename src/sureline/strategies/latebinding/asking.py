"""A guest's way to the queue: what waits there, and whose it is; shares and priorities changed."""

from __future__ import annotations

from collections.abc import Callable

from sureline.overlay.membership import Member
from sureline.strategies.latebinding.messages import AskShares, SetShare, TheShares
from sureline.strategies.latebinding.pilot import queue_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, World

PART = "latebinding.asking"
AGAIN_S = 2.0
TRIES = 5


class QueueAsker(Agent):
    """Asks until it is answered; `on_done` hears None if nobody answers."""

    def __init__(self, me: AgentId, world: World) -> None:
        super().__init__(me, world)
        self._on_done: Callable[[TheShares | None], None] | None = None

    def ask(
        self,
        members: list[Member],
        on_done: Callable[[TheShares | None], None],
        change: SetShare | None = None,
    ) -> None:
        queue = queue_of(members)
        if queue is None:
            on_done(None)
            return
        self._on_done = on_done
        self._ask(queue, change or AskShares(1), TRIES)

    def _ask(self, queue: AgentId, question: AskShares | SetShare, tries: int) -> None:
        if self._on_done is None:
            return
        if not tries:
            self._done(None)
            return
        self.world.send(queue, question)
        self.world.after(AGAIN_S, lambda: self._ask(queue, question, tries - 1))

    @handles(TheShares)
    def _on_shares(self, sender: AgentId, said: TheShares) -> None:
        self._done(said)

    def _done(self, said: TheShares | None) -> None:
        on_done, self._on_done = self._on_done, None
        if on_done is not None:
            on_done(said)
