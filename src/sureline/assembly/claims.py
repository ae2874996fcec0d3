"""Asking for a run from a node: the claimant, and how it finds the run's voters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from sureline.assembly.node import GridNode
from sureline.run.claiming import PART, Claim, Claimant, Own
from sureline.run.copies import CopyReader
from sureline.world.address import Node, at, name_of


def node_called(node: GridNode, name: str) -> Node | None:
    """Where a peer is; None if it is not there."""
    return next((m.node for m in node.present() if name_of(m.node) == name), None)


def make_claimant(
    node: GridNode,
    reader: CopyReader,
    run: str,
    writer: str,
    own: Own,
    on_done: Callable[[Claim], None],
    *,
    relief: bool = False,
    papers: Callable[[bytes, int], bytes],
) -> Claimant:
    """Joined, and to be started, on a node that has met its grid."""
    me = at(node.id, f"{PART}.{run}")
    made = Claimant(
        me,
        node.ground.place(me),
        reader,
        run,
        writer,
        own,
        partial(node_called, node),
        on_done,
        relief=relief,
        papers=papers,
    )
    node.ground.join(made)
    return made
