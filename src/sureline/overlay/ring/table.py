"""Whom a node of the ring knows: its neighbours on both sides, and some farther away.

Only those who were heard from in person are in it. Farther away, a few for every power of two of
the distance are kept, so that a question comes half of the rest of the way with each hop.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from sureline.overlay.ring.messages import RingContact
from sureline.overlay.ring.places import distance, place_of
from sureline.overlay.ring.settings import RingSettings
from sureline.world.protocol import AgentId


class RingTable:
    def __init__(self, me: AgentId, settings: RingSettings) -> None:
        self.me = me
        self.place = place_of(me)
        self._settings = settings
        self._lives: dict[AgentId, int] = {}
        self._answers: dict[AgentId, int] = {}
        self._clockwise: list[tuple[int, AgentId]] = []
        """By the distance from here."""
        self.lost: dict[AgentId, None] = {}

    def __contains__(self, agent: object) -> bool:
        return agent in self._lives

    def __len__(self) -> int:
        return len(self._lives)

    def life(self, agent: AgentId) -> int | None:
        return self._lives.get(agent)

    def heard(self, agent: AgentId, life: int) -> bool:
        """Whether this is news: somebody new, or a new life. One without a life is about to go."""
        self.lost.pop(agent, None)
        if life == 0:
            self.forget(agent)
            return False
        known = self._lives.get(agent)
        if known == life or agent == self.me:
            return False
        self._lives[agent] = life
        if known is None:
            insort(self._clockwise, (distance(self.place, place_of(agent)), agent))
            self._prune()
        return agent in self._lives

    def answered(self, agent: AgentId) -> None:
        if agent in self._lives:
            self._answers[agent] = self.answers(agent) + 1

    def answers(self, agent: AgentId) -> int:
        """How many it has given since it is known."""
        return self._answers.get(agent, 0)

    def silent(self, agent: AgentId) -> None:
        """It is believed to be gone, but asked again some time."""
        if self.forget(agent):
            self.remember(agent)

    def remember(self, agent: AgentId) -> None:
        """Try it now and then, until it is heard from."""
        if agent not in self._lives:
            self.lost[agent] = None
            while len(self.lost) > self._settings.lost_max:
                del self.lost[next(iter(self.lost))]

    def forget(self, agent: AgentId) -> bool:
        if self._lives.pop(agent, None) is None:
            return False
        self._answers.pop(agent, None)
        self._clockwise.remove((distance(self.place, place_of(agent)), agent))
        return True

    def _prune(self) -> None:
        """Drop who is neither a neighbour nor needed to get about."""
        leaves = self._settings.leaves
        middle = self._clockwise[leaves:-leaves]
        counts: dict[int, int] = {}
        for far, agent in middle:
            order = far.bit_length()
            counts[order] = counts.get(order, 0) + 1
            if counts[order] > self._settings.links:
                self.forget(agent)

    def after(self, count: int | None = None) -> list[RingContact]:
        """The next ones clockwise, nearest first."""
        found = self._clockwise[: self._settings.leaves if count is None else count]
        return [RingContact(agent, self._lives[agent]) for _, agent in found]

    def before(self, count: int | None = None) -> list[RingContact]:
        """The next ones the other way round, nearest first."""
        count = self._settings.leaves if count is None else count
        found = self._clockwise[-count:][::-1] if count else []
        return [RingContact(agent, self._lives[agent]) for _, agent in found]

    def is_near(self, agent: AgentId) -> bool:
        """Whether it is, or would be, a neighbour."""
        leaves = self._settings.leaves
        if len(self._clockwise) < 2 * leaves:
            return True
        far = distance(self.place, place_of(agent))
        return far <= self._clockwise[leaves - 1][0] or far >= self._clockwise[-leaves][0]

    def wants(self, agent: AgentId) -> bool:
        """Whether it is not known, and would stay."""
        if agent in self._lives or agent == self.me:
            return False
        leaves, links = self._settings.leaves, self._settings.links
        far = distance(self.place, place_of(agent))
        order = far.bit_length()
        alike = [d for d, _ in self._clockwise[leaves:-leaves] if d.bit_length() == order]
        return self.is_near(agent) or len(alike) < links or far < alike[links - 1]

    def nearer(self, key: int, count: int) -> list[RingContact]:
        """Those between here and the key, nearest to the key first."""
        end = bisect_left(self._clockwise, (distance(self.place, key), ""))
        found = self._clockwise[max(0, end - count) : end][::-1]
        return [RingContact(agent, self._lives[agent]) for _, agent in found]

    def owners(self, key: int, count: int) -> list[RingContact]:
        """The first nodes at or after the key, of those known here."""
        start = bisect_left(self._clockwise, (distance(self.place, key), ""))
        found = (self._clockwise[start:] + self._clockwise[:start])[:count]
        return [RingContact(agent, self._lives[agent]) for _, agent in found]

    def owns(self, key: int) -> bool:
        """Whether the key is this node's, as far as it knows."""
        if not self._clockwise:
            return True
        return distance(key, self.place) < distance(key, place_of(self._clockwise[-1][1]))
