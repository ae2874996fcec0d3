"""The agent of one machine: admits tasks against its ledger, starts their jobs, reports.

A task that does not fit right now waits here in order of arrival; one that never can, or that
would overflow the bounded queue, is refused. The submitter is told of every start and end.
"""

from __future__ import annotations

from collections import deque

import msgspec

from sureline.peer.capacity import Capacity, Ledger
from sureline.peer.jobs import JobEnded, JobProgressed, JobStarted
from sureline.peer.messages import Bind, Finished, Progressed, Refused, Started, Withdraw
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, JobEvent, JobHandle, World

QUEUE_MAX = 10_000

Key = tuple[AgentId, str, str, int]


class _Running(msgspec.Struct):
    bind: Bind
    handle: JobHandle


class PeerAgent(Agent):
    def __init__(self, me: AgentId, world: World, capacity: Capacity) -> None:
        super().__init__(me, world)
        self.ledger = Ledger(capacity)
        self._whole = Ledger(capacity)
        self._waiting: deque[tuple[AgentId, Bind]] = deque()
        self._running: dict[Key, _Running] = {}

    @handles(Bind)
    def on_bind(self, sender: AgentId, bind: Bind) -> None:
        if not self._whole.fits(bind.needs):
            self._refuse(sender, bind, f"{self.me} is too small for it")
        elif len(self._waiting) >= QUEUE_MAX:
            self._refuse(sender, bind, f"{self.me} already has {QUEUE_MAX} tasks waiting")
        elif self._waiting or not self.ledger.fits(bind.needs):
            self._waiting.append((sender, bind))
        else:
            self._start(sender, bind)

    def _refuse(self, sender: AgentId, bind: Bind, reason: str) -> None:
        self.world.send(sender, Refused(bind.run, bind.task, bind.attempt, reason))

    def _start(self, sender: AgentId, bind: Bind) -> None:
        self.ledger.take(bind.needs)
        key = (sender, bind.run, bind.task, bind.attempt)
        handle = self.world.start(bind.job, lambda event: self._on_event(key, event))
        self._running[key] = _Running(bind, handle)

    def _on_event(self, key: Key, event: JobEvent) -> None:
        sender, run, task, attempt = key
        match event:
            case JobStarted(pid=pid):
                self.world.send(sender, Started(run, task, attempt, pid))
            case JobProgressed(fraction=fraction):
                self.world.send(sender, Progressed(run, task, attempt, fraction))
            case JobEnded():
                self.ledger.give_back(self._running.pop(key).bind.needs)
                self.world.send(sender, Finished(run, task, attempt, event))
                self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self.ledger.fits(self._waiting[0][1].needs):
            self._start(*self._waiting.popleft())

    @handles(Withdraw)
    def on_withdraw(self, sender: AgentId, message: Withdraw) -> None:
        running = self._running.get((sender, message.run, message.task, message.attempt))
        if running is not None:
            self.world.stop(running.handle, force=message.force)
            return
        for place, (owner, bind) in enumerate(self._waiting):
            if owner == sender and _same(bind, message):
                del self._waiting[place]
                ended = JobEnded("cancelled", reason="withdrawn while it waited")
                self.world.send(sender, Finished(bind.run, bind.task, bind.attempt, ended))
                self._start_waiting()
                return


def _same(bind: Bind, message: Withdraw) -> bool:
    return (bind.run, bind.task, bind.attempt) == (message.run, message.task, message.attempt)
