"""One molecule, on the nodes that hold it: a register that a majority of them changes.

A molecule's holders are fixed in a *configuration*. In it, a change is agreed on as in single-
decree Paxos with a changing value: who proposes one first has a majority promise to accept nothing
older, learns from them what was accepted last, and has a majority accept what he makes of it. So
whatever was accepted by a majority is what everybody after builds upon, and of two who want the
same molecule one is first.

A molecule moves to other holders by a change like any other: *moved*, after which this
configuration changes nothing any more, and the next begins with what this one ended with. A holder
that starts again is a stranger, since it has forgotten what it promised: holders are named with
their lives.

A taken molecule is its taker's for a while. Holders count that time by their own clocks from when
they accepted it, the taker from before he asked; so his ends first.
"""

from __future__ import annotations

from sureline.overlay.ring.base import RingBase
from sureline.overlay.ring.messages import (
    Accept,
    Accepted,
    Ballot,
    Contacts,
    MoleculeState,
    Prepare,
    Promised,
    There,
)
from sureline.world.address import NO_AGENT
from sureline.world.protocol import AgentId

NO_BALLOT = Ballot(0, NO_AGENT)
EMPTY = MoleculeState()


class HolderRecord:
    """What one holder knows of one molecule."""

    __slots__ = (
        "ballot",
        "born",
        "changed_at",
        "configuration",
        "holders",
        "odd_ticks",
        "promised",
        "settled",
        "since",
        "state",
    )

    def __init__(
        self, configuration: int, holders: Contacts, state: MoleculeState, now: float
    ) -> None:
        self.configuration = configuration
        self.holders = holders
        self.born = state
        """What the configuration began with."""
        self.promised = NO_BALLOT
        self.ballot = NO_BALLOT
        self.state = state
        self.since = now
        """When its taker took it, or last renewed that."""
        self.changed_at = now
        self.odd_ticks = 0
        """For how long others should hold it."""
        self.settled = False
        """Moved, and its next holders have it."""

    @property
    def is_live(self) -> bool:
        return self.state.birth != 0 and not self.state.gone and not self.state.moved


class Registers:
    """All molecules that one node holds."""

    def __init__(self, base: RingBase) -> None:
        self._base = base
        self.records: dict[bytes, HolderRecord] = {}

    def there(self, number: int, key: bytes) -> There:
        record = self.records.get(key)
        if record is None:
            return There(number, self._base.life)
        return There(number, self._base.life, record.configuration, record.holders, record.born)

    def prepare(self, asked: Prepare, now: float) -> Promised | There:
        record = self.records.get(asked.key)
        if record is None or record.configuration < asked.configuration:
            if (
                asked.born is None
                or self._base.mine not in asked.holders
                or not self._room(asked.key)
            ):
                return There(asked.number, self._base.life)
            record = HolderRecord(asked.configuration, asked.holders, asked.born, now)
            self.records[asked.key] = record
        elif record.configuration > asked.configuration:
            return self.there(asked.number, asked.key)
        record.promised = max(record.promised, asked.ballot)
        return Promised(asked.number, self._base.life, record.promised, record.ballot, record.state)

    def accept(self, asked: Accept, sender: AgentId, now: float) -> Accepted | There:
        record = self.records.get(asked.key)
        if record is None or record.configuration != asked.configuration:
            return self.there(asked.number, asked.key)
        if asked.ballot < record.promised:
            return Accepted(asked.number, self._base.life, record.promised)
        if self._is_held(record, asked, now):
            return Accepted(asked.number, self._base.life, record.promised, held=True)
        if asked.state.token != record.state.token or sender == asked.state.taker:
            record.since = now
        record.promised = record.ballot = asked.ballot
        record.state = asked.state
        record.changed_at = now
        return Accepted(asked.number, self._base.life, record.promised)

    def _is_held(self, record: HolderRecord, asked: Accept, now: float) -> bool:
        old, new = record.state, asked.state
        if not old.taker or asked.token == old.token:
            return False  # used up, as long as few know that, is taken still
        same = (new.taker, new.token, new.gone) == (old.taker, old.token, old.gone)
        return not same and now - record.since < self._base.settings.lease_s

    def outdate(self, key: bytes, configuration: int) -> None:
        """There is a later configuration. A holder that was never told so forgets the one it knows:
        those who agreed on the move, a majority, are others."""
        record = self.records.get(key)
        if record is not None and record.configuration < configuration and record.is_live:
            del self.records[key]

    def _room(self, key: bytes) -> bool:
        full = len(self.records) >= self._base.settings.records_max
        return key in self.records or not (full or self._base.leaving)

    def tidy(self, now: float) -> None:
        """Drop what is only remembered, after a while."""
        settings = self._base.settings
        for key, record in list(self.records.items()):
            if record.is_live:
                continue
            keep_s = settings.stub_s
            if record.state.gone:
                keep_s = settings.gone_s
            elif record.state.moved and not record.settled:
                keep_s = settings.gone_s / 2  # to tell the next holders, but not for ever
            if now - record.changed_at > keep_s:
                del self.records[key]
