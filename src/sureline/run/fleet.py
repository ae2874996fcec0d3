"""The targets of a run as its writer sees them: where they are, and what they last told.

A peer takes part from when it has answered an `Attach`: then it is known what of this run is
under way there, and that older writers are fenced. Later it is asked again while something that was
bound there has not been heard of, and now and then in any case. One that answers nothing any more
takes no part, whoever else hears it; it is asked on, at growing intervals, and so is one that is
set aside (`standing`) when its pause is over. A target in the writer's own process takes part at
once, and nothing is asked.
"""

from __future__ import annotations

import math
from itertools import islice

import msgspec

from sureline.peer.messages import Attach, Attached
from sureline.run.port import Target
from sureline.run.standing import PeerStanding
from sureline.world.address import Node, PeerName, at, node_of, part_of
from sureline.world.protocol import World

ASK_S = 2.0
ASK_MAX_S = 30.0
"""Between two questions to one that takes no part."""
ASK_AGAIN_S = 3.0
"""Between two questions to one that does; in a large fleet, longer: all its answers come to one
process, and to have tasks run elsewhere because these wait makes it slower."""
LARGE = 300
ASK_AGAIN_S_MAX = 20.0
ASK_ANYWAY_S = 15.0
QUIET_S = 25.0
QUIET_SHARE = 0.8
"""Of the time after which a run is taken over: so long targets keep to a writer that is silent."""
ASK_SHARE = 0.6
"""Of that time, at most, passes before a target hears something."""
ASKED_MAX = 64
"""So many are asked at once whether they take part, in the order in which they came; others follow
as these answer, or do not within ASK_S. Each may cost a connection, and what else this process has
to say must not wait for all of these."""
UNANSWERED_MAX = 5
"""Questions in a row without a word, before a target is believed out of reach."""
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
    unanswered: int = 0
    """How often it was asked since it was last heard."""
    pages: dict[int, Attached] = {}
    """Of the answer to the last Attach, as far as it has come."""

    @property
    def node(self) -> Node:
        return node_of(self.target.agent)


class WholeAnswer(msgspec.Struct):
    """All pages of one answer together."""

    serial: int
    session: int
    under_way: dict[tuple[str, int], tuple[bool, bytes]]
    """(task, attempt): whether it has started, and the warrant that was shown."""
    reports: dict[tuple[str, int], bytes]


