"""Coming, going, dying, and balance: the links of one peer kept right by messages.

Whoever wants to change links coordinates the change: it asks those concerned to hold still and to
say their links, runs the change on what they said (`changes`), and tells each its new links.
Somebody who is held already says so; then all are let go, and it is tried again a little later.
Nobody is held for long: a coordinator that dies is forgotten.

- A newcomer asks its way through the tree to its neighbours, and coordinates its own insertion.
- A peer that leaves coordinates its own removal.
- Every peer tells its links, its *will*, to some neighbours on both sides, now and then and
  whenever
  they change. When a peer is silent, the nearest neighbour on its left that lives (the right one,
  if there is none) removes it, by its will, together with others that died beside it.
- A branch whose children differ in height by more than one coordinates a rotation.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from sureline.overlay.tree.changes import (
    Links,
    Misplaced,
    Missing,
    insert,
    remove,
    rotate,
    unbalanced,
)
from sureline.overlay.tree.messages import Busy, Edit, Free, Held, Hold, PlaceBetween, Seek, Will
from sureline.overlay.tree.shape import order_of
from sureline.world.address import NO_AGENT, Node, at, part_of
from sureline.world.protocol import AgentId, Message, Timer

if TYPE_CHECKING:
    from sureline.overlay.tree.agent import Tree

Change = Callable[[dict[AgentId, Links]], None]
SEEK_HOPS_MAX = 256
PARTIES_MAX = 64
DEAD_MAX = 16
WILLS_MAX = 32


class Coordination:
    """One change on its way."""

    __slots__ = ("asked", "change", "dead", "number", "on_done", "timer", "view", "wills")

    def __init__(self, number: int, change: Change, on_done: Callable[[bool], None]) -> None:
        self.number = number
        self.change = change
        self.on_done = on_done
        self.view: dict[AgentId, Links] = {}
        self.asked: set[AgentId] = set()
        self.dead: dict[AgentId, Links] = {}
        """Those to be removed; empty if nobody is."""
        self.wills: dict[AgentId, Links] = {}
        """Of other dead peers, as those who take part know them."""
        self.timer: Timer | None = None


class TreeUpkeep:
    def __init__(self, tree: Tree) -> None:
        self.tree = tree
        self.left = self.right = NO_AGENT
        self.joined = False
        self.left_for_good = False
        self._settings = tree.settings
        self._world = tree.world
        self._own: Coordination | None = None
        self._held: tuple[AgentId, int, float] | None = None
        self._wills: dict[AgentId, tuple[Links, float]] = {}
        """Of neighbours: their links, and when they were last said."""
        self._contacts: Sequence[AgentId] = ()
        self._rebalance_due = False

    def links(self) -> Links:
        tree = self.tree
        return Links(
            self.left, self.right, tree.leaf_parent, tree.branch_parent, tree.kids, tree.heights
        )

    # Coming and going.

    def first(self) -> None:
        """Be the only peer of a new tree."""
        self.joined = True
        self._begin_beat()

    def join(self, contacts: Sequence[AgentId]) -> None:
        self._contacts = [contact for contact in contacts if contact != self.tree.me]
        self._seek()
        self._begin_beat()

    def _seek(self) -> None:
        if self.joined or self.left_for_good or not self._contacts:
            return
        contact = self._world.random.choice(self._contacts)
        self._world.send(contact, Seek(self.tree.me, True, 0))
        self._again(self._seek, 4.0)

    def on_seek(self, seek: Seek) -> None:
        """Up to the root, then down to where the newcomer belongs."""
        tree = self.tree
        if not self.joined or seek.hops > SEEK_HOPS_MAX:
            return
        up, leaf = seek.up, seek.leaf
        if up:
            above = tree.branch_parent if tree.kids is not None else tree.leaf_parent
            if above and above != tree.me:
                self._world.send(above, Seek(seek.who, True, seek.hops + 1))
                return
            leaf = tree.kids is None
        if leaf:
            self._say_place(seek)
            return
        assert tree.kids is not None or not up
        if tree.kids is None:
            return
        kid = tree.kids[0 if order_of(seek.who) <= order_of(tree.me) else 1]
        self._world.send(kid.host, Seek(seek.who, False, seek.hops + 1, kid.leaf))

    def _say_place(self, seek: Seek) -> None:
        """Here it is, or a little further along the chain: the tree may have changed meanwhile."""
        who, me = seek.who, self.tree.me
        if who == me:
            return
        before = order_of(who) < order_of(me)
        left, right = (self.left, me) if before else (me, self.right)
        beyond = left if before else right
        if who == beyond:
            return
        if beyond and (order_of(who) < order_of(beyond)) == before:
            self._world.send(beyond, Seek(who, False, seek.hops + 1, True))
        else:
            self._world.send(who, PlaceBetween(left, right))

    def on_place(self, place: PlaceBetween) -> None:
        if self.joined or self._own is not None:
            return
        me = self.tree.me

        def change(view: dict[AgentId, Links]) -> None:
            insert(view, me, place.left, place.right)

        def done(well: bool) -> None:
            self.joined = well

        self.coordinate(change, done)

    def leave(self, on_done: Callable[[], None]) -> None:
        """Go in good order; the tree closes behind."""
        me = self.tree.me

        def done(well: bool) -> None:
            if well or not self.joined:
                self.left_for_good, self.joined = True, False
                on_done()
            else:
                self._again(lambda: self.leave(on_done), 4.0)

        if not (self.left or self.right):
            done(True)
        elif self._own is not None:
            self._again(lambda: self.leave(on_done))
        else:
            self._remove({me: self.links()}, done)

    # Changing links together.

    def coordinate(self, change: Change, on_done: Callable[[bool], None]) -> None:
        """Make a change with all whom it concerns; `on_done` hears whether it was made."""
        self._begin(Coordination(self._world.random.getrandbits(48), change, on_done))

    def _begin(self, own: Coordination) -> None:
        self._own = own
        number = own.number
        if self.joined:
            if self._is_held():
                self._end(False)
                return
            self._held = (self.tree.me, number, self._world.now() + self._settings.hold_s)
            self._own.view[self.tree.me] = self.links()
        self._try()

    def _try(self) -> None:
        own = self._own
        assert own is not None
        view = dict(own.view) | own.dead
        try:
            own.change(view)
        except Missing as missing:
            self._ask(own, missing.host)
        except Misplaced:
            self._end(False)
        else:
            for host in own.view:
                if host != self.tree.me and host in view:
                    self._world.send(host, Edit(own.number, view[host]))
                elif host != self.tree.me:
                    self._world.send(host, Free(own.number))
            mine = view.get(self.tree.me)
            if mine is not None:
                self.apply(mine)
            own.view.clear()
            self._end(True)

    def _ask(self, own: Coordination, host: AgentId) -> None:
        if not host or host in own.asked or len(own.asked) >= PARTIES_MAX:
            self._end(False)
            return
        if own.dead and host not in own.dead:
            # It stands in the way of a removal, dead itself: it goes, too.
            will = self._wills[host][0] if self._is_dead(host) else own.wills.get(host)
            if will is not None:
                own.dead[host] = will
                self._try()
                return
        own.asked.add(host)
        self._world.send(host, Hold(own.number))
        if own.timer is not None:
            own.timer.cancel()
        own.timer = self._world.after(self._settings.answer_s, lambda: self._silent(own, host))

    def _silent(self, own: Coordination, host: AgentId) -> None:
        if own is self._own:
            self._forget_soon(host)
            self._end(False)

    def _end(self, well: bool) -> None:
        own = self._own
        assert own is not None
        self._own = None
        if own.timer is not None:
            own.timer.cancel()
        for host in own.asked if not well else own.asked - set(own.view):
            if not well:
                self._world.send(host, Free(own.number))
        if self._held is not None and self._held[:2] == (self.tree.me, own.number):
            self._held = None
        own.on_done(well)

    def on_hold(self, sender: AgentId, hold: Hold) -> None:
        if not self.joined or self._is_held() or self._own is not None:
            self._world.send(sender, Busy(hold.number))
            return
        self._held = (sender, hold.number, self._world.now() + self._settings.hold_s)
        dead = [(host, will) for host, (will, _) in self._wills.items() if self._is_dead(host)]
        self._world.send(sender, Held(hold.number, self.links(), tuple(dead[:DEAD_MAX])))

    def _is_held(self) -> bool:
        return self._held is not None and self._held[2] > self._world.now()

    def on_held(self, sender: AgentId, held: Held) -> None:
        own = self._own
        if own is None or own.number != held.number or sender not in own.asked:
            self._world.send(sender, Free(held.number))
            return
        own.view[sender] = held.links
        own.wills.update(held.dead)
        self._try()

    def on_busy(self, sender: AgentId, busy: Busy) -> None:
        if self._own is not None and self._own.number == busy.number:
            self._own.asked.discard(sender)
            self._end(False)

    def on_edit(self, sender: AgentId, edit: Edit) -> None:
        if self._held is not None and self._held[:2] == (sender, edit.number):
            self._held = None
            self.apply(edit.links)

    def on_free(self, sender: AgentId, free: Free) -> None:
        if self._held is not None and self._held[:2] == (sender, free.number):
            self._held = None

    def apply(self, links: Links) -> None:
        """Have these links from now on, and tell those who should know."""
        self.left, self.right = links.left, links.right
        self.tree.linked(links.leaf_parent, links.branch_parent, links.kids, links.heights)
        self._tell_will()
        self.look()

    def look(self) -> None:
        """Rotate, if that is due; not at once, since heights may be on their way."""
        if not self._rebalance_due and unbalanced(self.links()):
            self._rebalance_due = True
            self._again(self._rebalance)

    def _rebalance(self) -> None:
        self._rebalance_due = False
        if unbalanced(self.links()) and self.joined:
            if self._own is None and not self._is_held():
                me = self.tree.me
                self.coordinate(lambda view: rotate(view, me), lambda well: self._again(self.look))
            else:
                self.look()

    def _again(self, action: Callable[[], None], times: float = 1.0) -> None:
        wait_s = self._settings.retry_s * times * (0.5 + self._world.random.random())
        self._world.after(wait_s, action)

    # Wills and deaths.

    def _begin_beat(self) -> None:
        self._world.after(self._settings.beat_s * self._world.random.random(), self._beat)

    def _beat(self) -> None:
        if self.left_for_good:
            return
        if self.joined:
            self._tell_will()
            self._look_around()
        self._world.after(self._settings.beat_s, self._beat)

    def _tell_will(self) -> None:
        links = self.links()
        for other in self._relatives():
            self._world.send(other, Will(links))

    def _relatives(self) -> set[AgentId]:
        """Neighbours on both sides, parents and children: whoever may have to repair the tree."""
        tree = self.tree
        lefts, rights = self._chain()
        kids = [kid.host for kid in tree.kids or ()]
        found = {*lefts, *rights, tree.leaf_parent, tree.branch_parent, *kids}
        return found - {"", tree.me}

    def _chain(self) -> tuple[tuple[AgentId, ...], tuple[AgentId, ...]]:
        """The nearest on each side, the nearest first, as far as their wills tell."""
        found = []
        for side, nearest in ((0, self.left), (1, self.right)):
            names = [nearest] if nearest else []
            known = self._wills.get(nearest)
            while known is not None and len(names) < self._settings.near:
                following = known[0].right if side else known[0].left
                if not following or following in names or following == self.tree.me:
                    break
                names.append(following)
                known = self._wills.get(following)
            found.append(tuple(names))
        return found[0], found[1]

    def on_will(self, sender: AgentId, will: Will) -> None:
        if len(self._wills) > WILLS_MAX and sender not in self._wills:
            known = self._relatives()
            for other in [w for w in self._wills if w not in known]:
                del self._wills[other]
        self._wills[sender] = (will.links, self._world.now())

    def unreachable(self, node: Node) -> None:
        """Nobody answers there: as if it had been silent for long."""
        part = part_of(self.tree.me)
        self._forget_soon(at(node, part) if part else AgentId(node))
        self._look_around()

    def _forget_soon(self, host: AgentId) -> None:
        if host in self._wills:
            self._wills[host] = (self._wills[host][0], -1e18)

    def _is_dead(self, host: AgentId) -> bool:
        known = self._wills.get(host)
        return known is not None and self._world.now() - known[1] > self._settings.silence_s

    def _look_around(self) -> None:
        """Remove a dead neighbour, if it is for this peer to do so."""
        if not self.joined or self._own is not None or self._is_held():
            return
        lefts, rights = self._chain()
        gone = []
        for host in rights:
            if not self._is_dead(host):
                break
            gone.append(host)
        alone = lefts and all(self._is_dead(host) for host in lefts)
        if alone and not gone and not self._wills[lefts[-1]][0].left:
            gone = list(lefts)  # nobody lives on the left
        if gone:
            self._remove({host: self._wills[host][0] for host in gone}, self._removed)

    def _remove(self, gone: dict[AgentId, Links], on_done: Callable[[bool], None]) -> None:
        number = self._world.random.getrandbits(48)
        own = Coordination(number, lambda view: _remove_all(view, gone), on_done)
        own.dead = gone
        self._begin(own)

    def _removed(self, well: bool) -> None:
        if not well:
            self._again(self._look_around, 2.0)

    # What a node of the world hears.

    def receive(self, sender: AgentId, message: Message) -> None:
        if isinstance(message, Seek):
            self.on_seek(message)
        elif isinstance(message, PlaceBetween):
            self.on_place(message)
        elif isinstance(message, Hold):
            self.on_hold(sender, message)
        elif isinstance(message, Held):
            self.on_held(sender, message)
        elif isinstance(message, Busy):
            self.on_busy(sender, message)
        elif isinstance(message, Edit):
            self.on_edit(sender, message)
        elif isinstance(message, Free):
            self.on_free(sender, message)
        elif isinstance(message, Will):
            self.on_will(sender, message)


def _remove_all(view: dict[AgentId, Links], dead: dict[AgentId, Links]) -> None:
    for host in list(dead):
        remove(view, host)
