"""Our own strategies pass the suite that others have to pass."""

from __future__ import annotations

from sureline.testing import StrategyConformance


class TestEmbedded(StrategyConformance):
    strategy = "embedded"


class TestSpread(StrategyConformance):
    strategy = "spread"


class TestRandom(StrategyConformance):
    strategy = "random"


class TestHeft(StrategyConformance):
    strategy = "heft"


class TestSurety(StrategyConformance):
    strategy = "surety"
