"""Where a content is had from, and who is told that it is here: decided the same way in all worlds.

A content that is not in the node's own store is asked of the nodes that were named, in their order,
and then of those that have announced it in the hash table. All who want the same content at the
same time share one transfer, and the nodes that any of them names are sources of it. So many come
in at once, others wait their turn.

Moving bytes is not done here: a `Move` does it, with real connections or simulated ones.
"""

from __future__ import annotations

import itertools
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from sureline.peer.files.wire import unique
from sureline.workflow.mistakes import SurelineError
from sureline.world.address import Node

TRANSFERS_MAX = 8
"""So many contents come in at once; others wait their turn."""
WAITING_MAX = 100_000
SOURCES_MAX = 64
LOCATE_S = 10.0
FRESH_S = 1.0
ANNOUNCED_PER_TURN = 50
"""So many digests are announced each FRESH_S: after a restart the DHT is told little by little."""
MENTIONED_PER_S = 4
"""So much that nobody looks for yet is announced in a whole grid: its nodes wait in between."""
BEHIND_TURNS = 15
"""So much longer, while their process is behind with what others wait for."""
BACKLOG_SHARE = 40
"""Of what has piled up and can wait, this part is told at a time."""
RESCAN_TURNS = 600

Found = Callable[[Sequence[Node]], None]
OnProgress = Callable[[int, int], None]
"""Takes how many bytes are there, and of how many."""
Landed = Node | BaseException
"""The node that gave a content, or most of it; else why it could not be had."""
OnLanded = Callable[[Landed], None]
After = Callable[[float, Callable[[], None]], object]


class FetchError(SurelineError):
    """A file that could not be fetched; the message says why, in one sentence."""


class ContentPlaces(Protocol):
    """The hash table, as far as it tells where contents are."""

    def announce(self, digest: str) -> None: ...
    def withdraw(self, digest: str) -> None: ...
    def locate(self, digest: str, on_done: Found) -> None:
        """Calls back once, with the nodes that have announced it."""


class NoPlaces:
    """For a node that is on no grid."""

    def announce(self, digest: str) -> None: ...
    def withdraw(self, digest: str) -> None: ...
    def locate(self, digest: str, on_done: Found) -> None:
        on_done(())


NOWHERE = NoPlaces()


class Hunt:
    """One content on its way in: who may have it, and who waits for it."""

    def __init__(self, finder: Finder, digest: str) -> None:
        self.digest = digest
        self.on_more: Found = lambda nodes: None
        """Hears of sources that are named while it comes in."""
        self.waiting: list[OnLanded] = []
        self.listening: list[OnProgress] = []
        self._finder = finder
        self._sources: dict[Node, None] = {}
        self._asked = 0
        self._located = False

    def add(self, nodes: Iterable[Node]) -> None:
        room = SOURCES_MAX - len(self._sources)
        new = [n for n in unique(nodes) if n not in self._sources and n != self._finder.me][:room]
        self._sources.update(dict.fromkeys(new))
        if new:
            self.on_more(new)

    def sources(self) -> list[Node]:
        return list(self._sources)

    @property
    def names_more(self) -> bool:
        """Whether somebody was named who has not been asked."""
        return self._asked < len(self._sources)

    def next(self, on_next: Callable[[Node | None], None]) -> None:
        """The next source to ask, None if nobody is left. The hash table is asked when all who were
        named have been."""
        if self.names_more:
            self._asked += 1
            on_next(self.sources()[self._asked - 1])
        elif self._located:
            on_next(None)
        else:
            self._located = True

            def found(nodes: Sequence[Node]) -> None:
                self.add(nodes)
                self.next(on_next)

            self._finder.locate(self.digest, found)

    def progressed(self, there: int, size: int) -> None:
        for listener in self.listening:
            listener(there, size)


Move = Callable[[Hunt, OnLanded], None]
"""Begins to bring a content in; calls back once."""


