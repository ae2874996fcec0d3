"""Sealing what a run's writer tells its keepers, and checking what is told.

A seal vouches for the chain of all events up to a position, so whoever seals must know the chain
there. Keepers are at different places, and may come back at an old one: the writer remembers the
chain at some positions, and folds on from the last before the one it needs.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Sequence
from typing import Protocol

from sureline.journal.schema import POSITIONS_PER_EPOCH
from sureline.run.keeping import NumberedEvent, Position
from sureline.world.identity.signing import (
    PapersError,
    RunSigner,
    Trust,
    WriterAuthority,
    digest,
    fold,
    is_sealed,
    verify,
)

MARKS_MAX = 1000


class Recorded(Protocol):
    """A run's journal, as far as it would survive a kill of this process."""

    line: tuple[Position, ...]
    """The last position of each earlier epoch."""

    def after(self, position: Position) -> list[NumberedEvent]:
        """The next events, as many as fit a message."""

    def last(self) -> Position:
        """The position of the last event."""


class Sealer:
    """The writer's side. All that is recorded so far is read once, before the run goes on."""

    def __init__(self, signer: RunSigner, recorded: Recorded) -> None:
        self._signer = signer
        self._recorded = recorded
        self._marks: list[tuple[Position, bytes]] = [(0, signer.authority.start)]
        """Some positions, and the chain up to there."""
        while events := recorded.after(self._marks[-1][0]):
            self._note(events[-1][0], fold(self._marks[-1][1], events))

    @property
    def papers(self) -> bytes:
        return self._signer.papers

    def seal(self, after: Position, events: Sequence[NumberedEvent]) -> bytes:
        """Vouch for these, which follow `after`, and for all before."""
        position, chain = events[-1][0], fold(self._chain_at(after), events)
        self._note(position, chain)
        return self._signer.seal(position, chain)

    def _chain_at(self, position: Position) -> bytes:
        at = bisect_right(self._marks, position, key=_position)
        known, chain = self._marks[max(0, at - 1)]  # a keeper may say that it is anywhere
        while known < position:
            events = [entry for entry in self._recorded.after(known) if entry[0] <= position]
            if not events:
                break
            known, chain = events[-1][0], fold(chain, events)
        return chain

    def _note(self, position: Position, chain: bytes) -> None:
        at = bisect_right(self._marks, position, key=_position)
        if self._marks[at - 1][0] != position:
            insort(self._marks, (position, chain))
        if len(self._marks) > MARKS_MAX:
            del self._marks[1::2]


def _position(mark: tuple[Position, bytes]) -> Position:
    return mark[0]


class Checker:
    """The side of those who are told something of runs. Papers are verified once."""

    def __init__(self, trust: Trust) -> None:
        self._trust = trust
        self._verified: dict[tuple[str, bytes], WriterAuthority] = {}

    def authority(
        self, run: str, epoch: int | None, papers: bytes, now: float | None = None
    ) -> WriterAuthority:
        """Raises PapersError. What was revoked since is found out when somebody begins."""
        known = self._verified.get((run, papers))
        if known is not None and now is None and epoch in (None, known.epoch):
            return known
        authority = verify(papers, run, epoch, self._trust, now)
        if len(self._verified) >= MARKS_MAX:
            del self._verified[next(iter(self._verified))]
        self._verified[run, papers] = authority
        return authority

    def followed(
        self,
        authority: WriterAuthority,
        after: Position,
        chain: bytes,
        events: Sequence[NumberedEvent],
        seal: bytes,
    ) -> bytes:
        """The chain after these events, which follow `after`, where it was `chain`. Raises
        PapersError unless this writer has vouched for them; nothing of them has been read yet."""
        positions = [position for position, _ in events]
        if not all(a < b for a, b in zip([after, *positions], positions, strict=False)):
            raise PapersError("its events are in no order")
        if positions[-1] // POSITIONS_PER_EPOCH > authority.epoch:
            raise PapersError("its writer vouches for events of later ones")
        if after == 0 and digest(events[0][1]) != authority.first_event:
            raise PapersError("it does not begin as it was submitted")
        chain = fold(chain, events)
        if not is_sealed(authority, positions[-1], chain, seal, self._trust):
            raise PapersError("its events are not those that its writer sealed")
        return chain
