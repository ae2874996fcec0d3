"""The targets of a run as its writer sees them: where they are, and what they last told.

A peer takes part from when it has answered an `Attach`: then it is known what of this run is
under way there, and that older writers are fenced. Later it is asked again while something that was
bound there has not been heard of, at growing intervals, and now and then in any case. A target in
the writer's own process takes part at once, and nothing is asked.
"""

from __future__ import annotations

import msgspec

from sureline.peer.messages import Attach, Attached
from sureline.run.port import Target
from sureline.world.address import Node, PeerName, at, node_of, part_of
from sureline.world.protocol import World

ASK_S = 2.0
ASK_MAX_S = 30.0
ASK_ANYWAY_S = 60.0
PAGES_MAX = 100


class Enlisted(msgspec.Struct):
    """A target, and how things stand with it."""

    target: Target
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
    def node(self) -> Node:
        return node_of(self.target.agent)


class WholeAnswer(msgspec.Struct):
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
        self._all: dict[PeerName, Enlisted] = {}

    def get(self, name: PeerName) -> Enlisted | None:
        return self._all.get(name)

    def all(self) -> list[Enlisted]:
        return list(self._all.values())

    def attached(self) -> dict[PeerName, Target]:
        """Those that take part."""
        return {name: enlisted.target for name, enlisted in self._all.items() if enlisted.attached}

    @property
    def is_whole(self) -> bool:
        """Whether all of them take part."""
        return all(enlisted.attached for enlisted in self._all.values())

    def node(self, name: PeerName) -> Node | None:
        enlisted = self._all.get(name)
        return None if enlisted is None else enlisted.node

    def add(self, target: Target, *, here: bool = False) -> Enlisted:
        """`here`: it is in this process, and needs not be asked."""
        enlisted = self._all[target.name] = Enlisted(target, attached=here)
        if not here:
            self.ask(enlisted)
        return enlisted

    def remove(self, name: PeerName) -> None:
        self._all.pop(name, None)

    def moved(self, enlisted: Enlisted, node: Node) -> None:
        """It was started again elsewhere."""
        agent = at(node, part_of(enlisted.target.agent))
        enlisted.target = msgspec.structs.replace(enlisted.target, agent=agent)
        self.ask(enlisted)

    def ask(self, enlisted: Enlisted) -> None:
        enlisted.serial += 1
        enlisted.pages = {}
        enlisted.ask_at = self._world.elapsed() + enlisted.interval_s
        enlisted.interval_s = min(ASK_MAX_S, 2 * enlisted.interval_s)
        self._world.send(enlisted.target.agent, Attach(self._run, self._epoch, enlisted.serial))

    def ask_later(self, enlisted: Enlisted) -> None:
        """Something was bound there, and it may take a moment to tell of it."""
        enlisted.ask_at = max(enlisted.ask_at, self._world.elapsed() + ASK_S)

    def heard(self, enlisted: Enlisted) -> None:
        enlisted.heard_at = self._world.elapsed()

    def is_due(self, enlisted: Enlisted, *, bound: bool, unheard: bool) -> bool:
        """Whether to ask now: `bound` if anything is under way there, `unheard` if some of it has
        not been told of."""
        now = self._world.elapsed()
        if not enlisted.attached or unheard:
            return now >= enlisted.ask_at
        return bound and now >= max(enlisted.ask_at, enlisted.heard_at + ASK_ANYWAY_S)

    def collect(self, enlisted: Enlisted, page: Attached) -> WholeAnswer | None:
        """The whole answer, once its last missing page is here."""
        if page.serial != enlisted.serial or not 0 <= page.page < PAGES_MAX:
            return None
        enlisted.pages[page.page] = page
        last = next((p.page for p in enlisted.pages.values() if p.last), None)
        if last is None or len(enlisted.pages) <= last:
            return None
        pages = [enlisted.pages[number] for number in range(last + 1) if number in enlisted.pages]
        if len(pages) <= last:
            return None  # some beyond the last one: nothing that adds up
        if any(p.session != page.session for p in pages):
            return None  # it was started again in between, and is asked again
        enlisted.pages = {}
        enlisted.interval_s = ASK_S
        enlisted.ask_at = self._world.elapsed() + ASK_S
        return _joined(pages)


def _joined(pages: list[Attached]) -> WholeAnswer:
    return WholeAnswer(
        pages[0].serial,
        pages[0].session,
        {(task, attempt): started for p in pages for task, attempt, started in p.under_way},
        {report: None for p in pages for report in p.reports},
    )
