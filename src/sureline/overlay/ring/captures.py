"""Changing molecules: making, taking, giving back, using up, moving.

Each is one `Change` that is carried to a majority of a molecule's holders (see `register`). A
change that cannot be finished is tried anew with a higher ballot, a bounded number of times. Its
outcome is then unknown to us: it may have happened. Nobody is harmed by that, since a capture that
nobody knows of runs out with its lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from sureline.overlay.ring.base import Answered, RingBase
from sureline.overlay.ring.lookup import OwnerLookup, Owners
from sureline.overlay.ring.messages import (
    Accept,
    Accepted,
    Ballot,
    Contacts,
    MoleculeState,
    Prepare,
    Promised,
    There,
    Where,
)
from sureline.overlay.ring.register import EMPTY, Registers
from sureline.world.protocol import AgentId, Message

Change = Callable[[MoleculeState], MoleculeState | str]
"""What becomes of a molecule; or why nothing does."""
Done = Callable[[MoleculeState | None, str], None]
"""The molecule as it is now; or None, and why."""
UNKNOWN = "unknown"
HELD = "held"
GONE = "gone"
MISSING = "missing"
MOVE_ROUNDS = 4
ODD_TICKS = 2
"""A molecule is moved if others should hold it for more than so many beats."""


class Captured(msgspec.Struct, frozen=True):
    """A molecule that this node has taken, until its lease ends."""

    key: bytes
    value: bytes
    token: int
    until: float
    """By this node's `elapsed`."""


def odd(holders: Owners) -> Contacts:
    """Of two, both would be needed for a majority: one alone is safer, and so with all even."""
    return tuple(holders[: len(holders) - 1 + len(holders) % 2])


class Captures:
    def __init__(self, base: RingBase) -> None:
        self._base = base
        self.registers = Registers(base)
        self._moving: set[bytes] = set()

    def _draw(self) -> int:
        return self._base.world.random.getrandbits(52) + 1

    # What others use.

    def store(self, key: bytes, value: bytes, on_done: Callable[[bool], None]) -> None:
        birth = self._draw()

        def change(state: MoleculeState) -> MoleculeState | str:
            if state.birth == birth:
                return state
            return MoleculeState(birth, value) if state == EMPTY else "there is one already"

        decree = Decree(self, key, change, lambda state, why: on_done(state is not None))
        decree.creates = True
        decree.start()

    def capture(self, key: bytes, on_done: Callable[[Captured | None, str], None]) -> None:
        token = self._draw()

        def change(state: MoleculeState) -> MoleculeState | str:
            if state == EMPTY or state.gone:
                return MISSING if state == EMPTY else GONE
            return MoleculeState(state.birth, state.value, self._base.me, token)

        self._lease(key, token, change, on_done)

    def renew(self, held: Captured, on_done: Callable[[Captured | None, str], None]) -> None:
        self._lease(held.key, held.token, self._of(held, lambda state: state), on_done)

    def _lease(
        self, key: bytes, token: int, change: Change,
        on_done: Callable[[Captured | None, str], None],
    ) -> None:  # fmt: skip
        def done(state: MoleculeState | None, why: str) -> None:
            until = decree.asked_at + self._base.settings.lease_s
            on_done(None if state is None else Captured(key, state.value, token, until), why)

        decree = Decree(self, key, change, done, token)
        decree.start()

    def consume(self, held: Captured, on_done: Callable[[bool], None]) -> None:
        """It is used up; only its taker can do that."""
        used = self._of(held, lambda now: MoleculeState(now.birth, b"", now.taker, now.token, True))
        self._finish(held, lambda state: state.gone, used, on_done)

    def put_back(self, held: Captured, value: bytes, on_done: Callable[[bool], None]) -> None:
        """Give it back, perhaps as another: at once, so that no crash comes between."""
        given = self._of(held, lambda now: MoleculeState(now.birth, value, "", now.token))
        self._finish(held, lambda state: not state.taker, given, on_done)

    def _finish(
        self, held: Captured, is_done: Callable[[MoleculeState], bool], change: Change,
        on_done: Callable[[bool], None],
    ) -> None:  # fmt: skip
        def once(state: MoleculeState) -> MoleculeState | str:
            done = state.token == held.token and is_done(state)
            return state if done else change(state)

        Decree(self, held.key, once, lambda s, _: on_done(s is not None), held.token).start()

    def _of(self, held: Captured, change: Callable[[MoleculeState], MoleculeState]) -> Change:
        def checked(state: MoleculeState) -> MoleculeState | str:
            mine = state.taker == self._base.me and state.token == held.token and not state.gone
            return change(state) if mine else "no longer taken by us"

        return checked

    def free(self, key: bytes, now: float) -> bytes | None:
        """The value of a molecule that nobody has taken, as far as is known here, and whose first
        living holder this node is."""
        record = self.registers.records.get(key)
        if record is None or not record.is_live or not self._is_first(record.holders):
            return None
        taken = record.state.taker and now - record.since < self._base.settings.lease_s
        return None if taken else record.state.value

    # Upkeep.

    def _is_first(self, holders: Contacts) -> bool:
        table = self._base.table
        for holder in holders:
            if holder == self._base.mine:
                return True
            if table.life(holder.agent) == holder.life:
                return False
        return False

    def tick(self, now: float) -> None:
        base = self._base
        self.registers.tidy(now)
        for key, record in self.registers.records.items():
            if len(self._moving) >= base.settings.moves_max:
                return
            if key in self._moving:
                continue
            if record.state.moved and not record.settled:
                self._settle(key)
            elif record.is_live:
                wanted = self.wanted(key)
                # fewer than now, and one death more would be too many: rather wait
                odd = set(wanted) != set(record.holders) and len(wanted) >= len(record.holders)
                record.odd_ticks = record.odd_ticks + 1 if odd else 0
                if record.odd_ticks > ODD_TICKS and self._is_first(record.holders):
                    self.move(key, wanted, lambda: None)

    def hand_over(self, on_done: Callable[[], None]) -> None:
        """Move everything to others, before this node goes."""
        base = self._base
        moves = []
        for key, record in self.registers.records.items():
            to = self.wanted(key)
            others = [h for h in record.holders if base.table.life(h.agent) == h.life]
            can_do_without = len(to) < len(record.holders) < 2 * len(others)
            if record.is_live and to and not can_do_without:
                moves.append((key, to))
        left = len(moves)

        def moved() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                on_done()

        if not moves:
            base.after(0.0, on_done)
        for key, to in moves:
            self.move(key, to, moved)

    def wanted(self, key: bytes) -> Contacts:
        """Who should hold it, as far as is known here."""
        return odd(self._base.owners(int.from_bytes(key)))

    def move(self, key: bytes, to: Contacts, on_done: Callable[[], None]) -> None:
        began = self.registers.records[key].configuration

        def change(state: MoleculeState) -> MoleculeState | str:
            if state == EMPTY:
                return MISSING
            if decree.configuration != began:
                return "moved already"
            # if it is gone, have all of its holders know: us, to begin with
            return state if state.gone else msgspec.structs.replace(state, moved=to)

        self._moving.add(key)
        decree = Decree(self, key, change, lambda state, why: self._moved(key, on_done))
        self._run(decree)

    def _settle(self, key: bytes) -> None:
        self._moving.add(key)
        record = self.registers.records[key]

        def done(state: MoleculeState | None, why: str) -> None:
            record.settled = state is not None or why in (GONE, HELD)
            self._moved(key, lambda: None)

        self._run(Decree(self, key, lambda state: state, done))

    def _run(self, decree: Decree) -> None:
        decree.rounds_max = MOVE_ROUNDS
        decree.start()

    def _moved(self, key: bytes, on_done: Callable[[], None]) -> None:
        self._moving.discard(key)
        on_done()


