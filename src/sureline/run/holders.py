"""Who holds which content of a run: this node, and peers by name.

Of each content a few peers are remembered, and always this node if it has it. A peer that is away
stays remembered: its files are there again when it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from sureline.workflow.files import FileRecord
from sureline.world.address import Node, PeerName

HOLDERS_MAX = 4


class Holders:
    """`node_of` gives where a peer listens, None while it is away; `here` is this node."""

    def __init__(self, here: Node, node_of: Callable[[PeerName], Node | None]) -> None:
        self._here = here
        self._node_of = node_of
        self._local: set[str] = set()
        self._peers: dict[str, tuple[PeerName, ...]] = {}
        self._expected: dict[str, dict[PeerName, None]] = {}
        """Who has been asked to fetch it."""

    def expect(self, digest: str, peer: PeerName) -> None:
        """It will have it soon: nobody need fetch it there, nor anywhere else."""
        self._expected.setdefault(digest, {})[peer] = None

    def expect_no_more(self, digest: str, peer: PeerName) -> None:
        self._expected.get(digest, {}).pop(peer, None)

    def add(self, digest: str, peer: PeerName) -> None:
        known = self._peers.get(digest, ())
        if peer not in known:
            # The first one made it and keeps it; of those that only read it, the latest count.
            kept = known if len(known) < HOLDERS_MAX else (known[0], *known[2:])
            self._peers[digest] = (*kept, peer)

    def add_here(self, digest: str) -> None:
        self._local.add(digest)

    def forget_here(self, digest: str) -> None:
        """This node has lost it."""
        self._local.discard(digest)

    def is_here(self, digest: str) -> bool:
        return digest in self._local

    def forget(self, digest: str, nodes: Iterable[Node]) -> None:
        """The peers at these nodes turned out not to have it."""
        gone = set(nodes)
        left = tuple(p for p in self._peers.get(digest, ()) if self._node_of(p) not in gone)
        self._peers[digest] = left

    def sources(self, digest: str) -> tuple[Node, ...]:
        """The nodes that have it and are there, peers first: they spare this one."""
        found = [n for p in self._peers.get(digest, ()) if (n := self._node_of(p)) is not None]
        if digest in self._local:
            found.append(self._here)
        return tuple(found)

    def peers(self, digest: str) -> tuple[PeerName, ...]:
        """Those that hold it, as far as is remembered."""
        return self._peers.get(digest, ())

    def bytes_on(self, inputs: Iterable[FileRecord]) -> Mapping[PeerName, int]:
        """How much of these files each peer holds, or will soon."""
        found: dict[PeerName, int] = {}
        for record in inputs:
            known = self._peers.get(record.digest, ())
            for peer in {**dict.fromkeys(known), **self._expected.get(record.digest, {})}:
                found[peer] = found.get(peer, 0) + record.size
        return found
