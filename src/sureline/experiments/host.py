"""What the parts of a simulated machine ask of it: time that stops when it is frozen and ends
when it crashes, and how fast it is right now."""

from __future__ import annotations

from typing import Protocol

from sureline.world.protocol import Action, Timer


class Host(Protocol):
    node: str

    @property
    def true_time_s(self) -> float:
        """The simulation's time, whatever this machine's clock says."""

    def after(self, seconds: float, action: Action) -> Timer:
        """Run it later, on this machine: not while it is frozen, never after a crash."""

    def speed(self) -> float:
        """Work done per second by each job while there are cores for all of them."""

    def free_cores(self) -> float:
        """The cores that are not taken by others' background load."""