class Decree:
    """One change on its way to a majority of the holders."""

    def __init__(
        self, captures: Captures, key: bytes, change: Change, on_done: Done, token: int = 0
    ) -> None:
        self._base = captures._base
        self._registers = captures.registers
        self._key = key
        self._change = change
        self._on_done = on_done
        self._token = token
        self.creates = False
        self.rounds_max = self._base.settings.rounds_max
        self.asked_at = 0.0
        """When the change that was accepted was first asked for."""
        self.configuration = 0
        self._holders: Contacts = ()
        self._born: MoleculeState | None = None
        self._attempt = 0
        self._round = 0
        self._by = AgentId(f"{self._base.me}#{self._base.world.random.getrandbits(64):x}")
        """In ballots: two decrees of one node are two proposers."""
        self._makers: Contacts = ()
        """Who is asked to hold a new molecule: two sets of holders could each make one."""

    def start(self) -> None:
        if self._makers:
            self._go_to(0, self._makers, EMPTY)
        elif self.creates:
            OwnerLookup(self._base, int.from_bytes(self._key), self._make).start()
        elif self._attempt == 0 and self._key in self._registers.records:
            self._locate(())
        else:
            OwnerLookup(self._base, int.from_bytes(self._key), self._locate).start()

    def _end(self, state: MoleculeState | None, why: str = "") -> None:
        self._attempt = -1
        self._on_done(state, why)

    def _again(self, why: str = UNKNOWN, *, outbid: bool = False) -> None:
        """Begin anew, after a pause; not for ever. If only the ballot was too low, the first pauses
        are short; they double, so that proposers who outbid each other come apart."""
        self._attempt += 1
        if self._attempt >= self.rounds_max:
            self._end(None, why)
            return
        times = 0.1 * 2.0**self._attempt if outbid else self._attempt
        pause_s = self._base.settings.pause_s * min(8, times)
        self._base.after(self._base.jittered(pause_s), self.start)

    # Who holds it.

    def _make(self, owners: Owners) -> None:
        """A key has one maker, so nobody has it yet: its owners are to hold it."""
        self._makers = odd(owners[: self._base.settings.replicas])
        if self._makers:
            self._go_to(0, self._makers, EMPTY)
        else:
            self._again(MISSING)

    def _locate(self, owners: Owners) -> None:
        self._ask_where(tuple(owners), self._registers.there(0, self._key))

    def _ask_where(self, left: Contacts, best: There) -> None:
        """Go by the first answer; if that was of no use before, by the newest of all."""
        if best.holders and (not left or self._attempt == 0):
            self._go_to(best.configuration, best.holders, best.born)
        elif left:
            base = self._base

            def answered(by: AgentId, answer: Message) -> None:
                known = best
                if isinstance(answer, There) and answer.holders:
                    newer = not best.holders or answer.configuration > best.configuration
                    known = answer if newer else best
                self._ask_where(left[1:], known)

            base.ask(
                left[0].agent,
                lambda number: Where(number, base.life, self._key),
                answered,
                lambda by: self._ask_where(left[1:], best),
            )
        else:
            self._again(MISSING)

    def _go_to(self, configuration: int, holders: Contacts, born: MoleculeState | None) -> None:
        self._registers.outdate(self._key, configuration)
        self.configuration, self._holders = configuration, holders
        self._born = born
        self._prepare()

    # The two rounds.

    def _prepare(self) -> None:
        self._round += 1
        ballot, life = Ballot(self._round, self._by), self._base.life
        said = (self._key, self.configuration, self._holders, ballot, self._born)
        poll = _Poll(self, lambda votes: self._decide(ballot, votes))

        def answered(by: AgentId, answer: Message) -> None:
            if isinstance(answer, There):
                poll.elsewhere(answer)
            elif isinstance(answer, Promised):
                self._round = max(self._round, answer.promised.round)
                poll.vote(answer, answer.promised == ballot)

        self._ask_holders(lambda number: Prepare(number, life, *said), answered, poll)

    def _ask_holders(
        self, question: Callable[[int], Message], answered: Answered, poll: _Poll
    ) -> None:
        for holder in self._holders:
            self._base.ask(holder.agent, question, answered, poll.missed)

    def _decide(self, ballot: Ballot, votes: Sequence[Message]) -> None:
        newest = max((v for v in votes if isinstance(v, Promised)), key=lambda v: v.ballot)
        state = newest.state
        if state.moved:
            # perhaps a minority only has accepted that: see that a majority does
            self._accept(ballot, state, self._follow)
            return
        changed = self._change(state)
        if isinstance(changed, str):
            self._end(None, changed)
        else:
            self._accept(ballot, changed, self._accepted)

    def _follow(self, state: MoleculeState) -> None:
        """To where it has moved; the new holders begin with what it is now."""
        self._makers = ()
        born = msgspec.structs.replace(state, moved=())
        self._go_to(self.configuration + 1, state.moved, born)

    def _accept(
        self, ballot: Ballot, state: MoleculeState, then: Callable[[MoleculeState], None]
    ) -> None:
        self.asked_at, life = self._base.world.elapsed(), self._base.life
        # What others made of it, a move that reached few, must wait for our own lease as well.
        token = self._token if state.token == self._token else 0
        said = (self._key, self.configuration, ballot, state, token)
        poll = _Poll(self, lambda votes: then(state))

        def answered(by: AgentId, answer: Message) -> None:
            if isinstance(answer, There):
                poll.elsewhere(answer)
            elif isinstance(answer, Accepted):
                self._round = max(self._round, answer.promised.round)
                poll.held += answer.held
                poll.vote(answer, answer.promised == ballot and not answer.held)

        self._ask_holders(lambda number: Accept(number, life, *said), answered, poll)

    def _accepted(self, state: MoleculeState) -> None:
        if state.moved:
            self._change = lambda now: now
            self._follow(state)
        else:
            self._end(state)


