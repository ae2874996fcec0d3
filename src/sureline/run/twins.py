"""Older attempts of tasks that were started again while they ran, on this machine."""

from __future__ import annotations

from collections.abc import Mapping

from sureline.world.protocol import AgentId


class Twins:
    def __init__(self) -> None:
        self._of_task: dict[int, dict[int, AgentId]] = {}

    def add(self, task: int, attempt: int, peer: AgentId) -> None:
        self._of_task.setdefault(task, {})[attempt] = peer

    def remove(self, task: int, attempt: int, peer: AgentId) -> bool:
        """The attempt is over; False if there is none such there."""
        attempts = self._of_task.get(task, {})
        if attempts.get(attempt) != peer:
            return False
        del attempts[attempt]
        if not attempts:
            del self._of_task[task]
        return True

    def of(self, task: int) -> Mapping[int, AgentId]:
        """Who has which attempt of the task."""
        return self._of_task.get(task, {})

    def all(self) -> list[tuple[int, int, AgentId]]:
        """(task, attempt, peer) of all of them."""
        return [
            (task, attempt, peer)
            for task, attempts in self._of_task.items()
            for attempt, peer in attempts.items()
        ]
