"""The frame of a half beside the writer that binds as others advise: who is there and what is free
by our own placements, and which targets each task had better avoid."""

from __future__ import annotations

from collections.abc import Sequence

from sureline.run.port import Bound, Deciding, Engine, Over, PeerName, Seat, Target
from sureline.strategies.books import Books
from sureline.workflow.model import Needs
from sureline.world.agent import Agent
from sureline.world.protocol import AgentId, Message

BUT_MAX = 8
"""Targets that a task avoids: where it was lost or refused last."""


class Advised(Agent, Deciding):
    """Its heirs say what is advised, and by whom; they set `_engine` and `_begun`."""

    _engine: Engine

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat.me, seat.world)
        self._books = Books(seat.run)
        self._targets: dict[PeerName, Target] = {}
        self._but: dict[int, list[PeerName]] = {}
        self._begun = self._is_over = False

    @property
    def agent(self) -> Agent:
        return self

    def receive(self, sender: AgentId, message: Message) -> None:
        """As every agent; what was meant for an earlier process comes too early."""
        if self._begun and not self._is_over:
            super().receive(sender, message)

    def target(self, target: Target) -> None:
        if target.name in self._books:
            self._books.leave(target.name)
        self._books.join(target.name, target.capacity)
        self._targets[target.name] = target

    def gone(self, target: PeerName) -> None:
        self._books.leave(target)
        self._targets.pop(target, None)

    def load(self, target: PeerName, cores: float) -> None:
        self._books.report(target, cores)

    def spare(self, needs: Needs, but: Sequence[PeerName]) -> PeerName | None:
        return self._books.best_but(needs, but)

    def bound(self, bound: Bound) -> None:
        if bound.target in self._books:
            self._books.take(bound.target, self._needs(bound.task))

    def over(self, over: Over) -> None:
        task, target = over.bound.task, over.bound.target
        self._books.give_back(target, self._needs(task))
        if over.ending in ("lost", "refused"):
            self._avoid(task, target)

    def stands(self, task: int, committed: bool) -> None:
        if committed:
            self._but.pop(task, None)

    def end(self) -> None:
        self._is_over = True

    def _needs(self, task: int) -> Needs:
        return self._engine.graph.tasks[task].needs

    def _avoid(self, task: int, target: PeerName) -> None:
        others = [one for one in self._but.get(task, ()) if one != target]
        self._but[task] = [*others, target][-BUT_MAX:]
