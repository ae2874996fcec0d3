"""The half of a strategy on a machine that runs tasks.

The machine's agent knows tasks, not prices, windows or pilots. Whoever deals in these there is
asked before an attempt is admitted, says what may start and in which order, and hears what became
of it. Several strategies may stand beside each other on one machine: what one of them objects to is
refused, and what may start is what all of them let start, in the order of the last.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from sureline.peer.capacity import Capacity, Ledger
from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Bind
from sureline.world.agent import Agent
from sureline.world.protocol import AgentId

Key = tuple[str, str, int]
"""(run, task, attempt)."""


class Look(NamedTuple):
    """How far an attempt is. `elapsed_s` counts from its Bind; of one that is over, what its
    command took."""

    state: Literal["unknown", "waiting", "running", "ended"]
    fraction: float | None = None
    elapsed_s: float = 0.0


class Waiting(NamedTuple):
    """An attempt whose inputs are here, and that has not started."""

    bind: Bind
    waited_s: float
    """Since its Bind."""


class Machine(Protocol):
    """What the half on a machine may see and do of it."""

    @property
    def me(self) -> AgentId:
        """The machine's own agent."""

    @property
    def capacity(self) -> Capacity: ...

    @property
    def ledger(self) -> Ledger:
        """What is free now; not to be changed."""

    @property
    def leaving(self) -> bool:
        """It takes nothing more."""

    def writer(self, run: str) -> AgentId | None:
        """Who writes the run, as far as this machine knows."""

    def look(self, key: Key) -> Look:
        """How far an attempt is."""

    def tell_again(self, key: Key) -> None:
        """Send the report of an attempt, if it is kept here."""

    def end(self, key: Key) -> None:
        """Stop an attempt as if its writer had withdrawn it; nothing, if it is not under way."""

    def look_again(self) -> None:
        """Something has changed about what may start."""


class Admitting(Protocol):
    """Every method may be left as it is."""

    @property
    def agents(self) -> Sequence[Agent]:
        """Its own, joined to the machine's node."""
        return ()

    def beside(self, agents: Sequence[Agent]) -> None:
        """These are the strategy's own agents on the machine's node (`Strategy.node`)."""
        return

    def start(self) -> None:
        """The machine is ready; what an earlier process left can be read."""
        return

    def advertised(self) -> Mapping[str, float | str]:
        """What is told of this machine to the whole grid, beside its capacity; short words only."""
        return {}

    def objection(self, sender: AgentId, bind: Bind) -> str:
        """Why this attempt is not to be run for this sender, in one sentence; '' if it may be."""
        return ""

    def admitted(self, bind: Bind) -> None:
        """It is here now, waiting or running."""
        return

    @property
    def orders(self) -> bool:
        """Whether it has anything to say now of what may start: else `order` is not asked, which
        looks at all that waits whenever something ends."""
        return type(self).order is not Admitting.order

    def order(self, waiting: Sequence[Waiting], now: float) -> Sequence[int]:
        """Which of these may start now, by number, and in which order. Whoever holds one back asks
        for another look when it may start (`Machine.look_again`)."""
        return range(len(waiting))

    def over(self, bind: Bind, ended: JobEnded | None, *, began: bool) -> None:
        """It is here no longer; without `ended`, it was refused after all. `began` tells whether
        its command was started."""
        return
