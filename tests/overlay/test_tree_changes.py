"""After any series of joins, leaves and crashes the tree is balanced, connected and in order."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.overlay.tree.changes import Links, Misplaced, insert, remove, rotate, unbalanced
from sureline.overlay.tree.messages import Ref
from sureline.overlay.tree.shape import balanced, order_of

View = dict[str, Links]


def leaves_below(view: View, ref: Ref, parent: str) -> list[str]:
    """In order; checks parents, hosts and heights on the way."""
    links = view[ref.host]
    if ref.leaf:
        assert links.leaf_parent == parent
        return [ref.host]
    assert links.branch_parent == parent and links.kids is not None
    below = [leaves_below(view, kid, ref.host) for kid in links.kids]
    assert below[0][-1] == ref.host, "a branch is hosted by the last leaf on its left"
    for kid, height in zip(links.kids, links.heights, strict=True):
        assert height == (0 if kid.leaf else view[kid.host].height)
    return below[0] + below[1]


def check(view: View) -> None:
    names = sorted(view)
    if len(view) == 1:
        assert view[names[0]].kids is None and not view[names[0]].leaf_parent
        return
    roots = [name for name, links in view.items() if links.kids and not links.branch_parent]
    assert len(roots) == 1
    assert leaves_below(view, Ref(roots[0], False), "") == names, "leaves are in order, all of them"
    for left, right in zip(["", *names], [*names, ""], strict=True):
        if left:
            assert view[left].right == right
        if right:
            assert view[right].left == left
    assert sum(links.kids is not None for links in view.values()) == len(view) - 1


def settle(view: View) -> None:
    """What heights and rotations do, one at a time, until nothing is left to do."""
    for _ in range(10_000):
        for name, links in view.items():
            if links.kids is not None:
                right = tuple(0 if kid.leaf else view[kid.host].height for kid in links.kids)
                if right != links.heights:
                    view[name] = Links(
                        links.left,
                        links.right,
                        links.leaf_parent,
                        links.branch_parent,
                        links.kids,
                        right,
                    )  # type: ignore[arg-type]  # two of them
                    break
                if unbalanced(links):
                    rotate(view, name)
                    break
        else:
            return
    pytest.fail("rotations go on for ever")


def join(view: View, new: str) -> None:
    names = sorted(view)
    left = max([n for n in names if n < new], default="")
    right = min([n for n in names if n > new], default="")
    insert(view, new, left, right)


@settings(deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.integers(0, 99), st.booleans()), max_size=60))
def test_any_series_of_changes(series: list[tuple[bool, int, bool]]) -> None:
    view: View = {"n50": Links()}
    for comes, number, wait in series:
        name = f"n{number:02}"
        if comes and name not in view:
            join(view, name)
        elif not comes and name in view and len(view) > 1:
            remove(view, name)
        if not wait:
            settle(view)
            check(view)
    settle(view)
    check(view)
    for links in view.values():
        assert not unbalanced(links)


def test_peers_that_come_in_order_make_a_balanced_tree() -> None:
    view: View = {"n00": Links()}
    for number in range(1, 64):
        join(view, f"n{number:02}")
        settle(view)
    check(view)
    root = next(links for links in view.values() if links.kids and not links.branch_parent)
    assert root.height <= 8


def test_a_change_that_rests_on_what_is_no_longer_so_is_refused() -> None:
    view: View = {"n10": Links()}
    join(view, "n30")
    join(view, "n20")
    with pytest.raises(Misplaced):
        insert(view, "n15", "n10", "n30")
    with pytest.raises(Misplaced):
        rotate(view, "n10")


@given(st.integers(2, 300))
def test_the_tree_that_is_built_at_once_is_right(peers: int) -> None:
    shape = balanced(peers)

    def name(row: int) -> str:
        return "" if row < 0 else f"n{row:03}"

    def ref(child: int) -> Ref:
        return Ref(name(child), True) if child < peers else Ref(name(child - peers), False)

    heights: dict[int, int] = {}
    for row in sorted(range(peers), key=lambda row: -shape.depth[row]):
        if shape.depth[row] >= 0:
            heights[row] = 1 + max(heights.get(int(c) - peers, 0) for c in shape.children[row])
    view: View = {}
    for row in range(peers):
        links = Links(
            name(row - 1), name(row + 1) if row + 1 < peers else "", name(shape.leaf_parent[row]),
            name(shape.branch_parent[row]),
        )  # fmt: skip
        if shape.depth[row] >= 0:
            kids = (ref(shape.children[row, 0]), ref(shape.children[row, 1]))
            both = [heights.get(int(c) - peers, 0) for c in shape.children[row]]
            links = Links(
                links.left, links.right, links.leaf_parent, links.branch_parent, kids,
                (both[0], both[1]),
            )  # fmt: skip
            assert not unbalanced(links)
        view[name(row)] = links
    check(view)


def test_addresses_sort_by_number() -> None:
    agents = ["z@10.0.0.2:9/tree", "a@10.0.0.10:9/tree", "a@10.0.0.10:10/tree", "b@host:1/tree"]
    assert sorted(set(agents), key=order_of) == agents
