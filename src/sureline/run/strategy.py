"""The port that strategies plug into.

A strategy is a factory for the placing half of a run's submitter and a factory for its peers'
agents. The submitter tells its `Placer` what is ready and what was released, and asks for
decisions; the placer sees only that and reaches into nobody's state.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, Protocol

import msgspec

from sureline.peer.capacity import Capacity
from sureline.workflow.model import Needs
from sureline.world.agent import Agent
from sureline.world.protocol import AgentId, World


class Placement(NamedTuple):
    task: int
    peer: AgentId
    ahead: bool = False
    """It does not fit now: it is to begin there when one with equal needs ends."""


class Placer(Protocol):
    """Contract: a task given to `ready` is placed at most once until it is given again;
    `released` follows every placement exactly once; `place` may be called at any time."""

    def peer_joined(self, peer: AgentId, capacity: Capacity) -> None: ...

    def peer_left(self, peer: AgentId) -> None: ...

    def peer_load(self, peer: AgentId, load: float) -> None:
        """How many cores of the peer are in use, by whomever."""

    def ready(self, task: int, needs: Needs, urgency: float) -> None:
        """The task may start from now on. Higher urgency first."""

    def released(self, task: int, needs: Needs, peer: AgentId) -> None:
        """The attempt placed on `peer` is over, however it ended."""

    def place(self, ahead: bool = False) -> Iterable[Placement]:
        """Decide: which ready tasks start now, and where; with `ahead`, also which start next."""


class GridPlacer(Placer, Protocol):
    """What a run over many peers asks for beyond that."""

    def adopted(self, needs: Needs, peer: AgentId) -> None:
        """An attempt that an earlier writer placed is under way there; `released` will follow."""

    def held_by(self, held: Callable[[int], Mapping[AgentId, int]]) -> None:
        """Called once: `held(task)` tells which peers hold how many bytes of a task's inputs."""


class Strategy(msgspec.Struct, frozen=True):
    name: str
    placer: Callable[[], Placer]
    peer: Callable[[AgentId, World, Capacity], Agent]
