"""What any package with a strategy would have among its tests."""

from __future__ import annotations

from sureline.testing import StrategyConformance


class TestRoomiest(StrategyConformance):
    strategy = "roomiest"
