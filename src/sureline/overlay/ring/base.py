"""What all parts of a ring node share."""

from __future__ import annotations

from collections import deque
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


PATIENT = KademliaSettings(slow_s_max=5.0, failed_s_max=20.0)
"""Of round trips: where all are slow, who is slow must not be taken for dead."""
MISSED_MAX = 256


class RingBase:
    """`ask` is the one way to put a question: each has an answer or fails, once."""

    def __init__(self, me: AgentId, world: World, settings: RingSettings) -> None:
        self.me, self.world, self.settings = me, world, settings
        self.mine = RingContact(me, world.random.getrandbits(47) + 1)
        self.leaving = False
        self.table = RingTable(me, settings)
        self.requests = Requests(world, PATIENT)
        self._missed: dict[tuple[int, AgentId], float] = {}
        """Questions that have failed, and when they were asked: the answer may still come."""
        self._line: deque[tuple[AgentId, Callable[[int], Message], Answered, Failed]] = deque()
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
        """Now, or when some of those on their way are over; with too many in line it fails."""
        if len(self._line) >= self.settings.asked_max:
            self.after(0.0, lambda: failed(to))
            return
        self._line.append((to, question, answered, failed))
        self.go_on()

    def answer(self, number: int, by: AgentId, answer: Message) -> None:
        """One that comes too late still says how long answers take."""
        self.table.answered(by)
        asked_s = self._missed.pop((number, by), None)
        if asked_s is not None:
            self.requests.trips.took(self.world.awake() - asked_s)
        self.requests.answer(number, by, answer)

    def miss(self, number: int, by: AgentId, asked_s: float) -> None:
        self._missed[number, by] = asked_s
        if len(self._missed) > MISSED_MAX:
            del self._missed[next(iter(self._missed))]

    def go_on(self) -> None:
        while self._line and len(self.requests) < self.settings.asking_max and not self.stopped:
            to, question, answered, failed = self._line.popleft()
            number = self.requests.open(to, _Asker(self, to, answered, failed))
            self.world.send(to, question(number))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        def unless_stopped() -> None:
            if not self.stopped:
                action()

        self.world.after(seconds, unless_stopped)


class _Asker:
    __slots__ = ("_answered", "_answers", "_asked_s", "_base", "_failed")

    def __init__(self, base: RingBase, to: AgentId, answered: Answered, failed: Failed) -> None:
        self._base, self._answered, self._failed = base, answered, failed
        self._answers, self._asked_s = base.table.answers(to), base.world.awake()

    def answered(self, number: int, by: AgentId, answer: Message) -> None:
        self._answered(by, answer)
        self._base.go_on()

    def slow(self, number: int, by: AgentId) -> None:
        """It may still come."""

    def failed(self, number: int, by: AgentId) -> None:
        """One that has answered something meanwhile, however late, is there: only slow."""
        self._base.miss(number, by, self._asked_s)
        if self._base.table.answers(by) == self._answers:
            self._base.table.silent(by)
        self._failed(by)
        self._base.go_on()
