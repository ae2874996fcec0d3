"""Papers of runs and seals: what is true is believed, and nothing else."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sureline.world.identity import signing
from sureline.world.identity.authority import Authority as GridAuthority
from sureline.world.identity.credentials import Credentials
from sureline.world.identity.home import GridHome
from sureline.world.identity.run_keys import CertifiedHome, Ed25519Key, GridTrust
from sureline.world.identity.signing import (
    AHEAD_S_MAX,
    Papers,
    PapersError,
    RunSigner,
    begun,
    charter,
    delegated,
    fold,
    is_run_name,
    is_sealed,
    read_papers,
    verify,
)
from sureline.world.simulated.signing import Roll

RUN, GRAPH, FIRST, AT = "etl-abc234", b"a graph", b"submitted", 1000.0


class Simulated:
    """A grid of alice (submits), bob (drives) and eve (only runs)."""

    def __init__(self) -> None:
        self.trust = Roll(7)
        self.trust.enrol("alice", frozenset({"submit"}))
        self.trust.enrol("bob", frozenset({"run", "drive"}))
        self.trust.enrol("eve", frozenset({"run"}))
        self.key, self.by = self.trust.new_key, self.trust.certified

    def revoke(self, name: str) -> None:
        self.trust.enrol(name, frozenset())


@pytest.fixture
def grid() -> Any:
    return Simulated()


def papers_of(grid: Any, run: str = RUN, by: str = "alice", until: float = AT + 60) -> Papers:
    key = grid.key()
    return delegated(charter(grid.by(by), key, run, GRAPH, FIRST, AT), key, run, "drive", until)


def begin(grid: Any, who: str, epoch: int = 1, at: float = AT, **about: Any) -> RunSigner:
    papers = about.pop("papers", None) or papers_of(grid, **about)
    return begun(papers, grid.by(who), grid.key(), RUN, epoch, at, grid.trust)


def test_what_submitter_and_delegate_say_is_believed(grid: Any) -> None:
    papers = papers_of(grid)
    for epoch, who in ((1, "alice"), (7, "bob")):
        signer = begin(grid, who, epoch, papers=papers)
        found = verify(signer.papers, RUN, epoch, grid.trust, AT)
        assert (found.submitter, found.writer) == ("alice", who)
        assert found.graph == signing.digest(GRAPH)
        assert found.start == signer.authority.start
        chain = fold(found.start, [(1, FIRST), (2, b"x")])
        seal = signer.seal(2, chain)
        assert is_sealed(found, 2, chain, seal, grid.trust)
        assert not is_sealed(found, 3, chain, seal, grid.trust)
        assert not is_sealed(found, 2, fold(chain, [(3, b"y")]), seal, grid.trust)
        assert not is_sealed(found._replace(epoch=epoch + 1), 2, chain, seal, grid.trust)


@pytest.mark.parametrize(
    ("attack", "why"),
    [
        (lambda g: begin(g, "eve", papers=papers_of(g, by="eve")), "may not submit"),
        (lambda g: begin(g, "eve", 2), "has not the role drive"),
        (lambda g: begin(g, "bob", 2, papers=papers_of(g, run="other-1")), "another run"),
        (lambda g: begin(g, "bob", 2, at=AT + 61 + AHEAD_S_MAX), "is over"),
        (lambda g: begin(g, "bob", 2, papers=_without_delegation(g)), "not asked to drive"),
        (lambda g: begin(g, "bob", 2, papers=_self_delegated(g)), "delegation is forged"),
        (lambda g: begin(g, "bob", 2, papers=_foreign_delegation(g)), "delegation is forged"),
        (lambda g: begin(g, "bob", 2, papers=_chartered_by(g, "bob")), "charter is forged"),
        (lambda g: (g.revoke("alice"), begin(g, "alice"))[1], "revoked"),
    ],
)
def test_who_may_not_write_is_refused(
    grid: Any, attack: Callable[[Any], RunSigner], why: str
) -> None:
    with pytest.raises(PapersError, match=why):
        attack(grid)


def _without_delegation(grid: Any) -> Papers:
    return msgspec.structs.replace(papers_of(grid), delegation=None)


def _self_delegated(grid: Any) -> Papers:
    return delegated(papers_of(grid), grid.key(), RUN, "run", AT + 60)


def _foreign_delegation(grid: Any) -> Papers:
    other = papers_of(grid, run="other-1")
    return msgspec.structs.replace(papers_of(grid), delegation=other.delegation)


def _chartered_by(grid: Any, who: str) -> Papers:
    """The submitter's certificate beside somebody else's signature."""
    mine = papers_of(grid, by=who)
    signed = msgspec.structs.replace(mine.charter, certificate=grid.by("alice").certificate)
    return msgspec.structs.replace(mine, charter=signed)


def test_true_papers_of_another_run_or_epoch_are_refused(grid: Any) -> None:
    signer = begin(grid, "alice", 3)
    for run, epoch in (("other-1", 3), (RUN, 4), ("../../../victim", 3), (RUN, 0)):
        with pytest.raises(PapersError):
            verify(signer.papers, run, epoch, grid.trust)
    swapped = read_papers(signer.papers)
    forged = msgspec.structs.replace(swapped, mandate=swapped.charter)
    with pytest.raises(PapersError, match="mandate is forged"):
        verify(forged, RUN, 3, grid.trust)


def test_an_end_of_delegation_binds_those_who_begin_not_those_who_read(grid: Any) -> None:
    signer = begin(grid, "bob", 2)
    late = AT + 61 + AHEAD_S_MAX
    assert verify(signer.papers, RUN, 2, grid.trust).writer == "bob"
    with pytest.raises(PapersError, match="is over"):
        verify(signer.papers, RUN, 2, grid.trust, late)


@given(at=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_no_bit_of_the_papers_can_be_changed(at: int, bit: int) -> None:
    grid = Simulated()
    signer = begin(grid, "bob", 2)
    changed = bytearray(signer.papers)
    changed[at % len(changed)] ^= 1 << bit
    with pytest.raises(PapersError):
        verify(bytes(changed), RUN, 2, grid.trust)


@given(st.binary(max_size=400))
def test_what_is_no_paper_is_refused_in_one_sentence(noise: bytes) -> None:
    with pytest.raises(PapersError):
        verify(noise, RUN, 1, Roll())


@pytest.mark.parametrize("name", ["", ".", "..", "../x", "a/b", "a\0b", "-x", "a\n", "x" * 101])
def test_names_that_are_no_names(name: str) -> None:
    assert not is_run_name(name)
    assert is_run_name("word-count-v2-abc234")


def test_on_a_real_grid(tmp_path: Path) -> None:
    GridAuthority.create(tmp_path, "lab", "p0")
    credentials = Credentials.load(GridHome.open("lab", tmp_path))
    home, trust, key = CertifiedHome(credentials), GridTrust(credentials), Ed25519Key()
    papers = charter(home, key, RUN, GRAPH, FIRST, AT)
    signer = begun(papers, home, key, RUN, 1, AT, trust)
    found = verify(signer.papers, RUN, 1, trust)
    assert found.writer == "p0"
    chain = fold(found.start, [(1, FIRST)])
    assert is_sealed(found, 1, chain, signer.seal(1, chain), trust)
    assert not is_sealed(found, 1, chain, signer.seal(2, chain), trust)
    assert not is_sealed(found, 1, chain, b"", trust)
    forged = msgspec.structs.replace(papers.charter, signature=key.sign(papers.charter.body))
    with pytest.raises(PapersError, match="forged"):
        begun(Papers(forged), home, key, RUN, 1, AT, trust)
    GridAuthority.create(tmp_path / "elsewhere", "lab", "p0")
    stranger = Credentials.load(GridHome.open("lab", tmp_path / "elsewhere"))
    with pytest.raises(PapersError, match="not issued by this grid"):
        verify(signer.papers, RUN, 1, GridTrust(stranger))
