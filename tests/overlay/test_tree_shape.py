"""Whoever is there, their tree is balanced, connected and in order; and few links change with one
who comes or goes."""

from __future__ import annotations

import math

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from sureline.experiments.peercomp_shape import ROOT, shape_of
from sureline.overlay.tree.shape import Leaves, Links, Ref, links_of, order_of, rank_of

Tree = dict[str, Links]


def check(tree: Tree) -> int:
    """What must hold of the links of all peers together; the height."""
    names = sorted(tree, key=order_of)
    if len(tree) == 1:
        assert tree[names[0]] == Links()
        return 0
    roots = [name for name, links in tree.items() if links.kids and not links.branch_parent]
    assert len(roots) == 1
    leaves, height = _below(tree, Ref(roots[0], False), "")
    assert leaves == names, "all leaves, in the order of addresses"
    assert sum(links.kids is not None for links in tree.values()) == len(tree) - 1
    assert height <= 1 + math.log(len(tree)) / math.log(4 / 3)
    return height


def _below(tree: Tree, ref: Ref, parent: str) -> tuple[list[str], int]:
    """The leaves, in order, and the height; parents and hosts are checked on the way."""
    links = tree[ref.host]
    if ref.leaf:
        assert links.leaf_parent == parent
        return [ref.host], 0
    assert links.branch_parent == parent and links.kids is not None
    (left, high), (right, higher) = (_below(tree, kid, ref.host) for kid in links.kids)
    assert left[-1] == ref.host, "a branch is hosted by the last leaf on its left"
    assert min(len(left), len(right)) >= (len(left) + len(right)) / 4
    return left + right, 1 + max(high, higher)


def tree_of(names: list[str]) -> Tree:
    leaves = Leaves(names)
    return {name: links_of(name, leaves) for name in names}


nodes = st.one_of(
    st.integers(0, 999).map(lambda n: f"n{n:03}"),
    st.builds(
        "{}@10.0.{}.{}:{}/tree".format, st.sampled_from("abc"), *[st.integers(0, 255)] * 2,
        st.integers(1, 9),
    ),
)  # fmt: skip


@settings(deadline=None)
@given(st.sets(nodes, min_size=1, max_size=60))
def test_any_peers_make_a_balanced_tree_in_order(names: set[str]) -> None:
    check(tree_of(sorted(names)))


@settings(deadline=None)
@given(st.lists(st.integers(0, 1 << 55), min_size=2, max_size=300))
def test_any_ranks_make_one_balanced_tree(ranks: list[int]) -> None:
    shape = shape_of(np.array(ranks, np.int64))
    assert (shape.branch_parent[shape.depth > 0] != ROOT).all()
    assert (shape.depth == 0).sum() == 1 and (shape.leaf_parent != ROOT).all()
    assert shape.height <= 1 + math.log(len(ranks)) / math.log(4 / 3)


@settings(deadline=None, max_examples=30)
@given(st.sets(nodes, min_size=2, max_size=80))
def test_the_tree_that_is_built_at_once_is_the_one_that_each_peer_finds(names: set[str]) -> None:
    ordered = sorted(names, key=order_of)
    shape = shape_of(np.array([rank_of(name) for name in ordered]))
    peers = len(ordered)

    def name(row: int) -> str:
        return "" if row == ROOT else ordered[row]

    def ref(child: int) -> Ref:
        return Ref(ordered[child % peers], child < peers)

    for row, one in enumerate(ordered):
        kids = None
        if shape.depth[row] >= 0:
            kids = (ref(int(shape.children[row, 0])), ref(int(shape.children[row, 1])))
        parents = (name(int(shape.leaf_parent[row])), name(int(shape.branch_parent[row])))
        assert links_of(one, Leaves(ordered)) == Links(*parents, kids)


def test_few_links_change_with_one_who_goes() -> None:
    names = [f"n{number:04}" for number in range(2000)]
    before = shape_of(np.array([rank_of(name) for name in names]))
    changed = []
    for gone in range(50, 1950, 100):
        rest = np.delete(np.arange(2000), gone)
        after = shape_of(np.array([rank_of(names[row]) for row in rest]))
        there = np.where(after.branch_parent == ROOT, ROOT, rest[after.branch_parent])
        changed.append(int((there != before.branch_parent[rest]).sum()))
    assert sum(changed) / len(changed) < 4 * math.log2(2000)
    assert before.height < 2 * math.log2(2000)


def test_addresses_sort_by_number() -> None:
    agents = ["z@10.0.0.2:9/tree", "a@10.0.0.10:9/tree", "a@10.0.0.10:10/tree", "b@host:1/tree"]
    assert sorted(set(agents), key=order_of) == agents
