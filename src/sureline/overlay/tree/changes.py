"""Changes of the tree's links, as pure functions of the links of those concerned.

A change looks at a *view*, the links of some peers by address, and edits it. If it needs a peer
that is not in the view, it raises `Missing`: whoever coordinates the change then asks that peer to
hold still, adds its links, and begins again. So the same few lines are the protocol, its repair
after a crash (the links of the dead are known from their wills), and what the property tests drive.

Rules, after every change: peers in the order of their addresses form a chain; the branch between
two neighbours is hosted by the left one; rotations keep that, since they do not change the order.
"""

from __future__ import annotations

from collections.abc import MutableMapping

import msgspec

from sureline.overlay.tree.refs import Peer, Ref
from sureline.world.address import NO_AGENT
from sureline.world.protocol import AgentId


class Links(msgspec.Struct, frozen=True):
    """All that a peer is tied to. '' stands for nobody."""

    left: Peer = NO_AGENT
    right: Peer = NO_AGENT
    """Its neighbours in the order of addresses."""
    leaf_parent: Peer = NO_AGENT
    branch_parent: Peer = NO_AGENT
    kids: tuple[Ref, Ref] | None = None
    heights: tuple[int, int] = (0, 0)

    @property
    def height(self) -> int:
        """Of its branch; leaves have none."""
        return 1 + max(self.heights)


View = MutableMapping[AgentId, Links]


class Missing(Exception):  # noqa: N818  # it is asked for, not a failure
    """The change needs this peer, too."""

    def __init__(self, host: AgentId) -> None:
        self.host = host
        super().__init__(host)


class Misplaced(Exception):  # noqa: N818  # the change must be looked at again from the start
    """What the change rests on is no longer so."""


def _get(view: View, host: AgentId) -> Links:
    try:
        return view[host]
    except KeyError:
        raise Missing(host) from None


def _set(view: View, host: AgentId, **fields: object) -> None:
    view[host] = msgspec.structs.replace(_get(view, host), **fields)


def _set_parent(view: View, child: Ref, parent: AgentId, before: AgentId) -> None:
    """Put the child below another parent than `before`."""
    name = "leaf_parent" if child.leaf else "branch_parent"
    if getattr(_get(view, child.host), name) != before:
        raise Misplaced(f"{child} is not below {before}")
    _set(view, child.host, **{name: parent})


def _swap(view: View, parent: AgentId, old: Ref, new: Ref, height: int) -> None:
    """Below the branch of `parent`, put `new`, of this height, where `old` was. At the top there is
    nothing to do."""
    if not parent:
        return
    links = _get(view, parent)
    if links.kids is None or old not in links.kids:
        raise Misplaced(f"{old} is not below {parent}")
    side = links.kids.index(old)
    kids, heights = list(links.kids), list(links.heights)
    kids[side], heights[side] = new, height
    _set(view, parent, kids=(kids[0], kids[1]), heights=(heights[0], heights[1]))


def _height(view: View, ref: Ref) -> int:
    return 0 if ref.leaf else _get(view, ref.host).height


def insert(view: View, new: AgentId, left: AgentId, right: AgentId) -> None:
    """A peer comes between two neighbours, one of whom may be nobody."""
    if right:
        _insert_before(view, new, left, right)
    else:
        _insert_last(view, new, left)


def _insert_before(view: View, new: AgentId, left: AgentId, right: AgentId) -> None:
    if _get(view, right).left != left:
        raise Misplaced(f"{left} is no longer before {right}")
    above = _get(view, right).leaf_parent
    kids = (Ref(new, True), Ref(right, True))
    view[new] = Links(left, right, new, above, kids)
    _swap(view, above, Ref(right, True), Ref(new, False), 1)
    _set(view, right, leaf_parent=new, left=new)
    if left:
        _set(view, left, right=new)


