"""The agent of one machine: admits tasks against its ledger, starts their jobs, reports.

A task that does not fit right now waits here in order of arrival; one that never can, or that
would overflow the bounded queue, is refused. The submitter is told of every start and end.

A task may also be bound `ahead`: it is to begin where an equal one ends, and takes over what that
one held. The world is told so at once, and need not ask between two short jobs; a task that the
world gives back waits here like any other.
"""

from __future__ import annotations

from collections import deque

import msgspec

from sureline.peer.capacity import Capacity, Ledger
from sureline.peer.jobs import JobEnded, JobProgressed, JobReturned, JobStarted
from sureline.peer.messages import Bind, Finished, Progressed, Refused, Started, Withdraw
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, JobEvent, JobHandle, World

QUEUE_MAX = 10_000
LOOKED_AT_MAX = 64

Key = tuple[AgentId, str, str, int]


class _Running(msgspec.Struct):
    bind: Bind
    handle: JobHandle | None = None
    holds: bool = True
    """Whether it holds what it needs; if not, it is to begin when another one ends."""
    follower: Key | None = None
    """The task that is to begin when this one ends."""


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
        elif not self._waiting and self.ledger.fits(bind.needs):
            self._start(sender, bind)
        elif not (bind.ahead and self._start_behind(sender, bind)):
            self._waiting.append((sender, bind))

    def _refuse(self, sender: AgentId, bind: Bind, reason: str) -> None:
        self.world.send(sender, Refused(bind.run, bind.task, bind.attempt, reason))

    def _start(self, sender: AgentId, bind: Bind) -> None:
        self.ledger.take(bind.needs)
        key = (sender, bind.run, bind.task, bind.attempt)
        running = self._running[key] = _Running(bind)
        running.handle = self.world.start(bind.job, lambda event: self._on_event(key, event))

    def _start_behind(self, sender: AgentId, bind: Bind) -> bool:
        """Have it begin where an equal one ends; False if there is none."""
        key = (sender, bind.run, bind.task, bind.attempt)
        for other in reversed(self._running.values()):
            if other.holds and other.follower is None and other.bind.needs == bind.needs:
                running = self._running[key] = _Running(bind, holds=False)
                other.follower = key
                running.handle = self.world.start(
                    bind.job, lambda event: self._on_event(key, event), after=other.handle
                )
                return True
        return False

    def _on_event(self, key: Key, event: JobEvent) -> None:
        sender, run, task, attempt = key
        match event:
            case JobStarted(pid=pid):
                self.world.send(sender, Started(run, task, attempt, pid))
            case JobProgressed(fraction=fraction):
                self.world.send(sender, Progressed(run, task, attempt, fraction))
            case JobReturned():
                bind = self._release(key)
                self._waiting.append((sender, bind))
                self._start_waiting()
            case JobEnded():
                self._release(key)
                if event.missing:  # not the task's doing: what it needs must be had again
                    refused = Refused(run, task, attempt, event.reason, event.missing)
                    self.world.send(sender, refused)
                else:
                    told = Finished(run, task, attempt, event, brought=event.brought)
                    self.world.send(sender, told)
                self._start_waiting()

    def _release(self, key: Key) -> Bind:
        """Forget a job. What it held goes to its follower, or back."""
        over = self._running.pop(key)
        follower = self._running.get(over.follower) if over.follower is not None else None
        if over.holds and follower is not None:
            follower.holds = True
        elif over.holds:
            self.ledger.give_back(over.bind.needs)
        else:
            for other in self._running.values():
                if other.follower == key:
                    other.follower = None
        return over.bind

    def _start_waiting(self) -> None:
        """Start what fits, in order of arrival; smaller ones may overtake, within LOOKED_AT_MAX."""
        for place in range(min(len(self._waiting), LOOKED_AT_MAX)):
            if place < len(self._waiting) and self.ledger.fits(self._waiting[place][1].needs):
                sender, bind = self._waiting[place]
                del self._waiting[place]
                self._start(sender, bind)
                self._start_waiting()
                return

    @handles(Withdraw)
    def on_withdraw(self, sender: AgentId, message: Withdraw) -> None:
        running = self._running.get((sender, message.run, message.task, message.attempt))
        if running is not None and running.handle is not None:
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
