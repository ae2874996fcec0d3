"""Dealing out tasks by the matrix of their ranks: a row for each task, a column for each place.

Three ways, as the paper has them or means them:
- `first_column`: one place after the other takes the best that is left (a central queue).
- `greedy`: the highest rank of the whole matrix, again and again, as printed.
- `exact`: the highest sum. The paper holds this to be NP-complete; it is the linear assignment
  problem, and takes well under a second for ten thousand tasks and fifteen hundred places.

A rank of NONE means that the task cannot run there.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Matrix = npt.NDArray[np.float64]
Pairs = list[tuple[int, int]]
"""(task, place)."""

NONE = -np.inf


def first_column(ranks: Matrix) -> Pairs:
    left = ranks.copy()
    pairs = []
    for place in range(ranks.shape[1]):
        if not len(left):
            break
        task = int(left[:, place].argmax())
        if left[task, place] > NONE:
            pairs.append((task, place))
            left[task, :] = NONE
    return pairs


def greedy(ranks: Matrix) -> Pairs:
    """Sorted once: the maximum of what is left is the next in that order whose task and place are
    both left."""
    if not ranks.size:
        return []
    order = np.argsort(-ranks, axis=None, kind="stable")
    tasks, places = np.unravel_index(order, ranks.shape)
    task_free = np.ones(ranks.shape[0], dtype=np.bool_)
    place_free = np.ones(ranks.shape[1], dtype=np.bool_)
    most = min(ranks.shape)
    pairs: Pairs = []
    for task, place in zip(tasks.tolist(), places.tolist(), strict=True):
        if len(pairs) == most or ranks[task, place] == NONE:
            break
        if task_free[task] and place_free[place]:
            task_free[task] = place_free[place] = False
            pairs.append((task, place))
    return pairs


def exact(ranks: Matrix) -> Pairs:
    """As many pairs as can be, and of those the highest sum."""
    if not ranks.size or not np.isfinite(ranks).any():
        return []
    # Every process of a grid knows this module, and few ask for this: it takes long to load.
    from scipy.optimize import linear_sum_assignment

    known = np.isfinite(ranks)
    low, high = float(ranks[known].min()), float(ranks[known].max())
    # So bad that one pair more is always better than any sum of ranks.
    never = low - (high - low + 1.0) * min(ranks.shape)
    tasks, places = linear_sum_assignment(np.where(known, ranks, never), maximize=True)
    found = zip(tasks.tolist(), places.tolist(), strict=True)
    return [(task, place) for task, place in found if known[task, place]]


def sum_of(ranks: Matrix, pairs: Pairs) -> float:
    return float(sum(ranks[task, place] for task, place in pairs))


WAYS: dict[str, Callable[[Matrix], Pairs]] = {
    "first column": first_column,
    "greedy": greedy,
    "exact": exact,
}
