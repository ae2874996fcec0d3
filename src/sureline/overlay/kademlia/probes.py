"""Asking nodes that have taken something on whether they are still there.

A machine that is cut off, stopped or without power gives no sign: whoever waits for its word would
wait until all patience is used up. A question that any living node answers at once tells.
"""

from __future__ import annotations

from collections.abc import Callable

from sureline.overlay.kademlia.base import KademliaBase
from sureline.overlay.kademlia.ids import ID_BYTES
from sureline.overlay.kademlia.messages import Find
from sureline.world.protocol import AgentId, Message


class Probes:
    """At most one question at a time for each task; `on_silence` is given the task's number and
    the node that did not answer."""

    __slots__ = ("_base", "_on_silence", "_questions", "_tasks")

    def __init__(self, base: KademliaBase, on_silence: Callable[[int, AgentId], None]) -> None:
        self._base = base
        self._on_silence = on_silence
        self._tasks: dict[int, int] = {}
        """The task that each question is about, by the question's number; and the reverse."""
        self._questions: dict[int, int] = {}

    def ask(self, contact: AgentId, task: int) -> None:
        if task in self._questions:
            return
        base = self._base
        number = base.requests.open(contact, self)
        self._questions[task] = number
        self._tasks[number] = task
        base.world.send(contact, Find(number, base.my_id.to_bytes(ID_BYTES)))

    def forget(self, task: int) -> None:
        """The task is settled: it does not matter any more who is there."""
        number = self._questions.pop(task, None)
        if number is not None:
            del self._tasks[number]
            self._base.requests.close(number)

    def answered(self, number: int, by: AgentId, answer: Message) -> None:
        self.forget(self._tasks[number])

    def slow(self, number: int, by: AgentId) -> None:
        """There is time until it fails."""

    def failed(self, number: int, by: AgentId) -> None:
        task = self._tasks[number]
        self.forget(task)
        self._on_silence(task, by)

    def __len__(self) -> int:
        return len(self._questions)
