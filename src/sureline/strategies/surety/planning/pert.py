"""The paper's equations: what a bid's three times mean, and how sure a path of them is.

    e = (2 m + (a + b) / 2) / 3        (1)  the expected duration of a service
    sigma = (b - a) / 6                (2)  its standard deviation
    e = sum of e, sigma^2 = sum of sigma^2, along the critical path   (3)
    prob(T <= t) = Phi((t - e) / sigma)                               (4, 5)

a, m, b are the optimistic, the most likely and the pessimistic duration. The critical path is the
one of the longest expected time; of several equally long ones, that of the largest variance. With
no variance at all nothing is left to chance: a deadline at or after the expected time is met.
"""

from __future__ import annotations

import math
from statistics import NormalDist

from sureline.strategies.surety.contract import Bid

TIES = 1e-12
"""Sums of the same numbers in another order may differ by this share, and count as equal."""

CERTAIN_Z = 8.3
"""So many standard deviations beyond the mean, a normal distribution is 1 to the last digit."""


def expected(bid: Bid) -> float:
    """Equation (1)."""
    return (2 * bid.time + (bid.early + bid.late) / 2) / 3


def variance(bid: Bid) -> float:
    """The square of equation (2)."""
    return ((bid.late - bid.early) / 6) ** 2


def surety_of(deadline: float, mean: float, path_variance: float) -> float:
    """Equations (4) and (5): the chance that a path of this mean and variance ends in time."""
    if path_variance <= 0:
        return 1.0 if at_most(mean, deadline) else 0.0
    return phi((deadline - mean) / math.sqrt(path_variance))


def phi(x: float) -> float:
    """The standard normal distribution. Chances, and lacks of chance, below 1e-16 are none."""
    return 0.5 * (1.0 + math.erf(x / math.sqrt(2)))


def deviations_for(surety: float) -> float:
    """How many standard deviations after the mean a deadline must be to be met so surely."""
    return CERTAIN_Z if surety >= 1 else NormalDist().inv_cdf(surety)


def at_most(value: float, limit: float) -> bool:
    """Whether value <= limit, rounding of sums aside."""
    return value <= limit + TIES * max(1.0, abs(limit), abs(value))


def at_least(value: float, limit: float) -> bool:
    return at_most(limit, value)
