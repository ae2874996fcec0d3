"""The half of `peercomp` on a machine: keeps what its lanes have promised.

What was reserved begins when its lane lets it, as early as it may. What comes without a promise, of
this or of any other strategy, begins where it makes nobody late: its length is unknown, so it needs
a lane that has promised nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import msgspec

from sureline.overlay.tree.agent import Tree
from sureline.peer.admitting import Admitting, Machine, Waiting
from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Bind
from sureline.strategies.peercomp.lanes import Claim, Key, Lanes, limits_of
from sureline.strategies.peercomp.policy import Policy
from sureline.workflow.model import Needs
from sureline.world.agent import Agent
from sureline.world.protocol import World

LOOK_S = 0.5
LEAST_S = 0.1
Attempt = tuple[str, str, int]


class MachineSettings(msgspec.Struct, frozen=True):
    per_core_hour: float = 0.0
    """Who asks a price promises nothing: `peercomp` spends no money."""
    policy: Policy = "deadline"
    """Whom it favours when not all can be promised time."""


class LanesKept(Admitting):
    def __init__(self, machine: Machine, world: World, settings: MachineSettings) -> None:
        self._machine = machine
        self._world = world
        self.lanes = Lanes(machine.capacity, settings.policy)
        self.lanes.guests_now = self._lanes_of_guests
        self.lanes.on_their_way = self._on_their_way
        self._asks_price = settings.per_core_hour > 0
        self._tree: Tree | None = None
        self._claims: dict[Attempt, Claim] = {}
        self._let: dict[Attempt, Needs] = {}
        """Attempts by a claim that were let begin, and what they hold."""
        self._looks_again = False

    def beside(self, agents: Sequence[Agent]) -> None:
        for agent in agents:
            if isinstance(agent, Tree) and not self._asks_price:
                self._tree = agent
                agent.leaf = self.lanes

    def admitted(self, bind: Bind) -> None:
        claim = claim_of(bind)
        if claim is not None:
            self._claims[_attempt_of(bind)] = claim

    @property
    def orders(self) -> bool:
        return bool(self._claims) or self.lanes.promised

    def order(self, waiting: Sequence[Waiting], now: float) -> Sequence[int]:
        attempts = [_attempt_of(one.bind) for one in waiting]
        for attempt in attempts:
            if self._let.pop(attempt, None) is not None:  # something else held it back
                self.lanes.drop(attempt)
        mine = {
            (claim.number, claim.unit): number
            for number, attempt in enumerate(attempts)
            if (claim := self._claims.get(attempt)) is not None
        }
        chosen = []
        for key, promised_s in self.lanes.startable(mine, now):
            number = mine.pop(key)
            length_s = promised_s - self._claims[attempts[number]].brought_s  # they are here
            self.lanes.begin(attempts[number], key, max(LEAST_S, length_s), now)
            chosen.append(number)
        chosen += self._elsewhere(mine, waiting, now)
        others = [n for n, attempt in enumerate(attempts) if attempt not in self._claims]
        guests = self._guests(others, waiting)  # by the ledger, in which the chosen are not yet
        for number in chosen:
            self._let[attempts[number]] = waiting[number].bind.needs
        chosen += guests
        if len(chosen) < len(waiting):
            self._look_again()
        if chosen:
            self._changed()
        return chosen

    def _elsewhere(self, mine: dict[Key, int], waiting: Sequence[Waiting], now: float) -> list[int]:
        """Those whose lane is busy, or whose promise is void: each begins in another lane, if that
        makes nobody late."""
        found = []
        for (number, unit), place in mine.items():
            bind = waiting[place].bind
            claim = self._claims[_attempt_of(bind)]
            length_s = max(LEAST_S, claim.work - claim.brought_s) / self.lanes.power
            rows = self.lanes.room(limits_of(bind.needs), length_s, now)
            if rows:
                self.lanes.release(number, unit, 1, now)
                self.lanes.begin_in(_attempt_of(bind), rows, length_s, now)
                found.append(place)
        return found

    def _guests(self, numbers: Sequence[int], waiting: Sequence[Waiting]) -> list[int]:
        """Those that were promised nothing: as many as the lanes can hold that nobody waits for."""
        idle, found, added = self.lanes.idle(), list[int](), list[Needs]()
        for number in numbers:
            added.append(waiting[number].bind.needs)
            if self._lanes_for(_together(added)) <= idle:
                found.append(number)
            else:
                added.pop()
        return found

    def _on_their_way(self) -> dict[Key, float]:
        return {
            (claim.number, claim.unit): min(claim.brought_s, claim.work)
            for attempt, claim in self._claims.items()
            if claim.brought_s > 0 and attempt not in self._let
        }

    def _lanes_of_guests(self) -> int:
        return self.lanes.count if self._machine.leaving else self._lanes_for(_together(()))

    def _lanes_for(self, more: Needs) -> int:
        """How many lanes are taken by what runs here without a promise, with so much more."""
        has, free = self._machine.capacity, self._machine.ledger
        own = _together(self._let.values())
        used = (
            (has.cores - free.millicores / 1000 - own.cores + more.cores, has.cores),
            (has.memory_bytes - free.memory_bytes - own.memory_bytes + more.memory_bytes,
             has.memory_bytes),
            (has.disk_bytes - free.disk_bytes - own.disk_bytes + more.disk_bytes, has.disk_bytes),
        )  # fmt: skip
        count = self.lanes.count
        return max(math.ceil(count * many / all_ - 1e-6) if all_ else 0 for many, all_ in used)

    def over(self, bind: Bind, ended: JobEnded | None, *, began: bool) -> None:
        attempt = _attempt_of(bind)
        claim = self._claims.pop(attempt, None)
        if claim is None:
            if self.lanes.promised:
                self._changed()
            return
        self._let.pop(attempt, None)
        self.lanes.end(attempt, self._world.now())
        self.lanes.release(claim.number, claim.unit, 1, self._world.now())
        self._changed()

    def _changed(self) -> None:
        if self._tree is not None:
            self._tree.changed(leaf=True)

    def _look_again(self) -> None:
        """Something is held back: it may begin when a promise before it is void."""
        if not self._looks_again:
            self._looks_again = True
            self._world.after(LOOK_S, self._look)

    def _look(self) -> None:
        self._looks_again = False
        self._machine.look_again()


def _together(needs: Iterable[Needs]) -> Needs:
    listed = tuple(needs)
    return Needs(
        math.fsum(one.cores for one in listed),
        sum(one.memory_bytes for one in listed),
        sum(one.disk_bytes for one in listed),
    )


def claim_of(bind: Bind) -> Claim | None:
    if bind.strategy != "peercomp":
        return None
    try:
        return msgspec.msgpack.decode(bind.claim, type=Claim)
    except msgspec.DecodeError:
        return None


def _attempt_of(bind: Bind) -> Attempt:
    return (bind.run, bind.task, bind.attempt)
