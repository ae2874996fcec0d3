"""One change of a molecule, on its way to a majority of its holders (see `register`).

A change that cannot be finished is tried anew with a higher ballot, a bounded number of times. Its
outcome is then unknown to us: it may have happened. Nobody is harmed by that, since a capture that
nobody knows of runs out with its lease.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

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
Done = Callable[[MoleculeState | None, str], None]
"""The molecule as it is now; or None, and why."""
UNKNOWN = "unknown"
HELD = "held"
GONE = "gone"
MISSING = "missing"


def odd(holders: Owners) -> Contacts:
    """Of two, both would be needed for a majority: one alone is safer, and so with all even."""
    return tuple(holders[: len(holders) - 1 + len(holders) % 2])


class Decree:
    """`token` is the taker's, if this is what he does with what he has taken."""

    def __init__(
        self,
        base: RingBase,
        registers: Registers,
        key: bytes,
        change: Change,
        on_done: Done,
        token: int = 0,
    ) -> None:
        self._base, self._registers = base, registers
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
