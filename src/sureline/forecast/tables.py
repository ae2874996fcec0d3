"""Distributions as tables of quantiles, at the middles of equal shares."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np

from sureline.forecast.shape import Floats

TABLE_POINTS = 4096
"""A power of two: the upper bits of a hash choose a point (see `kernel.POINT_SHIFT`)."""
QUANTILES: Floats = (np.arange(TABLE_POINTS) + 0.5) / TABLE_POINTS
PERT_FORMS = 32
"""Where the likely value lies between the ends, in so many steps; the mean is kept exact."""
_GRID = 8192

NORMAL: Floats = np.array([NormalDist().inv_cdf(q) for q in QUANTILES])


def lognormal(spread: float) -> Floats:
    return np.exp(spread * NORMAL)


@lru_cache(maxsize=PERT_FORMS + 1)
def pert(form: int) -> Floats:
    """Of the beta distribution on 0..1 with its mode at `form` / PERT_FORMS."""
    mode = form / PERT_FORMS
    grid = (np.arange(_GRID) + 0.5) / _GRID
    density = grid ** (4 * mode) * (1 - grid) ** (4 * (1 - mode))
    share = np.cumsum(density)
    return np.interp(QUANTILES, (share - density / 2) / share[-1], grid)


@lru_cache(maxsize=64)
def stretch(freedom: int) -> Floats:
    """Of what makes a normal draw one of Student's: sqrt(freedom / chi-square)."""
    logs = np.linspace(np.log(1e-6), np.log(100.0), 8 * _GRID)  # of chi-square / freedom
    density = np.exp(freedom / 2 * (logs - np.exp(logs)))
    share = np.cumsum(density)
    ratio = np.exp(np.interp(QUANTILES, (share - density / 2) / share[-1], logs))
    found: Floats = np.sqrt(1 / ratio)[::-1]
    return found
