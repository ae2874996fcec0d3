"""One peer of the tree: its leaf, which may promise time, and its branch, if it has one.

A branch answers every request from what it knows: down to the child below which the best fitting
hole is promised, in pieces if no hole is large enough for all, up to its parent if it knows none;
the root says so to the owner. A leaf checks again and reserves, or sends the request back up. What
is below changes all the time: summaries go up, but never faster than their share of the link, and
always the newest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import msgspec

from sureline.overlay.tree.leaf import HoleSought, Leaf, PromisedTime
from sureline.overlay.tree.messages import (
    Busy,
    Commit,
    Committed,
    Edit,
    Free,
    Held,
    Hold,
    Nowhere,
    PlaceBetween,
    Ref,
    Released,
    Reserved,
    RollBack,
    Seek,
    TimeRequest,
    Update,
    Will,
)
from sureline.overlay.tree.settings import TreeSettings
from sureline.overlay.tree.shelf import NOBODY, OwnShelf, Shelf
from sureline.overlay.tree.summary import EMPTY, unpacked
from sureline.overlay.tree.upkeep import TreeUpkeep
from sureline.world.address import NO_AGENT
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Message, Unreachable, World

DEFAULT = TreeSettings()
HEADER_BYTES = 90
"""What a message costs beside its content, as the paper counts."""


class TimeSeeker(Protocol):
    """Whoever asks the tree for time on behalf of this peer."""

    def told(self, sender: AgentId, message: Reserved | Nowhere | Committed | Released) -> None: ...


class Pace:
    """When the next update may go: the last one must be paid for."""

    __slots__ = ("due", "free_s", "last")

    def __init__(self) -> None:
        self.free_s = 0.0
        self.due = False
        self.last: Update | None = None


class Tree(Agent):
    """`leaf` is None for a peer that runs nothing, but routes."""

    __slots__ = (
        "branch_parent",
        "client",
        "heights",
        "kids",
        "leaf",
        "leaf_parent",
        "paces",
        "row",
        "settings",
        "shelf",
        "upkeep",
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
        """Who hosts the branch above the leaf; nobody while it is alone."""
        self.branch_parent = NO_AGENT
        """Nobody for the root's."""
        self.kids: tuple[Ref, Ref] | None = None
        """The children of its branch, left and right; None if it has no branch."""
        self.heights = (0, 0)
        self.paces: tuple[Pace, Pace] | None = None
        self.upkeep: TreeUpkeep | None = None
        """Keeps the links right; None where somebody else has laid out the tree."""

    def placed(
        self, leaf_parent: AgentId, branch_parent: AgentId, kids: tuple[Ref, Ref] | None
    ) -> None:
        """Take a place in a tree that somebody else has laid out."""
        self.leaf_parent, self.branch_parent, self.kids = leaf_parent, branch_parent, kids

    def start(self, contacts: Sequence[AgentId]) -> None:
        """Join the tree that these belong to, or begin one if there is nobody else."""
        self.upkeep = TreeUpkeep(self)
        self.begin()
        if [contact for contact in contacts if contact != self.me]:
            self.upkeep.join(contacts)
        else:
            self.upkeep.first()

    def linked(
        self,
        leaf_parent: AgentId,
        branch_parent: AgentId,
        kids: tuple[Ref, Ref] | None,
        heights: tuple[int, int],
    ) -> None:
        """Its links are others from now on: what is known of new children is nothing yet, and new
        parents are told what is below."""
        before = self.kids or (None, None)
        for side, kid in enumerate(kids or ()):
            if kid != before[side]:
                self.shelf.put(self.row, side, EMPTY)
        self.placed(leaf_parent, branch_parent, kids)
        self.heights = heights
        for pace in self.paces or ():
            pace.free_s = 0.0
        self._changed(leaf=True)
        self._changed(leaf=False)

    def begin(self) -> None:
        """Send updates from now on."""
        if not self.settings.swept:
            self.paces = (Pace(), Pace())
            self.world.after(self.world.random.random() * self.settings.period_s, self._beat)

    # What a client asks for.

    def request(self, ask: HoleSought, *, traced: bool = False) -> None:
        """Look for time. The client is told Reserved, for all tasks in pieces, or Nowhere; nothing
        if a message is lost."""
        trail = (self.me,) if traced else None
        to = self.leaf_parent or self.me
        self.world.send(to, TimeRequest(ask, self.me, not self.leaf_parent, 0, trail))

    # Links.

    def _keep_up(self, sender: AgentId, message: Message) -> None:
        if self.upkeep is not None:
            self.upkeep.receive(sender, message)

    @handles(Seek)
    def _on_seek(self, sender: AgentId, message: Seek) -> None:
        self._keep_up(sender, message)

    @handles(PlaceBetween)
    def _on_place(self, sender: AgentId, message: PlaceBetween) -> None:
        self._keep_up(sender, message)

    @handles(Hold)
    def _on_hold(self, sender: AgentId, message: Hold) -> None:
        self._keep_up(sender, message)

    @handles(Held)
    def _on_held(self, sender: AgentId, message: Held) -> None:
        self._keep_up(sender, message)

    @handles(Busy)
    def _on_busy(self, sender: AgentId, message: Busy) -> None:
        self._keep_up(sender, message)

    @handles(Edit)
    def _on_edit(self, sender: AgentId, message: Edit) -> None:
        self._keep_up(sender, message)

    @handles(Free)
    def _on_free(self, sender: AgentId, message: Free) -> None:
        self._keep_up(sender, message)

    @handles(Will)
    def _on_will(self, sender: AgentId, message: Will) -> None:
        self._keep_up(sender, message)

    @handles(Unreachable)
    def _on_unreachable(self, sender: AgentId, message: Unreachable) -> None:
        if self.upkeep is not None:
            self.upkeep.unreachable(message.node)

    # Search.

    @handles(TimeRequest)
    def _on_request(self, sender: AgentId, request: TimeRequest) -> None:
        if request.trail is not None and len(request.trail) < 256:
            request = msgspec.structs.replace(request, trail=(*request.trail, self.me))
        if request.leaf:
            self._reserve(request)
        elif (
            request.hops >= self.settings.hops_max
            or len(request.ask.works) > self.settings.asks_max
        ):
            self._nowhere(request)
        else:
            self._route(request, self._side_of(sender))

    def _route(self, request: TimeRequest, came_from: int) -> None:
        kids = self.kids
        if kids is None:
            self._nowhere(request)
            return
        pieces = self.shelf.fit(self.row, request.ask, self.world.now(), came_from)
        for piece in pieces:
            to = kids[piece.side]
            self._pass_on(to.host, request, piece.ask, to.leaf)
        if pieces:
            return
        if self.branch_parent:
            self._pass_on(self.branch_parent, request, request.ask, False)
        else:
            self._nowhere(request)

    def _pass_on(self, to: AgentId, request: TimeRequest, ask: HoleSought, leaf: bool) -> None:
        self.world.send(to, TimeRequest(ask, request.owner, leaf, request.hops + 1, request.trail))

    def _side_of(self, sender: AgentId) -> int:
        kids = self.kids
        if kids is None or sender == self.branch_parent:
            return NOBODY
        return 0 if kids[0].host == sender else 1 if kids[1].host == sender else NOBODY

    def _nowhere(self, request: TimeRequest) -> None:
        ask = request.ask
        self.world.send(request.owner, Nowhere(ask.number, ask.first, len(ask.works), request.hops))

    # The leaf.

    def _reserve(self, request: TimeRequest) -> None:
        ask = request.ask
        slots = self.leaf.reserve(ask, self.world.now()) if self.leaf is not None else ()
        if slots:
            self.world.send(
                request.owner, Reserved(ask.number, ask.first, slots, request.hops, request.trail)
            )
            self._changed(leaf=True)
        elif self.leaf_parent and request.hops < self.settings.hops_max:
            self._pass_on(self.leaf_parent, request, ask, False)
        else:
            self._nowhere(request)

    @handles(Commit)
    def _on_commit(self, sender: AgentId, commit: Commit) -> None:
        slots: tuple[PromisedTime, ...] = ()
        if self.leaf is not None:
            slots = self.leaf.commit(
                commit.number, commit.first, commit.startlines_s, self.world.now()
            )
            self._changed(leaf=True)
        self.world.send(sender, Committed(commit.number, commit.first, slots))

    @handles(RollBack)
    def _on_release(self, sender: AgentId, release: RollBack) -> None:
        if self.leaf is not None:
            self.leaf.release(release.number, self.world.now())
            self._changed(leaf=True)
        self.world.send(sender, Released(release.number))

    # What the client hears.

    def _tell(self, sender: AgentId, message: Reserved | Nowhere | Committed | Released) -> None:
        if self.client is not None:
            self.client.told(sender, message)

    @handles(Reserved)
    def _on_reserved(self, sender: AgentId, message: Reserved) -> None:
        self._tell(sender, message)

    @handles(Nowhere)
    def _on_nowhere(self, sender: AgentId, message: Nowhere) -> None:
        self._tell(sender, message)

    @handles(Committed)
    def _on_committed(self, sender: AgentId, message: Committed) -> None:
        self._tell(sender, message)

    @handles(Released)
    def _on_released(self, sender: AgentId, message: Released) -> None:
        self._tell(sender, message)

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
                self.shelf.put(self.row, side, summary)
                heights = list(self.heights)
                heights[side] = update.height
                self.heights = (heights[0], heights[1])
                self._changed(leaf=False)
                if self.upkeep is not None:
                    self.upkeep.look()

    def _beat(self) -> None:
        self._changed(leaf=True)
        self._changed(leaf=False)
        self.world.after(
            self.settings.beat_s * (0.75 + 0.5 * self.world.random.random()), self._beat
        )

    def _changed(self, *, leaf: bool) -> None:
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
        update = self._newest(leaf)
        if update is None:
            return
        pace.last = update
        size_bytes = HEADER_BYTES + len(update.cells)
        settings = self.settings
        pace.free_s = self.world.now() + max(settings.period_s, size_bytes / settings.bytes_per_s)
        self.world.send(to, update)

    def _newest(self, leaf: bool) -> Update | None:
        if not leaf:
            summary = self.shelf.below(self.row)
            return Update(False, summary.slot, summary.packed(), 1 + max(self.heights))
        if self.leaf is None:
            return Update(True, 0, b"")
        summary = self.leaf.summary(self.world.now())
        return Update(True, summary.slot, summary.packed())
