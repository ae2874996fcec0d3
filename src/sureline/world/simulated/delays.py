"""How long a message takes: distributions of delays, drawn in blocks.

Every distribution is data (it can stand in a scenario file, told apart by its `kind`) and gives a
function that draws from it. Draws are made DRAWS_PER_BLOCK at a time by numpy's frozen generator,
whose streams never change between versions: one draw then costs a few dozen nanoseconds, and a
seed keeps its meaning.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from itertools import chain, repeat

import msgspec
import numpy as np

DRAWS_PER_BLOCK = 1024

Draw = Callable[[], float]


class _Distribution(msgspec.Struct, frozen=True, tag_field="kind", forbid_unknown_fields=True):
    def draw_from(self, source: np.random.RandomState) -> Draw:
        """An endless supply of independent draws; the first block is made at the first call."""
        blocks: Iterator[list[float]] = map(self.block, repeat(source))
        return chain.from_iterable(blocks).__next__

    def block(self, source: np.random.RandomState) -> list[float]:
        """DRAWS_PER_BLOCK draws."""
        raise NotImplementedError

    @property
    def mean_s(self) -> float:
        raise NotImplementedError


class Constant(_Distribution, frozen=True, tag="constant"):
    seconds: float

    def __post_init__(self) -> None:
        _must_be(self.seconds >= 0, "a constant delay must not be negative")

    def block(self, source: np.random.RandomState) -> list[float]:
        return [self.seconds] * DRAWS_PER_BLOCK

    @property
    def mean_s(self) -> float:
        return self.seconds


class Uniform(_Distribution, frozen=True, tag="uniform"):
    low_s: float
    high_s: float

    def __post_init__(self) -> None:
        _must_be(0 <= self.low_s <= self.high_s, "a uniform delay needs 0 <= low_s <= high_s")

    def block(self, source: np.random.RandomState) -> list[float]:
        return _listed(source.uniform(self.low_s, self.high_s, DRAWS_PER_BLOCK))

    @property
    def mean_s(self) -> float:
        return (self.low_s + self.high_s) / 2


class Exponential(_Distribution, frozen=True, tag="exponential"):
    """At least `least_s`, and beyond that memoryless; `beyond_s` is the mean of what is beyond."""

    beyond_s: float
    least_s: float = 0.0

    def __post_init__(self) -> None:
        _must_be(self.beyond_s >= 0 and self.least_s >= 0, "a delay must not be negative")

    def block(self, source: np.random.RandomState) -> list[float]:
        return _listed(source.exponential(self.beyond_s, DRAWS_PER_BLOCK) + self.least_s)

    @property
    def mean_s(self) -> float:
        return self.least_s + self.beyond_s


class LogNormal(_Distribution, frozen=True, tag="lognormal"):
    """The usual shape of delays over wide areas: a median and a long tail. `sigma` is the standard
    deviation of the logarithm."""

    median_s: float
    sigma: float

    def __post_init__(self) -> None:
        _must_be(self.median_s > 0 and self.sigma >= 0, "a lognormal delay needs a median above 0")

    def block(self, source: np.random.RandomState) -> list[float]:
        return _listed(source.lognormal(math.log(self.median_s), self.sigma, DRAWS_PER_BLOCK))

    @property
    def mean_s(self) -> float:
        return self.median_s * math.exp(self.sigma**2 / 2)


class Empirical(_Distribution, frozen=True, tag="empirical"):
    """One of the measured `values_s`, each as likely as any other."""

    values_s: tuple[float, ...]

    def __post_init__(self) -> None:
        _must_be(
            bool(self.values_s) and min(self.values_s) >= 0,
            "an empirical delay needs at least one value, and none below 0",
        )

    def block(self, source: np.random.RandomState) -> list[float]:
        chosen = source.randint(0, len(self.values_s), DRAWS_PER_BLOCK)
        return _listed(np.asarray(self.values_s)[chosen])

    @property
    def mean_s(self) -> float:
        return math.fsum(self.values_s) / len(self.values_s)


Delay = Constant | Uniform | Exponential | LogNormal | Empirical


def _listed(drawn: np.ndarray[tuple[int, ...], np.dtype[np.float64]]) -> list[float]:
    found: list[float] = drawn.tolist()
    return found


def _must_be(right: bool, otherwise: str) -> None:
    if not right:
        raise ValueError(otherwise)