class Finder:
    """Of one node. `after` runs an action so many seconds later."""

    def __init__(self, me: Node, places: ContentPlaces, after: After) -> None:
        self.me = me
        self._places = places
        self._after = after
        self._hunts: dict[str, Hunt] = {}
        self._moves: deque[tuple[Hunt, Move]] = deque()
        """Those that wait for their turn."""
        self._moving = 0

    def is_coming(self, digest: str) -> bool:
        return digest in self._hunts

    def bring(
        self,
        digest: str,
        sources: Sequence[Node],
        move: Move,
        on_landed: OnLanded,
        on_progress: OnProgress | None = None,
    ) -> None:
        """Bring one content in, by the transfer that is under way if there is one."""
        hunt = self._hunts.get(digest)
        if hunt is None:
            if len(self._hunts) >= WAITING_MAX:
                on_landed(FetchError("too many files are being fetched already"))
                return
            hunt = self._hunts[digest] = Hunt(self, digest)
            self._moves.append((hunt, move))
        hunt.add(sources)
        hunt.waiting.append(on_landed)
        if on_progress is not None:
            hunt.listening.append(on_progress)
        self._next_turn()

    def _next_turn(self) -> None:
        while self._moves and self._moving < TRANSFERS_MAX:
            hunt, move = self._moves.popleft()
            self._moving += 1
            move(hunt, self._landing(hunt))

    def _landing(self, hunt: Hunt) -> OnLanded:
        def landed(how: Landed) -> None:
            self._moving -= 1
            self._hunts.pop(hunt.digest, None)
            for on_landed in hunt.waiting:
                on_landed(how)
            self._next_turn()

        return landed

    def locate(self, digest: str, on_done: Found) -> None:
        """The nodes that the hash table knows to hold this, without this one; none if it does not
        answer in time."""
        asked = [on_done]

        def answered(nodes: Sequence[Node]) -> None:
            if asked:
                asked.pop()([node for node in unique(nodes) if node != self.me])

        self._after(LOCATE_S, lambda: answered(()))
        self._places.locate(digest, answered)


class Stock(Protocol):
    """What is in the store of a node that serves it to others."""

    def announced(self) -> Iterable[str]:
        """All that is to be found through the hash table; some may have gone meanwhile."""

    def take_fresh(self, limit: int) -> list[str]:
        """What others put there and want announced, at most `limit` of them."""

    def has(self, digest: str) -> bool: ...


def mention_pause(members: int, *, is_behind: bool) -> int:
    """How many turns a node of a grid waits between two things that can wait."""
    return members // MENTIONED_PER_S + BEHIND_TURNS * is_behind


class Announcer:
    """Tells the hash table what is here, from the first `turn` on, a little each FRESH_S.

    Every content costs a connection with each of the nodes that keep its address. What a user puts
    here is told at once. What tasks make and read is known to their runs, which name it to whoever
    needs it: the table hears of it by and by, with `pause` turns in between (`mention_pause`)."""

    def __init__(
        self,
        places: ContentPlaces,
        stock: Stock,
        is_coming: Callable[[str], bool],
        pause: Callable[[], int] = lambda: 0,
    ) -> None:
        self._places = places
        self._stock = stock
        self._is_coming = is_coming
        self._pause = pause
        self._waiting = deque(stock.announced())
        self._mentioned: deque[str] = deque()
        """What can wait."""
        self._turns = self._next_turn = 0
        """The last of these is when something may be told again that can wait."""
        self._told: dict[str, None] = {}
        """What the hash table has been told of, longest not looked at first."""

    def turn(self) -> bool:
        """Announce some of what waits, and withdraw some of what has gone; whether more waits."""
        self._turns += 1
        if not self._turns % RESCAN_TURNS:  # other processes of this home may have fetched some
            known = self._told.keys() | self._mentioned
            self._waiting.extend(one for one in self._stock.announced() if one not in known)
        fresh = self._stock.take_fresh(ANNOUNCED_PER_TURN)
        waited = min(ANNOUNCED_PER_TURN - len(fresh), len(self._waiting))
        due = [*fresh, *(self._waiting.popleft() for _ in range(waited))]
        if self._mentioned and self._turns >= self._next_turn:
            count = 1 + len(self._mentioned) // BACKLOG_SHARE
            self._rest(self._mentioned[0])
            due += [self._mentioned.popleft() for _ in range(count)]
        for digest in due:
            if self._stock.has(digest):
                self.tell(digest)
        self._look_at_some()
        return bool(self._waiting or self._mentioned)

    def _rest(self, digest: str) -> None:
        """For about `pause` turns nothing more is told that can wait; not the same in all nodes."""
        pause = self._pause()
        if pause:
            some = zlib.crc32(f"{digest}{self._turns}".encode()) % pause
            self._next_turn = self._turns + 1 + pause // 2 + some

    def mention(self, digest: str) -> None:
        """It is here, and who needs it soon is told so otherwise."""
        if not self._mentioned and self._turns >= self._next_turn:
            self._rest(digest)
        if self._turns < self._next_turn:
            self._mentioned.append(digest)
        else:
            self.tell(digest)

    def tell(self, digest: str) -> None:
        """It is here, or on its way in so that parts of it can be had."""
        self._told[digest] = None
        self._places.announce(digest)

    def _look_at_some(self) -> None:
        """Others may have removed what was announced: a few are looked at each time, in turn."""
        for digest in list(itertools.islice(self._told, ANNOUNCED_PER_TURN)):
            del self._told[digest]
            if self._is_coming(digest) or self._stock.has(digest):
                self._told[digest] = None
            else:
                self._places.withdraw(digest)
