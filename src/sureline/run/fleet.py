"""The peers of a grid run as its writer sees them: where they are, and what they last told.

A peer takes part from when it has answered an `Attach`: then it is known what of this run is under
way there, and that older writers are fenced. Later it is asked again while something that was
bound there has not been heard of, at growing intervals, and now and then in any case.
"""

from __future__ import annotations

import msgspec

from sureline.peer.capacity import Capacity
from sureline.peer.messages import Attach, Attached
from sureline.world.address import Node, at, name_of
from sureline.world.protocol import AgentId, World

ASK_S = 2.0
ASK_MAX_S = 30.0
ASK_ANYWAY_S = 60.0
PAGES_MAX = 100


class Peer(msgspec.Struct):
    name: str
    node: Node
    capacity: Capacity
    site: str = ""
    attached: bool = False
    session: int = 0
    serial: int = 0
    """Of the last Attach that was sent."""
    ask_at: float = 0.0
    interval_s: float = ASK_S
    heard_at: float = 0.0
    pages: dict[int, Attached] = {}
    """Of the answer to the last Attach, as far as it has come."""

    @property
    def agent(self) -> AgentId:
        return at(self.node, "peer")


class Answer(msgspec.Struct):
    """All pages of one answer together."""

    serial: int
    session: int
    under_way: dict[tuple[str, int], bool]
    """(task, attempt): whether it has started."""
    reports: dict[tuple[str, int], None]


class Fleet:
    def __init__(self, world: World, run: str, epoch: int) -> None:
        self._world = world
        self._run = run
        self._epoch = epoch
        self._peers: dict[str, Peer] = {}

    def get(self, name: str) -> Peer | None:
        return self._peers.get(name)

    def all(self) -> list[Peer]:
        return list(self._peers.values())

    def node(self, name: str) -> Node | None:
        peer = self._peers.get(name)
        return None if peer is None else peer.node

    def add(self, node: Node, capacity: Capacity, site: str) -> Peer:
        name = name_of(node)
        peer = self._peers[name] = Peer(name, node, capacity, site)
        self.ask(peer)
        return peer

    def remove(self, name: str) -> Peer | None:
        return self._peers.pop(name, None)

    def moved(self, peer: Peer, node: Node) -> None:
        """It was started again elsewhere."""
        peer.node = node
        self.ask(peer)

    def ask(self, peer: Peer) -> None:
        peer.serial += 1
        peer.pages = {}
        peer.ask_at = self._world.now() + peer.interval_s
        peer.interval_s = min(ASK_MAX_S, 2 * peer.interval_s)
        self._world.send(peer.agent, Attach(self._run, self._epoch, peer.serial))

    def ask_later(self, peer: Peer) -> None:
        """Something was bound there, and it may take a moment to tell of it."""
        peer.ask_at = max(peer.ask_at, self._world.now() + ASK_S)

    def heard(self, peer: Peer) -> None:
        peer.heard_at = self._world.now()

    def is_due(self, peer: Peer, *, bound: bool, unheard: bool) -> bool:
        """Whether to ask now: `bound` if anything is under way there, `unheard` if some of it has
        not been told of."""
        now = self._world.now()
        if not peer.attached or unheard:
            return now >= peer.ask_at
        return bound and now >= max(peer.ask_at, peer.heard_at + ASK_ANYWAY_S)

    def collect(self, peer: Peer, page: Attached) -> Answer | None:
        """The whole answer, once its last missing page is here."""
        if page.serial != peer.serial or not 0 <= page.page < PAGES_MAX:
            return None
        peer.pages[page.page] = page
        last = next((p.page for p in peer.pages.values() if p.last), None)
        if last is None or len(peer.pages) <= last:
            return None
        pages = [peer.pages[number] for number in range(last + 1) if number in peer.pages]
        if len(pages) <= last:
            return None  # some beyond the last one: nothing that adds up
        if any(p.session != page.session for p in pages):
            return None  # it was started again in between, and is asked again
        peer.pages = {}
        peer.interval_s = ASK_S
        peer.ask_at = self._world.now() + ASK_S
        return _joined(pages)


def _joined(pages: list[Attached]) -> Answer:
    return Answer(
        pages[0].serial,
        pages[0].session,
        {(task, attempt): started for p in pages for task, attempt, started in p.under_way},
        {report: None for p in pages for report in p.reports},
    )
