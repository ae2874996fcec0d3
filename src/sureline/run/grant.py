"""Who may write a run: the grant of an epoch, as a machine without messages, clocks or disks.

A run has *voters*, named in its journal: peers that keep a copy of it, and, where they are few, the
journal of its writer itself. An *epoch* is a number and a writer. A process that would write asks
the voters for an epoch; it may write when a majority has promised it that epoch and it has read all
that any of them had. A keeper that has promised takes nothing of lower epochs any more, and
promises a number once. An event is *committed* when a majority of the voters has it. Any two
majorities share a keeper, so

- no number is granted to two writers;
- who is granted an epoch has all that was committed before;
- nothing of an older writer is committed afterwards.

The set of voters changes by one voter at a time, so that majorities of the old and of the new set
still meet, and only when a majority has what this writer recorded first and the last change.

What a keeper holds must be durable before it answers. `run.keeper` and `run.mirror` do that, and
`run.claiming` asks; docs/inside/grant.md has the steps, and the tests walk all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import msgspec

from sureline.journal.schema import POSITIONS_PER_EPOCH

Position = int
Voter = str
"""The name of a peer, or OWN and a word that one journal alone knows."""
OWN = "~"
VOTERS = 5
"""How many a run has at best: two of them may fail."""


class Epoch(msgspec.Struct, frozen=True, array_like=True):
    number: int = 0
    writer: str = ""
    """A word that no other process has, for as long as it writes."""


NOBODY = Epoch()


def majority(voters: Sequence[Voter]) -> int:
    return len(voters) // 2 + 1


# -- a keeper ----------------------------------------------------------------------------------


class Holding(msgspec.Struct, frozen=True):
    """What one keeper holds of a run."""

    promised: Epoch = NOBODY
    in_line: int = 0
    """The epoch whose writer's journal the copy is the beginning of, as far as is known."""
    position: Position = 0
    """Of the last event."""


def asked(holding: Holding, epoch: Epoch) -> Holding:
    """Somebody asks for an epoch: it is promised if no number as high is."""
    if epoch.number <= holding.promised.number:
        return holding
    return Holding(epoch, holding.in_line, holding.position)


def may_write(holding: Holding, epoch: Epoch) -> bool:
    """Whether this writer is heard. One that was granted its epoch by others is."""
    return epoch.number > holding.promised.number or epoch == holding.promised


def begun(holding: Holding, epoch: Epoch) -> Holding | None:
    """A writer begins here: that is a promise too. None if it is not heard."""
    if not may_write(holding, epoch):
        return None
    return Holding(epoch, holding.in_line, holding.position)


def followed(
    holding: Holding, epoch: Epoch, base: Position, after: Position, last: Position
) -> Holding | None:
    """Events follow `after`, up to `last`; `base` is the last that this copy and the writer's
    journal both have. None if they do not fit, or the writer is not heard.

    The first of a writer take the place of what is not in its journal, in one step, and hold all
    that is in both: what a majority had, a majority has at every moment."""
    if epoch != holding.promised or last <= after:
        return None
    if holding.in_line == epoch.number:
        fits = after == holding.position
    else:
        fits = after <= min(base, holding.position) <= last
    return Holding(epoch, epoch.number, last) if fits else None


# -- who asks for an epoch -----------------------------------------------------------------------


class Answer(NamedTuple):
    """What a keeper holds, after it was asked."""

    promised: Epoch
    position: Position


