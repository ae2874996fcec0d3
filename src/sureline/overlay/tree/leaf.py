"""What the tree asks of an execution node: the port behind which its local scheduler stands."""

from __future__ import annotations

import math
from typing import Literal, NamedTuple, Protocol

from sureline.overlay.tree.summary import Amounts, Summary
from sureline.world.address import NO_AGENT
from sureline.world.protocol import AgentId

ANYWHERE = 255


class HoleSought(NamedTuple):
    """A sequence of tasks, or a piece of one, that looks for a hole."""

    number: int
    """Of the whole sequence: unique for ever, so that nothing is reserved twice."""
    first: int
    """The position of this piece's first task in the sequence."""
    works: tuple[float, ...]
    """What each task takes on a machine of power 1, in seconds."""
    dues_s: tuple[float, ...]
    """When each must have ended at the latest; the last is the deadline of all."""
    early: int
    """So many of the first tasks wait for nothing that is not placed yet: they are reserved as soon
    as possible. The others wait for tasks that are placed later: as late as possible."""
    startline_s: float
    middle_s: float
    """The early tasks end before this moment, the late ones begin after it: between them is room
    for what they wait for."""
    limits: Amounts = Amounts()
    asked_s: float | None = None
    """When it was asked, by the owner's clock. Nothing is promised to whoever's clock is another,
    nor to a request that was on its way for too long."""

    reach: int = ANYWHERE
    """How many levels above its owner it may go: not all tries are worth the root's time."""
    priority: Literal["low", "normal", "high"] = "normal"
    """What its owner says of how much it matters; local schedulers may heed it."""

    @property
    def deadline_s(self) -> float:
        return self.dues_s[-1]

    @property
    def is_sound(self) -> bool:
        """Whether it can be meant. Who asks may be anybody, and a time that is no number would make
        those look late who were promised theirs."""
        numbers = (*self.works, *self.dues_s, self.startline_s, self.middle_s)
        return (
            0 < len(self.works) == len(self.dues_s)
            and 0 <= self.early <= len(self.works)
            and min(self.works) > 0
            and all(map(math.isfinite, numbers))
        )


class PromisedTime(NamedTuple):
    """The time promised to one task."""

    latest_start_s: float
    due_s: float


class Leaf(Protocol):
    def summary(self, now_s: float) -> Summary: ...

    def reserve(
        self, ask: HoleSought, now_s: float, owner: AgentId = NO_AGENT
    ) -> tuple[PromisedTime, ...]:
        """Take it, for as long as a lease lasts; nothing if it would make anybody late, or if its
        policy favours others. Asked again for what it has, it says the same."""

    def commit(
        self,
        number: int,
        first: int,
        startlines_s: tuple[float, ...],
        now_s: float,
        owner: AgentId = NO_AGENT,
    ) -> tuple[PromisedTime, ...]:
        """Keep what was reserved until it has run, as early as it now can; nothing if the lease was
        over."""

    def release(self, number: int, first: int, count: int, now_s: float) -> None:
        """Give back what was reserved of these tasks and has not begun."""
