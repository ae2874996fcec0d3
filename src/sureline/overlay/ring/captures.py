"""Changing molecules: making, taking, giving back, using up, moving.

Each is one `Change` that is carried to a majority of a molecule's holders (see `register`). A
change that cannot be finished is tried anew with a higher ballot, a bounded number of times. Its
outcome is then unknown to us: it may have happened. Nobody is harmed by that, since a capture that
nobody knows of runs out with its lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from sureline.overlay.ring.base import RingBase
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
StateChange = Callable[[MoleculeState], MoleculeState]
Done = Callable[[MoleculeState | None, str], None]
"""The molecule as it is now; or None, and why."""
UNKNOWN = "unknown"
HELD = "held"
GONE = "gone"
MISSING = "missing"
NOT_OURS = "no longer taken by us"
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


OnCaptured = Callable[[Captured | None, str], None]


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
        if len(value) > self._base.settings.value_bytes_max:
            raise ValueError(f"a molecule has at most {self._base.settings.value_bytes_max} bytes")
        birth = self._draw()

        def change(state: MoleculeState) -> MoleculeState | str:
            if state.birth == birth:
                return state
            return MoleculeState(birth, value) if state == EMPTY else "there is one already"

        decree = Decree(self, key, change, lambda state, why: on_done(state is not None))
        decree.creates = True
        decree.start()

    def capture(self, key: bytes, on_done: OnCaptured) -> None:
        token = self._draw()

        def change(state: MoleculeState) -> MoleculeState | str:
            if state == EMPTY or state.gone:
                return MISSING if state == EMPTY else GONE
            return MoleculeState(state.birth, state.value, self._base.me, token)

        self._lease(key, token, change, on_done)

    def renew(self, held: Captured, on_done: OnCaptured) -> None:
        self._lease(held.key, held.token, self._of(held, lambda state: state), on_done)

    def _lease(self, key: bytes, token: int, change: Change, on_done: OnCaptured) -> None:
        def done(state: MoleculeState | None, why: str) -> None:
            until = decree.asked_at + self._base.settings.lease_s
            on_done(None if state is None else Captured(key, state.value, token, until), why)

        decree = Decree(self, key, change, done, token)
        decree.start()

    def consume(self, held: Captured, on_done: Callable[[bool], None]) -> None:
        """It is used up; only its taker can do that."""
        self._let_go(held, lambda now: replace(now, value=b"", gone=True), on_done)

    def put_back(self, held: Captured, value: bytes, on_done: Callable[[bool], None]) -> None:
        """Give it back, perhaps as another: at once, so that no crash comes between."""
        self._let_go(held, lambda now: replace(now, value=value, taker=""), on_done)

    def _let_go(self, held: Captured, change: StateChange, on_done: Callable[[bool], None]) -> None:
        def done(state: MoleculeState | None, why: str) -> None:
            on_done(state is not None)

        Decree(self, held.key, self._of(held, change), done, held.token).start()

    def _of(self, held: Captured, change: StateChange) -> Change:
        """By its taker alone; an attempt before may have done it, and not have heard so."""

        def checked(state: MoleculeState) -> MoleculeState | str:
            if state.token != held.token:
                return NOT_OURS
            changed = change(state)
            mine = state.taker == self._base.me and not state.gone
            return changed if mine or state == changed else NOT_OURS

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
            return state if state.gone else replace(state, moved=to)

        decree = self._moving_decree(key, change, lambda state, why: on_done())
        decree.start()

    def _settle(self, key: bytes) -> None:
        """Have those know it who hold it from now on."""
        record = self.registers.records[key]

        def done(state: MoleculeState | None, why: str) -> None:
            record.settled = state is not None or why in (GONE, HELD)

        self._moving_decree(key, lambda state: state, done).start()

    def _moving_decree(self, key: bytes, change: Change, on_done: Done) -> Decree:
        def done(state: MoleculeState | None, why: str) -> None:
            self._moving.discard(key)
            on_done(state, why)

        self._moving.add(key)
        decree = Decree(self, key, change, done)
        decree.rounds_max = MOVE_ROUNDS
        return decree


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
        self._poll(
            ballot, lambda n: Prepare(n, life, *said), lambda votes: self._decide(ballot, votes)
        )

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

    def _accept(
        self, ballot: Ballot, state: MoleculeState, then: Callable[[MoleculeState], None]
    ) -> None:
        self.asked_at, life = self._base.world.elapsed(), self._base.life
        # What others made of it, a move that reached few, must wait for our own lease as well.
        token = self._token if state.token == self._token else 0
        said = (self._key, self.configuration, ballot, state, token)
        self._poll(ballot, lambda n: Accept(n, life, *said), lambda votes: then(state))

    def _accepted(self, state: MoleculeState) -> None:
        if state.moved:
            self._change = lambda now: now
            self._follow(state)
        else:
            self._end(state)

    def _follow(self, state: MoleculeState) -> None:
        """To where it has moved; the new holders begin with what it is now."""
        self._makers = ()
        self._go_to(self.configuration + 1, state.moved, replace(state, moved=()))

    def _poll(
        self,
        ballot: Ballot,
        question: Callable[[int], Message],
        on_majority: Callable[[Sequence[Message]], None],
    ) -> None:
        """Ask all holders. It ends once: when a majority agrees, when none can any more, or when
        somebody knows of a later configuration."""
        attempt, count = self._attempt, len(self._holders)
        votes: list[Message] = []
        refused = 0
        over = held = outbid = False

        def counts() -> bool:
            return not over and attempt == self._attempt

        def answered(by: AgentId, answer: Message) -> None:
            nonlocal held, outbid, over
            if isinstance(answer, There) and answer.configuration > self.configuration:
                if counts():
                    over = True
                    self._makers = ()
                    self._go_to(answer.configuration, answer.holders, answer.born)
                return
            agreed = False
            if isinstance(answer, Promised | Accepted):
                self._round = max(self._round, answer.promised.round)
                is_held = isinstance(answer, Accepted) and answer.held
                agreed = answer.promised == ballot and not is_held
                held, outbid = held or is_held, outbid or not agreed
            if agreed:
                votes.append(answer)
            look(against=not agreed)

        def look(*, against: bool) -> None:
            nonlocal refused, over
            refused += against
            if not counts():
                return
            if len(votes) > count // 2:
                over = True
                on_majority(votes)
            elif refused >= count - count // 2:
                over = True
                if held:
                    self._end(None, HELD)
                else:
                    self._again(outbid=outbid)

        for holder in self._holders:
            self._base.ask(holder.agent, question, answered, lambda by: look(against=True))
