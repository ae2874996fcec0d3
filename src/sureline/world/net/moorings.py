"""Staying within reach without being dialled.

A node asks a few others now and then to dial it where it says that it listens. If one of them
cannot, it keeps connections to some that can be dialled, its relays, and says who they are: to all
members, in its record, and to everybody it has a link with. Whoever wants it asks one of these.

Its relays are those that anybody would guess first (`rendezvous`), so it is found even by those who
were not told. A relay that refuses, dies or falls silent is left for the next; the others are warm
meanwhile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from heapq import nsmallest
from random import random, uniform
from typing import Literal, Protocol

from sureline.world.address import Node
from sureline.world.net.control import DialBack, DialledBack, Moor, Moored, Unmoor
from sureline.world.net.interfaces import Berth, Directory
from sureline.world.net.limits import Limits
from sureline.world.net.link import NetLink
from sureline.world.net.ways import rendezvous
from sureline.world.protocol import Message

RELAYS = 3
ASKED = 3
ANSWER_S = 8.0
"""A call in vain takes its time."""
AGAIN_S = 2.0
AGAIN_S_MAX = 32.0
"""Where nobody answers, others are asked after a pause that doubles: all may be busy."""

Dialled = Literal["auto", "never", "always"]
"""Whether others can dial this node: it finds out, it was told that they cannot, or it does not
care (a command that is over before it matters)."""


class MooringsOwner(Protocol):
    loop: asyncio.AbstractEventLoop
    limits: Limits
    node: Node
    directory: Directory

    def say_to(self, node: Node, message: Message) -> None: ...
    def links(self) -> Iterable[NetLink]: ...


class _Kept:
    """A relay, or one that is asked to be one."""

    __slots__ = ("asked_at", "confirmed", "heard_at")

    def __init__(self, now: float) -> None:
        self.asked_at = float("-inf")
        self.heard_at = now
        self.confirmed = False


class Moorings:
    """`on_change` hears how this node is reached now."""

    def __init__(self, owner: MooringsOwner, on_change: Callable[[Berth], None]) -> None:
        self.berth = Berth()
        self.dialled: Dialled = "always"
        self.looked = False
        """Whether others were asked at least once, and have said all that they will."""
        self._owner = owner
        self._on_change = on_change
        self._kept: dict[Node, _Kept] = {}
        self._avoided: dict[Node, float] = {}
        self._outbound = False
        self._why_not = ""
        self._ask_at = 0.0
        self._asked_at = 0.0
        self._pause_s = AGAIN_S
        self._number = 0
        self._answers: dict[Node, str | None] = {}
        """Of those who were asked; None while they have not said."""
        self._dialled_by: set[Node] = set()
        """Who could dial this node when they were asked last."""

    def sweep(self, now: float) -> None:
        if self.dialled == "never":
            self._outbound = True
        elif self.dialled == "auto":
            self._look(now)
        if self._outbound:
            self._moor(now)

    # Can others dial us?

    def _look(self, now: float) -> None:
        if self._answers:
            if now - self._asked_at > ANSWER_S:
                self._weigh(now)
        elif now >= self._ask_at or (now >= self._asked_at + 5 * AGAIN_S and self._are_few()):
            self._number += 1
            self._asked_at = now
            self._ask_at = now + self._pause_s
            self._answers = dict.fromkeys(self._chosen())
            for node in self._answers:
                self._owner.say_to(node, DialBack(self._number))

    def _are_few(self) -> bool:
        """Whether all is well by the word of few only, and others are there now: those few may be
        neighbours, behind the same firewall, when nobody else was there."""
        if not 0 < len(self._dialled_by) < ASKED:
            return False
        others = self._owner.directory.can_be_dialled()
        return any(node not in self._dialled_by for node in others)

    def _chosen(self) -> list[Node]:
        """Whom to ask: those who were not asked last time first, and of these such as need not be
        connected with for that."""
        linked = {link.node for link in self._owner.links()}

        def order(node: Node) -> tuple[bool, bool, float]:
            return (node in self._dialled_by, node not in linked, random())

        return nsmallest(ASKED, self._owner.directory.can_be_dialled(), key=order)

    def dialled_back(self, link: NetLink, message: DialledBack) -> None:
        if message.number == self._number and message.untried:
            self._unanswered(link.node)
        elif message.number == self._number and link.node in self._answers:
            self._answers[link.node] = message.why_not[:200]
            self._weigh_if_all_said()

    def _unanswered(self, node: Node) -> None:
        """This one will not say."""
        if self._answers.get(node, "") is None:
            del self._answers[node]
            self._weigh_if_all_said()

    def look_soon(self) -> None:
        """Somebody thinks that this node is gone: perhaps others cannot dial it any more."""
        self._ask_at = min(self._ask_at, self._asked_at + 5 * AGAIN_S)

    def _weigh_if_all_said(self) -> None:
        if None not in self._answers.values():
            now = self._owner.loop.time()
            self._weigh(now)
            if self._outbound:
                self._moor(now)

    def _weigh(self, now: float) -> None:
        self.looked = True
        said = [why for why in self._answers.values() if why is not None]
        answered = {node for node, why in self._answers.items() if why == ""}
        self._answers = {}
        self._pause_s = AGAIN_S if said else min(2 * self._pause_s, AGAIN_S_MAX)
        if not said:
            return  # nobody answered: ask others
        in_vain = [why for why in said if why]
        self._outbound = bool(in_vain)
        self._dialled_by = set() if in_vain else answered
        every_s = self._owner.limits.dial_back_s * uniform(0.75, 1.25)  # not all at once
        self._ask_at = now + (every_s / 5 if in_vain else every_s)
        self._why_not = in_vain[0] if in_vain else ""
        if not in_vain:
            self._cast_off()
            self._publish()

    # Relays.

    def _moor(self, now: float) -> None:
        limits = self._owner.limits
        for node, kept in list(self._kept.items()):
            if now - kept.heard_at > limits.moored_s:
                self._leave(node, now)
        self._leave_those_behind_others(now)
        for node in [node for node, until in self._avoided.items() if until <= now]:
            del self._avoided[node]
        missing = RELAYS - len(self._kept) + len(self._behind_others())
        if missing > 0:
            others = [
                node
                for node in self._owner.directory.can_be_dialled()
                if node not in self._kept and node not in self._avoided
            ]
            for node in rendezvous(self._owner.node, others, missing):
                self._kept[node] = _Kept(now)
        for node, kept in self._kept.items():
            if now - kept.asked_at >= limits.moor_s:
                kept.asked_at = now
                self._owner.say_to(node, Moor())
        self._publish()

    def _leave_those_behind_others(self, now: float) -> None:
        """A relay that is itself reached through others is of use to few: it was taken before it
        knew that, by one of its own site. It stays only as long as there is no better one."""
        behind = self._behind_others()
        if any(kept.confirmed for node, kept in self._kept.items() if node not in behind):
            for node in behind:
                self._owner.say_to(node, Unmoor())
                self._leave(node, now)

    def _behind_others(self) -> list[Node]:
        return [node for node in self._kept if self._owner.directory.relays_of(node)]

    def moored(self, link: NetLink, message: Moored) -> None:
        """A relay's answer."""
        kept = self._kept.get(link.node)
        if kept is None:
            return
        now = self._owner.loop.time()
        if message.why_not or link.through:
            self._leave(link.node, now)
        else:
            kept.confirmed = True
            kept.heard_at = now
            link.moored_until = now + self._owner.limits.moored_s
        self._publish()

    def missed(self, node: Node) -> None:
        """Nobody listens there any more."""
        self._unanswered(node)
        if node in self._kept:
            now = self._owner.loop.time()
            self._leave(node, now)
            self._moor(now)

    def _leave(self, node: Node, now: float) -> None:
        del self._kept[node]
        self._avoided[node] = now + self._owner.limits.relay_again_s

    def _cast_off(self) -> None:
        for node in self._kept:
            self._owner.say_to(node, Unmoor())
        self._kept.clear()

    def _publish(self) -> None:
        relays = tuple(node for node, kept in self._kept.items() if kept.confirmed)
        berth = Berth(not self._outbound, relays, self._why_not)
        if berth != self.berth:
            self.berth = berth
            self._on_change(berth)
