"""Time against money by linear programming: how cheap a graph can be if it must end by a limit.

If every task could mix its bids freely, the least cost for a limit T on the longest path would be a
linear program, and its value L(T) a bound from below for every real schedule; L is convex, so each
solution also gives a tangent that bounds it everywhere. The durations of the solution say how fast
each task should be, from which schedules are rounded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from sureline.strategies.surety.planning.choices import Choices, Floats, column

SLIP = 1e-6
"""By this share, the solver's answer may be too high: its constraints hold to 1e-7."""


class Solved(NamedTuple):
    limit: float
    cost: float
    slope: float
    """What the cost changes with the limit; 0 or less."""
    durations: Floats


class Tradeoff:
    """The program for one way to weigh a bid's duration (`lengths`, by task and option)."""

    def __init__(self, choices: Choices, lengths: Sequence[Sequence[float]]) -> None:
        from scipy.sparse import coo_matrix

        hulls = [
            _hull(np.array(length), column(options, "price"))
            for length, options in zip(lengths, choices.options, strict=True)
        ]
        count = len(hulls)
        self._slowest = np.array([hull[-1][0] for hull in hulls])
        self.cheapest = float(sum(hull[-1][1] for hull in hulls))
        """What the cheapest schedule costs, whatever it takes."""
        pieces = [
            (i, b[0] - a[0], (a[1] - b[1]) / (b[0] - a[0]))
            for i, hull in enumerate(hulls)
            for a, b in pairwise(hull)
        ]
        self._task = np.array([i for i, _, _ in pieces], dtype=np.int64)
        self._width = np.array([width for _, width, _ in pieces])
        self._objective = np.concatenate([np.zeros(count), [price for _, _, price in pieces]])
        of_task: list[list[int]] = [[] for _ in range(count)]
        for place, (i, _, _) in enumerate(pieces, start=count):
            of_task[i].append(place)
        # start of parent + slowest - what is paid to shorten it <= start of child (or the limit)
        edges = [(p, i) for i, parents in enumerate(choices.graph.parents) for p in parents]
        self._exits = [i for i, below in enumerate(choices.graph.children) if not below]
        cells = []
        for row, (i, child) in enumerate([*edges, *((i, -1) for i in self._exits)]):
            cells += [(row, i, 1.0)] + [(row, place, -1.0) for place in of_task[i]]
            cells += [(row, child, -1.0)] if child >= 0 else []
        rows, columns, values = zip(*cells, strict=True)
        shape = (len(edges) + len(self._exits), count + len(pieces))
        self._matrix = coo_matrix((values, (rows, columns)), shape=shape).tocsr()
        self._edge_sides = [-self._slowest[p] for p, _ in edges]

    def solve(self, limit: float) -> Solved | None:
        """None if no schedule is so quick, or the solver gives up."""
        from scipy.optimize import linprog

        sides = np.array(self._edge_sides + [limit - self._slowest[i] for i in self._exits])
        count = len(self._slowest)
        upper = np.concatenate([np.full(count, max(limit, 0.0)), self._width])
        bounds = np.column_stack([np.zeros(len(upper)), upper])
        found = linprog(
            self._objective, A_ub=self._matrix, b_ub=sides, bounds=bounds, method="highs-ds"
        )
        if found.status != 0:
            return None
        durations = self._slowest.copy()
        np.subtract.at(durations, self._task, found.x[count:])
        cost = self.cheapest + float(found.fun)
        slope = float(found.ineqlin.marginals[len(self._edge_sides) :].sum())
        return Solved(limit, cost, min(0.0, slope), durations)


class Floor:
    """A lower bound on what a schedule can cost that is expected to end by a limit."""

    def __init__(self, cheapest: float) -> None:
        self._cheapest = cheapest
        self._tangents: list[Solved] = []

    def add(self, solved: Solved) -> None:
        self._tangents.append(solved)

    def at(self, limit: float) -> float:
        if math.isinf(limit):
            return self._cheapest
        bounds = [t.cost + t.slope * (limit - t.limit) for t in self._tangents]
        best = max(bounds, default=self._cheapest)
        return max(self._cheapest, best - SLIP * abs(best))


def _hull(length: Floats, price: Floats) -> list[tuple[float, float]]:
    """The lower left convex hull of (length, price): the quickest first, the cheapest last."""
    points: list[tuple[float, float]] = []
    for k in np.lexsort((price, length)).tolist():
        x, y = float(length[k]), float(price[k])
        if points and (y >= points[-1][1] or x <= points[-1][0]):
            continue
        while len(points) >= 2 and _above(points[-2], points[-1], (x, y)):
            points.pop()
        points.append((x, y))
    return points


def _above(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> bool:
    """Whether b lies on or above the line from a to c."""
    return (b[1] - a[1]) * (c[0] - a[0]) >= (c[1] - a[1]) * (b[0] - a[0])
