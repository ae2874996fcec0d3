"""What all parts of a ring node share."""

from __future__ import annotations

from collections.abc import Callable

from sureline.overlay.kademlia.requests import Requests
from sureline.overlay.kademlia.settings import KademliaSettings
from sureline.overlay.ring.messages import RingContact
from sureline.overlay.ring.places import distance, place_of
from sureline.overlay.ring.settings import RingSettings
from sureline.overlay.ring.table import RingTable
from sureline.world.protocol import AgentId, Message, World

Answered = Callable[[AgentId, Message], None]
Failed = Callable[[AgentId], None]


class RingBase:
    """`ask` is the one way to put a question: each has an answer or fails, once."""

    def __init__(self, me: AgentId, world: World, settings: RingSettings) -> None:
        self.me, self.world, self.settings = me, world, settings
        self.mine = RingContact(me, world.random.getrandbits(47) + 1)
        self.leaving = False
        self.table = RingTable(me, settings)
        self.requests = Requests(world, KademliaSettings())
        self.stopped = False

    @property
    def life(self) -> int:
        """As it is said in messages; 0 by one who is about to go, and is to hold nothing more."""
        return 0 if self.leaving else self.mine.life

    def owners(self, key: int) -> list[RingContact]:
        """Who should keep what lies there, as far as is known here."""
        count = self.settings.replicas
        found = self.table.owners(key, count)
        if not self.leaving:
            found.append(self.mine)
            found.sort(key=lambda contact: distance(key, place_of(contact.agent)))
        return found[:count]

    def jittered(self, seconds: float) -> float:
        return seconds * self.world.random.uniform(0.75, 1.25)

    def ask(
        self,
        to: AgentId,
        question: Callable[[int], Message],
        answered: Answered,
        failed: Failed,
    ) -> None:
        number = self.requests.open(to, _Asker(self, answered, failed))
        self.world.send(to, question(number))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        def unless_stopped() -> None:
            if not self.stopped:
                action()

        self.world.after(seconds, unless_stopped)


class _Asker:
    __slots__ = ("_answered", "_base", "_failed")

    def __init__(self, base: RingBase, answered: Answered, failed: Failed) -> None:
        self._base, self._answered, self._failed = base, answered, failed

    def answered(self, number: int, by: AgentId, answer: Message) -> None:
        self._answered(by, answer)

    def slow(self, number: int, by: AgentId) -> None:
        """It may still come."""

    def failed(self, number: int, by: AgentId) -> None:
        self._base.table.silent(by)
        self._failed(by)
