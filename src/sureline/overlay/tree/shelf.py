"""What a branch knows of its two children, and the search in it.

A branch that has just sent a request to a hole counts one hole less of that kind at once: two
requests must not chase one hole. The child's next summary replaces the count.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from sureline.overlay.tree.leaf import Ask
from sureline.overlay.tree.points import bounds_of, slot_of
from sureline.overlay.tree.summary import EMPTY, Summary, cut_two, fit_two, merged, renewed

NOBODY = -1


class Piece(NamedTuple):
    """A part of a request, and the child below which a hole for it is promised."""

    ask: Ask
    side: int


class Shelf(Protocol):
    """Summaries of the children of some branches, by row."""

    def fit(self, row: int, ask: Ask, now_s: float, power_max: float, without: int) -> list[Piece]:
        """Where it goes, whole or in pieces; nothing if no hole is known. `without` is the side
        that has just said that it has none (the pieces of a cut may go there)."""

    def put(self, row: int, side: int, summary: Summary) -> None: ...

    def below(self, row: int) -> Summary:
        """Of both children together."""


class OwnShelf:
    """Of one branch: what its children sent."""

    __slots__ = ("_sides",)

    def __init__(self) -> None:
        self._sides = [EMPTY, EMPTY]

    def put(self, row: int, side: int, summary: Summary) -> None:
        self._sides[side] = summary

    def below(self, row: int) -> Summary:
        return merged(*self._sides)

    def fit(self, row: int, ask: Ask, now_s: float, power_max: float, without: int) -> list[Piece]:
        slot = max(slot_of(now_s), self._sides[0].slot, self._sides[1].slot)
        a, b = self._sides = [renewed(side, slot) for side in self._sides]
        both = (a.keys, a.counts, 0, len(a.keys), b.keys, b.counts, 0, len(b.keys))
        return fit_in(both, bounds_of(slot), ask, now_s, power_max, without)


def fit_in(
    both: tuple[object, ...],
    bounds: object,
    ask: Ask,
    now_s: float,
    power_max: float,
    without: int,
) -> list[Piece]:
    """Search in both children's cells, given as (keys, counts, from, to) of each, and take what is
    found."""
    room = ask.gap_s * power_max
    found = fit_two(
        *both, bounds, now_s, ask.startline_s, ask.deadline_s, sum(ask.works) + room, *ask.limits, without
    )
    if found >= 0:
        _take(both, found)
        return [Piece(ask, found & 1)]
    if len(ask.works) == 1:
        return []
    count, point_s, one, other = cut_two(
        *both, bounds, now_s, ask.startline_s, ask.deadline_s, np.array(ask.works), ask.early, room, *ask.limits
    )
    if not count:
        return []
    _take(both, one)
    _take(both, other)
    return [Piece(part, fit & 1) for part, fit in zip(cut(ask, count, point_s), (one, other), strict=True)]


def cut(ask: Ask, count: int, point_s: float) -> tuple[Ask, Ask]:
    """Two pieces, in order and complete; the moment between them is the deadline of the first and
    the startline of the second."""
    first = ask._replace(
        works=ask.works[:count],
        early=min(ask.early, count),
        gap_s=ask.gap_s if ask.early < count else 0.0,
        deadline_s=point_s,
    )
    rest = ask._replace(
        first=ask.first + count,
        works=ask.works[count:],
        early=max(0, ask.early - count),
        gap_s=ask.gap_s if ask.early > count else 0.0,
        startline_s=point_s + (ask.gap_s if ask.early == count else 0.0),
    )
    return first, rest


def _take(both: tuple[object, ...], found: int) -> None:
    counts = both[5] if found & 1 else both[1]
    assert isinstance(counts, np.ndarray)
    counts[found >> 1] -= 1
