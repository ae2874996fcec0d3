"""What a keeper has heard of a run's writers, and whether it lets somebody else ask for the run.

A majority of promises is what makes a writer (`run.grant`), and nothing here takes from that. But
whoever may ask could take a run from a writer that is well: one that was cut off and is back, and
has not heard of its successor; or a peer with the role `drive` that means no good. So a keeper
gives no promise while it hears a writer itself, or another one was promised the run a moment ago
and may be about to begin. Who submitted the run, and who wrote it last, may say whose end it knows
of: its own process, for one. Nobody else is believed that.
"""

from __future__ import annotations

from typing import NamedTuple

from sureline.run.grant import Epoch
from sureline.world.protocol import World

QUIET_S = 12.0
"""So long a writer must not have been heard; it says something every five seconds."""
BEGIN_S = 5.0
"""Who was promised a run has so long to begin."""


class _Word(NamedTuple):
    epoch: Epoch
    at_s: float


class Hearing:
    """Since this process began: what was heard before is nobody's business any more."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._began_s = world.awake()
        self._heard: dict[str, _Word] = {}
        self._promised: dict[str, _Word] = {}

    def heard(self, run: str, epoch: Epoch) -> None:
        """Of the writer that has this epoch."""
        self._heard[run] = _Word(epoch, self._world.awake())

    def promised(self, run: str, epoch: Epoch) -> None:
        self._promised[run] = _Word(epoch, self._world.awake())

    def silent_s(self, run: str) -> float:
        """For how long nothing was heard of the run's writer, as far as this process can tell."""
        word = self._heard.get(run)
        return self._world.awake() - (self._began_s if word is None else word.at_s)

    def is_written(self, run: str, asker: str, gone: int, quiet_s: float = QUIET_S) -> bool:
        """Whether another one than the asker seems to write the run, or to be about to, with an
        epoch later than the last that is known to be over."""
        return any(
            word is not None
            and word.epoch.writer != asker
            and word.epoch.number > gone
            and self._world.awake() - word.at_s < for_s
            for word, for_s in (
                (self._heard.get(run), quiet_s),
                (self._promised.get(run), BEGIN_S),
            )
        )
