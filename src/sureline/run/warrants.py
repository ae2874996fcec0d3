"""Warrants: what a bind carries, so that nobody reports on an attempt that was not given to it.

Whatever a peer tells of an attempt must show its warrant. A writer makes warrants from a secret of
its own that never leaves its process, so that it can tell a right one without a list of them. The
journal has only a *seal*, the warrant's hash: whoever writes the run later, on whatever machine,
knows a right warrant when the bound peer shows it, and who keeps a copy of the journal learns none.
"""

from __future__ import annotations

from collections.abc import Mapping
from hmac import compare_digest

from blake3 import blake3

from sureline.world.address import PeerName

BYTES = 16
Given = tuple[str, int, PeerName]
"""(task, attempt, the peer that it was given to)."""


class Warrants:
    """`secret` has 32 bytes; `seals` are of what earlier writers gave away."""

    def __init__(self, secret: bytes, seals: Mapping[Given, bytes]) -> None:
        self._secret = secret
        self._seals = seals

    def make(self, given: Given) -> bytes:
        task, attempt, peer = given
        return blake3(f"{task}\0{attempt}\0{peer}".encode(), key=self._secret).digest(length=BYTES)

    def is_right(self, given: Given, warrant: bytes) -> bool:
        if compare_digest(warrant, self.make(given)):
            return True
        seal = self._seals.get(given)
        return seal is not None and compare_digest(seal, seal_of(warrant))


def seal_of(warrant: bytes) -> bytes:
    return blake3(warrant).digest(length=BYTES)
