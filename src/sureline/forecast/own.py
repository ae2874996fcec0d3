"""What is single tasks' own: the tail beyond what was seen, and what noise has blurred."""

from __future__ import annotations

import math

import numpy as np

from sureline.forecast.shape import Floats


def own_quantiles(own: Floats, shares: Floats) -> Floats:
    """The residuals of single tasks at these shares (rising, in 0..1), with the tail that follows.

    The largest of a hundred tasks may lie beyond all that was seen. So beyond the largest one,
    quantiles follow the generalised Pareto distribution that has the mean and the variance of the
    largest few: as many as the square root of their number."""
    ranked = np.sort(own)
    number = len(ranked)
    found: Floats = np.interp(shares, (np.arange(number) + 0.5) / number, ranked)
    top = max(TAIL_LEAST, math.isqrt(number))
    if number < TAIL_FROM:
        return found
    threshold = float(ranked[-top - 1])
    beyond = ranked[-top:] - threshold
    mean, variance = float(beyond.mean()), float(beyond.var(ddof=1))
    if mean <= 0 or variance <= 0:
        return found
    shape = min(TAIL_SHAPE_MAX, max(TAIL_SHAPE_MIN, 0.5 * (1 - mean**2 / variance)))
    scale = mean * (1 - shape)
    left = top / number / (1 - shares)
    tail = threshold + scale * (np.log(left) if shape == 0 else (left**shape - 1) / shape)
    late = shares > 1 - TAIL_AFTER / number
    return np.maximum.accumulate(np.where(late, np.maximum(tail, found[0]), found))


TAIL_FROM = 40
"""Fewer observations do not show a tail."""
TAIL_LEAST = 10
TAIL_AFTER = 0.5
"""In observations: the largest one stands for the share up to this far from the end."""
TAIL_SHAPE_MIN, TAIL_SHAPE_MAX = -0.5, 0.2
"""Of logarithms: at 0, durations have a power law's tail."""


def sharpened(values: Floats, blur: float) -> Floats:
    """What values may have been before normal noise of variance `blur` was added to them.

    Noise spreads a density as heat does: along its slope, every value moves by half the variance
    times the slope of the density's logarithm. Here they move back, in a few steps. The density
    is seen through a bell, which makes it wider and its slopes less steep by as much."""
    width = math.sqrt(blur) / 2
    wide = float(values.max() - values.min())
    if width * SHARPENED_FROM < wide / len(values) or len(values) < TAIL_FROM:
        return values
    step = max(width / 2, wide / SHARPENED_CELLS)
    reach = math.ceil(4 * width / step)
    bell = np.exp(-0.5 * (np.arange(-reach, reach + 1) * step / width) ** 2)
    back = 0.5 * (blur + width**2) / SHARPENED_STEPS
    found = values
    for _ in range(SHARPENED_STEPS):
        least = float(found.min()) - reach * step
        place = (found - least) / step
        counts = np.bincount(place.round().astype(np.int64))
        counts = np.concatenate([counts, np.zeros(2 * reach + 2)])
        slope = np.gradient(np.log(np.convolve(counts, bell, "same") + 1e-9), step)
        moved = np.interp(place, np.arange(len(slope)), slope)
        found = found + back * moved
    return found


SHARPENED_STEPS = 4
SHARPENED_CELLS = 2000
SHARPENED_FROM = 2.0
"""Noise narrower than the usual distance of so many values makes no difference."""
