"""One peer of the tree: its leaf, which may promise time, and its branch, if it has one.

A branch answers every request from what it knows: down to the child below which the best fitting
hole is promised, in pieces if no hole is large enough for all, up to its parent if it knows none.
Where even the root, or the highest branch that the request may reach, knows none that is surely
large enough, one that likely is is looked for; if there is none either, the owner is told. A leaf
checks again and reserves, or sends the request back up. What is below changes all the time:
summaries go up, but never faster than their share of the link, and always the newest one.
"""

from __future__ import annotations

from functools import partial
from typing import Protocol

import msgspec

from sureline.compiled import hasten
from sureline.overlay.tree.leaf import HoleSought, Leaf, PromisedTime
from sureline.overlay.tree.messages import (
    TASKS_MAX,
    TRAIL_MAX,
    Commit,
    Committed,
    Nowhere,
    Reserved,
    RollBack,
    TimeRequest,
    TrailStep,
    TreeAnswer,
    Update,
)
from sureline.overlay.tree.shape import Leaves, Links, Ref, links_of
from sureline.overlay.tree.shelf import NOBODY, OwnShelf, Shelf
from sureline.overlay.tree.summary import EMPTY, Summary, has, unpacked
from sureline.world.address import NO_AGENT
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, World

MANY = 256
"""Peers from which on summaries are long enough for machine code."""
HEADER_BYTES = 90
"""What a message costs beside its content, as the paper counts."""


class TreeSettings(msgspec.Struct, frozen=True):
    """What a grid may tune about its tree."""

    # Updates.
    bytes_per_s: float = 10_000.0
    """What updates of one node may take of its link: the next waits until that is paid for..."""
    period_s: float = 0.2
    """...and at least so long."""
    beat_s: float = 10.0
    """An update is sent so often though nothing changed: one may have been lost..."""
    beat_max_s: float = 60.0
    """...and ever more rarely, up to this, while nothing changes."""

    # Search.
    hops_max: int = 128


DEFAULT = TreeSettings()


class TimeSeeker(Protocol):
    """Whoever asks the tree for time on behalf of this peer."""

    def told(self, sender: AgentId, message: TreeAnswer) -> None: ...


class Pace:
    """When the next update may go: the last one must be paid for."""

    __slots__ = ("due", "free_s", "last")

    def __init__(self) -> None:
        self.free_s = 0.0
        self.due = False
        self.last: bytes = b""


