"""For tests of strategies, ours and those of other packages: what every strategy must pass.

    from sureline.testing import StrategyConformance

    class TestMine(StrategyConformance):
        strategy = "mine"

A strategy is run as users run it, in the simulator (`scenarios`) and by real processes on this
machine (`live`), through all that may befall a run (`conformance`). It is judged only by what is
left: events and files (`laws`). Nothing of Sureline imports this room; it needs pytest.
"""

from sureline.testing.conformance import StrategyConformance

__all__ = ["StrategyConformance"]
