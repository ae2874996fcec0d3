"""What repair is compared with, where that is more than a setting."""

from __future__ import annotations

from collections.abc import Mapping

from sureline.peer.capacity import Capacity
from sureline.run.strategy import Action, Applied, Repairer
from sureline.strategies.surety.client.client import SuretySubmitter
from sureline.world.address import Node

LOOK_S = 1.0


class DuplicatingSubmitter(SuretySubmitter):
    """Runs every task a second time, at the cheapest provider elsewhere that has room, as long as
    the budget allows. It does not look at how the run goes."""

    _doubler: Repairer | None = None
    _agreeing = False

    def start(self, peers: Mapping[Node, Capacity]) -> None:
        super().start(peers)
        self._doubler = self._make_repairer()
        self.later(LOOK_S, self._double)

    def _double(self) -> None:
        if not self._agreeing:
            self._double_one()
        self.later(LOOK_S, self._double)

    def _double_one(self) -> None:
        """The first task that runs only once; the next one when its contract is agreed on."""
        assert self._doubler is not None
        attempts: dict[int, list[str]] = {}
        for task, _, peer in self._under_way():
            attempts.setdefault(task, []).append(peer)
        for task, at in attempts.items():
            options = [
                option
                for option in self._surety.anywhere(task)
                if option.has_room
                and option.provider not in at
                and option.cost <= self._doubler.left
            ]
            if len(at) == 1 and options:
                best = min(options, key=lambda option: (option.cost, option.took_s))
                self._agreeing = True
                action = Action("duplicate", (), task, at[0], best.provider, best.cost)
                self._doubler.apply(action, self._doubled)
                return

    def _doubled(self, applied: Applied) -> None:
        self._agreeing = False
        if applied.done:
            self.later(0.0, self._double_one)
