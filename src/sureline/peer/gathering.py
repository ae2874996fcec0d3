"""Brings the inputs of waiting attempts into this machine's store.

A few attempts are seen to at a time, in the order in which they came. What several of them need is
fetched once, from whatever nodes any of them names: if the first one's have it no more, those are
tried that the others named meanwhile.
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

    def add(
        self, key: Key, inputs: Iterable[FileRecord], sources: Mapping[str, tuple[Node, ...]]
    ) -> None:
        wanted = {record.digest: record for record in inputs}
        self._waiting[key] = Gathered(wanted, sources)
        self._fetch_more()

    def drop(self, key: Key) -> None:
        """It is not wanted any more."""
        self._waiting.pop(key, None)
        if self._under_way.pop(key, None) is not None:
            self._fetch_more()

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
                gathered.here[digest] = fetched.file
                gathered.brought = _counted(gathered.brought, fetched)
                self._on_file(key, fetched.file)
            else:
                gathered.missing.append(digest)
                if isinstance(fetched, FileMissing) and not gathered.why:
                    gathered.why = f" ({fetched.reason})"
            if not gathered.pending:
                del self._under_way[key]
                self._on_gathered(key, gathered)
        self._fetch_more()


def _counted(before: Brought, fetched: FileReady) -> Brought:
    size = fetched.file.size
    if fetched.source:
        return msgspec.structs.replace(
            before, peer_files=before.peer_files + 1, peer_bytes=before.peer_bytes + size
        )
    return msgspec.structs.replace(
        before, here_files=before.here_files + 1, here_bytes=before.here_bytes + size
    )
