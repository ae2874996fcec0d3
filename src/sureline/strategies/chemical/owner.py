"""The half on a machine: its resource molecule, and who takes how much of it.

The molecule stays here and dies with the machine. Whoever takes a part of it has it alone: parts
are handed out by this one agent, against a ledger. What is left is published anew, so the pointers
in the ring follow. A taker who comes too late may wait here for a moment; of those who wait, the
first by their order has what becomes free.

A part that was taken is held for HOLD_S, and for as long as an attempt runs that claims it.
Attempts of other strategies are on the ledger too.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sureline.overlay.ring.messages import Count
from sureline.peer.admitting import Admitting, Key, Machine
from sureline.peer.capacity import Ledger, is_possible
from sureline.peer.jobs import JobEnded
from sureline.peer.messages import Bind
from sureline.strategies.chemical.messages import GiveBack, NotTaken, ResourceOffer, Take, Taken
from sureline.workflow.model import Needs
from sureline.world.address import at, node_of
from sureline.world.agent import Agent, handles
from sureline.world.protocol import AgentId, Timer, World

PART = "chemical.resource"
HOLDER = "chemical"
HOLD_S = 20.0
WAITING_MAX = 256
OTHERS_MAX = 5
LOST_S = 5.0
"""For so long somebody who went away empty-handed is told of as having wanted it too."""
PUBLISH_S, WAITED_S = 0.2, 2.0
"""Changes within this time are published as one: of what is free, and of who waits for it."""


class _Want(msgspec.Struct):
    sender: AgentId
    asked: Take
    timer: Timer


class _Hold(msgspec.Struct):
    needs: Needs
    timer: Timer
    asked: tuple[AgentId, Count]
    others: tuple[str, ...]


class Owner(Agent, Admitting):
    def __init__(self, me: AgentId, world: World, machine: Machine) -> None:
        super().__init__(me, world)
        self._machine = machine
        self._free = Ledger(machine.capacity)
        self._holds: dict[int, _Hold] = {}
        self._booked: dict[Key, Needs] = {}
        self._unbooked: dict[Key, None] = {}
        """Attempts for which there was no room: of writers who did not ask."""
        self._wants: dict[tuple[AgentId, int], _Want] = {}
        self._lost: dict[str, float] = {}
        self._publishing: Timer | None = None
        self._is_soon = False

    @property
    def agents(self) -> Sequence[Agent]:
        return (self,)

    def start(self) -> None:
        self._changed()

    # -- taking --------------------------------------------------------------------------------

    @handles(Take)
    def on_take(self, sender: AgentId, asked: Take) -> None:
        me = (sender, asked.number)
        for token, hold in self._holds.items():
            if hold.asked == me:
                self.world.send(sender, Taken(asked.run, asked.number, token, hold.others))
                return
        if me in self._wants:
            return
        if self._machine.leaving:
            self._refuse(sender, asked, "it is leaving")
        elif not is_possible(asked.needs) or not Ledger(self._machine.capacity).fits(asked.needs):
            self._refuse(sender, asked, "it is too small")
        elif not self._free.fits(asked.needs) and len(self._wants) >= WAITING_MAX:
            self._refuse(sender, asked, "too many wait for it")
        else:
            timer = self.world.after(asked.wait_s, lambda: self._waited(me))
            self._wants[me] = _Want(sender, asked, timer)
            self._serve()

    def _serve(self) -> None:
        """Give what is free to those who wait, in their order; one for which there is too little
        keeps nobody else from it."""
        granted = False
        for me, want in sorted(self._wants.items(), key=lambda one: (one[1].asked.key, one[0])):
            if self._free.fits(want.asked.needs):
                del self._wants[me]
                want.timer.cancel()
                self._grant(want)
                granted = True
        self._changed(soon=granted)

    def _grant(self, want: _Want) -> None:
        token, asked = self.world.random.getrandbits(52) + 1, want.asked
        self._free.take(asked.needs)
        timer = self.world.after(HOLD_S, lambda: self._let_go(token))
        others = self._others(asked)
        self._holds[token] = _Hold(asked.needs, timer, (want.sender, asked.number), others)
        self.world.send(want.sender, Taken(asked.run, asked.number, token, others))

    def _others(self, than: Take) -> tuple[str, ...]:
        now = self.world.elapsed()
        self._lost = {who: at_s for who, at_s in self._lost.items() if now - at_s < LOST_S}
        waiting = [_who(want.asked) for want in self._wants.values()]
        found = dict.fromkeys([*waiting, *self._lost])
        found.pop(_who(than), None)
        return tuple(found)[:OTHERS_MAX]

    def _waited(self, me: tuple[AgentId, int]) -> None:
        want = self._wants.pop(me)
        self._refuse(want.sender, want.asked, "others have it")
        self._changed(soon=False)

    def _refuse(self, sender: AgentId, asked: Take, why: str) -> None:
        self.world.send(sender, NotTaken(asked.run, asked.number, why, self._others(asked)))
        if len(self._lost) < WAITING_MAX:
            self._lost[_who(asked)] = self.world.elapsed()

    @handles(GiveBack)
    def on_give_back(self, sender: AgentId, said: GiveBack) -> None:
        self._let_go(said.token)

    def _let_go(self, token: int) -> None:
        hold = self._holds.pop(token, None)
        if hold is not None:
            hold.timer.cancel()
            self._free.give_back(hold.needs)
            self._serve()
            self._changed()

    # -- what runs here ------------------------------------------------------------------------

    def admitted(self, bind: Bind) -> None:
        key = (bind.run, bind.task, bind.attempt)
        hold = self._holds.pop(int(bind.claim), None) if bind.claim.isdigit() else None
        if hold is not None:
            hold.timer.cancel()
            self._free.give_back(hold.needs)
        if self._free.fits(bind.needs):
            self._free.take(bind.needs)
            self._booked[key] = bind.needs
        else:
            self._unbooked[key] = None
        self._changed()

    def over(self, bind: Bind, ended: JobEnded | None, *, began: bool) -> None:
        key = (bind.run, bind.task, bind.attempt)
        self._unbooked.pop(key, None)
        needs = self._booked.pop(key, None)
        if needs is not None:
            self._free.give_back(needs)
            self._serve()
            self._changed()

    # -- what is published ---------------------------------------------------------------------

    def _changed(self, *, soon: bool = True) -> None:
        if self._publishing is not None:
            if self._is_soon or not soon:
                return
            self._publishing.cancel()
        self._is_soon = soon
        self._publishing = self.world.after(PUBLISH_S if soon else WAITED_S, self._publish)

    def _publish(self) -> None:
        self._publishing = None
        features = {} if self._machine.leaving else self.features()
        self.world.send(at(node_of(self.me), HOLDER), ResourceOffer(features))

    def features(self) -> dict[str, float]:
        """What is free, what there is in all, and the share of the cores that is in use or waited
        for."""
        free, all_of_it = self._free, self._machine.capacity
        used = all_of_it.cores - free.millicores / 1000 + len(self._unbooked)
        used += sum(want.asked.needs.cores for want in self._wants.values())
        tags = {f"tag.{tag}"[:100]: float(free.tags.get(tag, 1_000_000)) for tag in all_of_it.tags}
        return {
            "load": round(used / max(0.001, all_of_it.cores), 3),
            "cores": free.millicores / 1000,
            "memory": float(free.memory_bytes),
            "disk": float(free.disk_bytes),
            "gpus": float(free.gpus),
            "all.cores": all_of_it.cores,
            "all.memory": float(all_of_it.memory_bytes),
            "all.disk": float(all_of_it.disk_bytes),
            "all.gpus": float(all_of_it.gpus),
            **dict(list(tags.items())[:20]),
        }


def _who(asked: Take) -> str:
    return f"{asked.task} of {asked.run}"[:500]
