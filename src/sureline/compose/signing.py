"""The papers of a grid run in its journal: made when it is first driven, shown by every writer.

A run that has none, since it was made before there were any, gets them from whoever drives it from
the journal in which it was submitted.
"""

from __future__ import annotations

import time

from sureline.journal.store import Journal
from sureline.workflow.mistakes import UserError
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.run_keys import CertifiedHome, Ed25519Key, GridTrust
from sureline.world.identity.signing import (
    DRIVE,
    PapersError,
    RunSigner,
    begun,
    charter,
    delegated,
    read_papers,
    verify,
)

PAPERS = "papers"
"""Under which key a journal keeps them."""
DELEGATED_S = 30 * 86_400.0
"""For so long others may go on with a run, from its submission."""


def signer_of(journal: Journal, run: str, epoch: int, credentials: Credentials) -> RunSigner:
    """What this home signs with as the run's writer. Raises UserError if it may not write it."""
    kept, home, key = journal.kept(run, PAPERS), CertifiedHome(credentials), Ed25519Key()
    now = time.time()
    if kept is None:
        ((_, first_event),) = journal.bodies(run, 0, 1)
        papers = charter(home, key, run, journal.graph(run), first_event, now)
        papers = delegated(papers, key, run, DRIVE, now + DELEGATED_S)
        journal.keep(run, PAPERS, papers.encoded())
    else:
        papers = read_papers(kept)
    try:
        return begun(papers, home, key, run, epoch, now, GridTrust(credentials))
    except PapersError as error:
        raise _may_not(run, credentials, error) from None


def papers_for(credentials: Credentials, run: str, papers: bytes, epoch: int) -> bytes:
    """What this home shows to be granted an epoch. Raises UserError if it may not write the run."""
    trust, home, key = GridTrust(credentials), CertifiedHome(credentials), Ed25519Key()
    try:
        return begun(read_papers(papers), home, key, run, epoch, time.time(), trust).papers
    except PapersError as error:
        raise _may_not(run, credentials, error) from None


def check_may_write(credentials: Credentials, run: str, papers: bytes) -> None:
    """Raises UserError if this home may not go on with a run that others keep."""
    trust, home, key = GridTrust(credentials), CertifiedHome(credentials), Ed25519Key()
    try:
        last = verify(papers, run, None, trust)
        begun(read_papers(papers), home, key, run, last.epoch + 1, time.time(), trust)
    except PapersError as error:
        raise _may_not(run, credentials, error) from None


def _may_not(run: str, credentials: Credentials, error: PapersError) -> UserError:
    return UserError(
        f"this home ({credentials.name}) may not go on with run {run}: {error}; resume it from the "
        f"home that submitted it, or have this one invited with the role {DRIVE}"
    )
