"""Spreading the list of revoked peers: who hears of a newer one fetches it and passes it on.

The version of the list that a peer has travels with every probe of the membership, which calls
`heard_of` when another's is higher; a peer that has just got a newer list tells a few others at
once. Both are only claims. What counts is the list, and it is signed by the grid's CA: a forged
or older one changes nothing, and who claimed to have it is not asked again for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from sureline.world.address import Node, at, node_of
from sureline.world.agent import Agent, handles
from sureline.world.identity.revocations import RevocationList
from sureline.world.protocol import AgentId, Message, Timer, World

PART = "news"
ANSWER_S_MAX = 2.0
DOUBT_S_FIRST, DOUBT_S_MAX = 1.0, 64.0
"""How long a node that did not answer is not asked again; doubles each time. One that answered
with something forged or old waits the longest."""
REPEAT_S = 1.0
"""A list can be long: the same peer gets it at most this often."""
TOLD = 4
CLAIMS_MAX = 16
NODES_MAX = 1024
_KEY = "news.list"
V = TypeVar("V")


class NewsTold(Message, frozen=True, tag="news.told"):
    """I have this version."""

    version: int


class NewsAsk(Message, frozen=True, tag="news.ask"):
    """Send me your list, if it is newer than this version. Answered by NewsList or not at all."""

    version: int


class NewsList(Message, frozen=True, tag="news.list"):
    """The list in its signed form."""

    signed: bytes


MESSAGES = (NewsTold, NewsAsk, NewsList)
"""All that travels, for the codec."""


class News(Agent):
    """Part `news` of a node.

    `verified` gives the list in signed bytes, None if the CA has not signed them. `on_new` hears
    each newer list once, to keep it and to drop connections. `known` is the list to begin with,
    `neighbours` gives nodes that might be told of a new one.
    """

    def __init__(
        self,
        me: AgentId,
        world: World,
        verified: Callable[[bytes], RevocationList | None],
        on_new: Callable[[RevocationList], None],
        *,
        known: RevocationList | None = None,
        neighbours: Callable[[], Sequence[Node]] = lambda: (),
    ) -> None:
        super().__init__(me, world)
        self._verified = verified
        self._on_new = on_new
        self._neighbours = neighbours
        self._list = known or RevocationList()
        self._claims: dict[Node, int] = {}
        """Who says to have a newer list, and which."""
        self._asked: tuple[Node, Timer] | None = None
        self._doubts: dict[Node, tuple[float, float]] = {}
        """Whose claims turned out empty: until when they do not count, and for how long that is."""
        self._answered: dict[Node, float] = {}
        kept = verified(world.get(_KEY) or b"")
        if kept is not None and kept.version > self._list.version:
            self._list = kept
            on_new(kept)

    @property
    def version(self) -> int:
        return self._list.version

    @property
    def revocations(self) -> RevocationList:
        return self._list

    def heard_of(self, version: int, node: Node) -> None:
        """Somebody says that this node has this version."""
        if version <= self._list.version or self._is_doubted(node):
            return
        if node in self._claims or len(self._claims) < CLAIMS_MAX:
            self._claims[node] = version
            self._ask_next()

    def publish(self, revocations: RevocationList) -> bool:
        """Take a verified list, such as one that was signed in this home a moment ago, and tell
        others. False if it is not newer."""
        if revocations.version <= self._list.version:
            return False
        self._list = revocations
        self.world.put(_KEY, revocations.signed)
        self.world.sync(lambda: None)
        self._claims = {n: v for n, v in self._claims.items() if v > revocations.version}
        self._on_new(revocations)
        others = [node for node in self._neighbours() if node != node_of(self.me)]
        for node in self.world.random.sample(others, min(TOLD, len(others))):
            self.world.send(at(node, PART), NewsTold(revocations.version))
        return True

    @handles(NewsTold)
    def _told(self, sender: AgentId, told: NewsTold) -> None:
        self.heard_of(told.version, node_of(sender))

    @handles(NewsAsk)
    def _ask(self, sender: AgentId, ask: NewsAsk) -> None:
        node, now = node_of(sender), self.world.elapsed()
        if ask.version >= self._list.version:
            return
        if now - self._answered.get(node, -REPEAT_S) < REPEAT_S:
            return
        _remember(self._answered, node, now)
        self.world.send(sender, NewsList(self._list.signed))

    @handles(NewsList)
    def _received(self, sender: AgentId, message: NewsList) -> None:
        """Only what was asked for is looked at: verifying costs."""
        if self._asked is None or self._asked[0] != node_of(sender):
            return
        node, timer = self._asked
        timer.cancel()
        self._asked = None
        self._claims.pop(node, None)
        found = self._verified(message.signed)
        if found is not None and self.publish(found):
            self._doubts.pop(node, None)
        else:
            self._doubt(node, DOUBT_S_MAX)
        self._ask_next()

    def _ask_next(self) -> None:
        """Ask one of those who claim to know, at random: liars may be among them."""
        if self._asked is not None or not self._claims:
            return
        node = self.world.random.choice(list(self._claims))
        timer = self.world.after(ANSWER_S_MAX, self._unanswered)
        self._asked = (node, timer)
        self.world.send(at(node, PART), NewsAsk(self._list.version))

    def _unanswered(self) -> None:
        assert self._asked is not None
        node, _ = self._asked
        self._asked = None
        if self._claims.pop(node, 0) > self._list.version:
            _, before_s = self._doubts.get(node, (0.0, 0.0))
            self._doubt(node, min(max(2 * before_s, DOUBT_S_FIRST), DOUBT_S_MAX))
        self._ask_next()

    def _doubt(self, node: Node, seconds: float) -> None:
        _remember(self._doubts, node, (self.world.elapsed() + seconds, seconds))

    def _is_doubted(self, node: Node) -> bool:
        return self.world.elapsed() < self._doubts.get(node, (0.0, 0.0))[0]


def _remember(table: dict[Node, V], node: Node, value: V) -> None:
    """Put it in as the youngest; the oldest goes when there are too many."""
    table.pop(node, None)
    if len(table) >= NODES_MAX:
        del table[next(iter(table))]
    table[node] = value
