"""Links: how messages and bulk data travel from one machine to another."""

from __future__ import annotations

import msgspec
import numpy as np

from sureline.world.simulated.delays import Delay, Draw, Exponential


class Link(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What lies between two machines, in one direction."""

    delay: Delay = Exponential(0.0002, least_s=0.0002)
    bandwidth_bytes_per_s: float | None = None
    """What one message stream, or one transfer, gets at most; None for no limit."""
    loss: float = 0.0
    """Probability that a message is lost."""
    duplication: float = 0.0
    """Probability that a message arrives twice."""
    reorder: bool = False
    """Whether a message may overtake an earlier one between the same two agents."""

    def __post_init__(self) -> None:
        if not (0 <= self.loss <= 1 and 0 <= self.duplication <= 1):
            raise ValueError("loss and duplication are probabilities, from 0 to 1")
        if self.bandwidth_bytes_per_s is not None and not self.bandwidth_bytes_per_s > 0:
            raise ValueError("a link's bandwidth must be above 0, or None for no limit")

    @property
    def plain(self) -> bool:
        """Whether a delay, in order or not, is all there is to it."""
        return not (self.loss or self.duplication or self.bandwidth_bytes_per_s)


LAN = Link()
"""A local network: 0.4 ms on average, never less than 0.2 ms."""


class LinkChannel:
    """A link at work: its draws, and its figures ready for use."""

    __slots__ = ("_source", "draw", "duplication", "link", "loss", "reorder", "s_per_byte")

    def __init__(self, link: Link, source: np.random.RandomState) -> None:
        self.link = link
        self._source = source
        self.draw: Draw = link.delay.draw_from(source)
        self.loss = link.loss
        self.duplication = link.duplication
        self.reorder = link.reorder
        bandwidth = link.bandwidth_bytes_per_s
        self.s_per_byte = 1.0 / bandwidth if bandwidth else 0.0

    def block(self) -> list[float]:
        """Many draws at once."""
        return self.link.delay.block(self._source)
