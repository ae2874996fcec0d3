"""A writer's hold on its run: what its voters have, who they are to be, and whether they still
listen.

The mirror tells what each keeper has; this says up to where a majority has it, which is what may
be acknowledged, and has the journal name other voters when keepers come and go (`run.grant` has the
rules). A writer that a majority has promised away, or of which a majority has not been heard for
LOST_S, stops: it could commit nothing more, and somebody else may write.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from sureline.journal.events import Voters
from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.run import grant
from sureline.run.grant import Epoch, Position, Quorum, Voter
from sureline.world.protocol import Action, World

LOST_S = 20.0
"""Less than a run is left alone before somebody takes it over."""
STEADY_S = 3.0
"""So long others must have been wanted as voters before one is named: a keeper that answers late
now and then would come and go with every word."""
SETTLE_S = 3.0
"""In the beginning keepers come one after the other: so long voters are not named before they are
all there."""


class Last(Protocol):
    def last(self) -> Position:
        """The position of the last event that would survive a kill."""


class Office:
    """`world` records; `on_lost` hears why the writer must stop, in one sentence, once."""

    def __init__(
        self,
        world: World,
        run: str,
        epoch: Epoch,
        voters: Sequence[Voter],
        own: Voter,
        recorded: Last,
        on_lost: Callable[[str], None],
        is_ended: Callable[[], bool] = lambda: False,
    ) -> None:
        self._world = world
        self._run = run
        self._recorded = recorded
        self._on_lost = on_lost
        self._is_ended = is_ended
        self._own = own
        self._quorum = Quorum(epoch, voters or (own,), own)
        self._began_s = world.awake()
        self._heard_s: dict[Voter, float] = {}
        self._waiting: list[tuple[Position, Action]] = []
        self._able: list[Voter] = []
        self._wanted: frozenset[Voter] = frozenset()
        self._wanted_s = 0.0
        """Since when."""
        self._is_over = False
        self.hurry: Action = lambda: None
        """Called when somebody waits for what keepers have not got."""

    @property
    def voters(self) -> tuple[Voter, ...]:
        return self._quorum.voters

    @property
    def epoch(self) -> Epoch:
        return self._quorum.epoch

    def begin(self) -> None:
        """Name the first voter of a run that has none."""
        if self._own in self._quorum.voters:
            self._world.record(Voters(self._world.now(), self._quorum.voters))
        self._world.sync(self._is_synced)

    def stop(self) -> None:
        self._is_over = True

    # -- what is heard of keepers ----------------------------------------------------------------

    def has(self, voter: Voter, position: Position) -> None:
        self._heard_s[voter] = self._world.awake()
        self._quorum.has(voter, position)
        self._look()

    def denied(self, voter: Voter, number: int) -> None:
        """It has promised a later epoch to another."""
        self._quorum.denied(voter, number)
        taken = self._quorum.taken()
        if taken:
            self._lose(
                f"run {self._run} was taken over by another process (epoch {taken}, ours was "
                f"{self.epoch.number})"
            )

    def able(self, keepers: Sequence[Voter], expected: int) -> None:
        """These are there and have everything, the best first; so many may come to be."""
        self._able = list(keepers)
        settling = self._world.awake() - self._began_s < SETTLE_S
        if not (self._is_over or self._is_ended() or (settling and len(keepers) < expected)):
            self._change_voters()

    # -- what is committed -----------------------------------------------------------------------

    def when_committed(self, action: Action) -> None:
        """All that was recorded is durable here: run the action when it is committed."""
        position = self._synced()
        if position <= self._quorum.committed():
            action()
        elif not self._is_over:
            self._waiting.append((position, action))
            self.hurry()

    def _is_synced(self) -> None:
        self._synced()
        self._look()

    def _synced(self) -> Position:
        position = self._recorded.last()
        self._quorum.has(self._own, position)
        return position

    def _look(self) -> None:
        reached = self._quorum.committed()
        due = [action for position, action in self._waiting if position <= reached]
        self._waiting = [one for one in self._waiting if one[0] > reached]
        for action in due:
            action()

    # -- who votes ---------------------------------------------------------------------------------

    def tick(self) -> None:
        """Call it once a second."""
        if self._is_over:
            return
        now_s = self._world.awake()
        silent = [
            voter
            for voter in self._quorum.voters
            if voter != self._own and now_s - self._heard_s.get(voter, self._began_s) > LOST_S
        ]
        voting = len(self._quorum.voters) - len(silent)
        if voting < grant.majority(self._quorum.voters):
            self._lose(
                f"{', '.join(silent)} {'do' if len(silent) > 1 else 'does'} not answer: run "
                f"{self._run} has no majority of its voters and stops"
            )

    def _change_voters(self) -> None:
        """One change at a time, and only when what this writer recorded first is committed."""
        if self._quorum.committed() <= self.epoch.number * POSITIONS_PER_EPOCH:
            return
        if self._quorum.is_changing:
            return
        now = self._quorum.voters
        wanted = grant.wanted(now, self._able, self._own)
        if self._wanted != frozenset(wanted):
            self._wanted, self._wanted_s = frozenset(wanted), self._world.awake()
        named = grant.changed(now, wanted)
        rests = len(now) % 2 == 1 and now != (self._own,)
        if named == now or (rests and self._world.awake() - self._wanted_s < STEADY_S):
            return
        self._world.record(Voters(self._world.now(), named))
        self._world.flush()
        self._quorum.change(named, self._recorded.last())
        self._world.sync(self._is_synced)
        self.hurry()

    def _lose(self, reason: str) -> None:
        if not self._is_over:
            self._is_over = True
            self._on_lost(reason)
