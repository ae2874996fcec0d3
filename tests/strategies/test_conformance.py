"""Our own strategies pass the suite that others have to pass.

Live, a strategy meets other worlds only through what it says on the network: `random` and `heft`
say nothing, and go that way in the heavy proofs only.
"""

from __future__ import annotations

from typing import ClassVar

import pytest

from sureline.testing import StrategyConformance


class SparingLife:
    """What takes long in real time is for the heavy proofs."""

    @pytest.mark.soak
    def test_live_cut_off_and_back_with_a_deadline(self, live_grid, tmp_path):
        super().test_live_cut_off_and_back_with_a_deadline(live_grid, tmp_path)


class LiveIsHeavy(SparingLife):
    """Live in the heavy proofs only."""

    @pytest.mark.soak
    def test_live(self, live_grid, tmp_path):
        super().test_live(live_grid, tmp_path)

    @pytest.mark.soak
    def test_live_at_sites(self, tmp_path):
        super().test_live_at_sites(tmp_path)


class TestEmbedded(StrategyConformance):
    strategy = "embedded"


class TestSpread(SparingLife, StrategyConformance):
    strategy = "spread"

    @pytest.mark.soak
    def test_live_at_sites(self, tmp_path):
        super().test_live_at_sites(tmp_path)


class TestRandom(LiveIsHeavy, StrategyConformance):
    strategy = "random"


class TestHeft(LiveIsHeavy, StrategyConformance):
    strategy = "heft"


class TestSurety(SparingLife, StrategyConformance):
    strategy = "surety"


class TestOpportunistic(LiveIsHeavy, StrategyConformance):
    strategy = "opportunistic"

    def test_live_at_sites(self, tmp_path):
        StrategyConformance.test_live_at_sites(self, tmp_path)


class TestPeercomp(LiveIsHeavy, StrategyConformance):
    strategy = "peercomp"


class TestChemical(LiveIsHeavy, StrategyConformance):
    strategy = "chemical"


@pytest.mark.soak
class TestChemicalLevels(TestChemical):
    settings: ClassVar = {"barriers": "on"}


class TestLatebinding(LiveIsHeavy, StrategyConformance):
    strategy = "latebinding"

    @pytest.mark.soak
    @pytest.mark.parametrize("seed", [1, 2])
    def test_restart_of_machines(self, seed):
        super().test_restart_of_machines(seed)

    @pytest.mark.soak
    @pytest.mark.parametrize("seed", [1, 2])
    def test_out_of_reach(self, seed):
        super().test_out_of_reach(seed)


@pytest.mark.soak
class TestLatebindingDistributed(TestLatebinding):
    settings: ClassVar = {"architecture": "distributed", "assignment": "greedy"}


@pytest.mark.soak
class TestLatebindingCentralized(TestLatebinding):
    settings: ClassVar = {"architecture": "centralized"}


@pytest.mark.soak
class TestLatebindingPreDht(TestLatebinding):
    settings: ClassVar = {"architecture": "pre-dht"}


SUITES = [
    TestSpread,
    TestRandom,
    TestHeft,
    TestSurety,
    TestOpportunistic,
    TestPeercomp,
    TestChemical,
    TestChemicalLevels,
    TestLatebinding,
    TestLatebindingDistributed,
    TestLatebindingCentralized,
    TestLatebindingPreDht,
]


@pytest.mark.soak
@pytest.mark.parametrize("suite", SUITES)
def test_many_seeds(suite):
    one = suite()
    for seed in range(2, 30):
        one.test_quiet(seed)
        one.test_loss(seed)
        one.test_crash(seed)
        one.test_restart_of_machines(seed)
        one.test_restart_of_the_driver(seed)
        one.test_takeover(seed)
        one.test_cut_off_and_back(seed)
        one.test_cancel(seed)