class Fleet:
    """`papers` say that this writer may write the run; see `world.identity.signing`. If it is
    silent for `takeover_after_s` (0 for ever), another one may come."""

    def __init__(
        self,
        world: World,
        run: str,
        epoch: int,
        standing: PeerStanding,
        papers: bytes = b"",
        takeover_after_s: float = 0.0,
    ) -> None:
        self._world = world
        self._run = run
        self._epoch = epoch
        self._standing = standing
        self._papers = papers
        self._takeover_share_s = QUIET_SHARE * takeover_after_s or QUIET_S
        self._all: dict[PeerName, Enlisted] = {}
        self._unasked: dict[PeerName, None] = {}
        """Those who wait to be asked for the first time."""
        self._asked: dict[PeerName, float] = {}
        """When those were asked who have not answered."""

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
        """Where its files may be had; None while it is away, or not believed."""
        enlisted = self._all.get(name)
        if enlisted is None or not self._standing.is_heard(name, self._world.elapsed()):
            return None
        return enlisted.node

    def add(self, target: Target, *, here: bool = False) -> Enlisted:
        """`here`: it is in this process, and needs not be asked."""
        enlisted = self._all[target.name] = Enlisted(target, attached=here)
        aside_s = self._standing.aside_s(target.name, self._world.elapsed())
        if aside_s:
            enlisted.ask_at = self._world.elapsed() + aside_s
        elif not here:
            enlisted.ask_at = math.inf
            self._unasked[target.name] = None
            self.ask_some()
        return enlisted

    def ask_some(self) -> None:
        """The next ones of those who wait for that."""
        if not self._unasked:
            return
        late_s = self._world.elapsed() - ASK_S
        under_way = sum(asked_s > late_s for asked_s in self._asked.values())
        for name in list(islice(self._unasked, max(0, ASKED_MAX - under_way))):
            self.ask(self._all[name])

    def ask_soon(self, enlisted: Enlisted) -> None:
        """It is wanted: before the others who wait."""
        if enlisted.target.name in self._unasked:
            self.ask(enlisted)

    def remove(self, name: PeerName) -> None:
        self._all.pop(name, None)
        self._unasked.pop(name, None)
        self._asked.pop(name, None)

    def moved(self, enlisted: Enlisted, node: Node) -> None:
        """It was started again elsewhere."""
        agent = at(node, part_of(enlisted.target.agent))
        enlisted.target = msgspec.structs.replace(enlisted.target, agent=agent)
        self.ask(enlisted)

    def set_back(self, enlisted: Enlisted, pause_s: float = 0.0) -> None:
        """It takes no part any more, and is asked again after a pause."""
        enlisted.attached = False
        enlisted.interval_s = ASK_S
        enlisted.ask_at = self._world.elapsed() + (pause_s or ASK_S)

    def ask(self, enlisted: Enlisted) -> None:
        if enlisted.target.name in self._unasked:
            del self._unasked[enlisted.target.name]
            self._asked[enlisted.target.name] = self._world.elapsed()
        enlisted.serial += 1
        enlisted.unanswered += 1
        enlisted.pages = {}
        wait_s = self._again_s if enlisted.attached else enlisted.interval_s
        enlisted.ask_at = self._world.elapsed() + wait_s
        enlisted.interval_s = min(ASK_MAX_S, 2 * enlisted.interval_s)
        papers = b"" if enlisted.attached else self._papers
        attach = Attach(self._run, self._epoch, enlisted.serial, papers, self._quiet_s)
        self._world.send(enlisted.target.agent, attach)

    @property
    def _many(self) -> int:
        return 1 + len(self._all) // LARGE

    @property
    def _again_s(self) -> float:
        most_s = min(ASK_AGAIN_S_MAX, max(ASK_AGAIN_S, self._ask_anyway_s))
        return min(most_s, ASK_AGAIN_S * self._many)

    @property
    def _quiet_s(self) -> float:
        """So long a target keeps to this writer without a word. Who has very many of them would do
        little else than to speak to all so often: these keep to it for longer."""
        return self._takeover_share_s * max(1.0, self._many / 2)

    @property
    def _ask_anyway_s(self) -> float:
        return min(ASK_ANYWAY_S * max(1.0, self._many / 2), ASK_SHARE * self._quiet_s)

    def ask_later(self, enlisted: Enlisted) -> None:
        """Something was bound there, and it may take a moment to tell of it."""
        enlisted.ask_at = max(enlisted.ask_at, self._world.elapsed() + ASK_S)

    def heard(self, enlisted: Enlisted) -> None:
        enlisted.heard_at = self._world.elapsed()
        enlisted.unanswered = 0
        if self._asked.pop(enlisted.target.name, None) is not None:
            self.ask_some()

    def is_out_of_reach(self, enlisted: Enlisted) -> bool:
        """Whether it takes part and yet leaves us without any answer."""
        many = enlisted.attached and enlisted.unanswered >= UNANSWERED_MAX
        return many and self._world.elapsed() >= enlisted.ask_at

    def is_due(self, enlisted: Enlisted, *, unheard: bool) -> bool:
        """Whether to ask now: `unheard` if something is under way there that has not been told of.
        Who hears nothing of this writer for long would believe another one (`peer.writers`)."""
        now = self._world.elapsed()
        if not enlisted.attached or unheard:
            return now >= enlisted.ask_at
        return now >= max(enlisted.ask_at, enlisted.heard_at + self._ask_anyway_s)

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
        {
            (task, number): (began, shown)
            for p in pages
            for task, number, began, shown in p.under_way
        },
        {(task, number): warrant for p in pages for task, number, warrant in p.reports},
    )
