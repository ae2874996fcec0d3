"""What a branch knows of its two children, and the search in it.

A branch that has just sent a request to a hole counts one hole less of that kind at once: two
requests must not chase one hole. The child's next summary replaces the count.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from sureline.overlay.tree.leaf import HoleSought
from sureline.overlay.tree.points import Floats, bounds_of, slot_of
from sureline.overlay.tree.search import Part, search
from sureline.overlay.tree.summary import EMPTY, Summary, merged, renewed

NOBODY = -1


class Piece(NamedTuple):
    """A part of a request, and the child below which a hole for it is promised."""

    ask: HoleSought
    side: int


class Shelf(Protocol):
    """Summaries of the children of some branches, by row."""

    def fit(self, row: int, ask: HoleSought, now_s: float, without: int, hope: bool) -> list[Piece]:
        """Where it goes, whole or in pieces; nothing if no hole is known that surely does, or, with
        `hope`, likely. `without` is the side that has just said that it has none (the pieces of a
        cut may go there)."""

    def put(self, row: int, side: int, summary: Summary) -> bool:
        """Whether that is news."""

    def below(self, row: int) -> Summary:
        """Of both children together."""


class OwnShelf:
    """Of one branch: what its children sent."""

    __slots__ = ("_sides",)

    def __init__(self) -> None:
        self._sides = [EMPTY, EMPTY]

    def put(self, row: int, side: int, summary: Summary) -> bool:
        before, self._sides[side] = self._sides[side], summary
        return before.slot != summary.slot or before.packed() != summary.packed()

    def below(self, row: int) -> Summary:
        return merged(*self._sides)

    def fit(self, row: int, ask: HoleSought, now_s: float, without: int, hope: bool) -> list[Piece]:
        slot = max(slot_of(now_s), self._sides[0].slot, self._sides[1].slot)
        a, b = self._sides = [renewed(side, slot) for side in self._sides]
        left, right = (a.keys, a.counts, 0, len(a.keys)), (b.keys, b.counts, 0, len(b.keys))
        return fit_in(left, right, bounds_of(slot), ask, now_s, without, hope)


def fit_in(
    left: Part, right: Part, bounds: Floats, ask: HoleSought, now_s: float, without: int, hope: bool
) -> list[Piece]:
    """Search in both children's cells, and take what is found."""
    times_s = (ask.startline_s, ask.middle_s, ask.deadline_s)
    count, point_s, one, other = search(
        left, right, bounds, now_s, times_s, np.array(ask.works), ask.early, (*ask.limits,),
        without, hope,
    )  # fmt: skip
    if not count:
        return []
    if other < 0:
        return [Piece(ask, one)]
    first, rest = cut(ask, count, float(point_s))
    return [Piece(first, one), Piece(rest, other)]


def cut(ask: HoleSought, count: int, point_s: float) -> tuple[HoleSought, HoleSought]:
    """Two pieces, in order and complete; the moment between them is the deadline of the first and
    the startline of the second."""
    first = ask._replace(
        works=ask.works[:count],
        dues_s=tuple([min(due_s, point_s) for due_s in ask.dues_s[:count]]),
        early=min(ask.early, count),
        middle_s=min(ask.middle_s, point_s),
    )
    rest = ask._replace(
        first=ask.first + count,
        works=ask.works[count:],
        dues_s=ask.dues_s[count:],
        early=max(0, ask.early - count),
        startline_s=point_s,
        middle_s=max(ask.middle_s, point_s),
    )
    return first, rest