def _insert_last(view: View, new: AgentId, left: AgentId) -> None:
    links = _get(view, left)
    if links.right or links.kids is not None:
        raise Misplaced(f"{left} is no longer the last")
    _swap(view, links.leaf_parent, Ref(left, True), Ref(left, False), 1)
    kids = (Ref(left, True), Ref(new, True))
    _set(
        view,
        left,
        right=new,
        leaf_parent=left,
        branch_parent=links.leaf_parent,
        kids=kids,
        heights=(0, 0),
    )
    view[new] = Links(left=left, leaf_parent=left)


def remove(view: View, gone: AgentId) -> None:
    """A peer goes: the branch above its leaf goes with it, and if that was another's, the other
    takes over the branch of the one that goes."""
    above = _get(view, gone).leaf_parent
    if above:
        branch = _get(view, above)
        if branch.kids is None or Ref(gone, True) not in branch.kids:
            raise Misplaced(f"{gone} is not below {above}")
        sibling = branch.kids[1 - branch.kids.index(Ref(gone, True))]
        _swap(view, branch.branch_parent, Ref(above, False), sibling, _height(view, sibling))
        _set_parent(view, sibling, branch.branch_parent, above)
        _set(view, above, kids=None, branch_parent="", heights=(0, 0))
        if above != gone:
            _take_over(view, above, gone)
    links = _get(view, gone)
    if links.left:
        if _get(view, links.left).right != gone:
            raise Misplaced(f"{gone} is not after {links.left}")
        _set(view, links.left, right=links.right)
    if links.right:
        if _get(view, links.right).left != gone:
            raise Misplaced(f"{gone} is not before {links.right}")
        _set(view, links.right, left=links.left)
    del view[gone]


def _take_over(view: View, heir: AgentId, gone: AgentId) -> None:
    links = _get(view, gone)
    if links.kids is None:
        return
    _set(view, heir, kids=links.kids, branch_parent=links.branch_parent, heights=links.heights)
    _swap(view, links.branch_parent, Ref(gone, False), Ref(heir, False), links.height)
    for kid in links.kids:
        _set_parent(view, kid, heir, gone)


def unbalanced(links: Links) -> bool:
    return links.kids is not None and abs(links.heights[0] - links.heights[1]) > 1


def rotate(view: View, host: AgentId) -> None:
    """Make the branch of `host` balanced, as AVL trees do: its higher child, or that one's inner
    child, takes its place."""
    links = _get(view, host)
    if not unbalanced(links):
        raise Misplaced(f"{host} is balanced")
    heavy = 0 if links.heights[0] > links.heights[1] else 1
    assert links.kids is not None
    child = links.kids[heavy].host
    below = _get(view, child)
    if links.kids[heavy].leaf or below.kids is None or below.branch_parent != host:
        raise Misplaced(f"{child} has no branch below {host}")
    if below.height != links.heights[heavy]:
        _swap(view, host, links.kids[heavy], links.kids[heavy], below.height)
        if not unbalanced(_get(view, host)):
            return
    if below.heights[1 - heavy] > below.heights[heavy]:
        _lift(view, below.kids[1 - heavy].host, child)
    _lift(view, _get(view, host).kids[heavy].host, host)  # type: ignore[index]  # it has a branch


def _lift(view: View, child: AgentId, parent: AgentId) -> None:
    """The branch `child` takes the place of its parent, which becomes its child, and takes the
    inner one of its children in exchange."""
    up, low = _get(view, parent), _get(view, child)
    if up.kids is None or low.kids is None or low.branch_parent != parent:
        raise Misplaced(f"{child} is not below {parent}")
    side = up.kids.index(Ref(child, False))
    inner, inner_height = low.kids[1 - side], low.heights[1 - side]
    _swap(view, parent, Ref(child, False), inner, inner_height)
    _set_parent(view, inner, parent, child)
    height = _get(view, parent).height
    above = up.branch_parent
    kids, heights = list(low.kids), list(low.heights)
    kids[1 - side], heights[1 - side] = Ref(parent, False), height
    _set(
        view, child, kids=(kids[0], kids[1]), heights=(heights[0], heights[1]), branch_parent=above
    )
    _set(view, parent, branch_parent=child)
    _swap(view, above, Ref(parent, False), Ref(child, False), _get(view, child).height)
