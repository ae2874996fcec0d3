"""A ready task goes to a target drawn at random from those that meet its needs: a baseline."""

from __future__ import annotations

from sureline.run.port import Seat, Strategy
from sureline.strategies.spread import Spread
from sureline.workflow.model import Needs
from sureline.world.address import PeerName
from sureline.world.protocol import World


class Random(Spread):
    """Keeps the books of `spread`, and does not look at loads or files."""

    def __init__(self, salt: str, world: World) -> None:
        super().__init__(salt)
        self._world = world

    def _nearest(self, task: int, needs: Needs, best: PeerName, load: float) -> PeerName:
        unfit = self._engine.unfit(task)
        fitting = [name for name in self._books.all_fitting(needs) if name not in unfit]
        return self._world.random.choice(fitting)


def _deciding(seat: Seat) -> Random:
    return Random(seat.run, seat.world)


random = Strategy(
    name="random",
    summary="a ready task goes to any target that meets its needs, drawn at random",
    deciding=_deciding,
)
