"""The way to one other node: what waits for it, and the link that takes it there.

A route sends on one link at a time and changes it only when that link is gone, so messages keep
their order. Two nodes that call each other at once get two links; the one opened by the node with
the smaller address stays, and its rival is closed in order by the node that opened it. A link of
their own stays before one that a relay carries, whoever opened it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from random import uniform
from typing import Protocol

from sureline.world.address import Node
from sureline.world.net.limits import WRITE_BYTES, Limits
from sureline.world.net.link import NetLink

LIVED_S = 5.0
"""A link that lasted this long was a good one: its loss starts no back-off."""
BREAKS_MAX = 3
"""After so many short-lived links in a row a node counts as unreachable."""


class UndeliveredCounts:
    """What became of messages that did not arrive."""

    def __init__(self) -> None:
        self.overflowed = 0
        self.undelivered = 0
        self.queued_bytes = 0


class RouteOwner(Protocol):
    loop: asyncio.AbstractEventLoop
    limits: Limits
    counts: UndeliveredCounts
    node: Node
    leaving: bool

    def dial(self, route: Route) -> None:
        """Open a link; ends in `adopt` or `fail`, after setting `dialling`."""

    def unreachable(self, node: Node) -> None: ...


class Route:
    """See the module. Made at the first message to a node or the first connection with it."""

    __slots__ = (
        "_breaks",
        "_flush_due",
        "_gone",
        "_links",
        "_owner",
        "_queue",
        "_queued_bytes",
        "_tell_due",
        "blocked_until",
        "dialling",
        "link",
        "node",
    )

    def __init__(self, owner: RouteOwner, node: Node) -> None:
        self.node = node
        self.link: NetLink | None = None
        """The one that is sent on; possibly still closing."""
        self.dialling = False
        self.blocked_until = 0.0
        """Until then nobody is called there: it was in vain a moment ago."""
        self._owner = owner
        self._links: list[NetLink] = []
        self._queue: deque[bytearray] = deque()
        self._queued_bytes = 0
        self._breaks = 0
        self._gone = True
        """Whether the last failure says that nobody is there."""
        self._flush_due = False
        self._tell_due = False

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._queue)

    @property
    def needed(self) -> bool:
        """Whether it holds anything that must not be forgotten."""
        busy = self._links or self._queue or self.dialling or self._tell_due
        return bool(busy) or self.blocked_until > self._owner.loop.time()

    def send(self, frame: bytearray) -> None:
        """Send, or keep until there is a link; dropped if too much waits or nobody is there."""
        if self.link is None and self.blocked_until:
            if self.blocked_until > self._owner.loop.time():
                self._owner.counts.undelivered += 1
                if self._gone:
                    self._tell_soon()
                return
            self.blocked_until = 0.0
        if not self._keep(frame):
            self._owner.counts.overflowed += 1
            return
        if self.link is not None:
            self._flush_soon()
        elif not self.dialling:
            self._owner.dial(self)

    def adopt(self, link: NetLink) -> None:
        """A link to this node is open."""
        for other in list(self._links):
            same = other.ours == link.ours and bool(other.through) == bool(link.through)
            if same and other.usable:
                other.stream.abort("a newer connection replaces it")
        self._links.append(link)
        self.blocked_until = 0.0
        if self.link is None:
            self.link = link
        self._part_with_rival()
        self._flush_soon()

    def _part_with_rival(self) -> None:
        usable = [link for link in self._links if link.usable]
        direct = [link for link in usable if not link.through]
        rivals = direct or usable
        if len({link.ours for link in rivals}) == 2 and self._owner.node > self.node:
            next(link for link in rivals if link.ours).say_bye()
        for link in usable:
            if direct and link.through and link.ours:
                link.say_bye()

    def gone(self, link: NetLink) -> None:
        """A link to this node is closed."""
        self._links.remove(link)
        if self.link is not link:
            return
        self.link = next((other for other in self._links if other.usable), None)
        if self.link is None and self._links:
            self.link = self._links[0]
        if self.link is not None:
            self._flush_soon()
        elif link.leaving:
            self.fail()
        elif link.bye_said and link.bye_heard:
            self._breaks = 0
            self._go_on()
        else:
            self._broke(link)

    def _broke(self, link: NetLink) -> None:
        """The link ended without goodbye. Call again: if that is in vain, the node is gone."""
        lived_s = self._owner.loop.time() - link.opened_at
        self._breaks = 0 if lived_s > LIVED_S else self._breaks + 1
        if self._breaks > BREAKS_MAX:
            self.fail()
        elif link.misbehaved:
            self._go_on()
        elif not self.dialling and not self._owner.leaving:
            self._owner.dial(self)

    def _go_on(self) -> None:
        if self._queue and not self.dialling:
            self._owner.dial(self)

    def fail(self, *, unheard: bool = False) -> None:
        """Nobody can be reached there: what waits is dropped, and the agents are told. Not if our
        call was just `unheard`: the other process, or this one, may be short of time."""
        self._breaks += 1
        self._gone = not unheard
        limits = self._owner.limits
        backoff_s = min(limits.backoff_max_s, limits.backoff_min_s * 2 ** min(self._breaks, 20))
        self.blocked_until = self._owner.loop.time() + backoff_s * uniform(0.75, 1.25)
        self._owner.counts.undelivered += len(self._queue)
        self.forget_queue()
        if self._gone:
            self._tell_soon()

    def forget_queue(self) -> None:
        self._owner.counts.queued_bytes -= self._queued_bytes
        self._queued_bytes = 0
        self._queue.clear()

    def move_queue_to(self, other: Route) -> None:
        """The same node is known by another address."""
        waiting = list(self._queue)
        self.forget_queue()
        for frame in waiting:
            other.send(frame)

    def flush(self) -> None:
        """Hand to the link what it will take."""
        self._flush_due = False
        link, queue = self.link, self._queue
        while queue and link is not None and link.usable and not link.stream.writing_paused:
            batch: list[bytearray] = []
            size_bytes = 0
            while queue and size_bytes < WRITE_BYTES:
                frame = queue.popleft()
                batch.append(frame)
                size_bytes += len(frame)
            self._queued_bytes -= size_bytes
            self._owner.counts.queued_bytes -= size_bytes
            link.write(batch)

    def _keep(self, frame: bytearray) -> bool:
        limits, counts = self._owner.limits, self._owner.counts
        size_bytes = len(frame)
        if (
            len(self._queue) >= limits.queue_messages_max
            or self._queued_bytes + size_bytes > limits.queue_bytes_max
            or counts.queued_bytes + size_bytes > limits.queue_bytes_total_max
        ):
            return False
        self._queue.append(frame)
        self._queued_bytes += size_bytes
        counts.queued_bytes += size_bytes
        return True

    def _flush_soon(self) -> None:
        """Once for all that is sent in this turn of the loop."""
        if not self._flush_due and self._queue:
            self._flush_due = True
            self._owner.loop.call_soon(self.flush)

    def _tell_soon(self) -> None:
        if not self._tell_due:
            self._tell_due = True
            self._owner.loop.call_soon(self._tell)

    def _tell(self) -> None:
        self._tell_due = False
        self._owner.unreachable(self.node)
