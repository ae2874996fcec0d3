"""For tests of strategies and sites, ours and those of other packages: what each must pass.

    from sureline.testing import StrategyConformance

    class TestMine(StrategyConformance):
        strategy = "mine"

A strategy is run as users run it, in the simulator (`scenarios`) and by real processes on this
machine (`live`), through all that may befall a run (`conformance`). It is judged only by what is
left: events and files (`laws`). What every adapter to an engine must pass is in `sites`. Nothing of
Sureline imports this room; it needs pytest.
"""

from sureline.testing.conformance import StrategyConformance
from sureline.testing.sites import SiteConformance

__all__ = ["SiteConformance", "StrategyConformance"]
