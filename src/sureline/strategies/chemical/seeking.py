"""One task molecule on its way to a resource, at the node that holds it.

    captured -> asks the ring -> takes of a resource -> advises the writer -> used up
                    ^                |  nobody has it, or another was first
                    `---- waits <----'  (short, jittered)

All of it under the lease of the captured molecule, which is renewed; if that is lost, another node
has the task, and this one lets go.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

from sureline.chemistry import Molecule
from sureline.overlay.ring import Captured, Meta, Query, Ring
from sureline.overlay.ring.ranges import MetasFound
from sureline.strategies.chemical.messages import (
    Answered,
    Deploy,
    Envelope,
    GiveBack,
    NotTaken,
    Seeks,
    Take,
    Taken,
    id_of,
)
from sureline.strategies.chemical.molecules import (
    busy_query,
    free_query,
    in_words,
    needs_of,
    resource_molecule,
)
from sureline.strategies.chemical.owner import PART as RESOURCE
from sureline.strategies.chemical.rulebook import Rulebook
from sureline.world.address import Node, at, name_of, node_of
from sureline.world.protocol import AgentId, Message, World

CANDIDATES = 8
WAIT_FREE_S, WAIT_S, WAIT_MAX_S = 0.2, 2.5, 10.0
"""How long it waits at a resource that seemed to be free, or at a busy one, before it looks
elsewhere; at busy ones longer with every time in vain ..."""
PAUSE_S, PAUSE_MAX_S = 0.2, 3.0
"""... after a pause, which grows while there is nobody to wait at. All are jittered."""
SILENCE_S = 2.0
"""An owner or a writer who has not answered so long after he should have does not."""
ADVISED_MAX = 5
"""How often the writer is told."""
DEAF_MAX = 6
"""So often in a row a writer may be silent before his molecule is given up."""
TELL_S = 10.0
BUT_MAX = 3
"""So often the peers that are to be avoided are."""


Question = Callable[[int], Message]
"""With its number."""
Then = Callable[[Message | None], None]


class Bench(Protocol):
    """What the node lends to those who work on it."""

    world: World
    ring: Ring

    def ask(self, to: AgentId, question: Question, patience_s: float, then: Then) -> None:
        """`then` hears the answer, or None if there is none in time."""

    def over(self, worker: Seeking) -> None: ...


class Seeking:
    def __init__(
        self, bench: Bench, held: Captured, envelope: Envelope, task: Molecule, book: Rulebook
    ) -> None:
        self._bench, self._world, self._ring = bench, bench.world, bench.ring
        self.held, self._envelope, self._task, self._book = held, envelope, task, book
        self.name = id_of(task)
        self._needs = needs_of(task)
        self._but: dict[str, None] = dict.fromkeys(envelope.but)
        self._tries = self._alone = self._in_vain = self._deaf = self._advised = 0
        self._owner, self._token = bench.ring.me, 0
        self._query = Query("load")
        self._others: tuple[str, ...] = ()
        self._would_do = 0
        self._told_at = self._world.elapsed()
        self._ended = False
        self._world.after(self._lease_s / 3, self._renew)

    @property
    def _lease_s(self) -> float:
        return self._ring.base.settings.lease_s

    def _renew(self) -> None:
        def renewed(held: Captured | None, why: str) -> None:
            if self._ended:
                return
            if held is None and why not in ("unknown", "held"):
                self._end()
                return
            if held is not None:
                self.held = held
            self._world.after(self._lease_s / 3, self._renew)

        if not self._ended:
            self._ring.captures.renew(self.held, renewed)

    # -- asking the ring -----------------------------------------------------------------------

    def look(self) -> None:
        if self._ended:
            return
        self._tries += 1
        random = self._world.random
        limits = self._book.limits(self._task, random)
        rank, highest = self._book.preferred(self._task, random)
        self._query = free_query(limits, self._needs, rank, highest)
        self._find(self._query, self._found)

    def _find(self, query: Query, then: Callable[[MetasFound], None]) -> None:
        most = CANDIDATES + len(self._but)
        limited = Query(query.rank, query.wants, query.highest, most)
        self._ring.find(limited, lambda found: None if self._ended else then(found))

    def _found(self, found: MetasFound) -> None:
        may = [meta for meta in found.metas if self._may(meta)]
        self._would_do = len(may)
        rank, sign, draw = self._query.rank, -1 if self._query.highest else 1, self._world.random
        may.sort(key=lambda meta: (sign * meta.features[rank], draw.random()))
        chosen = next((meta for meta in may if self._fits(meta.features)), None)
        if chosen is not None:
            self._take(node_of(chosen.publisher), WAIT_FREE_S)
        else:
            self._find(busy_query(self._needs), self._found_busy)

    def _found_busy(self, found: MetasFound) -> None:
        """None has it now: wait at one of those with the least to do."""
        large = [meta for meta in found.metas if self._may(meta)]
        if large:
            wait_s = min(WAIT_MAX_S, WAIT_S * 1.5 ** min(8, self._in_vain))
            self._take(node_of(self._world.random.choice(large).publisher), wait_s)
        else:
            self._pause()

    def _may(self, meta: Meta) -> bool:
        return self._tries > BUT_MAX or name_of(meta.publisher) not in self._but

    def _fits(self, features: Mapping[str, float]) -> bool:
        resource = resource_molecule("", features)
        return self._book.fits(self._task, resource, self._world.random)

    # -- taking of a resource --------------------------------------------------------------------

    def _take(self, node: Node, patience_s: float) -> None:
        self._owner = at(node, RESOURCE)
        wait_s = patience_s * self._world.random.uniform(0.5, 1.5)
        key = self._envelope.keys.get(self.name, 0.0)
        self._bench.ask(
            self._owner,
            lambda n: Take(self._envelope.run, n, self.name, self._needs, key, wait_s),
            wait_s + SILENCE_S,
            self._heard_owner,
        )

    def _heard_owner(self, answer: Message | None) -> None:
        if self._ended:
            return
        if isinstance(answer, Taken):
            self._token, self._others = answer.token, answer.others
            self._advised = 0
            self._advise()
            return
        if isinstance(answer, NotTaken):
            self._others = answer.others
            self._alone = 0
            self._in_vain += 1
        else:
            self._but[name_of(self._owner)] = None
        self._pause()

    def _pause(self) -> None:
        """Short and jittered."""
        if self._world.elapsed() - self._told_at > TELL_S:
            self._told_at = self._world.elapsed()
            said = f"{self._story()}; nothing is free"
            self._world.send(self._envelope.writer, Seeks(self._envelope.run, self.name, said))
        pause_s = min(PAUSE_MAX_S, PAUSE_S * 1.5**self._alone)
        self._alone += 1
        self._world.after(pause_s * self._world.random.uniform(0.5, 1.5), self.look)

    # -- advising the writer ---------------------------------------------------------------------

    def _advise(self) -> None:
        self._advised += 1
        peer = name_of(self._owner)
        said = f"{self._story()}; {self._would_do} had it, and RES:{peer} was taken"
        deploy = (self.name, peer, self._token, said[:2000])
        self._bench.ask(
            self._envelope.writer,
            lambda n: Deploy(self._envelope.run, n, *deploy),
            SILENCE_S,
            self._heard_writer,
        )

    def _story(self) -> str:
        holder = name_of(self._ring.me)
        others = f"; wanted too by {', '.join(self._others)}" if self._others else ""
        asked = in_words(self._query)
        return f"TASK:{self.name} was held by {holder}, which asked for {asked}{others}"

    def _heard_writer(self, answer: Message | None) -> None:
        if self._ended:
            return
        if isinstance(answer, Answered):
            self._deaf = 0
            if not answer.bound:
                self._give_back()
                self._but[name_of(self._owner)] = None
            if answer.bound or answer.over:
                self._use_up()
            else:
                self._pause()
        elif self._advised < ADVISED_MAX:
            self._advise()
        else:
            self._give_back()
            self._deaf += 1
            if self._deaf >= DEAF_MAX:
                self._use_up()  # whoever writes the run now makes another
            else:
                self._pause()

    def _give_back(self) -> None:
        self._world.send(self._owner, GiveBack(self._envelope.run, self._token))
        self._token = 0

    def _use_up(self) -> None:
        self._ring.captures.consume(self.held, lambda done: None)
        self._token = 0
        self._end()

    def _end(self) -> None:
        if not self._ended:
            if self._token:
                self._give_back()
            self._ended = True
            self._bench.over(self)
