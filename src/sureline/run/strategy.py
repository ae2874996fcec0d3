"""The port that strategies plug into.

A strategy is a factory for the placing half of a run's submitter and a factory for its peers'
agents. The submitter tells its `Placer` what is ready and what was released, and asks for
decisions; the placer sees only that and reaches into nobody's state.

When a run has a deadline, a `Repairer` says what could be done once it is no longer sure enough;
`monitor` has that judged by forecasts, chooses, and lets the repairer do it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from sureline.forecast.change import Change
from sureline.forecast.progress import Progress
from sureline.forecast.result import Forecast
from sureline.journal.events import Repair
from sureline.peer.capacity import Capacity
from sureline.workflow.model import Needs, Takes
from sureline.workflow.terms import Terms
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

    def adopted(self, needs: Needs, peer: AgentId) -> None:
        """An attempt that was not placed by `place` is under way there; `released` will follow."""

    def spare(self, needs: Needs, but: Sequence[AgentId]) -> AgentId | None:
        """A peer, none of `but` if there is a choice of peers at all, that has room for these
        needs right now."""


class GridPlacer(Placer, Protocol):
    """What a run over many peers asks for beyond that."""

    def held_by(self, held: Callable[[int], Mapping[AgentId, int]]) -> None:
        """Called once: `held(task)` tells which peers hold how many bytes of a task's inputs."""


class Running(NamedTuple):
    """An attempt under way."""

    task: int
    attempt: int
    peer: AgentId
    since: float
    """When it was bound, in seconds since the epoch."""


class Situation(msgspec.Struct, frozen=True):
    """What is known when a run is not sure enough any more."""

    terms: Terms
    forecast: Forecast
    """It carries the surety, and the tasks that decide the end (`critical`)."""
    progress: Progress
    """What the forecast is of."""
    running: tuple[Running, ...]
    """Every attempt under way; several of one task stand beside each other."""
    may_duplicate: frozenset[int]
    """The running tasks of which another attempt is allowed: not too many have been made, and
    two attempts at once do each other no harm."""


class Action(msgspec.Struct, frozen=True):
    """Something that could be done about it."""

    how: Repair
    changes: tuple[Change, ...]
    """What it means for a forecast."""
    task: int
    """The task that it is about; -1 if it is about many."""
    from_peer: AgentId = ""
    to_peer: AgentId = ""
    cost: float = 0.0
    """Money that it takes in the worst case, beyond what is committed already."""
    token: str = ""
    """The repairer's own mark: a bid, a price."""
    peers: tuple[AgentId, ...] | None = None
    """The peers that tasks would go to from then on; None if that does not change."""


class Applied(NamedTuple):
    """What became of an action. `attempt` is the one it started, 0 for none; `cost` what it will
    cost as agreed; `why` says in words why it could not be done."""

    done: bool
    attempt: int = 0
    cost: float = 0.0
    why: str = ""


class Repairer(Protocol):
    """Knows what can be done to a run. One thing at a time: `candidates` or `apply` is called
    again only when the last call was answered or given up, and a late answer does no harm."""

    @property
    def left(self) -> float:
        """Money that may still be committed; infinite where nothing costs anything or there is
        no budget."""

    def promises(self) -> Mapping[int, Takes]:
        """What providers have promised of tasks that are not done: it replaces what a forecast
        would expect of them."""

    def peers(self) -> Collection[AgentId] | None:
        """The peers that tasks are meant to go to: a forecast counts on no others; None for all."""

    def planned(self, forecast: Forecast) -> tuple[float, Mapping[str, int]]:
        """What the run is to cost in all, and how many tasks each provider is to get; asked when
        the first forecast is there."""

    def candidates(self, situation: Situation, offer: Callable[[Sequence[Action]], None]) -> None:
        """Find out what could be done, asking for new bids if need be, and offer it once, the
        most promising first; nothing if nothing can be done. Each alone must be affordable."""

    def apply(self, action: Action, told: Callable[[Applied], None]) -> None:
        """Do it, and tell once what became of it. Never commits more than `left`."""


class Strategy(msgspec.Struct, frozen=True):
    name: str
    placer: Callable[[], Placer]
    peer: Callable[[AgentId, World, Capacity], Agent]
