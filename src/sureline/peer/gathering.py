"""Brings the inputs of waiting attempts into this machine's store.

A few attempts are seen to at a time, in the order in which they came. What several of them need is
fetched once, from whatever nodes any of them names: if the first one's have it no more, those are
tried that the others named meanwhile. What an attempt that is here, or was a moment ago, has
brought in is not looked for again, unless whoever uses it finds that it is not whole.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec

from sureline.peer.jobs import Blob, Brought, FileMissing, FileReady
from sureline.peer.outbox import Key
from sureline.workflow.files import FileRecord
from sureline.world.address import Node
from sureline.world.protocol import Fetched, World

FETCHING_MAX = 8
"""Attempts whose inputs are fetched at the same time."""
SOURCES_MAX = 64
"""Nodes that are tried for one content."""
LOOKED_FOR_S = 30.0
"""After so long, what is here is looked for again, which counts as a use of it."""
LEFT_S = 1.0
"""For so long it is known where something is that no attempt here has any more."""
HELD_MAX = 1000
"""Of more, only what attempts have is remembered."""


class Gathered(msgspec.Struct):
    """The inputs of one attempt, as far as they have come; by digest."""

    wanted: dict[str, FileRecord]
    sources: Mapping[str, tuple[Node, ...]]
    pending: dict[str, None] = {}
    """On their way."""
    here: dict[str, FileRecord] = {}
    missing: list[str] = []
    why: str = ""
    """The first reason that was given for something missing."""
    brought: Brought = Brought()


class _Flight(msgspec.Struct):
    """One content on its way."""

    file: FileRecord
    waiters: dict[Key, None] = {}
    named: dict[Node, bool] = {}
    """Who may have it, and whether it was asked."""

    def name(self, nodes: Iterable[Node]) -> None:
        for node in nodes:
            if len(self.named) < SOURCES_MAX:
                self.named.setdefault(node, False)


class _Held(msgspec.Struct):
    """One content that attempts here have."""

    file: FileRecord
    since_s: float
    users: int = 0
    left_s: float = 0.0
    """When the last of them was over."""


class Gathering:
    """`on_file` hears of each file that has come for an attempt, `on_gathered` once for each
    attempt, when nothing more can come."""

    def __init__(
        self,
        world: World,
        on_file: Callable[[Key, FileRecord], None],
        on_gathered: Callable[[Key, Gathered], None],
    ) -> None:
        self._world = world
        self._on_file = on_file
        self._on_gathered = on_gathered
        self._waiting: dict[Key, Gathered] = {}
        self._under_way: dict[Key, Gathered] = {}
        self._flights: dict[str, _Flight] = {}
        self._held: dict[str, _Held] = {}
        self._holding: dict[Key, Iterable[str]] = {}

    def add(
        self, key: Key, inputs: Iterable[FileRecord], sources: Mapping[str, tuple[Node, ...]]
    ) -> None:
        wanted = {record.digest: record for record in inputs}
        gathered = Gathered(wanted, sources)
        held = [held for record in wanted.values() if (held := self._held_as(record))]
        if len(held) < len(wanted):
            self._waiting[key] = gathered
            self._fetch_more()
            return
        for digest, one in zip(wanted, held, strict=True):
            self._arrived(key, gathered, digest, FileReady(one.file))
        self._complete(key, gathered)

    def _held_as(self, wanted: FileRecord) -> _Held | None:
        held, now_s = self._held.get(wanted.digest), self._world.elapsed()
        if held is None or now_s - held.since_s > LOOKED_FOR_S:
            return None
        if not held.users and now_s - held.left_s > LEFT_S:
            return None
        file = held.file
        alike = (file.executable, file.directory) == (wanted.executable, wanted.directory)
        return held if alike and (wanted.size < 0 or wanted.size == file.size) else None

    def add_again(
        self, key: Key, inputs: Iterable[FileRecord], sources: Mapping[str, tuple[Node, ...]]
    ) -> None:
        """Something of what was brought in for it is not there any more."""
        inputs = list(inputs)
        self._let_go(key)
        for record in inputs:
            self._held.pop(record.digest, None)
        self.add(key, inputs, sources)

    def drop(self, key: Key) -> None:
        """It is not wanted any more."""
        self._waiting.pop(key, None)
        self._let_go(key)
        if self._under_way.pop(key, None) is not None:
            self._fetch_more()

    def _let_go(self, key: Key) -> None:
        for digest in self._holding.pop(key, ()):
            held = self._held.get(digest)
            if held is not None:
                held.users = max(0, held.users - 1)
                held.left_s = self._world.elapsed()
        if len(self._held) > HELD_MAX:
            self._held = {digest: held for digest, held in self._held.items() if held.users}

    def _fetch_more(self) -> None:
        while self._waiting and len(self._under_way) < FETCHING_MAX:
            key = next(iter(self._waiting))
            gathered = self._under_way[key] = self._waiting.pop(key)
            gathered.pending = dict.fromkeys(gathered.wanted)
            for digest, record in gathered.wanted.items():
                self._join_flight(key, record, gathered.sources.get(digest, ()))

    def _join_flight(self, key: Key, record: FileRecord, sources: Iterable[Node]) -> None:
        flight = self._flights.get(record.digest)
        if flight is not None:
            flight.waiters[key] = None
            flight.name(sources)
            return
        flight = self._flights[record.digest] = _Flight(record, {key: None})
        flight.name(sources)
        self._fly(flight)

    def _fly(self, flight: _Flight) -> None:
        """Ask those who have not been asked."""
        fresh = tuple(node for node, asked in flight.named.items() if not asked)
        flight.named.update(dict.fromkeys(fresh, True))
        self._world.fetch(Blob(flight.file), fresh, lambda found: self._landed(flight, found))

    def _landed(self, flight: _Flight, fetched: Fetched) -> None:
        digest = flight.file.digest
        waiting = {key: self._under_way[key] for key in flight.waiters if key in self._under_way}
        if not isinstance(fetched, FileReady) and waiting and not all(flight.named.values()):
            self._fly(flight)
            return
        del self._flights[digest]
        for key, gathered in waiting.items():
            if digest not in gathered.pending:
                continue  # it was dropped, and is here for the second time
            del gathered.pending[digest]
            if isinstance(fetched, FileReady):
                self._arrived(key, gathered, digest, fetched)
            else:
                gathered.missing.append(digest)
                if isinstance(fetched, FileMissing) and not gathered.why:
                    gathered.why = f" ({fetched.reason})"
            if not gathered.pending:
                del self._under_way[key]
                self._complete(key, gathered)
        self._fetch_more()

    def _arrived(self, key: Key, gathered: Gathered, digest: str, ready: FileReady) -> None:
        gathered.here[digest] = ready.file
        gathered.brought = _counted(gathered.brought, ready)
        self._on_file(key, ready.file)

    def _complete(self, key: Key, gathered: Gathered) -> None:
        self._holding[key] = gathered.here
        for digest, file in gathered.here.items():
            held = self._held.get(digest)
            if held is None or held.file is not file:  # it was looked for
                users = 0 if held is None else held.users
                held = self._held[digest] = _Held(file, self._world.elapsed(), users)
            held.users += 1
        self._on_gathered(key, gathered)


def _counted(before: Brought, fetched: FileReady) -> Brought:
    size = fetched.file.size
    if fetched.source:
        return msgspec.structs.replace(
            before, peer_files=before.peer_files + 1, peer_bytes=before.peer_bytes + size
        )
    return msgspec.structs.replace(
        before, here_files=before.here_files + 1, here_bytes=before.here_bytes + size
    )