class Candidacy:
    """One question for one epoch. `voters` and `position` are what the asker's copy of the journal
    says; `own` is its own vote, if it has one."""

    def __init__(
        self, epoch: Epoch, voters: Sequence[Voter], position: Position, own: Voter = ""
    ) -> None:
        self.epoch = epoch
        self.voters = tuple(voters)
        self.position = position
        self._own = own
        self._answers: dict[Voter, Answer] = {}
        self._refuted: set[Voter] = set()

    def heard(self, voter: Voter, answer: Answer) -> None:
        if voter not in self._refuted:
            self._answers[voter] = answer

    def refuted(self, voter: Voter) -> None:
        """It does not have what it said, or what it has is not true: it has no say."""
        self._answers.pop(voter, None)
        self._refuted.add(voter)

    def caught_up(self, position: Position, voters: Sequence[Voter]) -> None:
        """The asker has read on; others may have a vote now."""
        self.position, self.voters = max(position, self.position), tuple(voters)

    def granting(self) -> list[Voter]:
        """The voters that have promised this epoch."""
        return [voter for voter in self.voters if voter == self._own or self._promised(voter)]

    def _promised(self, voter: Voter) -> bool:
        answer = self._answers.get(voter)
        return answer is not None and answer.promised == self.epoch

    def ahead(self) -> Voter | None:
        """One that has promised and has what the asker has not: it must be read first."""
        best = max(
            (voter for voter in self._answers if self._promised(voter)),
            key=lambda voter: self._answers[voter].position,
            default=None,
        )
        if best is None or self._answers[best].position <= self.position:
            return None
        return best

    @property
    def is_granted(self) -> bool:
        enough = len(self.granting()) >= majority(self.voters)
        whole = self.ahead() is None and not self._is_overtaken
        return enough and bool(self.voters) and whole

    @property
    def _is_overtaken(self) -> bool:
        """Whether what was read is of this epoch or a later one: somebody else was granted it."""
        return self.position >= self.epoch.number * POSITIONS_PER_EPOCH

    @property
    def is_refused(self) -> bool:
        """Whether somebody has written later, or so many have promised otherwise that no majority
        is left."""
        left = len(self.voters) - len(self.against())
        return self._is_overtaken or left < majority(self.voters)

    def against(self) -> list[Voter]:
        """The voters that have answered, and not promised this epoch."""
        granting = self.granting()
        return [voter for voter in self.voters if voter in self._answers and voter not in granting]

    def next_number(self) -> int:
        """What to ask for next: more than enough of the voters have promised. What a few say
        besides, true or not, does not count."""
        numbers = sorted(answer.promised.number for answer in self._answers.values())
        enough = majority(self.voters) - 1
        return 1 + max(self.epoch.number, numbers[min(enough, len(numbers) - 1)] if numbers else 0)


# -- a writer ------------------------------------------------------------------------------------


class Quorum:
    """What a writer knows of its voters: how far each is, and who has promised a later epoch. A set
    that it named counts as soon as it is recorded: a voter that died meanwhile, of few, must not
    keep the others from taking its place."""

    def __init__(self, epoch: Epoch, voters: Sequence[Voter], own: Voter = "") -> None:
        self.epoch = epoch
        self.own = own
        self.voters = tuple(voters)
        self._changed_at: Position = 0
        self._has: dict[Voter, Position] = {}
        self._denied: dict[Voter, int] = {}

    def change(self, voters: Sequence[Voter], position: Position) -> None:
        """The event at this position names other voters: one more, or one less."""
        assert not self.is_changing, "one change at a time"
        assert len(set(voters) ^ set(self.voters)) == 1, "by one voter"
        self.voters = tuple(voters)
        self._changed_at = position

    @property
    def is_changing(self) -> bool:
        """Whether the latest set is not committed yet."""
        return self.committed() < self._changed_at

    def has(self, voter: Voter, position: Position) -> None:
        self._has[voter] = max(position, self._has.get(voter, 0))

    def committed(self) -> Position:
        """Up to where a majority has everything."""
        positions = sorted((self._has.get(voter, 0) for voter in self.voters), reverse=True)
        return positions[majority(self.voters) - 1]

    def denied(self, voter: Voter, number: int) -> None:
        """It says that it has promised a higher number to another."""
        if number > self.epoch.number:
            self._denied[voter] = number

    def taken(self) -> int:
        """The number that somebody else may have been granted; 0 while a majority has not promised
        away."""
        against = [self._denied[voter] for voter in self.voters if voter in self._denied]
        return max(against) if len(against) >= majority(self.voters) else 0


def changed(voters: Sequence[Voter], wanted: Sequence[Voter]) -> tuple[Voter, ...]:
    """The next set on the way to the wanted one: one more, or else one less."""
    for voter in wanted:
        if voter not in voters:
            return (*voters, voter)
    for voter in voters:
        if voter not in wanted:
            return tuple(other for other in voters if other != voter)
    return tuple(voters)


def wanted(voters: Sequence[Voter], able: Iterable[Voter], own: Voter) -> tuple[Voter, ...]:
    """Who should vote, given the keepers that are there, the best first. Those who vote stay. The
    number is odd, with the writer's own journal if it must: then the most may fail."""
    able = sorted(able, key=lambda voter: voter not in voters)
    if len(able) >= VOTERS - 1:
        return (own, *able[: VOTERS - 1])
    if len(able) == 3:
        return tuple(able)
    if len(able) == 2:
        return (own, *able)
    return tuple(voters if len(voters) >= 3 or not able else able)
