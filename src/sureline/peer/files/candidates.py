"""The nodes that may have a file: asked what they have, again and again while it is fetched.

New ones come from the caller, from the DHT, and from the sources themselves, who name others that
are after the same file. All of it is bounded, and hope has an end.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from sureline.peer.files.asking import FileAsker, FileOffer
from sureline.peer.files.finding import FetchError
from sureline.peer.files.wire import NO_ANSWER, BadAnswerError, RefusedError
from sureline.world.address import Node, name_of

Key = tuple[int, bytes]
"""A file's size and the digest of its list of chunks: what tells sources apart that do not mean
the same content."""

CANDIDATES_MAX = 64
REFRESH_S = 0.4
SETTLE_S = 0.3
"""How long the first source to speak may be alone before its list is taken."""
LOCATE_S = 5.0
SILENCES_MAX = 3
RETURNS_MAX = 4
"""So often may a node come back that had nothing, or only a wrong list which it had from others."""
WITHOUT = "does not have it"
ALONE_S = 2.0
"""Without anybody left to ask, hope ends after this long."""
STARVED_S = 20.0
"""If those who are left do not have what is missing, hope ends after this long."""
_TOLD_MAX = 5


class _Candidate:
    def __init__(self) -> None:
        self.offer: FileOffer | None = None
        self.ask_at = 0.0
        self.asking = False
        self.silences = 0
        self.returns = 0
        self.gone = ""
        """Why it is not asked any more."""

    def named_again(self) -> None:
        """Somebody says that it has the file, or is after it: so it may have some by now."""
        if self.gone == WITHOUT and self.returns < RETURNS_MAX:
            self.gone = ""
            self.silences = 0
            self.returns += 1


class Candidates:
    """`on_offer` hears what a node has, whenever that is heard of."""

    def __init__(
        self,
        asker: FileAsker,
        locate: Callable[[str], Awaitable[Sequence[Node]]],
        digest: str,
        size: int | None,
        me: Node,
        on_offer: Callable[[Node, FileOffer | None], None],
    ) -> None:
        self._asker = asker
        self._locate = locate
        self._digest = digest
        self._size = size
        self._me = me
        self._on_offer = on_offer
        self._loop = asyncio.get_running_loop()
        self._nodes: dict[Node, _Candidate] = {}
        self._refused: dict[Key, str] = {}
        self._first_at = float("inf")
        self._located_at = 0.0
        self._located = False
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._wake = asyncio.Event()

    # -- who there is -------------------------------------------------------------------------

    def add(self, nodes: Sequence[Node]) -> None:
        for node in nodes:
            candidate = self._nodes.get(node)
            if candidate is not None:
                candidate.named_again()
            elif node and node != self._me and len(self._nodes) < CANDIDATES_MAX:
                self._nodes[node] = _Candidate()
        self._wake.set()

    def take(self, node: Node, offer: FileOffer) -> None:
        """What a node has said."""
        self.add([node])
        candidate = self._nodes.get(node)
        if candidate is None or candidate.gone:
            return
        candidate.silences = 0
        if self._size is not None and offer.size != self._size:
            candidate.gone = "has a file of another size"
            return
        if offer.key in self._refused:
            self._dismiss(candidate, self._refused[offer.key], offer)
            return
        candidate.offer = offer
        self._first_at = min(self._first_at, self._loop.time())
        self.add(offer.others)
        self._on_offer(node, offer)

    def refresh(self) -> None:
        """Ask all sources now what they have."""
        for candidate in self._nodes.values():
            if candidate.offer is not None:
                candidate.ask_at = 0.0
        self._wake.set()

    def offer(self, node: Node) -> FileOffer:
        offer = self._nodes[node].offer
        assert offer is not None
        return offer

    def sources(self, key: Key) -> list[Node]:
        return [
            node
            for node, candidate in self._nodes.items()
            if candidate.offer is not None and candidate.offer.key == key and not candidate.gone
        ]

    def best(self, besides: Key | None = None) -> Key | None:
        """The list that most sources name, complete ones before others; None if there is none."""
        votes: dict[Key, tuple[int, int]] = {}
        for candidate in self._nodes.values():
            offer = candidate.offer
            if offer is not None and not candidate.gone and offer.key != besides:
                complete, partly = votes.get(offer.key, (0, 0))
                votes[offer.key] = (complete + offer.complete, partly + 1)
        return max(votes, key=votes.__getitem__, default=None)

    def settled(self) -> bool:
        """Whether all have spoken, or have had the time to: a list is better chosen when it is
        known who names it."""
        return not self._unheard() or self._loop.time() - self._first_at > SETTLE_S

    def _unheard(self) -> bool:
        return any(
            not one.gone and one.offer is None and not one.silences and not one.returns
            for one in self._nodes.values()
        )

    # -- who is no more -----------------------------------------------------------------------

    def drop(self, node: Node, why: str) -> None:
        """Never ask it again."""
        candidate = self._nodes.get(node)
        if candidate is not None and not candidate.gone:
            candidate.gone = why
            candidate.offer = None

    def silent(self, node: Node, why: str) -> None:
        """It did not answer; it is asked again later, a few times."""
        candidate = self._nodes[node]
        candidate.silences += 1
        candidate.offer = None
        grace_s = REFRESH_S if why == WITHOUT else REFRESH_S * 2**candidate.silences
        candidate.ask_at = self._loop.time() + grace_s
        if candidate.silences >= SILENCES_MAX:
            candidate.gone = why
        self._on_offer(node, None)

    def refuse(self, key: Key, why: str) -> list[Node]:
        """Work by this list no more. Those who named it are dropped; but one that has not the whole
        file itself was deceived as we were, and may come back with another list."""
        self._refused[key] = why
        givers = self.sources(key)
        for node in givers:
            candidate = self._nodes[node]
            assert candidate.offer is not None
            self._dismiss(candidate, why, candidate.offer)
        return givers

    def _dismiss(self, candidate: _Candidate, why: str, offer: FileOffer) -> None:
        candidate.offer = None
        candidate.returns += 1
        candidate.ask_at = self._loop.time() + 4 * REFRESH_S
        if offer.complete or candidate.returns > RETURNS_MAX:
            candidate.gone = why

    def check_hope(self, progress_at: float, missing: int = 0, count: int = 0) -> None:
        """Raises FetchError if there is no reason to wait any longer."""
        waited_s = self._loop.time() - progress_at
        alive = [node for node, candidate in self._nodes.items() if not candidate.gone]
        if not alive and self._located and waited_s > min(ALONE_S, LOCATE_S):
            raise FetchError(self._why_alone())
        if waited_s > STARVED_S:
            if not alive or not count:
                raise FetchError(self._why_alone())
            raise FetchError(
                f"{missing} of {count} chunks of {self._digest[:16]} are held by none of the "
                f"{len(alive)} nodes that answer"
            )

    def _why_alone(self) -> str:
        told = [f"{name_of(n)}: {c.gone}" for n, c in self._nodes.items() if c.gone][:_TOLD_MAX]
        if not told:
            return f"no node is known to hold {self._digest[:16]}"
        return f"no node that holds {self._digest[:16]} can be used ({'; '.join(told)})"

    # -- asking -------------------------------------------------------------------------------

    async def look(self) -> None:
        """Ask around until cancelled."""
        try:
            while True:
                self._wake.clear()
                now = self._loop.time()
                for node, candidate in self._nodes.items():
                    if not candidate.asking and not candidate.gone and candidate.ask_at <= now:
                        candidate.asking = True
                        candidate.ask_at = now + REFRESH_S
                        self._start(self._ask(node, candidate))
                if self._wants_more(now):
                    self._located_at = now
                    self._start(self._find())
                try:
                    await asyncio.wait_for(self._wake.wait(), REFRESH_S / 2)
                except TimeoutError:
                    pass
        finally:
            for task in self._tasks:
                task.cancel()

    def _wants_more(self, now: float) -> bool:
        """Those that the caller named are tried first; the DHT is asked when they have answered,
        or cannot."""
        if self._located_at:
            return now - self._located_at > LOCATE_S
        return not self._unheard()

    async def _ask(self, node: Node, candidate: _Candidate) -> None:
        try:
            self.take(node, await self._asker.describe(node, self._digest))
        except (*NO_ANSWER, RefusedError) as error:
            refused = isinstance(error, RefusedError) and error.why == "unknown"
            self.silent(node, WITHOUT if refused else _told(error))
        except BadAnswerError as error:
            self.drop(node, str(error))
        finally:
            candidate.asking = False
            self._wake.set()

    async def _find(self) -> None:
        self.add(await self._locate(self._digest))
        self._located = True

    def _start(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks[task] = None
        task.add_done_callback(lambda task: self._tasks.pop(task, None))


def _told(error: Exception) -> str:
    return "does not answer" if isinstance(error, TimeoutError) else str(error) or "is not there"
