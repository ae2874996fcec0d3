"""What repair is compared with, where that is more than a setting."""

from __future__ import annotations

from collections.abc import Sequence

from sureline.run.port import Action, Engine, Noted, Seat, Unknown
from sureline.run.repair import Applied, Remedy, Repairer
from sureline.strategies.surety.client.client import Client
from sureline.world.address import PeerName

LOOK_S = 1.0


class Duplicating(Client):
    """Runs every task a second time, at the cheapest provider elsewhere that has room, as long as
    the budget allows. It does not look at how the run goes."""

    def __init__(self, seat: Seat) -> None:
        super().__init__(seat)
        self._doubler: Repairer | None = None
        self._is_agreeing = False

    def begin(self, engine: Engine, past: Sequence[Noted | Unknown], go: Action) -> None:
        super().begin(engine, past, go)
        self._doubler = self.repairer()
        self._world.after(LOOK_S, self._double)

    def _double(self) -> None:
        if not self._is_agreeing:
            self._double_one()
        self._world.after(LOOK_S, self._double)

    def _double_one(self) -> None:
        """The first task that runs only once; the next one when its contract is agreed on."""
        assert self._doubler is not None
        attempts: dict[int, list[PeerName]] = {}
        for bound in self._engine.attempts():
            if not bound.withdrawn:
                attempts.setdefault(bound.task, []).append(bound.target)
        for task, at in attempts.items():
            options = [
                option
                for option in self.placing.anywhere(task)
                if option.has_room
                and option.provider not in at
                and option.cost <= self._doubler.left
            ]
            if len(at) == 1 and options:
                best = min(options, key=lambda option: (option.cost, option.took_s))
                self._is_agreeing = True
                remedy = Remedy("duplicate", (), task, at[0], best.provider, best.cost)
                self._doubler.apply(remedy, self._doubled)
                return

    def _doubled(self, applied: Applied) -> None:
        self._is_agreeing = False
        if applied.done:
            self._world.after(0.0, self._double_one)
