"""A search through the network as a pure state machine: whom to ask next, and when it is over.

A candidate is `new`, then `asked`, perhaps `slow`, and ends `answered` or `failed`:

    new -> asked -> answered
             |  \\-> failed
             v       ^
            slow ----+-> answered

At most alpha candidates are `asked` at a time. One that is slow no longer counts, so that another
is asked beside it: a search never stands still behind a silent node. Failed candidates leave the
list, and the next nearest move up. So the search is over only when the `width` nearest candidates
*that live* have answered; there are no others to ask; or its questions are used up.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterable

from sureline.overlay.kademlia.ids import id_of
from sureline.world.protocol import AgentId

NEW, ASKED, SLOW, ANSWERED, FAILED = range(5)
LIST_MAX = 96
"""Candidates kept, the nearest ones, besides those that have been asked."""


class Lookup:
    __slots__ = (
        "_alpha",
        "_list",
        "_questions_max",
        "_states",
        "_steps",
        "_under_way",
        "hops",
        "questions",
        "target",
        "width",
    )

    def __init__(self, target: int, width: int, alpha: int, questions_max: int) -> None:
        self.target = target
        self.width = width
        self.questions = 0
        """Asked so far."""
        self.hops = 0
        """The longest chain of answers, each naming the next."""
        self._alpha = alpha
        self._questions_max = questions_max
        self._list: list[tuple[int, AgentId]] = []
        self._states: dict[AgentId, int] = {}
        self._steps: dict[AgentId, int] = {}
        self._under_way = 0

    def offer(self, contacts: Iterable[AgentId], steps: int = 1) -> None:
        """Add candidates that are not yet known."""
        for contact in contacts:
            if contact in self._states:
                continue
            insort(self._list, (id_of(contact) ^ self.target, contact))
            self._states[contact] = NEW
            self._steps[contact] = steps
            if len(self._list) > LIST_MAX:
                self._trim()

    def _trim(self) -> None:
        """Forget the farthest candidate that has not been asked."""
        for place in range(len(self._list) - 1, -1, -1):
            contact = self._list[place][1]
            if self._states[contact] == NEW:
                del self._list[place], self._states[contact], self._steps[contact]
                return

    def __contains__(self, contact: object) -> bool:
        """Whether it is or was a candidate."""
        return contact in self._states

    def take(self) -> list[AgentId]:
        """Whom to ask now; they count as asked."""
        taken = []
        for _, contact in self._list[: self.width]:
            if self._under_way >= self._alpha or self.questions >= self._questions_max:
                break
            if self._states[contact] == NEW:
                self._states[contact] = ASKED
                self._under_way += 1
                self.questions += 1
                taken.append(contact)
        return taken

    def answered(self, contact: AgentId, heard: Iterable[AgentId] = ()) -> None:
        if self._states.get(contact) in (ASKED, SLOW):
            self._leave_under_way(contact)
            self._states[contact] = ANSWERED
            steps = self._steps[contact]
            self.hops = max(self.hops, steps)
            self.offer(heard, steps + 1)

    def slow(self, contact: AgentId) -> None:
        if self._states.get(contact) == ASKED:
            self._under_way -= 1
            self._states[contact] = SLOW

    def failed(self, contact: AgentId) -> None:
        state = self._states.get(contact)
        if state is not None and state not in (ANSWERED, FAILED):
            self._leave_under_way(contact)
            self._states[contact] = FAILED
            self._list.remove((id_of(contact) ^ self.target, contact))

    def _leave_under_way(self, contact: AgentId) -> None:
        if self._states[contact] == ASKED:
            self._under_way -= 1

    @property
    def over(self) -> bool:
        nearest = [self._states[contact] for _, contact in self._list[: self.width]]
        if ASKED in nearest or SLOW in nearest:
            return False
        return NEW not in nearest or self.questions >= self._questions_max

    def nearest(self, count: int) -> list[AgentId]:
        """Those who answered, nearest first."""
        found = [contact for _, contact in self._list if self._states[contact] == ANSWERED]
        return found[:count]

    def silent(self, count: int) -> list[AgentId]:
        """Those who were asked in vain, nearest first."""
        failed = [contact for contact, state in self._states.items() if state == FAILED]
        return sorted(failed, key=lambda contact: id_of(contact) ^ self.target)[:count]