class Tree(Agent):
    """`leaf` is None for a peer that runs nothing, but routes; and for whoever is no peer and only
    asks: its `leaf_parent` is then any peer."""

    __slots__ = (
        "_beat_s",
        "branch_parent",
        "client",
        "kids",
        "leaf",
        "leaf_parent",
        "paces",
        "row",
        "settings",
        "shelf",
    )

    def __init__(
        self,
        me: AgentId,
        world: World,
        leaf: Leaf | None,
        settings: TreeSettings = DEFAULT,
        shelf: Shelf | None = None,
        row: int = 0,
    ) -> None:
        super().__init__(me, world)
        self.leaf = leaf
        self.settings = settings
        self.shelf: Shelf = OwnShelf() if shelf is None else shelf
        self.row = row
        self.client: TimeSeeker | None = None
        self.leaf_parent = NO_AGENT
        self.branch_parent = NO_AGENT
        self.kids: tuple[Ref, Ref] | None = None
        self.paces: tuple[Pace, Pace] | None = None
        self._beat_s = settings.beat_s

    @property
    def links(self) -> Links:
        return Links(self.leaf_parent, self.branch_parent, self.kids)

    def placed(self, links: Links) -> None:
        """Take a place in the tree."""
        self.leaf_parent, self.branch_parent, self.kids = links

    def among(self, peers: Leaves) -> None:
        """These are in the tree now, this one among them. What is known of new
        children is nothing yet, and new parents are told what is below."""
        if len(peers) >= MANY:
            hasten()
        before, after = self.links, links_of(self.me, peers)
        if before == after:
            return
        for side, kid in enumerate(after.kids or ()):
            if before.kids is None or kid != before.kids[side]:
                self.shelf.put(self.row, side, EMPTY)
        self.placed(after)
        for pace in self.paces or ():
            pace.free_s, pace.last = 0.0, b""
        self.changed(leaf=True)
        self.changed(leaf=False)

    def begin(self) -> None:
        """Send updates from now on. Whoever only asks does not, nor do simulated trees whose
        summaries are kept by somebody who sees all nodes."""
        self.paces = (Pace(), Pace())
        self.world.after(self.world.random.random() * self.settings.period_s, self._beat)

    # What a client asks for.

    def request(self, ask: HoleSought, *, traced: bool = False) -> None:
        """Look for time. The client is told Reserved, for all tasks in pieces, or Nowhere; nothing
        if a message is lost."""
        trail = () if traced else None
        request = TimeRequest(ask, self.me, not self.leaf_parent, trail=trail)
        self.world.send(self.leaf_parent or self.me, request)

    # Search.

    @handles(TimeRequest)
    def _on_request(self, sender: AgentId, request: TimeRequest) -> None:
        if request.trail is not None and len(request.trail) < TRAIL_MAX:
            step = TrailStep(self.me, self._summary(request.leaf).holes)
            request = msgspec.structs.replace(request, trail=(*request.trail, step))
        if request.leaf:
            self._reserve(request)
        elif request.hops >= self.settings.hops_max or len(request.ask.works) > TASKS_MAX:
            self._nowhere(request)
        else:
            self._route(request, self._side_of(sender))

    def _route(self, request: TimeRequest, came_from: int) -> None:
        kids = self.kids
        if kids is None:  # it was asked by somebody who is not in the tree
            to = self.leaf_parent
            self._pass_on(to or self.me, request, request.ask, leaf=not to)
            return
        pieces = self.shelf.fit(self.row, request.ask, self.world.now(), came_from, request.hope)
        for piece in pieces:
            kid = kids[piece.side]
            self._pass_on(kid.host, request, piece.ask, leaf=kid.leaf, up=-1)
        if pieces:
            return
        if self.branch_parent and request.height < request.ask.reach:
            self._pass_on(self.branch_parent, request, request.ask, up=1)
        elif request.hope:
            self._nowhere(request)
        else:
            self._route(msgspec.structs.replace(request, hope=True), NOBODY)

    def _pass_on(
        self, to: AgentId, request: TimeRequest, ask: HoleSought, *, leaf: bool = False, up: int = 0
    ) -> None:
        hops, height = request.hops + 1, request.height + up
        self.world.send(
            to, msgspec.structs.replace(request, ask=ask, leaf=leaf, hops=hops, height=height)
        )

    def _side_of(self, sender: AgentId) -> int:
        kids = self.kids
        if kids is None or sender == self.branch_parent:
            return NOBODY
        return 0 if kids[0].host == sender else 1 if kids[1].host == sender else NOBODY

    def _nowhere(self, request: TimeRequest) -> None:
        known = self._summary(leaf=self.kids is None).keys
        large = any(has(key, *request.ask.limits) for key in known)
        reason = "no machine has the time" if large else "no machine that is large enough has time"
        self.world.send(request.owner, Nowhere(request.ask.number, request.hops, reason))

    def _summary(self, leaf: bool) -> Summary:
        """Of what is free in this peer's leaf, or below its branch."""
        if not leaf:
            return self.shelf.below(self.row)
        return EMPTY if self.leaf is None else self.leaf.summary(self.world.now())

    # The leaf.

    def _reserve(self, request: TimeRequest) -> None:
        ask = request.ask
        slots: tuple[PromisedTime, ...] = ()
        if self.leaf is not None:
            slots = self.leaf.reserve(ask, self.world.now(), request.owner)
        if slots:
            self.world.send(
                request.owner, Reserved(ask.number, ask.first, slots, request.hops, request.trail)
            )
            self.changed(leaf=True)
        elif self.leaf_parent and request.hops < self.settings.hops_max:
            self._pass_on(self.leaf_parent, request, ask, up=1)
        else:
            self._nowhere(request)

    @handles(Commit)
    def _on_commit(self, sender: AgentId, commit: Commit) -> None:
        slots: tuple[PromisedTime, ...] = ()
        if self.leaf is not None:
            slots = self.leaf.commit(
                commit.number, commit.first, commit.startlines_s, self.world.now(), sender
            )
            self.changed(leaf=True)
        self.world.send(sender, Committed(commit.number, commit.first, slots))

    @handles(RollBack)
    def _on_release(self, sender: AgentId, release: RollBack) -> None:
        if self.leaf is not None:
            self.leaf.release(release.number, release.first, release.count, self.world.now())
            self.changed(leaf=True)

    # What the client hears.

    @handles(Reserved, Nowhere, Committed)
    def _on_answer(self, sender: AgentId, message: TreeAnswer) -> None:
        if self.client is not None:
            self.client.told(sender, message)

    # Updates.

    @handles(Update)
    def _on_update(self, sender: AgentId, update: Update) -> None:
        kids = self.kids
        if kids is None:
            return
        for side, kid in enumerate(kids):
            if kid.host == sender and kid.leaf == update.leaf:
                try:
                    summary = unpacked(update.slot, update.cells)
                except ValueError:
                    return
                if self.shelf.put(self.row, side, summary):
                    self.changed(leaf=False)

    def _beat(self) -> None:
        self._beat_s = min(self.settings.beat_max_s, 1.5 * self._beat_s)
        self.changed(leaf=True)
        self.changed(leaf=False)
        self.world.after(self._beat_s * (0.75 + 0.5 * self.world.random.random()), self._beat)

    def changed(self, *, leaf: bool) -> None:
        """Something below is not what was said of it: say so, as soon as the last update is paid
        for. Until then newer changes join in."""
        if self.paces is None:
            return
        pace = self.paces[leaf]
        if pace.due:
            return
        pace.due = True
        wait_s = pace.free_s - self.world.now()
        self.world.after(max(0.0, wait_s), partial(self._update, pace, leaf))

    def _update(self, pace: Pace, leaf: bool) -> None:
        pace.due = False
        to = self.leaf_parent if leaf else self.branch_parent
        if not to or (not leaf and self.kids is None):
            return
        summary = self._summary(leaf)
        update = Update(leaf, summary.slot, summary.packed())
        if update.cells != pace.last:
            self._beat_s = self.settings.beat_s
        pace.last = update.cells
        size_bytes = HEADER_BYTES + len(update.cells)
        settings = self.settings
        pace.free_s = self.world.now() + max(settings.period_s, size_bytes / settings.bytes_per_s)
        self.world.send(to, update)