class _Poll:
    """Answers of one round: ends once, when a majority agrees or none can any more."""

    def __init__(self, decree: Decree, on_majority: Callable[[Sequence[Message]], None]) -> None:
        self._decree = decree
        self._count = len(decree._holders)
        self._attempt = decree._attempt
        self._votes: list[Message] = []
        self._against = 0
        self._over = False
        self._outbid = False
        self.held = 0
        self._on_majority = on_majority

    def vote(self, answer: Message, agreed: bool) -> None:
        if agreed:
            self._votes.append(answer)
        else:
            self._against += 1
            self._outbid = True
        self._look()

    def missed(self, by: AgentId) -> None:
        self._against += 1
        self._look()

    def elsewhere(self, answer: There) -> None:
        """It is in a later configuration, or not there at all."""
        decree = self._decree
        if not self._counts:
            return
        if answer.configuration > decree.configuration:
            self._over = True
            decree._makers = ()
            decree._go_to(answer.configuration, answer.holders, answer.born)
        else:
            self._against += 1
            self._look()

    @property
    def _counts(self) -> bool:
        return not self._over and self._attempt == self._decree._attempt

    def _look(self) -> None:
        decree = self._decree
        if not self._counts:
            return
        if len(self._votes) > self._count // 2:
            self._over = True
            self._on_majority(self._votes)
        elif self._against >= self._count - self._count // 2:
            self._over = True
            if self.held:
                decree._end(None, HELD)
            else:
                decree._again(outbid=self._outbid)
