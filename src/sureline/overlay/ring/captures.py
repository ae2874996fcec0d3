"""What can be done with molecules: making, taking, giving back, using up; and who holds them.

Each is one `Decree`, which a majority of a molecule's holders agrees on. When others should hold a
molecule, because somebody came or died, it moves, by a decree like any other.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec
from msgspec.structs import replace

from sureline.overlay.ring.base import RingBase
from sureline.overlay.ring.decree import GONE, HELD, MISSING, Change, Decree, Done, odd
from sureline.overlay.ring.messages import Contacts, MoleculeState
from sureline.overlay.ring.register import EMPTY, Registers

StateChange = Callable[[MoleculeState], MoleculeState]
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


class Captures:
    def __init__(self, base: RingBase) -> None:
        self._base = base
        self.registers = Registers(base)
        self._moving: set[bytes] = set()

    def _decree(self, key: bytes, change: Change, on_done: Done, token: int = 0) -> Decree:
        return Decree(self._base, self.registers, key, change, on_done, token)

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

        decree = self._decree(key, change, lambda state, why: on_done(state is not None))
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
        def change(state: MoleculeState) -> MoleculeState | str:
            return state if self._is_ours(held, state) else NOT_OURS

        self._lease(held.key, held.token, change, on_done)

    def _lease(self, key: bytes, token: int, change: Change, on_done: OnCaptured) -> None:
        def done(state: MoleculeState | None, why: str) -> None:
            until = decree.asked_at + self._base.settings.lease_s
            on_done(None if state is None else Captured(key, state.value, token, until), why)

        decree = self._decree(key, change, done, token)
        decree.start()

    def consume(self, held: Captured, on_done: Callable[[bool], None]) -> None:
        """It is used up; only its taker can do that."""
        self._let_go(held, lambda now: replace(now, value=b"", gone=True), on_done)

    def put_back(self, held: Captured, value: bytes, on_done: Callable[[bool], None]) -> None:
        """Give it back, perhaps as another: at once, so that no crash comes between."""
        self._let_go(held, lambda now: replace(now, value=value, taker=""), on_done)

    def _let_go(self, held: Captured, change: StateChange, on_done: Callable[[bool], None]) -> None:
        def once(state: MoleculeState) -> MoleculeState | str:
            changed = change(state)
            # an attempt before may have done it, and not have heard so
            again = state.token == held.token and state == changed
            return changed if again or self._is_ours(held, state) else NOT_OURS

        def done(state: MoleculeState | None, why: str) -> None:
            on_done(state is not None)

        self._decree(held.key, once, done, held.token).start()

    def _is_ours(self, held: Captured, state: MoleculeState) -> bool:
        return (state.taker, state.token, state.gone) == (self._base.me, held.token, False)

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
        decree = self._decree(key, change, done)
        decree.rounds_max = MOVE_ROUNDS
        return decree
