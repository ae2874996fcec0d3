"""Runs with papers, and copies of them with seals, on a simulated grid of `ROLL`."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from sureline.run.keeping import NumberedEvent
from sureline.run.kept import Sealed
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.run_keys import CertifiedHome, Ed25519Key, GridTrust
from sureline.world.identity.signing import RunSigner, begun, charter, delegated, fold
from sureline.world.simulated.signing import Roll

ROLL = Roll()


class Chartered:
    """A run that somebody submitted; everybody who may drive runs may go on with it."""

    def __init__(self, run: str, graph: bytes, first_event: bytes, by: str = "w") -> None:
        self.run = run
        key = ROLL.new_key()
        papers = charter(ROLL.certified(by), key, run, graph, first_event, 0.0)
        self.papers = delegated(papers, key, run, "drive", inf)

    def begin(self, who: str = "w", epoch: int = 1) -> RunSigner:
        by, key = ROLL.certified(who), ROLL.new_key()
        return begun(self.papers, by, key, self.run, epoch, 0.0, ROLL)


def papers_of_home(credentials: Credentials, run: str, epoch: int = 1) -> bytes:
    """Of a run that a real home submits and writes."""
    by, key = CertifiedHome(credentials), Ed25519Key()
    papers = charter(by, key, run, b"a graph", b"an event", 0.0)
    return begun(papers, by, key, run, epoch, 0.0, GridTrust(credentials)).papers


def sealed(
    signer: RunSigner, events: Sequence[NumberedEvent], before: Sequence[NumberedEvent] = ()
) -> Sealed:
    """What the writer says of these events, which follow those `before`."""
    chain = fold(fold(signer.authority.start, before), events)
    return Sealed(chain, signer.seal(events[-1][0] if events else 0, chain), signer.papers)
