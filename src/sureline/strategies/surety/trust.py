"""How far a provider's promises can be believed, by how it kept them in this run.

The factor multiplies the durations that a provider bids. It is the geometric mean of what its
attempts took, as a multiple of what was expected, drawn towards 1 as if half an attempt more had
taken exactly that; attempts that it broke off count as ones that took BROKEN times as long.
"""

from __future__ import annotations

import math

PRIOR = 0.5
BROKEN = 4.0
RATIO_MAX = 20.0


class Trust:
    def __init__(self) -> None:
        self._logs: dict[str, tuple[float, int]] = {}

    def factor(self, provider: str) -> float:
        total, count = self._logs.get(provider, (0.0, 0))
        return math.exp(total / (count + PRIOR))

    def kept(self, provider: str, expected_s: float, took_s: float) -> None:
        ratio = took_s / max(1e-3, expected_s)
        self._note(provider, min(RATIO_MAX, max(1 / RATIO_MAX, ratio)))

    def broke(self, provider: str) -> None:
        self._note(provider, BROKEN)

    def _note(self, provider: str, ratio: float) -> None:
        total, count = self._logs.get(provider, (0.0, 0))
        self._logs[provider] = (total + math.log(ratio), count + 1)
