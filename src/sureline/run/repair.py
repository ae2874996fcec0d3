"""What can be done when a run is no longer sure enough: the words of the monitor and its repairer.

A `Repairer` says what could be done; `monitor` has that judged by forecasts, chooses, and lets the
repairer do it. `free_repair` has what is done for nothing; a strategy may bring a repairer of its
own.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import NamedTuple, Protocol

import msgspec

from sureline.forecast.change import Change
from sureline.forecast.progress import Progress
from sureline.forecast.result import Forecast
from sureline.journal.events import Repair
from sureline.workflow.model import Takes
from sureline.workflow.terms import Terms
from sureline.world.address import NO_NAME, PeerName


class RunningAttempt(NamedTuple):
    """An attempt under way."""

    task: int
    attempt: int
    peer: PeerName
    since: float
    """When it was bound, in seconds since the epoch."""


class Situation(msgspec.Struct, frozen=True):
    """What is known when a run is not sure enough any more."""

    terms: Terms
    forecast: Forecast
    """It carries the surety, and the tasks that decide the end (`critical`)."""
    progress: Progress
    """What the forecast is of."""
    running: tuple[RunningAttempt, ...]
    """Every attempt under way; several of one task stand beside each other."""
    may_duplicate: frozenset[int]
    """The running tasks of which another attempt is allowed: not too many have been made, and
    two attempts at once do each other no harm."""


class Remedy(msgspec.Struct, frozen=True):
    """Something that could be done about it."""

    how: Repair
    changes: tuple[Change, ...]
    """What it means for a forecast."""
    task: int
    """The task that it is about; -1 if it is about many."""
    from_peer: PeerName = NO_NAME
    to_peer: PeerName = NO_NAME
    cost: float = 0.0
    """Money that it takes in the worst case, beyond what is committed already."""
    token: str = ""
    """The repairer's own mark: a bid, a price."""
    peers: tuple[str, ...] | None = None
    """The peers that tasks would go to from then on; None if that does not change."""


class Applied(NamedTuple):
    """What became of a remedy. `attempt` is the one it started, 0 for none; `cost` what it will
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

    def peers(self) -> Collection[PeerName] | None:
        """The peers that tasks are meant to go to: a forecast counts on no others; None for all."""

    def planned(self, forecast: Forecast) -> tuple[float, Mapping[PeerName, int]]:
        """What the run is to cost in all, and how many tasks each provider is to get; asked when
        the first forecast is there."""

    def candidates(self, situation: Situation, offer: Callable[[Sequence[Remedy]], None]) -> None:
        """Find out what could be done, asking for new bids if need be, and offer it once, the
        most promising first; nothing if nothing can be done. Each alone must be affordable."""

    def apply(self, remedy: Remedy, told: Callable[[Applied], None]) -> None:
        """Do it, and tell once what became of it. Never commits more than `left`."""
