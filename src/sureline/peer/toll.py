"""What stands between a machine and those who want to use it, where work has a price.

The machine's agent knows tasks, not money. Whoever deals in money there (`strategies.surety`) is
asked before an attempt is admitted, and hears what became of it.
"""

from __future__ import annotations

from typing import Literal, NamedTuple, Protocol

from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Bind
from sureline.world.protocol import AgentId


class Toll(Protocol):
    def objection(self, sender: AgentId, bind: Bind) -> str:
        """Why this attempt is not to be run for this sender, in one sentence; '' if it is."""

    def admitted(self, bind: Bind) -> None:
        """It is here now, waiting or running."""

    def over(self, bind: Bind, ended: JobEnded | None, *, began: bool) -> None:
        """It is here no longer; without `ended`, it was refused after all. `began` tells whether
        its command was started."""


class Look(NamedTuple):
    """How far an attempt is. `elapsed_s` counts from its Bind; of one that is over, what its
    command took."""

    state: Literal["unknown", "waiting", "running", "ended"]
    fraction: float | None = None
    elapsed_s: float = 0.0
