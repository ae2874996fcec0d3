"""Questions on their way: whom they went to, when each is slow, and when it has failed.

One timer serves all questions of a node: it is set for the earliest moment at which one of them
could be slow or fail, and an answer that comes in time costs nothing but its entry. Time is that in
which this process was awake: an answer that it had no turn to read is not missing.
"""

from __future__ import annotations

from typing import Protocol

from sureline.overlay.kademlia.settings import KademliaSettings
from sureline.world.address import Node, node_of
from sureline.world.protocol import AgentId, Message, Timer, World

GRAIN_S = 0.001
"""Deadlines this close together are one."""


class Asker(Protocol):
    """Whoever asked. Of each question it hears `slow` at most once, and then or at once either
    `answered` or `failed`; after that no more."""

    def answered(self, number: int, by: AgentId, answer: Message) -> None: ...
    def slow(self, number: int, by: AgentId) -> None: ...
    def failed(self, number: int, by: AgentId) -> None: ...


class RoundTrips:
    """How long answers take, smoothed as TCP does it: mean, and mean deviation."""

    __slots__ = ("_deviation_s", "_mean_s", "_settings")

    def __init__(self, settings: KademliaSettings) -> None:
        self._settings = settings
        self._mean_s = -1.0
        self._deviation_s = 0.0

    def took(self, seconds: float) -> None:
        seconds = max(0.0, seconds)
        if self._mean_s < 0:
            self._mean_s, self._deviation_s = seconds, seconds / 2
        else:
            self._deviation_s += (abs(seconds - self._mean_s) - self._deviation_s) / 4
            self._mean_s += (seconds - self._mean_s) / 8

    @property
    def slow_s(self) -> float:
        settings = self._settings
        if self._mean_s < 0:
            return settings.slow_s_first
        usual = self._mean_s + 4 * self._deviation_s
        return min(max(usual, settings.slow_s_min), settings.slow_s_max)

    @property
    def failed_s(self) -> float:
        settings = self._settings
        return min(max(4 * self.slow_s, settings.failed_s_min), settings.failed_s_max)


class _Request:
    __slots__ = ("asker", "failed_at", "is_slow", "sent_at", "slow_at", "to")

    def __init__(self, to: AgentId, asker: Asker, now: float, trips: RoundTrips) -> None:
        self.to = to
        self.asker = asker
        self.sent_at = now
        self.slow_at = now + trips.slow_s
        self.failed_at = now + trips.failed_s
        self.is_slow = False

    @property
    def due_at(self) -> float:
        return self.failed_at if self.is_slow else self.slow_at


class Requests:
    __slots__ = ("_due_at", "_next", "_pending", "_timer", "_world", "trips")

    def __init__(self, world: World, settings: KademliaSettings) -> None:
        self.trips = RoundTrips(settings)
        self._world = world
        self._pending: dict[int, _Request] = {}
        # An answer to a question of an earlier life at this address must not fit a new one.
        self._next = world.random.getrandbits(48)
        self._timer: Timer | None = None
        self._due_at = 0.0

    def open(self, to: AgentId, asker: Asker) -> int:
        """Expect an answer from there; the number is for the question about to be sent."""
        self._next += 1
        request = _Request(to, asker, self._world.awake(), self.trips)
        self._pending[self._next] = request
        self._wake_by(request.due_at)
        return self._next

    def answer(self, number: int, by: AgentId, answer: Message) -> bool:
        """Hand over an answer; False if nobody (any longer) waits for it from there."""
        request = self._pending.get(number)
        if request is None or request.to != by:
            return False
        del self._pending[number]
        self.trips.took(self._world.awake() - request.sent_at)
        request.asker.answered(number, by, answer)
        return True

    def close(self, number: int) -> None:
        """The asker no longer cares."""
        self._pending.pop(number, None)

    def unreachable(self, node: Node) -> None:
        """All questions to this node have failed."""
        for number in [n for n, r in self._pending.items() if node_of(r.to) == node]:
            self._fail(number)

    def stop(self) -> None:
        self._pending.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def __len__(self) -> int:
        return len(self._pending)

    def _fail(self, number: int) -> None:
        request = self._pending.pop(number, None)
        if request is not None:
            request.asker.failed(number, request.to)

    def _wake_by(self, due_at: float) -> None:
        if self._timer is not None:
            if due_at >= self._due_at - GRAIN_S:
                return
            self._timer.cancel()
        self._due_at = due_at
        self._timer = self._world.after(max(GRAIN_S, due_at - self._world.awake()), self._fire)

    def _fire(self) -> None:
        self._timer = None
        now = self._world.awake() + GRAIN_S
        for number, request in list(self._pending.items()):
            if request.failed_at <= now:
                self._fail(number)
            elif request.slow_at <= now and not request.is_slow and number in self._pending:
                request.is_slow = True
                request.asker.slow(number, request.to)
        if self._pending:
            self._wake_by(min(request.due_at for request in self._pending.values()))
