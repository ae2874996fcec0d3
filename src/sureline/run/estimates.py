"""How long each task of a run is expected to take, as something that a world can be asked for."""

from __future__ import annotations

import msgspec

from sureline.workflow.model import Graph
from sureline.world.protocol import Fetched, Wanted


class Estimates(Wanted, frozen=True):
    """What is known of the durations of all tasks of a graph."""

    run: str
    graph: Graph


class Estimate(msgspec.Struct, frozen=True):
    """A task's duration: `mean_s`, and quantiles at QUANTILE_SHARES. `guessed` if nothing is known:
    neither the user nor an earlier run said anything of it."""

    mean_s: float
    quantiles_s: tuple[float, ...]
    guessed: bool = False

    def quantile_s(self, share: float) -> float:
        """It takes no longer with this chance; on a line between the quantiles that there are."""
        shares, times = QUANTILE_SHARES, self.quantiles_s
        if share <= shares[0]:
            return times[0]
        for k in range(1, len(shares)):
            if share <= shares[k]:
                part = (share - shares[k - 1]) / (shares[k] - shares[k - 1])
                return times[k - 1] + part * (times[k] - times[k - 1])
        return times[-1]


class EstimatesFound(Fetched, frozen=True):
    tasks: tuple[Estimate, ...]


BANDWIDTH_BYTES_S = 50e6
"""What bringing inputs to a machine is reckoned with, where nobody says otherwise."""
QUANTILE_SHARES = (0.05, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
